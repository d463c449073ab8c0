"""Rooms on this machine: the file by which ``join CODE`` finds them (PROTOCOL section 2).

One JSON file per room, readable by this user alone, written by the host and removed when the room ends.
It holds nothing that a program of the same user could not learn anyway: no key, pass or token.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
import time
import warnings
from pathlib import Path
from typing import Annotated

import msgspec
import psutil
from msgspec import Meta, Struct, field, structs
from platformdirs import user_runtime_path

from pooled_nb.mesh import ownfiles

VERSION = 1
MAX_BYTES = 16 * 1024
MAX_ROOMS = 1_000
_CODE = re.compile(r"[A-Z0-9]{4,6}")


class RoomFile(Struct, frozen=True, kw_only=True):
    """What a host writes about its room.

    Attributes
    ----------
    v
        Version of this file's form.
    code
        The room's code, six characters without the hyphen.
    server
        URL of the signaling server the room is registered at.
    pid, born
        The process that hosts it, and when that began (`write` says it): numbers of processes are used again,
        soon where a container starts anew. A room of a dead process does not count.
    model
        What it runs, for people.
    folder
        Where the model's files are, when it came from a folder.
    created
        Seconds since 1970, for people: no timer uses it.
    """

    v: Annotated[int, Meta(ge=1)] = VERSION
    code: Annotated[str, Meta(pattern=r"^[A-Z0-9]{4,6}$")]
    server: Annotated[str, Meta(min_length=1, max_length=500)]
    pid: Annotated[int, Meta(ge=1)] = field(default_factory=os.getpid)
    born: Annotated[str, Meta(max_length=100)] = ""
    model: Annotated[str, Meta(max_length=500)] = ""
    folder: Annotated[str, Meta(max_length=4_000)] | None = None
    created: float = field(default_factory=time.time)


def folder() -> Path:
    """Where the files lie; ``POOLED_RUNTIME_DIR`` overrides it. Not made by this call."""
    if override := os.environ.get("POOLED_RUNTIME_DIR"):
        return Path(override)
    with warnings.catch_warnings():
        # Without a login session (a container, a notebook server) there is no XDG_RUNTIME_DIR, and
        # platformdirs warns that it takes another folder: nothing the person could do about.
        warnings.simplefilter("ignore")
        return user_runtime_path("pooled_nb", appauthor=False) / "rooms"


def write(room: RoomFile) -> Path:
    """Write the room's file, whole or not at all (0600 in a 0700 folder).

    Raises
    ------
    OSError
        The folder cannot be made or is not this user's own. The room works without the file: joiners
        on this machine then need the server's address.
    """
    where = folder()
    ownfiles.make_folder(where)
    path = _path(where, room.code)
    if path is None:
        raise ValueError(f"{room.code!r} is not a room code")
    ownfiles.write(path, msgspec.json.encode(structs.replace(room, born=_born(room.pid))))
    return path


def find(code: str) -> RoomFile | None:
    """The living room of this code on this machine, or None. A stale file is removed. Never raises."""
    where = _own_folder()
    path = None if where is None else _path(where, code)
    return None if path is None else _read(path)


def all_rooms() -> list[RoomFile]:
    """Every living room on this machine, newest first. Never raises."""
    where = _own_folder()
    if where is None:
        return []
    try:
        paths = sorted(where.glob("*.json"))[:MAX_ROOMS]
    except OSError:
        return []
    rooms = [room for path in paths if (room := _read(path)) is not None]
    return sorted(rooms, key=lambda room: room.created, reverse=True)


def remove(code: str, *, pid: int | None = None) -> None:
    """Remove the file of a room this process hosts; another process's is left alone. Never raises."""
    where = _own_folder()
    path = None if where is None else _path(where, code)
    if path is None:
        return
    room = _parse(path)
    if room is not None and room.pid == (os.getpid() if pid is None else pid):
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)


def _path(where: Path, code: str) -> Path | None:
    # The code becomes a file name, so nothing but a code's letters may pass.
    return where / f"{code}.json" if _CODE.fullmatch(code) else None


def _read(path: Path) -> RoomFile | None:
    room = _parse(path)
    if room is None or room.code != path.stem:
        return None
    if not _is_alive(room.pid) or (room.born and _born(room.pid) not in ("", room.born)):
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)
        return None
    return room


def _parse(path: Path) -> RoomFile | None:
    text = ownfiles.read(path, MAX_BYTES)
    try:
        room = None if text is None else msgspec.json.decode(text, type=RoomFile)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None
    return room if room is not None and room.v == VERSION else None


def _own_folder() -> Path | None:
    try:
        where = folder()
    except OSError:
        # platformdirs found a folder of somebody else at its place.
        return None
    return where if ownfiles.is_own(where) else None


def _born(pid: int) -> str:
    """What tells a process from a later one of the same number; empty where it cannot be known.

    Of two numbers it may well be the same: a process and the first thing that it starts.
    """
    try:
        if sys.platform == "linux":
            # Not by a clock, which may be set while the room is open: by the machine's start, in ticks since.
            boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
            facts = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
            return f"{boot} {facts.rpartition(')')[2].split()[19]}"
        # Nor by `create_time`, which on macOS follows the clock: by what psutil itself tells processes apart.
        return f"{psutil.Process(pid)._ident[1]:.2f}"
    except (OSError, LookupError, ValueError, TypeError, AttributeError, psutil.Error):
        return ""


def _is_alive(pid: int) -> bool:
    if sys.platform == "win32":
        return _is_alive_windows(pid)
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        # Somebody else's process now: the number was used again.
        return False
    return True


def _is_alive_windows(pid: int) -> bool:
    # os.kill(pid, 0) would end the process there.
    import ctypes

    query_limited_information, still_active = 0x1000, 259
    kernel32 = ctypes.windll.kernel32  # type: ignore[attr-defined, unused-ignore]  # Windows only
    handle = kernel32.OpenProcess(query_limited_information, False, pid)
    if not handle:
        return False
    code = ctypes.c_ulong()
    known = kernel32.GetExitCodeProcess(handle, ctypes.byref(code))
    kernel32.CloseHandle(handle)
    return bool(known) and code.value == still_active
