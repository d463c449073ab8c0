"""How fast bytes come and how long the rest takes, in words. Decides only: the time is handed in."""

from __future__ import annotations

from collections import deque

WINDOW_S = 8.0
"""Seconds over which the rate is taken: short enough to follow a network that changes."""


class Rate:
    """Bytes on their way. ``done`` counts all that are here, ``came`` those that came by this network."""

    def __init__(self, total: int, now: float) -> None:
        self._total = total
        self._seen: deque[tuple[float, int]] = deque([(now, 0)])

    def words(self, done: int, came: int, now: float) -> str:
        """``fetching 1.2 of 3.4 GB (45 MB/s, 50 s left)``; without a rate as long as there is none."""
        seen = self._seen
        if now > seen[-1][0]:
            seen.append((now, came))
        while len(seen) > 2 and seen[1][0] <= now - WINDOW_S:
            seen.popleft()
        passed, bytes_ = now - seen[0][0], came - seen[0][1]
        head = f"fetching {_of(done, self._total)}"
        if passed < 0.5 or bytes_ <= 0:
            return head
        rate = bytes_ / passed
        return f"{head} ({rate_words(rate)}, {_left((self._total - done) / rate)} left)"


def _of(done: int, total: int) -> str:
    unit, name = (1e9, "GB") if total >= 1e9 else (1e6, "MB")
    digits = 1 if total < 1e11 else 0
    return f"{done / unit:.{digits}f} of {total / unit:.{digits}f} {name}"


def rate_words(rate: float) -> str:
    """Bytes a second, as people say it."""
    if rate >= 1e6:
        return f"{rate / 1e6:.0f} MB/s" if rate >= 1e7 else f"{rate / 1e6:.1f} MB/s"
    return f"{rate / 1e3:.0f} kB/s"


def _left(seconds: float) -> str:
    if seconds < 100:
        return f"{max(1, round(seconds))} s"
    if seconds < 6000:
        return f"{round(seconds / 60)} min"
    return f"{round(seconds / 3600)} h"
