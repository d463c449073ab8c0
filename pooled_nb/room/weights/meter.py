"""Decides how what is fetched is said: how much, from whom, how fast, how long yet."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from pooled_nb.room import sentences

SPAN_S = 10.0
"""The rate is that of so many seconds: a pause shows soon, and one slow piece does not."""
LEAST_S = 1.0
"""Before that nothing is said of a rate."""


class Meter:
    """Bytes of one fetch. ``total``: of all that is missing, what is left for the hub too."""

    def __init__(self, total: int, now: float) -> None:
        self.total = total
        self.done = 0
        self._seen: deque[tuple[float, int]] = deque([(now, 0)])

    def at(self, done: int, now: float) -> None:
        """So many bytes are here by now."""
        self.done = done
        self._seen.append((now, done))
        while len(self._seen) > 2 and now - self._seen[1][0] >= SPAN_S:
            self._seen.popleft()

    @property
    def rate(self) -> float:
        """Bytes per second lately; 0: not known yet, or nothing comes."""
        (begun, first), (ended, last) = self._seen[0], self._seen[-1]
        return max(0.0, (last - first) / (ended - begun)) if ended - begun >= LEAST_S else 0.0

    @property
    def part(self) -> float:
        """Of all, 0 to 1."""
        return min(1.0, self.done / self.total) if self.total > 0 else 1.0

    def words(self, names: Sequence[str], *, hub: bool) -> str:
        """``fetching 1.2 of 3.4 GB from Ada and the hub (45 MB/s, 50 s left)``.

        Parameters
        ----------
        names
            Of the devices that give.
        hub
            Some of it is left for the hub.
        """
        unit, size = ("GB", 1e9) if self.total >= 1e9 else ("MB", 1e6)
        sources = sentences.listed([*names, *(["the hub"] if hub or not names else [])])
        said = f"fetching {self.done / size:.1f} of {self.total / size:.1f} {unit} from {sources}"
        rate = self.rate
        if rate <= 0:
            return said
        speed = f"{rate / 1e6:.0f} MB/s" if rate >= 1e7 else f"{rate / 1e6:.1f} MB/s"
        return f"{said} ({speed}, {_time(max(0, self.total - self.done) / rate)} left)"


def _time(seconds: float) -> str:
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    return f"{round(seconds / 60)} min" if seconds < 5_400 else f"{seconds / 3600:.1f} h"
