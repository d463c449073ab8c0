"""Attention of bfloat16 rows on a CPU, in place of torch's kernel, which multiplies each head by itself.

Under grouped heads that is many small products from keys in plain order. Here the rows of a group go in one,
and the scores are made in float32, as torch's kernel makes them. SmolLM2-135M, one thread, one layer: 1 row
over 256 columns takes 60 us instead of 184, over 4096 columns 0.4 ms instead of 3.4; 16 rows take 141 us
instead of 168, and 1.6 ms instead of 2.7. In float32 there is little to win, and half precision has no fast
products on CPUs.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from pooled_nb.shard import compat, packed

PIECE = 1 << 20
"""Float32 numbers (4 MB) of scores, or of keys, made at once: as many groups as fit, one at least."""
MOST = 1 << 23
"""Of one group; where it takes more, torch's kernel, which needs less memory, runs."""
_NAME = "sdpa"


def suits(query: torch.Tensor, key: torch.Tensor, mask: torch.Tensor | None) -> bool:
    """Whether `attend` is used: decided by kind and shape alone, so a column's bits depend on no more.

    Parameters
    ----------
    query
        ``[1, heads, rows, dim]``.
    key
        ``[1, groups, length, dim]``.
    mask
        ``[1, 1, rows, length]``, added to the scores; None: each row sees all columns.
    """
    batch, heads, rows, dim = query.shape
    groups, length = key.shape[1:3]
    if batch != 1 or query.dtype is not torch.bfloat16 or query.device.type != "cpu" or heads % groups:
        return False
    # Of several rows without a mask none may look ahead.
    plain = rows == 1 if mask is None else mask.is_floating_point() and mask.shape == (1, 1, rows, length)
    return plain and _size(heads // groups * rows, dim, length) <= MOST and packed.available(query.dtype)


def attend(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor | None,
    scaling: float,
) -> torch.Tensor:
    """Softmax of the scaled and masked scores, times values ``[1, groups, length, width]``.

    Returns
    -------
    Tensor
        ``[1, heads, rows, width]``.
    """
    _, heads, rows, dim = query.shape
    groups, length = key.shape[1:3]
    wide = query.to(torch.float32).mul_(scaling).reshape(groups, -1, dim)
    keys, values = key[0], value[0]
    step = max(1, PIECE // _size(wide.shape[1], dim, length))
    if step >= groups:
        out = _groups(wide, keys, values, mask)
    else:
        cuts = [slice(i, i + step) for i in range(0, groups, step)]
        out = torch.cat([_groups(wide[cut], keys[cut], values[cut], mask) for cut in cuts])
    return out.view(1, heads, rows, -1)


def _size(rows: int, dim: int, length: int) -> int:
    """Float32 numbers that a group takes: its scores, or its keys."""
    return max(rows, dim) * length


def _groups(
    wide: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, mask: torch.Tensor | None
) -> torch.Tensor:
    """Some groups: rows ``[groups, rows, dim]`` over columns ``[groups, length, dim]``."""
    groups, rows, _ = wide.shape
    length = keys.shape[1]
    plain = _scratch.view("keys", keys.shape, torch.float32).copy_(keys)
    scores = torch.bmm(
        wide, plain.transpose(1, 2), out=_scratch.view("scores", (groups, rows, length), torch.float32)
    )
    if mask is not None:
        scores.view(-1, *mask.shape[2:]).add_(mask[0])
    weights = torch.softmax(scores, -1, out=_scratch.view("weights", scores.shape, torch.float32))
    return torch.bmm(_scratch.view("rounded", scores.shape, values.dtype).copy_(weights), values)


class _Scratch(threading.local):
    """Memory that is used again and again, by a thread: new pages for each layer cost more than the work."""

    def __init__(self) -> None:
        self._held: dict[str, torch.Tensor] = {}

    def view(self, name: str, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        """The first numbers of a pool, in this shape."""
        numbers = math.prod(shape)
        held = self._held.get(name)
        if held is None or held.numel() < numbers:
            with torch.inference_mode(False):  # so that it may be used in either mode
                held = self._held[name] = torch.empty(numbers, dtype=dtype)
        return held[:numbers].view(shape)


_scratch = _Scratch()


def _forward(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """What transformers' layers call: ours where it suits, theirs elsewhere."""
    unusual = kwargs.get("position_bias") is not None or kwargs.get("softcap") is not None
    if dropout or unusual or torch.is_grad_enabled() or not suits(query, key, attention_mask):
        out: tuple[torch.Tensor, None] = sdpa_attention_forward(
            module, query, key, value, attention_mask, dropout=dropout, scaling=scaling, **kwargs
        )
        return out
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    return attend(query, key, value, attention_mask, scale).transpose(1, 2).contiguous(), None


@contextmanager
def grouped_attention(device: torch.device) -> Iterator[None]:
    """Let transformers' SDPA share keys and values between grouped heads under a mask.

    On CPUs torch's kernel does it without copying them for each head: the same bits, 2.5 times faster at 1024
    columns; and in bfloat16 `attend` takes its place. On CUDA transformers would choose a slower kernel, so
    there the default stays.
    """
    if device.type != "cpu":
        with compat.ALONE:
            yield
        return
    with compat.ALONE, compat.environ("TRANSFORMERS_SDPA_FORCE_GQA", "1"):
        before = ALL_ATTENTION_FUNCTIONS[_NAME]
        ALL_ATTENTION_FUNCTIONS[_NAME] = _forward
        try:
            yield
        finally:
            ALL_ATTENTION_FUNCTIONS[_NAME] = before
