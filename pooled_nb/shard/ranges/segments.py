"""Segments of a file on disk: what their names say, and which of them hold a range.

A segment's name says all about it: ``LO-HI-SHA256.hub`` (or ``.room``, where it came from another device),
in hex. So one rename puts bytes and hash in place together, and a listing is all that is ever read. Blocks
do not overlap, but a later rule of cutting (`layout.blocks`) may leave segments that do.
"""

from __future__ import annotations

import os
import re
from bisect import bisect_right
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

from pooled_nb.shard.pieces import Sent
from pooled_nb.shard.ranges.disk import regular_size

_NAME = re.compile(r"([0-9a-f]{1,15})-([0-9a-f]{1,15})-([0-9a-f]{64})\.(hub|room)")
PARTS = "parts"
"""The folder of what is on its way: apart, so that a segments' folder changes with its segments only."""


class Counts(NamedTuple):
    """Which segments count for somebody.

    Attributes
    ----------
    hub
        Those that came from the hub.
    sent
        Of those that devices sent these: ``lo``, ``hi``, SHA-256. None: all of them.
    """

    hub: bool = True
    sent: frozenset[Sent] | None = frozenset()

    def has(self, segment: Segment) -> bool:
        """Whether it counts."""
        if not segment.room:
            return self.hub
        return self.sent is None or (segment.lo, segment.hi, segment.sha256) in self.sent


ALL = Counts(sent=None)
OWN = Counts()
"""What this device read from the hub itself."""


class Segment(NamedTuple):
    """Bytes ``[lo, hi)`` of a file, and how its own file is named. ``room``: another device sent it."""

    lo: int
    hi: int
    sha256: str
    room: bool
    name: str


def segment_name(lo: int, hi: int, sha256: str, room: bool) -> str:
    """Name of a segment's file."""
    return f"{lo:x}-{hi:x}-{sha256}.{'room' if room else 'hub'}"


def part_name(lo: int, hi: int, room: bool) -> str:
    """Name of the file of a segment that is on its way."""
    return f"{lo:x}-{hi:x}.{'room' if room else 'hub'}.part"


def read_name(name: str) -> Segment | None:
    """What a file's name says; None where it is no segment's."""
    found = _NAME.fullmatch(name)
    if found is None:
        return None
    lo, hi, sha256, source = found.groups()
    segment = Segment(int(lo, 16), int(hi, 16), sha256, source == "room", name)
    return segment if segment.lo < segment.hi else None


class Segments:
    """The segments of one file, as listed once: by the names of their files, and in order."""

    def __init__(self, known: dict[str, Segment], sorted_: list[Segment]) -> None:
        self.known, self.all = known, sorted_
        self._los = [segment.lo for segment in self.all]
        self._reach = list(accumulate([segment.hi for segment in self.all], max))
        """How far a segment up to here reaches."""

    def holding(self, lo: int, hi: int) -> Segment | None:
        """A segment that holds all of ``[lo, hi)``."""
        return next((s for s in self._before(lo, hi) if s.hi >= hi), None)

    def at(self, lo: int) -> Segment | None:
        """The segment with this byte that reaches farthest."""
        return max(self._before(lo, lo + 1), key=lambda s: s.hi, default=None)

    def overlapping(self, lo: int, hi: int) -> list[Segment]:
        """Segments with any byte of it."""
        return list(self._before(hi - 1, lo + 1))

    def _before(self, lo: int, hi: int) -> Iterator[Segment]:
        """Segments that begin at ``lo`` or before, and reach ``hi`` or farther; the last first."""
        i = bisect_right(self._los, lo) - 1
        while i >= 0 and self._reach[i] >= hi:
            if self.all[i].hi >= hi:
                yield self.all[i]
            i -= 1


NOTHING = Segments({}, [])


def list_segments(folder: Path, size: int, before: Segments | None = None, counts: Counts = ALL) -> Segments:
    """The segments of a file of ``size`` bytes that are whole. A folder that is not there has none.

    ``before``: an earlier listing. A segment never changes, so only new ones are looked at: with 5,000 of
    them that is what makes a listing fast. It was of the same ``counts``.
    """
    try:
        names = set(os.listdir(folder))
    except OSError:
        return NOTHING
    old = before or NOTHING
    new = {}
    for name in names - old.known.keys():
        segment = read_name(name)
        if segment is None or not counts.has(segment):
            continue
        if segment.hi <= size and regular_size(folder / name) == segment.hi - segment.lo:
            new[name] = segment
    known, stayed = old.known | new, old.all
    if not known.keys() <= names:
        known = {name: segment for name, segment in known.items() if name in names}
        new = {name: segment for name, segment in new.items() if name in names}
        stayed = [segment for segment in stayed if segment.name in names]
    return Segments(known, sorted([*stayed, *new.values()]))


def joined(ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Ranges in order of ``lo``, joined where they touch or overlap."""
    found: list[tuple[int, int]] = []
    for lo, hi in ranges:
        if found and lo <= found[-1][1]:
            found[-1] = found[-1][0], max(hi, found[-1][1])
        else:
            found.append((lo, hi))
    return found
