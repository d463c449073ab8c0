"""A device's signature: the hash of a fixed layer's output (DESIGN section 5, rule 5)."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from functools import partial

import torch
import transformers
from torch.nn import functional

from pooled_nb.shard import attend, packed
from pooled_nb.shard.door import BUCKET
from pooled_nb.shard.ends import ROWS
from pooled_nb.shard.fused import ready
from pooled_nb.shard.quant.linear import samples

DIM, INNER, HEADS, GROUPS, HEAD = 512, 1536, 8, 4, 64
VOCAB = 2048
WIDTH = 16
"""Rows of generated text."""
COLS = {"cpu": (64,), "other": (32, 64, 128, 256)}
"""Rows of prompt frames: a room takes the widest that all its devices run, so an accelerator runs each."""


def _fixed(rows: int, columns: int, salt: int) -> torch.Tensor:
    """Numbers in [−1, 1) from integer arithmetic alone: the same on every machine."""
    # Knuth's multiplicative hash, on int64 without overflow.
    index = torch.arange(rows * columns, dtype=torch.int64) + salt * 1_000_003
    mixed = (index * 2_654_435_761) % (1 << 32)
    mixed = ((mixed ^ (mixed >> 15)) * 40_503) % (1 << 32)
    numbers: torch.Tensor = (mixed >> 8).double() / (1 << 23) - 1.0
    return numbers.float().reshape(rows, columns)


class _Layer:
    """One decoder layer of a Llama-like model, over a bucket of cache."""

    def __init__(self, device: torch.device, dtype: torch.dtype) -> None:
        # As the stage does it: packed weights may give other bits than plain ones.
        packs = device.type == "cpu" and packed.available(dtype)

        def weight(out: int, into: int, salt: int) -> Callable[[torch.Tensor], torch.Tensor]:
            scale: float = into**-0.5
            plain = (_fixed(out, into, salt) * scale).to(device, dtype)
            if packs:
                return partial(packed.product, packed=packed.pack(plain), bias=None)
            return partial(functional.linear, weight=plain)

        self.norm = (1 + _fixed(1, DIM, 1)[0] / 8).to(device, dtype)
        self.qkv = weight((HEADS + 2 * HEADS // GROUPS) * HEAD, DIM, 2)
        self.out = weight(DIM, HEADS * HEAD, 3)
        self.gate, self.up, self.down = weight(INNER, DIM, 4), weight(INNER, DIM, 5), weight(DIM, INNER, 6)
        small = HEADS // GROUPS
        self.head = weight(VOCAB, DIM, 10)
        self.small = (_fixed(INNER // 4, DIM, 11) / 16).to(device, dtype)
        self.keys = _fixed(small * BUCKET, HEAD, 7).to(device, dtype).reshape(1, small, BUCKET, HEAD)
        self.values = _fixed(small * BUCKET, HEAD, 8).to(device, dtype).reshape(1, small, BUCKET, HEAD)

    def _rms(self, x: torch.Tensor) -> torch.Tensor:
        wide = x.float()
        return self.norm * (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-5)).to(x.dtype)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        n = x.shape[0]
        mixed = self.qkv(self._rms(x))
        query = mixed[:, : HEADS * HEAD].view(1, n, HEADS, HEAD).transpose(1, 2)
        angle = torch.arange(n, device=x.device)[:, None] * torch.arange(HEAD, device=x.device) / HEAD
        query = query * angle.cos().to(x.dtype) + query.flip(-1) * angle.sin().to(x.dtype)
        # Some columns of the bucket are hidden, as in the middle of a conversation.
        start = (BUCKET - n) // 2
        hidden = torch.arange(BUCKET, device=x.device) > start + torch.arange(n, device=x.device)[:, None]
        mask = torch.zeros((1, 1, n, BUCKET), dtype=x.dtype, device=x.device)
        mask.masked_fill_(hidden, torch.finfo(x.dtype).min)
        if attend.suits(query, self.keys, mask):  # as the stage does it
            seen = attend.attend(query, self.keys, self.values, mask, HEAD**-0.5)
        else:
            keys, values = (t.repeat_interleave(GROUPS, dim=1) for t in (self.keys, self.values))
            seen = functional.scaled_dot_product_attention(query, keys, values, attn_mask=mask)
        x = x + self.out(seen.transpose(1, 2).reshape(n, HEADS * HEAD))
        y = self._rms(x)
        return x + self.down(functional.silu(self.gate(y)) * self.up(y))

    def fused(self, x: torch.Tensor) -> torch.Tensor:
        """What fused kernels make of these rows (`pooled_nb.shard.fused`)."""
        from pooled_nb.shard.fused import ops

        n = x.shape[0]
        rows = ops.norm(x.clone(), x, self.norm, 1e-5)
        start = (BUCKET - n) // 2
        positions = start + torch.arange(n, device=x.device)
        seen = ops.attend(rows.view(n, HEADS, HEAD), self.keys, self.values, positions, BUCKET, HEAD**-0.5)
        return ops.gate(seen.view(n, HEADS * HEAD))


OWN = "1"
"""Version of our own arithmetic (`scans`, `attend`, `kv`): another one when its bits change."""


@torch.inference_mode()
def signature(device: str, dtype: str) -> str:
    """Hash a fixed layer's output on this device, in this dtype, with torch's threads as they are now.

    Parameters
    ----------
    device
        A torch device name, ``cpu`` or ``cuda``.
    dtype
        torch name, ``bfloat16``.

    Returns
    -------
    str
        16 hexadecimal digits, the same in every process on this device with these versions.
    """
    kind: torch.dtype = getattr(torch, dtype)
    layer = _Layer(torch.device(device), kind)
    # Layers that are fused here have other bits than those of a device without Triton.
    fused = ready.available(torch.device(device), kind)
    # The order of sums in the model's own code is transformers'; another version may have another.
    versions = [_release(str(module.__version__)) for module in (torch, transformers)] + [OWN]
    versions += [ready.version(torch.device(device))] if fused else []
    digest = hashlib.sha256(" ".join((dtype, *versions)).encode())
    for rows in (WIDTH, *COLS["cpu" if device == "cpu" else "other"]):
        x = _fixed(rows, DIM, 9).to(device, kind)
        for _ in range(2):
            x = layer(x)
        digest.update(_raw(x))
        for quantized in samples(x, layer.small):
            digest.update(_raw(quantized))
        if fused:
            digest.update(_raw(layer.fused(x)))
        if rows == WIDTH:  # the head runs over generated columns, in rows of its own number
            digest.update(_raw(layer.head(x[: ROWS if x.device.type == "cpu" else WIDTH])))
    return digest.hexdigest()[:16]


def _release(version: str) -> str:
    """Major, minor and patch; builds of one release count as one, and their kernels show in the numbers."""
    found = re.match(r"\d+\.\d+(?:\.\d+)?", version)
    return found[0] if found else version


def _raw(numbers: torch.Tensor) -> bytes:
    return numbers.contiguous().cpu().view(-1).view(torch.uint8).numpy().tobytes()
