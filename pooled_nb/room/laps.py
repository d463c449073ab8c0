"""Laps in flight: which return answers which frame, and when to give up (PROTOCOL sections 5 and 8)."""

from __future__ import annotations

import enum
from collections import deque
from dataclasses import dataclass

from pooled_nb.mesh.frame import Frame, Kind
from pooled_nb.mesh.timing import LapTimes


@dataclass(frozen=True, slots=True)
class Lap:
    """One frame on its way. ``last``: only its last column returns."""

    kind: Kind
    pos: int
    n: int
    last: bool
    prefill: bool
    sent: float

    def answered_by(self, frame: Frame) -> bool:
        """Whether this return is what the lap waits for."""
        batch = self.kind is Kind.HIDDEN_B
        pos, n = (self.pos + self.n - 1, 1) if self.last else (self.pos, self.n)
        return (frame.kind is Kind.RET_B) == batch and frame.pos == pos and frame.n == n


class Verdict(enum.Enum):
    """What a return is."""

    ANSWER = "answer"
    """It answers the oldest lap."""
    STALE = "stale"
    """Of an earlier epoch, or of a lap that failed: drop it."""
    MISSED = "missed"
    """It answers a later lap: a frame before it, or its return, was lost on the way."""
    WRONG = "wrong"
    """It answers nothing that was asked: all laps fail."""


class Laps:
    """Decider: frames go out and come back in one order.

    ``epoch`` (one byte, so that it wraps) rises at every reset and failure; a return of another epoch
    is dropped.

    Parameters
    ----------
    epoch
        Where those of an earlier chain ended.
    """

    def __init__(self, epoch: int = 0) -> None:
        self.epoch = epoch % 256
        self.times = LapTimes()
        self._flying: deque[Lap] = deque()

    def __len__(self) -> int:
        return len(self._flying)

    def raise_epoch(self) -> None:
        """A reset or a failure: what is still under way no longer counts."""
        self._flying.clear()
        self.epoch = (self.epoch + 1) % 256

    def sent(self, frame: Frame, *, prefill: bool, now: float) -> Lap:
        """A frame was handed to the chain."""
        lap = Lap(frame.kind, frame.pos, frame.n, frame.last, prefill, now)
        self._flying.append(lap)
        return lap

    def returned(self, frame: Frame, now: float) -> tuple[Verdict, Lap | None]:
        """A return arrived."""
        if frame.epoch != self.epoch or not self._flying:
            return Verdict.STALE, None
        lap = self._flying[0]
        if not lap.answered_by(frame):
            later = any(other.answered_by(frame) for other in self._flying)
            return Verdict.MISSED if later else Verdict.WRONG, None
        self._flying.popleft()
        if not lap.prefill:
            self.times.add(now - lap.sent)
        return Verdict.ANSWER, lap

    def limit(self, lap: Lap, rtt_s: float) -> float:
        """Seconds this lap may take. ``rtt_s``: the worst link of the chain."""
        if lap.prefill:
            return self.times.prefill()
        return self.times.token(rtt_s) if lap.n == 1 else self.times.verify(rtt_s)
