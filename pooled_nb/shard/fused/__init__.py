"""Hand-fused layers for GPUs: for the families where they pay, proved against transformers' own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from pooled_nb.shard.cache import Slab, SlabLayer
from pooled_nb.shard.fused import families, ready
from pooled_nb.shard.fused.body import Body
from pooled_nb.shard.kv import PlainStore

__all__ = ["Body", "fuse", "would"]


def would(
    base: Any,
    layers: Sequence[nn.Module],
    windows: Sequence[int | None],
    dtype: torch.dtype,
    device: torch.device,
) -> bool:
    """Whether layers of this kind are fused on this device, if they lie on it whole."""
    return ready.available(device, dtype) and not families.why_not(base, layers, windows)


def fuse(
    base: Any,
    layers: Sequence[nn.Module],
    slab: Slab,
    windows: Sequence[int | None],
    dtype: torch.dtype,
    device: torch.device,
) -> tuple[Body | None, str]:
    """Fuse layers that lie on one device, if they are of a family that can be.

    It depends on the device, the dtype, the model's class and the room's rules alone: devices of one ``sig``
    decide alike, whatever range they hold. Memory that runs out is an error, and no reason.

    Returns
    -------
    body, why
        None, and why not in words.
    """
    if why := ready.why_not(device, dtype) or families.why_not(base, layers, windows):
        return None, why
    if not all(isinstance(k, SlabLayer) and isinstance(k.store, PlainStore) for k in slab.slabs):
        return None, "their caches are kept as int8"
    attention: Any = layers[0].self_attn
    heads, groups = (part.out_features // attention.head_dim for part in (attention.q_proj, attention.k_proj))
    if why := ready.too_large(device, dtype, heads, groups, attention.head_dim):
        return None, why
    return Body(base, layers, slab), ""
