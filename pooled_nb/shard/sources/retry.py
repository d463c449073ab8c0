"""Whether a request that failed is made again, and when. Decides only."""

from __future__ import annotations

import random
from collections.abc import Callable

TRIES = 6
"""Failures in a row after which it is given up."""
FIRST_S = 0.5
LONGEST_S = 30.0
PATIENCE_S = 300.0
"""The longest that a server may ask to wait."""
STEP = 1 << 20
"""Bytes after which a failure is none in a row any more: a server that gives one at a time is no help."""


class Retry:
    """Failures of one request.

    Exponential backoff with jitter: devices of a room that were refused together do not come back together.
    """

    def __init__(self, draw: Callable[[], float] = random.random) -> None:
        self._draw = draw
        self._failed = 0
        self._came = 0

    def came(self, size: int) -> None:
        """Note bytes that came."""
        self._came += size
        if self._came >= STEP:
            self._failed = self._came = 0

    def failed(self, after: float | None = None) -> float | None:
        """Note a failure; return the seconds to wait before the next try, or None to give up.

        Parameters
        ----------
        after
            What the server asked to wait.
        """
        self._failed += 1
        self._came = 0
        if self._failed >= TRIES or (after is not None and after > PATIENCE_S):
            return None
        wait = min(LONGEST_S, FIRST_S * (1 << (self._failed - 1)))
        return max(after or 0.0, 0.0) + wait * (0.5 + self._draw() / 2)
