"""Whether fused layers can run on a device: tried once, on a few numbers."""

from __future__ import annotations

import functools
import os
from contextlib import AbstractContextManager, nullcontext

import torch

from pooled_nb.shard.faults import no_memory

_VERSION = "fused1"
"""Of their arithmetic: another one when its bits change."""


def version(device: torch.device) -> str:
    """What their bits hang on: our kernels, what compiles them, and the shared memory that decides
    which heads fit (`too_large`).
    """
    import triton

    facts = torch.cuda.get_device_properties(device)
    shared = getattr(facts, "shared_memory_per_block_optin", 0)
    return f"{_VERSION} triton {triton.__version__} {shared}"


def available(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether fused layers run here, in this dtype."""
    return not why_not(device, dtype)


def why_not(device: torch.device, dtype: torch.dtype) -> str:
    """Why fused layers do not run here, in words; empty where they do."""
    if os.environ.get("POOLED_FUSED", "").strip() == "0":
        return "POOLED_FUSED=0"
    if device.type != "cuda" or torch.version.hip is not None:
        return "fused layers are for NVIDIA GPUs"
    if torch.cuda.device_count() > 1:
        # What accelerate spreads is run by transformers' layers, so that such a device never fuses: its sig
        # says so before anything is loaded.
        return "fused layers are for one GPU"
    if dtype not in (torch.bfloat16, torch.float16):
        return "fused layers are for bfloat16 and float16"
    return _tried(device, dtype)


@functools.cache
def _tried(device: torch.device, dtype: torch.dtype) -> str:
    try:
        with on(device):
            good = works(device, dtype)
        return "" if good else "fused layers give wrong numbers here"
    except Exception as error:  # Triton raises classes of its own, and what a C compiler says
        if no_memory(error):
            raise  # it passes; and a device that fuses no more has another sig
        lines = str(error).strip().splitlines()
        words = (lines[0] if lines else type(error).__name__)[:120].rstrip(".")
        return f"Triton does not run here: {type(error).__name__}: {words}"


@functools.cache
def too_large(device: torch.device, dtype: torch.dtype, heads: int, groups: int, size: int) -> str:
    """Why attention of such heads does not run here, in words: a small GPU has little shared memory."""
    from pooled_nb.shard.fused import ops

    try:
        with torch.inference_mode(), on(device):
            keys = torch.zeros((1, groups, 513, size), dtype=dtype, device=device)
            for rows in (1, 16, 256):
                q = torch.zeros((rows, heads, size), dtype=dtype, device=device)
                positions = torch.arange(rows, device=device)
                ops.attend(q, keys, keys, positions, 512, 1.0)
    except Exception as error:  # a class of Triton's own
        if no_memory(error):
            raise
        return f"heads of {size} numbers do not fit this GPU ({type(error).__name__})"
    return ""


def on(device: torch.device) -> AbstractContextManager[object]:
    """Triton starts kernels on the current device."""
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()


@torch.inference_mode()
def works(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether the kernels give what torch gives, but for rounding."""
    from pooled_nb.shard.fused import ops

    rows, heads, groups, size, length = 16, 8, 2, 64, 256
    wave = torch.sin(torch.arange(rows * heads * size, device=device) * 0.7)
    q = wave.view(rows, heads, size).to(dtype)
    line = torch.cos(torch.arange(groups * (length + 1) * size, device=device) * 0.3)
    keys = line.view(1, groups, length + 1, size).to(dtype)
    values = keys.flip(-1).contiguous()
    positions = torch.arange(100, 100 + rows, device=device)
    found = ops.attend(q, keys, values, positions, length, size**-0.5)
    hidden = torch.arange(length, device=device) > positions[:, None]
    seen = [t[:, :, :length].repeat_interleave(heads // groups, 1).float() for t in (keys, values)]
    scores = (q.float().transpose(0, 1) @ seen[0][0].transpose(1, 2)) * size**-0.5
    wanted = scores.masked_fill(hidden, -torch.inf).softmax(-1) @ seen[1][0]
    if not _close(found, wanted.transpose(0, 1)):
        return False
    flat = q.view(rows, -1)
    weight = torch.full((flat.shape[1],), 0.5, dtype=dtype, device=device)
    normed = ops.norm(flat, None, weight, 1e-6)
    wide = flat.float()
    plain = 0.5 * wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)
    gated = ops.gate(flat)
    half = flat.shape[1] // 2
    silu = torch.nn.functional.silu(wide[:, :half]) * wide[:, half:]
    return _close(normed, plain) and _close(gated, silu)


def _close(found: torch.Tensor, wanted: torch.Tensor) -> bool:
    return torch.allclose(found.float(), wanted, rtol=0.05, atol=0.02)
