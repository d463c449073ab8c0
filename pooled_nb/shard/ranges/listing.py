"""The segments of a folder as they are now, without looking at all of them each time."""

from __future__ import annotations

import stat
import time
from pathlib import Path
from typing import NamedTuple

from pooled_nb.shard.ranges import disk
from pooled_nb.shard.ranges.segments import NOTHING, Counts, Segment, Segments, list_segments

_COARSE_NS = 3_000_000_000
"""A folder's time of change may be this coarse: a listing as young as that may lack what came after it."""


class _Listed(NamedTuple):
    """What a folder held at its time of change ``changed``; ``settled``: another change has another time."""

    segments: Segments
    changed: int
    settled: bool


class Listing:
    """Of the segments of a file of ``size`` bytes. Threads may share it, other kernels change the folder.

    Those that do not count are not there.
    """

    def __init__(self, folder: Path, size: int, counts: Counts) -> None:
        self._folder, self._size, self._counts = folder, size, counts
        # It is replaced as a whole, and used by whoever took it.
        self._last: _Listed | None = None

    def segments(self) -> Segments:
        """All of them, as they are now."""
        try:
            facts = self._folder.lstat()
        except OSError:
            self._last = None
            return NOTHING
        if not stat.S_ISDIR(facts.st_mode):  # a link leads out of the cache
            return NOTHING
        last, changed = self._last, facts.st_mtime_ns
        if last is not None and last.settled and last.changed == changed:
            return last.segments
        segments = list_segments(self._folder, self._size, last.segments if last else None, self._counts)
        self._last = _Listed(segments, changed, time.time_ns() - changed > _COARSE_NS)
        return segments

    def last(self) -> Segments:
        """All of them, as they were when somebody looked."""
        last = self._last
        return self.segments() if last is None else last.segments

    def holding(self, lo: int, hi: int) -> Segment | None:
        """One that holds all of ``[lo, hi)`` now."""
        return self.seen(lo, hi) or self.segments().holding(lo, hi)

    def seen(self, lo: int, hi: int) -> Segment | None:
        """The same among those that somebody saw: what came since is not found."""
        found = self.last().holding(lo, hi)
        if found is None or disk.regular_size(self._folder / found.name) == found.hi - found.lo:
            return found
        self.forget()
        return None

    def forget(self) -> None:
        """Look at all of them again: one was removed, or is damaged."""
        self._last = None
