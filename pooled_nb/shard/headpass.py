"""One pass of norm and head over a fixed number of rows, recorded as a graph where that can be done."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from pooled_nb.shard.drawing import facts_of
from pooled_nb.shard.faults import no_memory
from pooled_nb.shard.graphs.recorder import NoGraph, Recorder
from pooled_nb.shard.graphs.segment import same_bits


@dataclass(frozen=True, slots=True)
class Scores:
    """What a pass gave, on the device. Good until the next pass.

    Attributes
    ----------
    n
        Columns that count; the rows after them are pads.
    logits
        ``[rows, vocab]``, float32.
    facts
        ``[2, rows]`` int64: see `facts_of`.
    """

    n: int
    logits: torch.Tensor
    facts: torch.Tensor


class HeadPass:
    """Norm and head over ``rows`` rows.

    The first pass runs plainly. Then it is recorded, and what the graph gives for the same rows is compared
    with it: a graph that gives other bits is not used.

    Parameters
    ----------
    head
        From ``[rows, dim]`` on the device to ``[rows, vocab]``; waits for nothing.
    recorder
        None: every pass runs plainly.
    """

    def __init__(
        self,
        head: Callable[[torch.Tensor], torch.Tensor],
        rows: int,
        device: torch.device,
        recorder: Recorder | None,
    ) -> None:
        self._head, self._rows, self._device, self._recorder = head, rows, device, recorder
        self._replay: Callable[[], None] | None = None
        self._given = self._logits = self._facts = torch.empty(0)

    @property
    def recorded(self) -> bool:
        """Whether passes run as a graph."""
        return self._replay is not None

    def __call__(self, hidden: torch.Tensor) -> Scores:
        """Run it on columns ``[n, dim]``, at least one and no more than there are rows, on any device."""
        n = hidden.shape[0]
        if self._replay is not None:
            self._fill(hidden)
            self._replay()
            return Scores(n, self._logits, self._facts)
        there = hidden.to(self._device, non_blocking=hidden.is_pinned())
        if n < self._rows:
            # With the last column: a pad costs nothing, and must not overflow.
            there = torch.cat((there, there[-1:].expand(self._rows - n, -1)))
        logits = self._head(there).float()
        scores = Scores(n, logits, facts_of(logits))
        if self._recorder is not None:
            recorder, self._recorder = self._recorder, None  # tried once
            self._record(recorder, there, scores)
        return scores

    def _record(self, recorder: Recorder, given: torch.Tensor, plain: Scores) -> None:
        try:
            self._given, self._logits = given.clone(), torch.empty_like(plain.logits)
            self._facts = torch.empty_like(plain.facts)
            replay = recorder.record(self._run)
            replay()
            if same_bits(self._logits, plain.logits):
                self._replay = replay
        except (NoGraph, RuntimeError) as error:
            if not isinstance(error, NoGraph) and not no_memory(error):
                raise
        if self._replay is None:
            self._given = self._logits = self._facts = torch.empty(0)

    def _run(self) -> None:
        self._logits.copy_(self._head(self._given))
        self._facts.copy_(facts_of(self._logits))

    def _fill(self, hidden: torch.Tensor) -> None:
        n = hidden.shape[0]
        self._given[:n].copy_(hidden, non_blocking=hidden.is_pinned())
        if n < self._rows:
            self._given[n:].copy_(self._given[n - 1 : n].expand(self._rows - n, -1))
