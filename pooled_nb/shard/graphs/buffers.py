"""Where a frame of so many rows lies on the device while it runs: always at the same addresses."""

from __future__ import annotations

import numpy as np
import torch

from pooled_nb.shard.frames import Placed

_TOKENS, _POSITIONS, _TARGETS = range(3)


class Buffers:
    """What goes into a frame and what comes out of it.

    Parameters
    ----------
    rows
        Of the frame, pads included.
    dim
        Numbers of a hidden state.
    spare
        The column that pads are written to, which is never read.

    Attributes
    ----------
    tokens, positions, targets
        ``[rows]`` int64, on the device. Targets are the columns of the caches that are written.
    states, out
        ``[rows, dim]``, in the room's dtype.
    finite
        ``[rows]`` bool: whether all numbers of a row of ``out`` are finite.
    """

    def __init__(self, rows: int, dim: int, dtype: torch.dtype, device: torch.device, spare: int) -> None:
        self.rows, self._spare = rows, spare
        pinned = device.type == "cuda"
        self._said = torch.zeros((3, rows), dtype=torch.int64, pin_memory=pinned)
        self._numbers = torch.zeros((3, rows), dtype=torch.int64, device=device)
        self.tokens, self.positions, self.targets = self._numbers.unbind()
        self.states = torch.zeros((rows, dim), dtype=dtype, device=device)
        self.out = torch.zeros((rows, dim), dtype=dtype, device=device)
        self.finite = torch.ones(rows, dtype=torch.bool, device=device)
        self._flags = torch.ones(rows, dtype=torch.bool, pin_memory=pinned)
        self._sent = torch.cuda.Event() if pinned else None  # type: ignore[no-untyped-call]
        self._host = self._said.numpy()  # the same memory: torch takes 5 us for what numpy does in one
        self._places = np.arange(rows)

    def fill(self, given: torch.Tensor, placed: Placed) -> None:
        """Bring a frame to its place.

        Parameters
        ----------
        given
            Tokens ``[n]`` (int64) or hidden states ``[n, dim]``, on any device.
        """
        n, pos = placed.n, placed.pos
        if self._sent is not None:
            self._sent.synchronize()  # what was said before is still on its way, maybe
        said = self._host
        places = self._places + pos
        # A pad repeats the last real column, and stands where that stands: no position is past what the
        # model knows.
        said[_POSITIONS] = np.minimum(places, pos + n - 1)
        said[_TARGETS, :n] = places[:n]
        said[_TARGETS, n:] = self._spare
        if given.is_floating_point():
            self.states[:n].copy_(given, non_blocking=True)
            if n < self.rows:
                self.states[n:].copy_(self.states[n - 1 : n].expand(self.rows - n, -1))
        else:
            said[_TOKENS, :n] = given.cpu().numpy()
            said[_TOKENS, n:] = said[_TOKENS, n - 1]
        self._numbers.copy_(self._said, non_blocking=True)
        if self._sent is not None:
            self._sent.record()

    def take(self, out: torch.Tensor) -> None:
        """Keep what a frame gave, and look whether it is finite."""
        self.out.copy_(out)
        self.finite.copy_(torch.isfinite(self.out).all(-1))

    def is_finite(self, n: int) -> bool:
        """Whether the first ``n`` rows are; waits for the device."""
        self._flags.copy_(self.finite, non_blocking=True)
        if self._sent is not None:
            torch.cuda.current_stream().synchronize()
        return bool(self._flags[:n].all())
