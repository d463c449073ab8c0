"""Writing to a user's disk: whole or not at all, and what went wrong in words."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import shutil
import stat
import sys
import time
from pathlib import Path

from pooled_nb.errors import ModelNotFound

if sys.platform == "darwin":
    import fcntl

_BINARY = getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOINHERIT", 0)
_NOFOLLOW = getattr(os, "O_NOFOLLOW", 0)
READ = os.O_RDONLY | _BINARY | _NOFOLLOW
"""Flags: a link in the cache is not followed."""
CHANGE = os.O_RDWR | os.O_CREAT | _BINARY | _NOFOLLOW
NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _BINARY | _NOFOLLOW

_EXTENDED = "\\\\?\\"
_MOST = 1 << 26
"""Bytes of one call: it allocates them all, whatever comes."""
_TRIES, _PAUSE_S = 20, 0.01
"""A small file is read within much less."""
_FULL = {errno.ENOSPC, errno.EFBIG}
_QUOTA = {getattr(errno, "EDQUOT", errno.ENOSPC)} - {errno.ENOSPC}
_CLOSED = {errno.EROFS, errno.EACCES, errno.EPERM}


def in_words(error: OSError, folder: Path, need: int) -> ModelNotFound:
    """Say what a disk did not do.

    Parameters
    ----------
    folder
        The cache.
    need
        Bytes that were still to be written.
    """
    place = str(folder).removeprefix(_EXTENDED)
    after = "name another folder in POOLED_CACHE; what was fetched is kept."
    if error.errno in _FULL or error.errno in _QUOTA:
        free = free_bytes(folder)
        here = "" if free is None else f", and {free / 1e9:.3g} GB are free"
        if error.errno in _QUOTA:
            what = f"Your quota on the disk of {place} is used up: {need / 1e9:.3g} GB more are needed."
        else:
            what = f"The disk of {place} is full: {need / 1e9:.3g} GB more are needed{here}."
        return ModelNotFound(what, f"Free some space (pooled-nb models lists what is kept), or {after}")
    if error.errno in _CLOSED:
        return ModelNotFound(f"The cache folder {place} cannot be written.", f"Allow it, or {after}")
    return ModelNotFound(
        f"The cache folder {place} cannot be used: {error.strerror or error}.", f"Check its disk, or {after}"
    )


def free_bytes(folder: Path) -> int | None:
    """Bytes that this user may still write; None where the system does not say."""
    for place in (folder, *folder.parents):
        with contextlib.suppress(OSError):
            return shutil.disk_usage(place).free
    return None


def settle(fd: int) -> None:
    """See that what was written outlives a loss of power."""
    if sys.platform == "darwin":
        with contextlib.suppress(OSError):  # not every file system there has it
            fcntl.fcntl(fd, fcntl.F_FULLFSYNC)
            return
    if sys.platform == "linux":
        os.fdatasync(fd)
    else:
        os.fsync(fd)


def write_all(fd: int, data: bytes) -> None:
    """Write, however many calls it takes."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def put(path: Path, data: bytes) -> None:
    """Write a file so that it appears whole or not at all. Its folder is there.

    Raises
    ------
    OSError
    """
    beside = path.with_name(f".{secrets.token_hex(6)}.new")
    try:
        fd = os.open(beside, NEW, 0o666)
        try:
            write_all(fd, data)
            settle(fd)
        finally:
            os.close(fd)
        replace(beside, path)
    except OSError:
        unlink(beside)
        raise


def replace(source: Path, target: Path) -> None:
    """Rename, in place of what is there: on Windows as soon as nobody has that open.

    Raises
    ------
    OSError
    """
    for left in range(_TRIES if sys.platform == "win32" else 1, 0, -1):
        try:
            os.replace(source, target)
            return
        except PermissionError:
            if left == 1:
                raise
            time.sleep(_PAUSE_S)


def unlink(path: Path) -> bool:
    """Remove a file if it can be; whether it is gone."""
    try:
        path.unlink()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def extended(path: str) -> str:
    r"""Write a whole path of Windows so that it may be longer than 260 letters (its ``\\?\`` form)."""
    if path.startswith(_EXTENDED):
        return path
    return _EXTENDED + (f"UNC{path[1:]}" if path.startswith("\\\\") else path)


def regular_size(path: Path) -> int | None:
    """Size of a file that is one itself: no link, no folder; None where there is none."""
    try:
        facts = path.lstat()
    except OSError:
        return None
    return facts.st_size if stat.S_ISREG(facts.st_mode) else None


def read_range(path: Path, lo: int, hi: int) -> bytes | None:
    """Bytes ``[lo, hi)`` of a file; None where it lacks them. A link is not followed."""
    try:
        fd = os.open(path, READ)
    except OSError:
        return None
    try:
        os.lseek(fd, lo, os.SEEK_SET)
        data = read_up_to(fd, hi - lo)
    except OSError:
        return None
    finally:
        os.close(fd)
    return data if len(data) == hi - lo else None


def read_up_to(fd: int, count: int) -> bytes:
    """Read so many bytes, or up to the end: in one call mostly, which then copies nothing."""
    data = os.read(fd, min(count, _MOST))
    if len(data) == count or not data:
        return data
    parts = [data]
    missing = count - len(data)
    while missing and (more := os.read(fd, min(missing, _MOST))):
        parts.append(more)
        missing -= len(more)
    return b"".join(parts)
