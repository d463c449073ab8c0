"""When a link sends its one zero byte on channel 78 (PROTOCOL section 5, keep-alive).

A radio or a router that naps between laps costs more than the byte: best effort, and no timer's fault.
"""

from __future__ import annotations

ACTIVE_S = 1.5
"""How long after a frame, either way, the link counts as in use."""
BYTE = b"\0"


class KeepAlive:
    """Decides for one link and this end.

    Parameters
    ----------
    period_ms
        Milliseconds without a slice after which the byte is due; 0 is off.

    Attributes
    ----------
    frame_at
        When a frame went or came last.
    """

    def __init__(self, period_ms: float = 10.0) -> None:
        self._period = max(0.0, period_ms) / 1e3
        self.frame_at = float("-inf")
        self._sent_at = float("-inf")

    def carried(self, now: float) -> None:
        """A frame went or came over this link."""
        self.frame_at = now

    def sent(self, now: float) -> None:
        """This end sent a slice, or the byte."""
        self._sent_at = now

    def due(self, now: float) -> bool:
        """Whether to send `BYTE` now, on the first open connection; then call `sent`."""
        at = self.next(now)
        return at is not None and now >= at

    def next(self, now: float) -> float | None:
        """When the byte is due if nothing is sent before, maybe already; None until the next frame."""
        if not self._period or now - self.frame_at > ACTIVE_S:
            return None
        return max(self._sent_at + self._period, self.frame_at)
