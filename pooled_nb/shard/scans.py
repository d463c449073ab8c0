"""Convolutions and recurrences of a whole frame, column by column in bits.

transformers runs several columns through chunk kernels, whose bits depend on how columns fall into chunks,
and which cannot leave out padded columns. These have the signatures of those kernels, so that a mixer calls
them in their place (`mixers`). A convolution is a sum over its taps; a recurrence takes a step for each real
column, always in the same shapes (DESIGN section 5, rule 1).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import islice
from typing import Any

import torch
from torch.nn import functional
from transformers.activations import ACT2FN

from pooled_nb.shard.state import RECURRENT, StateLayer

Step = Callable[..., Any]


def convolve(
    hidden_states: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    activation: str | None = None,
    **_: Any,
) -> torch.Tensor:
    """A causal convolution of each channel: products and sums of single numbers, so no order to choose.

    Parameters
    ----------
    hidden_states
        ``[1, channels, columns]``.
    weight
        ``[channels, taps]``; ``bias`` ``[channels]``.
    """
    taps, columns = weight.shape[-1], hidden_states.shape[-1]
    padded = functional.pad(hidden_states.float(), (taps - 1, 0))
    factors = weight.float()
    out = padded[..., :columns] * factors[:, :1]
    for i in range(1, taps):
        out = out + padded[..., i : i + columns] * factors[:, i : i + 1]
    if bias is not None:
        out = out + bias.float()[:, None]
    out = out.to(weight.dtype)
    if activation is not None:
        out = ACT2FN[activation](out)
    return out.to(hidden_states.dtype)


def delta(l2norm: Step, layer: StateLayer, number: int) -> Step:
    """Gated delta rules: decay of a head or of each key, queries and keys normalized by ``l2norm``.

    What needs no state is computed for all rows of the frame, in shapes that its class alone decides. Then a
    column takes five kernels (25 in the module's own step, which counts on accelerators).
    """

    def scan(
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        g: torch.Tensor,
        beta: torch.Tensor,
        chunk_size: int = 0,
        initial_state: torch.Tensor | None = None,
        output_final_state: bool = True,
        use_qk_l2norm_in_kernel: bool = False,
        **_: Any,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        q, k, v, rate = (x[0].float() for x in (query, key, value, beta))
        if v.shape[1] != k.shape[1]:
            q, k = (x.repeat_interleave(v.shape[1] // k.shape[1], dim=1) for x in (q, k))
        if use_qk_l2norm_in_kernel:
            q, k = l2norm(q, dim=-1, eps=1e-6), l2norm(k, dim=-1, eps=1e-6)
        decay = g[0].float().exp().reshape(*v.shape[:2], -1)  # [rows, heads, 1 or keys]
        columns = zip(
            (q * q.shape[-1] ** -0.5)[:, :, None].unbind(),
            (k * decay)[:, :, None].unbind(),
            k[..., None].unbind(),
            (v * rate[..., None])[:, :, None].unbind(),
            (-rate)[..., None, None].unbind(),
            decay[..., None].unbind(),
            strict=True,
        )
        state = layer.held((RECURRENT, number))[0]
        outs, ends = [], []
        for asks, reads, writes, known, less, fades in islice(columns, layer.slab.frame.n):
            news = torch.addcmul(known, torch.bmm(reads, state), less)
            state = (state * fades).addcmul_(writes, news)
            outs.append(torch.bmm(asks, state))
            ends.append(state[None])
        layer.ends = ends
        out = torch.stack(outs + outs[-1:] * (len(q) - len(outs)))  # [rows, heads, 1, values]
        return out[:, :, 0][None].to(query.dtype), ends[-1]

    return scan


def mamba2(_step: Step, layer: StateLayer, number: int) -> Step:
    """State spaces with one decay for each head; as in `delta`, a column takes four kernels."""

    def scan(
        hidden_states: torch.Tensor,
        dt: torch.Tensor,
        A: torch.Tensor,
        B: torch.Tensor,
        C: torch.Tensor,
        chunk_size: int = 0,
        D: torch.Tensor | None = None,
        z: torch.Tensor | None = None,
        dt_bias: torch.Tensor | None = None,
        dt_softplus: bool = False,
        dt_limit: tuple[float, float] = (0.0, math.inf),
        **_: Any,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        x, times, b, c = (t[0].float() for t in (hidden_states, dt, B, C))
        if dt_bias is not None:
            times = times + dt_bias.float()
        if dt_softplus:
            times = functional.softplus(times)
        times = times.clamp(*dt_limit)
        b, c = (t.repeat_interleave(x.shape[1] // t.shape[1], dim=1) for t in (b, c))
        columns = zip(
            (times * A.float()).exp()[..., None, None].unbind(),
            (x * times[..., None])[..., None].unbind(),
            b[:, :, None].unbind(),
            c[..., None].unbind(),
            strict=True,
        )
        kept = layer.held((RECURRENT, number))[0]
        outs, ends = [], []
        for fades, news, writes, reads in islice(columns, layer.slab.frame.n):
            state = (kept.float() * fades).addcmul_(news, writes)
            outs.append(torch.bmm(state, reads))
            kept = state.to(kept.dtype)
            ends.append(kept[None])
        layer.ends = ends
        out = torch.stack(outs + outs[-1:] * (len(x) - len(outs)))[..., 0]  # [rows, heads, dim]
        if D is not None:
            out = out + x * D.float()[:, None]
        if z is not None:
            out = out * functional.silu(z[0].float())
        return out[None].to(hidden_states.dtype), ends[-1]

    return scan


def mamba(step: Step, layer: StateLayer, number: int) -> Step:
    """State spaces with a decay for each channel."""

    def scan(
        hidden_states: torch.Tensor,
        dt: torch.Tensor,
        A: torch.Tensor,
        B: torch.Tensor,
        C: torch.Tensor,
        D: torch.Tensor | None = None,
        z: torch.Tensor | None = None,
        delta_bias: torch.Tensor | None = None,
        delta_softplus: bool = False,
        **_: Any,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        state = layer.held((RECURRENT, number))
        outs, ends = [], []
        for i in range(layer.slab.frame.n):
            state = state.clone()  # the step writes into it
            x, times, b, c = (_column(t, -1, i)[..., 0] for t in (hidden_states, dt, B, C))
            gate = None if z is None else _column(z, -1, i)[..., 0]
            out = step(state, x, times, A, b, c, D, z=gate, dt_bias=delta_bias, dt_softplus=delta_softplus)
            outs.append(out[..., None])
            ends.append(state)
        layer.ends = ends
        return padded(outs, hidden_states.shape[-1], -1), state

    return scan


SCANS: dict[str, tuple[str, Callable[[Step, StateLayer, int], Step]]] = {
    "torch_chunk_gated_delta_rule": ("l2norm", delta),
    "chunk_kimi_delta_attention": ("l2norm", delta),
    "mamba2_chunk_scan": ("mamba2_selective_state_update", mamba2),
    "mamba_selective_scan": ("mamba_selective_state_update", mamba),
}
"""By the name of a chunk kernel: the name of the function beside it that it is made with, and how."""


def padded(outs: list[torch.Tensor], columns: int, dim: int) -> torch.Tensor:
    """Join real columns; the last one stands in for those that are padding."""
    outs = outs + outs[-1:] * (columns - len(outs))
    return torch.cat(outs, dim=dim)


def _column(states: torch.Tensor, dim: int, i: int) -> torch.Tensor:
    """One column in memory of its own: kernels may choose by how numbers lie in memory."""
    return states.narrow(dim, i, 1).clone(memory_format=torch.contiguous_format)
