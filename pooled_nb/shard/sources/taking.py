"""Blocks that a request brings: taken as it comes to them, so that no request has many files open."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator

from pooled_nb.shard.ranges import Incoming, RangeFile
from pooled_nb.shard.sources.needs import OPEN, Ask


class Taken:
    """A block that is on its way; its lock is held."""

    def __init__(self, lo: int, hi: int, incoming: Incoming) -> None:
        self.lo, self.hi, self.incoming = lo, hi, incoming

    @property
    def at(self) -> int:
        """The first byte of the file that it lacks."""
        return self.lo + self.incoming.at


class Taking:
    """The blocks of one request.

    Parameters
    ----------
    wait
        Called while another kernel is fetching a block; None: such a block is left for `later`.
    count
        Told the bytes of each block that are here already.
    """

    def __init__(
        self, file: RangeFile, ask: Ask, wait: Callable[[], None] | None, count: Callable[[int], None]
    ) -> None:
        self._file, self._wait, self._count = file, wait, count
        self._left = deque(ask.pieces)
        self._taken: list[Taken] = []
        self.later: list[tuple[int, int]] = []
        """Blocks that another kernel is fetching."""

    @contextlib.contextmanager
    def held(self) -> Iterator[list[Taken]]:
        """Take the first blocks. What does not become whole within this is kept."""
        try:
            run: list[Taken] = []
            self._more(run)
            yield run
        finally:
            for one in self._taken:
                one.incoming.keep()  # what is whole has ended, and stays as it is

    def finish(self, run: list[Taken]) -> bool:
        """Keep the blocks at the beginning that are whole, for good; return whether any is left.

        In their place come the next ones.
        """
        self._more(run)
        while run and run[0].at >= run[0].hi:
            run.pop(0).incoming.finish()
            self._more(run)
        return bool(run)

    def end(self, run: list[Taken]) -> int:
        """Where the last block ends, of those that are taken and those that will be."""
        return self._left[-1][1] if self._left else run[-1].hi

    def need(self, run: list[Taken]) -> int:
        """Bytes that they lack."""
        return sum(one.hi - one.at for one in run) + sum(hi - lo for lo, hi in self._left)

    def extend(self, pieces: Iterable[tuple[int, int]]) -> None:
        """Have more blocks come in the same request: they lie behind those that it has."""
        self._left.extend(pieces)

    def _more(self, run: list[Taken]) -> None:
        while self._left and len(run) < OPEN:
            lo, hi = self._left.popleft()
            incoming = self._file.begin(lo, hi, wait=self._wait)
            if incoming is not None:
                self._taken.append(Taken(lo, hi, incoming))
                run.append(self._taken[-1])
                self._count(incoming.at)
            elif self._file.find(lo, hi) is not None:
                self._count(hi - lo)
            else:
                self.later.append((lo, hi))


def runs(taken: list[Taken], *, gaps: bool) -> list[list[Taken]]:
    """Cut blocks where bytes lie between them that nobody wants, or that are here."""
    if gaps:
        return [taken] if taken else []
    found: list[list[Taken]] = []
    for one in taken:
        if found and found[-1][-1].hi == one.at:
            found[-1].append(one)
        else:
            found.append([one])
    return found
