"""Which TSNs have come (RFC 9260 section 6.2): the cumulative one, and the runs beyond it."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

WRAP = 0xFFFFFFFF
HALF = 0x80000000


class Received:
    """A decider. In order, a TSN costs an addition; a run behind a gap costs no sorting.

    Parameters
    ----------
    cumulative
        The last TSN before the first that may come.
    """

    __slots__ = ("_cumulative", "_first", "_last")

    def __init__(self, cumulative: int) -> None:
        # Counted without wrapping inside, so that runs compare as numbers.
        self._cumulative = cumulative + WRAP + 1
        self._first: list[int] = []
        self._last: list[int] = []

    @property
    def cumulative(self) -> int:
        """All up to this one have come."""
        return self._cumulative & WRAP

    @property
    def runs(self) -> int:
        """How many runs of TSNs lie behind gaps."""
        return len(self._first)

    def ahead(self, tsn: int) -> int:
        """How far a TSN lies beyond the cumulative one: 1 is the next, 0 and below have come."""
        return ((tsn - self._cumulative + HALF) & WRAP) - HALF

    def goes_on(self, tsn: int) -> bool:
        """Take a TSN that is the next one, with nothing behind a gap; else False, and nothing is done."""
        if self._first or tsn != (self._cumulative + 1) & WRAP:
            return False
        self._cumulative += 1
        return True

    def add(self, tsn: int) -> bool:
        """A TSN came; False if it had come before."""
        ahead = ((tsn - self._cumulative + HALF) & WRAP) - HALF
        if ahead <= 0:
            return False
        first = self._first
        tsn = self._cumulative + ahead
        last = self._last
        index = bisect_right(first, tsn)
        if index and tsn <= last[index - 1]:
            return False
        joins_left = index > 0 and last[index - 1] == tsn - 1
        joins_right = index < len(first) and first[index] == tsn + 1
        if joins_left and joins_right:
            last[index - 1] = last[index]
            del first[index], last[index]
        elif joins_left:
            last[index - 1] = tsn
        elif joins_right:
            first[index] = tsn
        else:
            first.insert(index, tsn)
            last.insert(index, tsn)
        self._join()
        return True

    def forward(self, tsn: int) -> None:
        """Nothing up to this TSN comes any more (RFC 3758 section 3.6)."""
        self._cumulative += max(0, self.ahead(tsn))
        while self._first and self._first[0] <= self._cumulative:
            self._cumulative = max(self._cumulative, self._last[0])
            del self._first[0], self._last[0]
        self._join()

    def gaps(self, most: int) -> list[tuple[int, int]]:
        """Gap Ack Blocks (RFC 9260 section 3.3.4), from the cumulative TSN; the lowest ``most``."""
        base = self._cumulative
        runs = zip(self._first[:most], self._last[:most], strict=True)
        return [(first - base, last - base) for first, last in runs]

    def beyond(self) -> Iterable[int]:
        """Each TSN behind a gap, as it is on the wire."""
        for first, last in zip(self._first, self._last, strict=True):
            for tsn in range(first, last + 1):
                yield tsn & WRAP

    def _join(self) -> None:
        if self._first and self._first[0] == self._cumulative + 1:
            self._cumulative = self._last[0]
            del self._first[0], self._last[0]
