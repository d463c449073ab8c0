"""Whether a stage's layers run as frames of fixed shapes, and by what: decided by trial, told in words."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from pooled_nb.errors import ModelNotSupported, ModelTooBig
from pooled_nb.shard import fused, probe
from pooled_nb.shard.cache import Slab
from pooled_nb.shard.door import BUCKET
from pooled_nb.shard.faults import no_memory
from pooled_nb.shard.frames import Placed, Rules
from pooled_nb.shard.graphs.buffers import Buffers
from pooled_nb.shard.graphs.recorder import Recorder
from pooled_nb.shard.graphs.segment import Body, Segment, same_bits
from pooled_nb.shard.masks import Plan
from pooled_nb.shard.state import StateLayer

WARM = 4096
"""Columns of a conversation whose frames are recorded while the model loads; later ones when they come."""
WARM_S = 6.0
"""And no further kind of frame is begun after so many seconds."""

Call = Callable[[torch.Tensor, torch.Tensor, Any], torch.Tensor]
Plain = Callable[[torch.Tensor, Placed], torch.Tensor]


@dataclass(frozen=True, kw_only=True)
class Layers:
    """A stage's layers, as far as running them goes.

    Attributes
    ----------
    plan
        The masks they want.
    mixes
        Some of them keep running states.
    """

    base: Any
    layers: nn.ModuleList
    slab: Slab
    plan: Plan
    rules: Rules
    dim: int
    dtype: torch.dtype
    device: torch.device
    mixes: bool


def segment_of(
    own: Layers, *, call: Call, plain: Plain, sample: torch.Tensor, recorder: Recorder | None
) -> tuple[Segment | None, str]:
    """Build what runs frames of fixed shapes. The caches hold nonsense afterwards.

    Parameters
    ----------
    call
        Runs the model's body on tokens or states, positions and masks.
    plain
        Runs a frame as it would run without this.
    sample
        Columns to try with: tokens ``[n]`` or hidden states ``[n, dim]``.

    Returns
    -------
    segment, words
        None where frames run plainly.

    Raises
    ------
    ModelNotSupported
        Fused layers give other numbers than they should.
    ModelTooBig
        Fused layers would run here, and some of the range lies in main memory: transformers' layers would
        give other bits than this device's sig stands for.
    """
    if any(isinstance(layer, StateLayer) and layer.slots for layer in own.slab.slabs) or own.mixes:
        return None, "plain layers: this model keeps running states"
    if any(hasattr(module, "_hf_hook") for module in own.base.modules()):
        if own.rules.exact and fused.would(
            own.base, list(own.layers), own.plan.windows, own.dtype, own.device
        ):
            raise ModelTooBig(
                "These layers do not fit into this GPU's free memory, and an exact room computes them there.",
                "Let this device lend less, free its memory, or set POOLED_FUSED=0: a class of its own.",
            )
        return None, "plain layers: they lie on several devices"
    tokens = not sample.is_floating_point()
    body, why = fused.fuse(own.base, list(own.layers), own.slab, own.plan.windows, own.dtype, own.device)
    if body is None and recorder is None:
        return None, "plain layers: CUDA graphs are off"
    if body is not None:
        _prove(own, body, plain, sample)
    run = _plainly(own, call, tokens=tokens) if body is None else _fused(own, body, tokens=tokens)
    segment = Segment(run, lambda rows: _buffers(own, rows), recorder)
    try:
        if body is None and not _agrees(segment, own, plain, sample):
            return None, "plain layers: they look at how much their caches hold"
        _warm(segment, own.rules, sample)
    except RuntimeError as error:
        if not no_memory(error):
            raise
        # Fused layers have bits of their own: without graphs they stay, or this device would not agree with
        # others of its sig.
        segment.stop("too little memory is left for CUDA graphs")
    if body is None and not segment.records:
        return None, f"plain layers: {segment.why}"
    layers = "fused layers" if body is not None else f"transformers' layers ({why})"
    return segment, f"{'CUDA graphs' if segment.records else f'no CUDA graphs: {segment.why}'}, {layers}"


def _buffers(own: Layers, rows: int) -> Buffers:
    return Buffers(rows, own.dim, own.dtype, own.device, own.slab.capacity)


def _plainly(own: Layers, call: Call, *, tokens: bool) -> Body:
    """The layers as transformers has them, over masks and caches that take their places from the device."""

    def run(buffers: Buffers, length: int) -> torch.Tensor:
        slab = own.slab
        mask = own.plan.prepare(buffers.positions, length, own.dtype)
        slab.frame = Placed(0, buffers.rows, buffers.rows, length)
        slab.targets = buffers.targets
        try:
            return call(buffers.tokens if tokens else buffers.states, buffers.positions, mask)
        finally:
            slab.targets = None

    return run


def _fused(own: Layers, body: fused.Body, *, tokens: bool) -> Body:
    """Fused layers; embeddings are looked up before them."""
    embed = own.base.get_input_embeddings() if tokens else None

    def run(buffers: Buffers, length: int) -> torch.Tensor:
        states = buffers.states if embed is None else embed(buffers.tokens)
        return body(states, buffers.positions, buffers.targets, length)

    return run


def _prove(own: Layers, body: fused.Body, plain: Plain, sample: torch.Tensor) -> None:
    """See that each fused layer gives what transformers' layer gives, but for rounding.

    Raises
    ------
    ModelNotSupported
        One does not. To go on with the others would give bits that no other device of this sig gives.
    """
    length = min(2 * BUCKET, own.rules.capacity)
    for rows in _classes(own.rules):
        n = min(rows, len(sample) // 2)
        for start in (0, n):
            given, placed = sample[start : start + n], Placed(start, n, rows, length)
            seen: list[probe.Seen] = []
            with probe.watching(own.layers, seen, []):
                plain(given, placed)
            buffers = _buffers(own, rows)
            buffers.fill(given, placed)
            for number, wanted in enumerate(seen):
                got = probe.Seen(wanted.into)
                got.out = body.one(number, wanted.into[0], buffers.positions, buffers.targets, length)[None]
                if not probe.agree(wanted, got, 0, n, coarse=False):
                    raise ModelNotSupported(
                        f"Fused layers give other numbers here than {type(own.layers[0]).__name__}.",
                        "Set POOLED_FUSED=0 on this device, and report it.",
                    )


def _agrees(segment: Segment, own: Layers, plain: Plain, sample: torch.Tensor) -> bool:
    """Whether frames of each class give the bits they give plainly, at two places."""
    for rows in _classes(own.rules):
        for placed in _places(rows, min(rows, len(sample))):
            given = sample[: placed.n]
            wanted = plain(given, placed)[: placed.n].clone()
            if not same_bits(segment.run(given, placed)[: placed.n], wanted):
                return False
    return True


def _places(rows: int, n: int) -> list[Placed]:
    """A frame at the start of a conversation, and a shorter one near the end of its first bucket."""
    return [Placed(0, n, rows, BUCKET), Placed(BUCKET - n - 1, max(1, n - 1), rows, BUCKET)]


def _classes(rules: Rules) -> list[int]:
    """Rows of the kinds of frames that are recorded at once."""
    return sorted({rules.width, rules.cols}) if rules.exact else sorted({1, rules.cols})


def _warm(segment: Segment, rules: Rules, sample: torch.Tensor) -> None:
    """Record the frames that a conversation begins with."""
    began = time.monotonic()
    for rows in _classes(rules):
        n = min(rows, len(sample))
        if not segment.records or not segment.prove(sample, _places(rows, n)):
            return
    for length in range(2 * BUCKET, min(rules.capacity, WARM) + 1, BUCKET):
        for rows in _classes(rules):
            if not segment.records or time.monotonic() - began > WARM_S:
                return
            n = min(rows, len(sample))
            placed = Placed(length - n, n, rows, length)
            segment.run(sample[:n], placed)
            segment.record(rows, length)
