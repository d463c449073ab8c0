"""Decides when people hear that signaling is down or back: at most once in 30 s (PROTOCOL section 2)."""

from __future__ import annotations

QUIET_S = 30.0
"""Seconds between two notices about signaling."""


class Outage:
    """Twenty reconnects in 30 s are one notice; what was told last becomes true again in the end."""

    def __init__(self) -> None:
        self._down = False
        self._told_down = False
        self._told_at = float("-inf")

    @property
    def down(self) -> bool:
        """Whether it is down now, told or not."""
        return self._down

    def changed(self, down: bool, now: float) -> bool | None:
        """Signaling went down or came back. Says what to tell (`tick`)."""
        self._down = down
        return self.tick(now)

    def tick(self, now: float) -> bool | None:
        """True: tell that it is down; False: that it is back; None: nothing."""
        if self._down == self._told_down or now - self._told_at < QUIET_S:
            return None
        self._told_down, self._told_at = self._down, now
        return self._down
