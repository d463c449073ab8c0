"""Questions that wait while the room does: they give up as an answer would (PROTOCOL section 8)."""

from __future__ import annotations

from collections.abc import Callable

from pooled_nb.mesh.clock import SOON, Clock, Timer
from pooled_nb.room.holding import WAIT_S


class Patience:
    """A timer that runs while there is something to be patient about.

    Parameters
    ----------
    clock
        Time that counts: what this device slept does not.
    over
        Called when it has lasted as long as a wait may.
    """

    def __init__(self, clock: Clock, over: Callable[[], None]) -> None:
        self._clock, self._over = clock, over
        self._timer: Timer | None = None

    def watch(self, *, waits: bool) -> None:
        """Whether anybody waits now."""
        if not waits:
            if self._timer:
                self._timer.cancel()
            self._timer = None
        elif self._timer is None:
            self._wait(self._clock.now() + WAIT_S)

    def _wait(self, until: float) -> None:
        left = until - self._clock.now()
        if left > SOON:
            self._timer = self._clock.call_later(left, lambda: self._wait(until))
        else:
            self._timer = None
            self._over()
