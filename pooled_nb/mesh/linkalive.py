"""Signs of life on one link's wire: its keep-alive, as `keepalive` decides, and what comes (section 5)."""

from __future__ import annotations

from collections.abc import Callable

from pooled_nb.mesh.clock import Clock, Timer
from pooled_nb.mesh.keepalive import KeepAlive

HEARD_S = 0.01
"""Seconds within which several messages are one sign of life: silence is counted in hundreds of these."""


class LinkAlive:
    """Of one link, this end.

    Parameters
    ----------
    period_ms
        See `KeepAlive`.
    send
        Sends the byte, on the first open connection; best effort.
    on_heard
        Called with signs of life, `HEARD_S` apart.
    """

    def __init__(
        self,
        clock: Clock,
        period_ms: float,
        send: Callable[[], None],
        on_heard: Callable[[], None],
    ) -> None:
        self._clock, self._send, self._on_heard = clock, send, on_heard
        self._heard_at = float("-inf")
        self._decider = KeepAlive(period_ms)
        self._timer: Timer | None = None

    @property
    def idle_s(self) -> float:
        """Seconds since a frame went or came over this link."""
        return self._clock.now() - self._decider.frame_at

    def heard(self, now: float) -> None:
        """A slice or a byte came."""
        if now - self._heard_at >= HEARD_S:
            self._heard_at = now
            self._on_heard()

    def carried(self, now: float) -> None:
        """A frame went or came over this link."""
        self._decider.carried(now)
        if self._timer is None:
            self._arm(now)

    def sent(self, now: float) -> None:
        """This end sent a slice."""
        self._decider.sent(now)

    def close(self) -> None:
        """The link ended."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self, now: float) -> None:
        at = self._decider.next(now)
        # Never at once: a byte that is due now follows the slices of this turn of the loop.
        self._timer = None if at is None else self._clock.call_later(max(at - now, 1e-3), self._due)

    def _due(self) -> None:
        now = self._clock.now()
        if self._decider.due(now):
            self._decider.sent(now)
            self._send()
        self._arm(now)
