"""Which ranges of the room's weights a device has, on the wire and here (PROTOCOL section 6, ``ai-inv``).

On the wire a range is the text ``lo-hi`` with ``hi`` inclusive; here it is ``(lo, hi)``, ``hi`` exclusive.
Decides only.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence

Ranges = list[tuple[int, int]]
"""Of one file: joined, in order."""

MOST_RANGES = 4096
"""Of one file of one device (section 6)."""
END = 2**53
"""No file has so many bytes: numbers on the wire are exact below it."""
_TEXT = re.compile(r"(0|[1-9][0-9]{0,15})-(0|[1-9][0-9]{0,15})", re.ASCII)


def word_of(lo: int, hi: int) -> str:
    """How a range is said."""
    return f"{lo}-{hi - 1}"


def range_of(text: str, size: int = END) -> tuple[int, int] | None:
    """The range that is said, of a file of ``size`` bytes; None: it is none."""
    match = _TEXT.fullmatch(text)
    if match is None:
        return None
    lo, last = int(match[1]), int(match[2])
    return (lo, last + 1) if lo <= last < size else None


def joined(ranges: Iterable[tuple[int, int]]) -> Ranges:
    """The same bytes in order, in as few ranges as possible."""
    found: Ranges = []
    for lo, hi in sorted(ranges):
        if lo >= hi:
            continue
        if found and lo <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], hi))
        else:
            found.append((lo, hi))
    return found


def words_of(ranges: Iterable[tuple[int, int]]) -> list[str]:
    """How ranges are said: joined, and of more than `MOST_RANGES` the largest."""
    found = joined(ranges)
    if len(found) > MOST_RANGES:
        found = sorted(sorted(found, key=lambda r: r[0] - r[1])[:MOST_RANGES])
    return [word_of(lo, hi) for lo, hi in found]


def ranges_of(words: Sequence[str], size: int = END) -> Ranges:
    """What somebody says it has of a file of ``size`` bytes; what is no range of it is left out."""
    return joined(found for word in words[:MOST_RANGES] if (found := range_of(word, size)))


def covers(ranges: Ranges, lo: int, hi: int) -> bool:
    """Whether all of ``[lo, hi)`` is among joined ranges."""
    at = bisect_right(ranges, (lo, END)) - 1  # the last that begins no later
    return at >= 0 and hi <= ranges[at][1]


def listing_of(
    inv: Mapping[str, Mapping[str, Sequence[str]]] | None, sizes: Mapping[str, int]
) -> dict[str, dict[str, Ranges]]:
    """What ``ai-load`` says others have: ranges by the file's name, by the device's id.

    Parameters
    ----------
    sizes
        Of the deal's files, in bytes: no other file counts.
    """
    return {
        id: {name: ranges_of(words, sizes[name]) for name, words in files.items() if name in sizes}
        for id, files in (inv or {}).items()
    }
