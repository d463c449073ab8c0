"""The folder of disk copies: who may look into it, how much it holds, and what is removed from it when.

``FOLDER/KEY/SLOT`` is a copy, ``FOLDER/KEY/*.part`` one that is being written, ``FOLDER/KEY/lock`` says that
an engine uses the key (PROTOCOL section 7).
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
from pathlib import Path
from typing import NamedTuple

from filelock import FileLock, Timeout

MOST = 4 << 30
"""Bytes of all copies together."""
FREE = 1 << 30
"""Bytes of the disk that are left free."""
AGE_S = 7 * 86400.0
"""Copies that no device came back for in this time are removed."""
PART_AGE_S = 86400.0
"""Nobody writes one copy for so long."""
LOCK, PART = "lock", ".part"


def clean(folder: Path, now: float) -> None:
    """Remove what no device came back for, and what a process that died was writing.

    Parameters
    ----------
    now
        Seconds since the epoch.
    """
    for key in folders(folder):
        held = copies(key)
        for file in held:
            if now - file.written > (PART_AGE_S if file.path.name.endswith(PART) else AGE_S):
                unlink(file.path)
        with contextlib.suppress(OSError, Timeout):
            # Whoever held the lock last was here long ago, and nobody does now.
            if not held and now - (key / LOCK).stat().st_mtime > AGE_S:
                lock = FileLock(key / LOCK, mode=0o600, timeout=0)
                lock.acquire()
                remove_key(key, lock)


class File(NamedTuple):
    """A copy, its bytes, and when it was written (seconds since the epoch)."""

    path: Path
    size: int
    written: float


def folders(folder: Path) -> list[Path]:
    """The folders of all keys."""
    try:
        return [path for path in folder.iterdir() if path.is_dir() and not path.is_symlink()]
    except OSError:
        return []


def copies(key: Path) -> list[File]:
    """The copies under a key, and parts of copies."""
    files = []
    with contextlib.suppress(OSError), os.scandir(key) as entries:
        for entry in entries:
            with contextlib.suppress(OSError):
                if entry.name != LOCK and entry.is_file(follow_symlinks=False):
                    facts = entry.stat(follow_symlinks=False)
                    files.append(File(Path(entry.path), facts.st_size, facts.st_mtime))
    return files


def make_room(folder: Path, size: int, most: int) -> bool:
    """See that so many bytes may be written: the oldest copies make way, the disk is not filled up."""
    files = sorted((f for key in folders(folder) for f in copies(key)), key=lambda f: f.written)
    total = sum(f.size for f in files)
    if size > most:
        return False
    for file in files:
        if total + size <= most:
            break
        if not file.path.name.endswith(PART):
            unlink(file.path)
            total -= file.size
    return total + size <= most and shutil.disk_usage(folder).free - size >= FREE


def make_private(*folders: Path) -> None:
    """Make folders that only this user can look into, the outer one first.

    Raises
    ------
    OSError
        They cannot be made, or are somebody else's.
    """
    for path in folders:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.chmod(0o700)


def remove_key(key: Path, lock: FileLock) -> None:
    """Remove the folder of a key that holds no copy, and let go of its lock, which is held."""
    if sys.platform != "win32":
        unlink(key / LOCK)  # while it is held: later it may be another engine's
    lock.release()
    with contextlib.suppress(OSError):
        if sys.platform == "win32":  # a file that is open cannot be removed there, so it is nobody's
            (key / LOCK).unlink(missing_ok=True)
        key.rmdir()


def unlink(path: Path) -> None:
    """Remove a copy, whatever it takes."""
    try:
        path.unlink(missing_ok=True)
    except OSError:
        # A file that somebody reads cannot be removed on Windows: without its end it reads as missing.
        with contextlib.suppress(OSError):
            os.truncate(path, 0)
