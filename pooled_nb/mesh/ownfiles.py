"""Small files that belong to one user alone: whole or not at all, 0600, in a folder nobody else writes to."""

from __future__ import annotations

import os
import secrets
import stat
import sys
from pathlib import Path


def make_folder(where: Path) -> None:
    """Make a folder (0700), with what is missing above it.

    Raises
    ------
    OSError
        It cannot be made, or is not this user's own.
    """
    for missing in reversed([where, *where.parents]):
        missing.mkdir(mode=0o700, exist_ok=True)
    if not is_own(where):
        raise PermissionError(f"{where} is not a folder of this user alone")


def is_own(where: Path) -> bool:
    """Whether the folder exists and nobody but this user may write to it: /tmp is everybody's."""
    try:
        facts = where.lstat()
    except OSError:
        return False
    if not stat.S_ISDIR(facts.st_mode):
        return False
    if sys.platform == "win32":
        return True
    return facts.st_uid == os.getuid() and not facts.st_mode & 0o022


def write(path: Path, data: bytes) -> None:
    """Write a file, whole or not at all. Raises `OSError`."""
    draft = path.with_name(f".{path.stem}.{secrets.token_hex(4)}")
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise


def read(path: Path, most: int) -> bytes | None:
    """What a file holds; None: it is no file of this user's, or larger than ``most`` bytes. Never raises."""
    # A symbolic link may lead anywhere, and opening a pipe would wait for its other end.
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    try:
        if path.is_symlink():
            return None
        handle = os.open(path, flags | getattr(os, "O_BINARY", 0))
        with os.fdopen(handle, "rb") as file:
            facts = os.fstat(handle)
            foreign = sys.platform != "win32" and facts.st_uid != os.getuid()
            if foreign or not stat.S_ISREG(facts.st_mode):
                return None
            data = file.read(most + 1)
    except OSError:
        return None
    return data if len(data) <= most else None
