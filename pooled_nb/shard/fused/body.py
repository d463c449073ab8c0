"""Decoder layers of the Llama kind as ten kernels each, where transformers' own take about 46."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn.functional import linear

from pooled_nb.shard.cache import Slab, SlabLayer
from pooled_nb.shard.fused import ready
from pooled_nb.shard.fused.families import together
from pooled_nb.shard.kv import PlainStore


@dataclass(frozen=True, slots=True)
class _Weights:
    """Of one layer: products with their biases, norms, and how attention scales."""

    before: torch.Tensor
    after: torch.Tensor
    eps: float
    qkv: tuple[torch.Tensor, torch.Tensor | None]
    out: tuple[torch.Tensor, torch.Tensor | None]
    both: tuple[torch.Tensor, torch.Tensor | None]
    down: tuple[torch.Tensor, torch.Tensor | None]
    norms: tuple[torch.Tensor, torch.Tensor] | None
    scale: float
    store: PlainStore


@dataclass(frozen=True, slots=True)
class _Frame:
    """What all layers of a frame share: ``[rows, size]`` twice, ``[rows]`` twice, and columns seen."""

    cos: torch.Tensor
    sin: torch.Tensor
    positions: torch.Tensor
    targets: torch.Tensor
    length: int


class Body:
    """Fused layers over a slab. It waits for nothing, so that it can be recorded.

    Parameters
    ----------
    base
        The model's body: its rotary module turns positions into angles.
    layers
        Of a family that `families.why_not` lets through. Their weights become views of fused ones.
    slab
        Settled; its layers keep keys and values as they are.
    """

    def __init__(self, base: Any, layers: Sequence[nn.Module], slab: Slab) -> None:
        from pooled_nb.shard.fused import ops

        self._ops = ops
        self._rotary = base.rotary_emb
        self._device = next(layers[0].parameters()).device
        self._layers = []
        for layer, kept in zip(layers, slab.slabs, strict=True):
            self._layers.append(_weights(layer, _store(kept)))
            if self._device.type == "cuda":
                torch.cuda.empty_cache()  # what was joined stays reserved, and nothing else fits into it
        attention: Any = layers[0].self_attn
        self._heads = attention.q_proj.out_features // attention.head_dim

    def __call__(
        self, states: torch.Tensor, positions: torch.Tensor, targets: torch.Tensor, length: int
    ) -> torch.Tensor:
        """All layers.

        Parameters
        ----------
        states
            ``[rows, dim]``; not written to.
        positions, targets
            ``[rows]`` int64: where each row stands, and the column of the caches it is written to.
        length
            Columns attended over.

        Returns
        -------
        Tensor
            ``[rows, dim]``.
        """
        return self._run(self._layers, states, positions, targets, length)

    def one(
        self, number: int, states: torch.Tensor, positions: torch.Tensor, targets: torch.Tensor, length: int
    ) -> torch.Tensor:
        """A single layer: see `__call__`."""
        return self._run([self._layers[number]], states, positions, targets, length)

    def _run(
        self,
        layers: Sequence[_Weights],
        states: torch.Tensor,
        positions: torch.Tensor,
        targets: torch.Tensor,
        length: int,
    ) -> torch.Tensor:
        with ready.on(self._device):
            return self._all(layers, states, positions, targets, length)

    def _all(
        self,
        layers: Sequence[_Weights],
        states: torch.Tensor,
        positions: torch.Tensor,
        targets: torch.Tensor,
        length: int,
    ) -> torch.Tensor:
        cos, sin = self._rotary(states[None], positions[None])
        frame = _Frame(cos[0].contiguous(), sin[0].contiguous(), positions, targets, length)
        x = states.clone()
        delta: torch.Tensor | None = None
        for layer in layers:
            # The norm before a layer also adds what the layer before it gave.
            rows = self._ops.norm(x, delta, layer.before, layer.eps)
            rows = self._ops.norm(x, self._attention(layer, rows, frame), layer.after, layer.eps)
            delta = linear(self._ops.gate(linear(rows, *layer.both)), *layer.down)
        return x if delta is None else x.add_(delta)

    def _attention(self, layer: _Weights, rows: torch.Tensor, frame: _Frame) -> torch.Tensor:
        keys, values = layer.store.keys, layer.store.values
        q = self._ops.place(
            linear(rows, *layer.qkv),
            frame.cos,
            frame.sin,
            layer.norms,
            layer.eps,
            keys,
            values,
            frame.targets,
            self._heads,
        )
        seen = self._ops.attend(q, keys, values, frame.positions, frame.length, layer.scale)
        return linear(seen.view(rows.shape[0], -1), *layer.out)


def _store(kept: Any) -> PlainStore:
    assert isinstance(kept, SlabLayer)
    assert isinstance(kept.store, PlainStore)
    return kept.store


def _weights(layer: Any, store: PlainStore) -> _Weights:
    attention, mlp = layer.self_attn, layer.mlp
    norms = None
    if hasattr(attention, "q_norm"):
        norms = attention.q_norm.weight, attention.k_norm.weight
    return _Weights(
        before=layer.input_layernorm.weight,
        after=layer.post_attention_layernorm.weight,
        eps=layer.input_layernorm.variance_epsilon,
        qkv=together((attention.q_proj, attention.k_proj, attention.v_proj)),
        out=(attention.o_proj.weight, attention.o_proj.bias),
        both=together((mlp.gate_proj, mlp.up_proj)),
        down=(mlp.down_proj.weight, mlp.down_proj.bias),
        norms=norms,
        scale=attention.scaling,
        store=store,
    )
