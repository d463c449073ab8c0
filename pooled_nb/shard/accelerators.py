"""Which accelerator this device computes on, if any, and what differs between their kinds.

NVIDIA's and AMD's GPUs (ROCm) are ``cuda`` to torch, Apple's ``mps``, Intel's ``xpu``. One counts only after
a small trial on it was right: drivers and builds of torch that do not fit each other show there, and not in
the middle of an answer. What fails it is not computed on, and a sentence says so.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from typing import Any

import psutil
import torch
from torch.nn import functional

from pooled_nb.errors import BadOption

KINDS = ("cuda", "mps", "xpu")
"""In the order in which they are tried."""
_HALVES = ("float16", "bfloat16")
_SETTING = "POOLED_DEVICE"

_tried: dict[str, str] = {}
"""Why a kind is not used, by kind; empty: its trial was right. Tried once: what a room is told must stay."""


def chosen() -> tuple[str, str]:
    """What the engine computes on, and why not on an accelerator that is here.

    ``POOLED_DEVICE`` names the kind; unset, it is the first accelerator that works.

    Returns
    -------
    kind, note
        ``cuda``, ``mps``, ``xpu`` or ``cpu``; a sentence for people, or nothing.

    Raises
    ------
    BadOption
        ``POOLED_DEVICE`` is no kind, or one that is not here.
    """
    wanted = os.environ.get(_SETTING, "").strip().lower()
    if wanted not in ("", "auto", "cpu", *KINDS):
        raise BadOption(
            f"{_SETTING} is {wanted[:40]!r}.", f"Set it to cpu, {', '.join(KINDS)}, or not at all."
        )
    if wanted == "cpu":
        return "cpu", ""
    here = [kind for kind in KINDS if is_here(kind) and wanted in ("", "auto", kind)]
    if not here and wanted in KINDS:
        raise BadOption(
            f"{_SETTING} is {wanted!r}, and torch sees no such device here.",
            f"Set {_SETTING} to cpu, or not at all.",
        )
    notes: list[str] = []
    for kind in here:
        why = _why_not(kind)
        if not why:
            return kind, " ".join(notes)
        notes.append(why)
    return "cpu", " ".join(notes)


def is_here(kind: str) -> bool:
    """Whether torch sees a device of this kind."""
    module = torch.backends.mps if kind == "mps" else getattr(torch, kind, None)
    return module is not None and bool(module.is_available())


def places(kind: str) -> list[str]:
    """Names of the devices of a kind, as torch takes them: ``cuda:0``, ``cuda:1``; ``mps``."""
    if kind in ("cpu", "mps"):
        return [kind]
    return [f"{kind}:{i}" for i in range(_module(kind).device_count())]


def _module(kind: str) -> Any:
    return getattr(torch, kind)


def _why_not(kind: str) -> str:
    if kind not in _tried:
        _tried[kind] = ""
        for place in places(kind):
            try:
                trial(place, "float32")
            except Exception as error:  # whatever a driver raises, the CPU computes
                text = " ".join(str(error).split())[:160].rstrip(".")
                why = f"{type(error).__name__}: {text}" if text else type(error).__name__
                _tried[kind] = f"{place} is not used, since a small trial on it failed ({why})."
                break
    return _tried[kind]


@torch.inference_mode()
def trial(place: str, dtype: str) -> None:
    """Compute on a device what is known beforehand: a product, masked attention, a write into a buffer.

    Raises
    ------
    ArithmeticError
        A result is wrong.
    Exception
        Whatever torch raises where something is not there.
    """
    kind: torch.dtype = getattr(torch, dtype)
    like: dict[str, Any] = {"dtype": kind, "device": place}
    ones = torch.ones((16, 64), **like)
    _must("a product", ones @ ones.T, 64.0)
    # Queries of zeros look at all columns alike, and may look at the first two: numbers 0 and 1.
    heads = torch.zeros((1, 2, 16, 64), **like)
    values = torch.arange(16, device=place).to(kind)[None, None, :, None].expand(1, 2, 16, 64).contiguous()
    mask = torch.zeros((1, 1, 16, 16), **like)
    mask.masked_fill_(torch.arange(16, device=place) > 1, torch.finfo(kind).min)
    _must("attention", functional.scaled_dot_product_attention(heads, heads, values, attn_mask=mask), 0.5)
    buffer = torch.zeros((1, 2, 32, 64), **like)
    buffer.index_copy_(2, torch.arange(8, 24, device=place), torch.ones((1, 2, 16, 64), **like))
    _must("a write", buffer[:, :, 8:24], 1.0)
    _must("a write", buffer[:, :, 24:], 0.0)


def _must(what: str, numbers: torch.Tensor, wanted: float) -> None:
    right = torch.isfinite(numbers).all() & ((numbers - wanted).abs() <= 1e-2).all()
    if not bool(right):
        raise ArithmeticError(f"{what} gives wrong numbers")


def native(kind: str) -> list[str]:
    """Return the dtypes that all devices of an accelerator's kind compute natively.

    A T4 emulates bfloat16, slowly: it counts as not having it.
    """
    if kind == "cuda":
        modern = torch.version.hip is not None or all(
            torch.cuda.get_device_capability(i) >= (8, 0) for i in range(torch.cuda.device_count())
        )
        return ["float32", "float16", *(["bfloat16"] if modern else [])]
    return ["float32", *(half for half in _HALVES if all(_right(place, half) for place in places(kind)))]


def _right(place: str, dtype: str) -> bool:
    try:
        trial(place, dtype)
    except Exception:
        return False
    return True


def name(kind: str) -> str:
    """What people call it; devices of one model are counted."""
    if kind == "mps":
        own: Callable[[], str] | None = getattr(torch.backends.mps, "get_name", None)
        return (own() if own else "") or "Apple GPU"
    module = _module(kind)
    counts = Counter(str(module.get_device_name(i)) for i in range(module.device_count()))
    return ", ".join(model + (f" ×{n}" if n > 1 else "") for model, n in counts.items())


def unlike(kind: str) -> list[str]:
    """The first device of each model there is: devices of one model compute alike."""
    if kind in ("cpu", "mps"):
        return [kind]
    found: dict[str, str] = {}
    for i, place in enumerate(places(kind)):
        model = str(_module(kind).get_device_name(i))
        if kind == "cuda":
            model += str(torch.cuda.get_device_capability(i))
        found.setdefault(model, place)
    return list(found.values())


def memory(kind: str) -> tuple[int, int]:
    """Bytes in all and free, over all devices of an accelerator's kind.

    A Mac's memory is one for CPU and GPU: the GPU may use the part that the system recommends, and of that
    only what nothing else uses.
    """
    if kind == "mps":
        total = int(torch.mps.recommended_max_memory())
        used = int(torch.mps.driver_allocated_memory())
        return total, max(0, min(total - used, int(psutil.virtual_memory().available)))
    pairs = [_of_one(kind, i) for i in range(_module(kind).device_count())]
    return sum(total for total, _ in pairs), sum(free for _, free in pairs)


def _of_one(kind: str, i: int) -> tuple[int, int]:
    module = _module(kind)
    try:
        free, total = module.mem_get_info(i)
    except (AttributeError, RuntimeError):
        if kind == "cuda":
            raise
        # Not every Intel driver says what is free.
        total = module.get_device_properties(i).total_memory
        free = max(0, total - module.memory_reserved(i))
    return int(total), int(free)


def wait(kind: str) -> None:
    """Until all that was asked of an accelerator is done."""
    if kind != "cpu":
        _module(kind).synchronize()


def empty_caches() -> None:
    """Give memory that torch keeps for later back to the system."""
    for kind in KINDS:
        if is_here(kind):
            _module(kind).empty_cache()
