"""The frames of a stage over buffers that stay: plainly the first time, as a recorded graph from then on.

In exact mode a frame has one of two numbers of rows, and attends over one of as many lengths as there are
buckets (DESIGN section 5, rules 1 and 2): each pair is a graph. Tokens, positions and the columns that are
written are data, so a graph serves every place of its bucket.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from pooled_nb.shard.frames import Placed
from pooled_nb.shard.graphs.buffers import Buffers
from pooled_nb.shard.graphs.recorder import NoGraph, Recorder

Body = Callable[[Buffers, int], torch.Tensor]
"""Runs the layers on what the buffers hold, over so many columns: ``[rows, dim]``."""

DIFFERS = "a CUDA graph of its layers gives other numbers"


def same_bits(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two contiguous tensors hold the same bits: NaN is like NaN then, and unlike 0."""
    return torch.equal(one.view(torch.uint8), other.view(torch.uint8))


class Segment:
    """Runs frames of a stage whose layers keep keys and values only.

    Parameters
    ----------
    body
        Runs the layers. It looks at no number on the host.
    make
        Makes the buffers for so many rows.
    recorder
        None: every frame runs plainly.

    Attributes
    ----------
    why
        Why nothing is recorded, in words; empty where graphs run.
    """

    def __init__(self, body: Body, make: Callable[[int], Buffers], recorder: Recorder | None) -> None:
        self._body, self._make, self._recorder = body, make, recorder
        self._buffers: dict[int, Buffers] = {}
        self._graphs: dict[tuple[int, int], Callable[[], None]] = {}
        self._seen: set[tuple[int, int]] = set()
        self.why = "" if recorder is not None else "CUDA graphs are off"

    @property
    def records(self) -> bool:
        """Whether frames are recorded."""
        return self._recorder is not None

    @property
    def count(self) -> int:
        """Graphs that there are."""
        return len(self._graphs)

    def run(self, given: torch.Tensor, placed: Placed) -> torch.Tensor:
        """Run a frame.

        Parameters
        ----------
        given
            Tokens ``[n]`` or hidden states ``[n, dim]``.

        Returns
        -------
        Tensor
            ``[rows, dim]``, good until the next frame of as many rows.
        """
        key = placed.rows, placed.length
        buffers = self.buffers(placed.rows)
        buffers.fill(given, placed)
        if (replay := self._graphs.get(key)) is not None:
            replay()
            return buffers.out
        self._plainly(buffers, placed.length)
        if self._recorder is not None and key in self._seen:
            # Only what runs again is worth it: a long prompt's frames may stay the only ones of their kind.
            self.record(placed.rows, placed.length)
        self._seen.add(key)
        return buffers.out

    def is_finite(self, placed: Placed) -> bool:
        """Whether the real columns of the frame that ran last are finite; waits for the device."""
        return self.buffers(placed.rows).is_finite(placed.n)

    def buffers(self, rows: int) -> Buffers:
        """Those of frames of so many rows."""
        if (held := self._buffers.get(rows)) is None:
            held = self._buffers[rows] = self._make(rows)
        return held

    def record(self, rows: int, length: int) -> bool:
        """Record frames of this kind, and compare with the plain run; false where that does not work.

        What the buffers hold of a frame that ran plainly is run again, into the same columns: nothing
        changes by it.
        """
        if self._recorder is None or (rows, length) in self._graphs:
            return self._recorder is not None
        buffers = self.buffers(rows)
        wanted = buffers.out.clone()
        try:
            replay = self._recorder.record(lambda: self._plainly(buffers, length))
        except NoGraph as error:
            self.stop(str(error))
            self._plainly(buffers, length)
            return False
        buffers.out.zero_()
        replay()
        if not same_bits(buffers.out, wanted):
            self.stop(DIFFERS)
            self._plainly(buffers, length)  # what the graph wrote into the caches is wrong, too
            return False
        self._graphs[rows, length] = replay
        return True

    def prove(self, given: torch.Tensor, frames: list[Placed]) -> bool:
        """Record the first frame's kind, and see that its graph gives what each frame gives plainly.

        A model may look at how much its caches hold, and a graph would keep what it saw then.

        Parameters
        ----------
        given
            Columns, at least as many as a frame has.
        frames
            Of one kind, at different places.
        """
        rows, length = frames[0].rows, frames[0].length
        buffers = self.buffers(rows)
        for placed in frames:
            buffers.fill(given[: placed.n], placed)
            self._plainly(buffers, length)
            wanted = buffers.out.clone()
            if not self.record(rows, length):
                return False
            buffers.out.zero_()
            self._graphs[rows, length]()
            if not same_bits(buffers.out[: placed.n], wanted[: placed.n]):
                self.stop(DIFFERS)
                return False
        return True

    def stop(self, why: str) -> None:
        """Record no more, and forget all graphs."""
        self._recorder, self.why = None, why
        self._graphs.clear()

    def _plainly(self, buffers: Buffers, length: int) -> None:
        buffers.take(self._body(buffers, length))
