"""Time that this device was awake: while it sleeps nobody else is late (PROTOCOL section 8)."""

from __future__ import annotations

from collections.abc import Callable

from pooled_nb.mesh.clock import Clock

SOON = 0.001
"""Seconds that a timer may come too early by: clocks round."""


def never() -> float:
    """A device that has not slept."""
    return 0.0


class Awake:
    """Seconds from an arbitrary start, without those that this device stalled or slept; never go back.

    Parameters
    ----------
    slept
        Seconds slept in all, the stall under way included. It is told late, so that this stands still until
        it is true again.
    """

    def __init__(self, clock: Clock, slept: Callable[[], float] = never) -> None:
        self._clock, self._slept = clock, slept
        self._now = clock.now() - slept()

    def now(self) -> float:
        """Seconds now."""
        self._now = max(self._now, self._clock.now() - self._slept())
        return self._now
