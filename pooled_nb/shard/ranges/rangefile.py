"""One weights file of a model, as far as it is here: whole segments, and pieces on their way."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from pooled_nb.errors import ModelNotFound
from pooled_nb.shard.pieces import Sent
from pooled_nb.shard.ranges import disk, locking
from pooled_nb.shard.ranges.incoming import JOURNAL, Incoming
from pooled_nb.shard.ranges.listing import Listing
from pooled_nb.shard.ranges.segments import ALL, PARTS, Counts, Segment, part_name, segment_name

if TYPE_CHECKING:
    from pooled_nb.shard.ranges.modelfiles import ModelFiles

_WAIT_S = 0.1
_COPY = 4 << 20


class RangeFile:
    """Made by `ModelFiles.file`. Safe for several threads and kernels at once.

    Attributes
    ----------
    name, size
        Of the model's file.

    Segments that do not count (see `Counts`) are as if they were not here.
    """

    def __init__(self, model: ModelFiles, name: str, size: int, folder: Path, counts: Counts = ALL) -> None:
        self.name, self.size = name, size
        self._model, self._folder = model, folder
        self._listing = Listing(folder, size, counts)

    def held(self) -> list[tuple[int, int]]:
        """Segments that are here whole, sorted."""
        return sorted({(s.lo, s.hi) for s in self._listing.segments().all})

    def sent(self) -> list[Sent]:
        """What devices of rooms sent, sorted."""
        return sorted((s.lo, s.hi, s.sha256) for s in self._listing.segments().all if s.room)

    def find(self, lo: int, hi: int) -> tuple[Path, int] | None:
        """The path of a segment that holds all of ``[lo, hi)``, and the offset of ``lo`` in it."""
        found = self._listing.holding(lo, hi)
        return None if found is None else (self._folder / found.name, lo - found.lo)

    def read(self, lo: int, hi: int) -> bytes | None:
        """Bytes ``[lo, hi)``, from as many segments as it takes; None where not all are here."""
        if not 0 <= lo < hi <= self.size:
            return None
        parts: list[bytes] = []
        segments = self._listing.segments()
        at = lo
        while at < hi:
            segment = segments.at(at)
            if segment is None:
                return None
            end = min(hi, segment.hi)
            data = disk.read_range(self._folder / segment.name, at - segment.lo, end - segment.lo)
            if data is None:  # it was removed, or damaged
                self._listing.forget()
                return None
            parts.append(data)
            at = end
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def sha256(self, lo: int, hi: int) -> str:
        """Hash of a segment as it came, 64 hex digits; empty where ``[lo, hi)`` is none that is here."""
        if not 0 <= lo < hi:
            return ""
        here = self._listing.segments().overlapping(lo, lo + 1)
        found = min((s for s in here if (s.lo, s.hi) == (lo, hi)), key=lambda s: s.room, default=None)
        return found.sha256 if found else ""

    def begin(
        self, lo: int, hi: int, *, wait: Callable[[], None] | None = None, room: bool = False
    ) -> Incoming | None:
        """Begin to fetch a block; its lock is held until it ends.

        What other segments hold of its beginning is copied from them, not fetched again.

        Parameters
        ----------
        wait
            Called about every 0.1 s while another kernel holds the lock; it may raise to give up.
        room
            Whether it comes from other devices. Of a piece whose beginning did, a fetch from the hub takes
            nothing over: nobody vouches for half a piece.

        Returns
        -------
        Incoming or None
            None: it is here by now; without ``wait`` also: another kernel is fetching it.

        Raises
        ------
        ModelNotFound
            No such range, or the cache cannot be written.
        """
        if not 0 <= lo < hi <= self.size:
            raise ModelNotFound(
                f"{self.name} has {self.size} bytes, and no range {lo} to {hi}.", "Choose another model."
            )
        if self._listing.seen(lo, hi) is not None:
            return None  # known without a lock, which a cache that is only read does not have
        with contextlib.ExitStack() as stack:
            if not self._lock(lo, hi, stack, wait) or self._listing.segments().holding(lo, hi) is not None:
                return None
            try:
                self._model.describe_file(self.name, self.size)
                incoming = self._open(lo, hi, room)
            except OSError as error:
                raise disk.in_words(error, self._model.root, hi - lo) from error
            incoming.held = stack.pop_all()
        try:
            self._copy(incoming, lo, hi, room)
        except BaseException:
            incoming.keep()
            raise
        return incoming

    def tidy(self) -> int:
        """Remove segments that lie in another: a later rule of cutting left them. Nobody uses the model.

        Returns
        -------
        int
            Bytes that became free.
        """
        freed = 0
        self._listing.forget()
        segments = self._listing.segments()
        for segment in segments.all:
            if any(_replaces(s, segment) for s in segments.overlapping(segment.lo, segment.hi)):
                freed += (segment.hi - segment.lo) * disk.unlink(self._folder / segment.name)
        self._listing.forget()
        return freed

    # inside

    def _lock(self, lo: int, hi: int, stack: contextlib.ExitStack, wait: Callable[[], None] | None) -> bool:
        """Take a block's lock, and keep the model from being removed as long as it is held."""
        stack.enter_context(self._model.in_use())
        path = self._model.locks / f"{self._folder.name}-{lo:x}-{hi:x}"
        while True:
            try:
                lock = locking.try_lock(path)
            except OSError as error:
                raise disk.in_words(error, self._model.root, hi - lo) from error
            if lock is not None:
                stack.callback(lock.release)
                return True
            if wait is None:
                return False
            wait()
            time.sleep(_WAIT_S)
            if self._listing.holding(lo, hi) is not None:
                return False

    def _open(self, lo: int, hi: int, room: bool) -> Incoming:
        parts = self._folder / PARTS
        parts.mkdir(exist_ok=True)
        part, other = (parts / part_name(lo, hi, r) for r in (room, not room))
        if room and not part.exists() and other.exists():
            os.replace(other, part)
            with contextlib.suppress(FileNotFoundError):
                os.replace(other.with_name(other.name + JOURNAL), part.with_name(part.name + JOURNAL))
        else:
            disk.unlink(other)
            disk.unlink(other.with_name(other.name + JOURNAL))

        def place(sha256: str) -> Path:
            return self._folder / segment_name(lo, hi, sha256, room)

        return Incoming(part, hi - lo, place, self._model.root)

    def _copy(self, incoming: Incoming, lo: int, hi: int, room: bool) -> None:
        segments = self._listing.last()
        while (at := lo + incoming.at) < hi and (segment := segments.at(at)) is not None:
            end = min(hi, segment.hi, at + _COPY)
            if segment.room and not room:
                return
            data = disk.read_range(self._folder / segment.name, at - segment.lo, end - segment.lo)
            if data is None:
                return
            incoming.write(data)


def _replaces(other: Segment, segment: Segment) -> bool:
    """Whether a segment lies in another that is trusted as much; of the same bytes one stays."""
    around = other.lo <= segment.lo and segment.hi <= other.hi
    same = (other.lo, other.hi) == (segment.lo, segment.hi)
    if same:
        return (other.room, other.sha256) < (segment.room, segment.sha256)
    return around and other.room <= segment.room
