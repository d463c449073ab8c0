"""A piece that is on its way into the range cache: what came is on disk, and what did not is known.

Bytes go into a ``.part`` file, and for every 256 KiB a record of their length and CRC-32 into a journal
beside it. After a kill or a loss of power whatever verifies counts, from the beginning on; the rest is
cut off. A whole piece is flushed to the disk, then renamed: a name of a segment is never that of half of one.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from struct import Struct as Format
from typing import NoReturn, Self

from pooled_nb.errors import ModelNotFound
from pooled_nb.shard.ranges import disk

CHUNK = 256 << 10
"""Bytes of one record of the journal."""
_RECORD = Format("<II")
JOURNAL = ".sums"


class Incoming:
    """See `pieces.Incoming`. Made by `RangeFile.begin` and `ModelFiles.begin_small`; one thread at a time.

    Parameters
    ----------
    part
        The file that grows; its folder is there, its lock is held.
    size
        Bytes of the piece.
    place
        Tells where the finished piece belongs, given its SHA-256.
    root
        The cache, for words.

    Attributes
    ----------
    held
        Locks, let go of at the end.

    Raises
    ------
    OSError
    """

    def __init__(self, part: Path, size: int, place: Callable[[str], Path], root: Path) -> None:
        self.size = size
        self.held = contextlib.ExitStack()
        self._part, self._journal = part, part.with_name(part.name + JOURNAL)
        self._place, self._root = place, root
        self._fd = os.open(part, disk.CHANGE, 0o666)
        try:
            self._sums = os.open(self._journal, disk.CHANGE, 0o666)
        except OSError:
            os.close(self._fd)
            raise
        self._open = True
        self._reset()
        try:
            self._resume()
        except OSError:
            self._close()
            raise

    def _reset(self) -> None:
        self.at = 0
        self._hash = hashlib.sha256()
        self._crc = self._since = 0
        """Of the bytes since the last record, and how many they are."""

    def _resume(self) -> None:
        """Count what verifies, and cut off the rest."""
        records = 0
        for length, crc in _records(self._sums):
            if self.at + length > self.size:
                break
            data = disk.read_up_to(self._fd, length)
            if len(data) < length or zlib.crc32(data) != crc:
                break
            self._hash.update(data)
            self.at += length
            records += 1
        self._cut(self.at, records)

    def _cut(self, at: int, records: int) -> None:
        for fd, end in ((self._fd, at), (self._sums, records * _RECORD.size)):
            os.ftruncate(fd, end)
            os.lseek(fd, end, os.SEEK_SET)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.keep()

    def write(self, data: bytes | memoryview) -> None:
        """See `pieces.Incoming.write`."""
        self._check_open()
        view = memoryview(data)
        if len(view) > self.size - self.at:
            raise ModelNotFound("More bytes came of a piece than it has.", "Try another source.")
        try:
            while view:
                done = os.write(self._fd, view[: CHUNK - self._since])
                written, view = view[:done], view[done:]
                self._hash.update(written)
                self._crc = zlib.crc32(written, self._crc)
                self._since += done
                self.at += done
                if self._since == CHUNK:
                    self._record()
        except OSError as error:
            raise disk.in_words(error, self._root, self.size - self.at) from error

    def _record(self) -> None:
        record, self._crc, self._since = _RECORD.pack(self._since, self._crc), 0, 0
        disk.write_all(self._sums, record)

    def begin_again(self) -> None:
        """See `pieces.Incoming.begin_again`."""
        self._check_open()
        self._reset()
        try:
            self._cut(0, 0)
        except OSError as error:
            raise disk.in_words(error, self._root, self.size) from error

    def finish(self, sha256: str = "") -> str:
        """See `pieces.Incoming.finish`.

        Raises
        ------
        ModelNotFound
            Not all of it came (it stays open), or the disk failed.
        """
        self._check_open()
        if self.at != self.size:
            raise ModelNotFound(f"Only {self.at} of {self.size} bytes came.", "Try again, or another source.")
        mine = self._hash.hexdigest()
        if sha256 and sha256 != mine:
            self.drop()
            return ""
        try:
            disk.settle(self._fd)
        except OSError as error:
            # What a disk could not take is marked as written all the same: it must not be read again.
            self._lose(error)
        self._close()
        target = None
        try:
            target = self._place(mine)
            os.replace(self._part, target)
        except OSError as error:
            # On Windows the same piece may be there, and open.
            if target is None or disk.regular_size(target) != self.size:
                self._lose(error)
            disk.unlink(self._part)
        disk.unlink(self._journal)
        self.held.close()
        return mine

    def _lose(self, error: OSError) -> NoReturn:
        self.drop()
        raise disk.in_words(error, self._root, self.size) from error

    def keep(self) -> None:
        """See `pieces.Incoming.keep`. A piece that has ended stays as it is."""
        if self._open:
            with contextlib.suppress(OSError):  # then the last bytes of it do not count
                if self._since:
                    self._record()
            self._end(throw=not self.at)

    def drop(self) -> None:
        """See `pieces.Incoming.drop`."""
        self._end(throw=True)

    def _end(self, throw: bool) -> None:
        self._close()
        if throw:
            disk.unlink(self._part)
            disk.unlink(self._journal)
        self.held.close()

    def _close(self) -> None:
        if self._open:
            self._open = False
            for fd in (self._fd, self._sums):
                with contextlib.suppress(OSError):
                    os.close(fd)

    def _check_open(self) -> None:
        if not self._open:
            raise ValueError("this piece has ended")


def _records(fd: int) -> Iterator[tuple[int, int]]:
    """Records of a journal up to the first that is none."""
    while len(data := disk.read_up_to(fd, _RECORD.size)) == _RECORD.size:
        length, crc = _RECORD.unpack(data)
        if not 0 < length <= CHUNK:
            return
        yield length, crc
