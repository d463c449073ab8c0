"""Decides when people hear that a link broke and is back: once in 30 s, however often it does (section 2)."""

from __future__ import annotations

import math

from pooled_nb.mesh.outage import QUIET_S


class Flapping:
    """Twenty reconnects in 30 s are one notice, and one that it is over.

    The panel shows at each moment how it is; this is about what is said of it.
    """

    def __init__(self) -> None:
        self._told = False
        self._told_at = -math.inf

    def broken(self, now: float) -> bool:
        """Whether to say so now. Asked again while it lasts: what was not said at once may be due."""
        if self._told or now - self._told_at < QUIET_S:
            return False
        self._told, self._told_at = True, now
        return True

    def back(self) -> bool:
        """Whether to say that it is over: only to who heard of it."""
        told, self._told = self._told, False
        return told
