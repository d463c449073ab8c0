"""A timer that judges others, and so must not be late itself (PROTOCOL section 8)."""

from __future__ import annotations

from collections.abc import Callable

from pooled_nb.mesh.clock import Clock

LATE_S = 1.2
"""A timer that fires this late says that this device stalled, and nothing about the others."""
GRACE_S = 2.0
"""What they get from then on to be heard."""


class Deadline:
    """Calls ``judge`` on the mesh loop after ``seconds``, or a little later where this device stalled."""

    def __init__(self, clock: Clock, seconds: float, judge: Callable[[], None]) -> None:
        self._clock = clock
        self._judge = judge
        self._arm(seconds)

    def cancel(self) -> None:
        """Make it never judge."""
        self._timer.cancel()

    def _arm(self, seconds: float) -> None:
        self._due = self._clock.now() + seconds
        self._timer = self._clock.call_later(seconds, self._fired)

    def _fired(self) -> None:
        if self._clock.now() - self._due > LATE_S:
            self._arm(GRACE_S)
        else:
            self._judge()
