"""What outlives a process: gates of rooms that were hosted here, passes of rooms that were joined.

A host's process that is killed and started again takes its code back, and every link and pass that it gave
out goes on to count; a device that starts again takes its seat (PROTOCOL sections 3 and 4). All of it is
secret, so it lies in files of this user alone: 0600 in a 0700 folder of the user's data folder, ``rooms``
and ``passes`` (DESIGN section 7; ``POOLED_DATA_DIR`` names another folder). That is as safe as the process
itself: whoever may read these files as this user may read its memory, too. Where several people share one
account nothing can be kept from them; ``POOLED_KEEP_SECRETS=0`` then neither saves nor reads anything, and
who starts again knocks again. A Colab machine is one person's and ends with its files: there they are kept.

A slot belongs to the process that holds its lock, which ends with the process: two kernels on one machine
never use one pass. What is older than a day is not read, and removed. Everything here does slow work with
files, so the mesh loop calls it in a thread (`pooled_nb.room.saver`); reading never raises.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, TypeVar

import msgspec
from filelock import FileLock, Timeout
from msgspec import Meta, Struct
from platformdirs import user_data_path

from pooled_nb.mesh import ownfiles
from pooled_nb.mesh.gatekeeper import MAX_PASSES, GateSecrets
from pooled_nb.mesh.messages.base import Digest, Secret

VERSION = 1
MAX_BYTES = 256 * 1024
AGE_S = 86_400.0
"""What was saved longer ago counts no more: a room saves anew every hour (`saver.AGAIN_S`)."""
SLOTS = 32
"""Processes of one machine in one room that keep their passes."""
MAX_FILES = 1_000
"""Files of a folder that are looked at when it is cleared of old ones."""

_CODE = re.compile(r"[A-Z0-9]{4,6}")
_Code = Annotated[str, Meta(pattern=r"^[A-Z0-9]{4,6}$")]
_Name = Annotated[str, Meta(max_length=200)]
_PassId = Annotated[str, Meta(pattern=r"^[0-9a-f]{32}$")]
_Pass = tuple[_PassId, Digest, _Name]
Kind = Literal["rooms", "passes"]


class SavedGate(Struct, frozen=True, kw_only=True):
    """A hosted room. Holds secrets, and says none of them.

    Attributes
    ----------
    saved
        Seconds since 1970; when it was written.
    server, embedded
        The spec that the room was registered at, and whether that server ran in the host's own process.
    token
        What takes the room's id over at that server, and only there.
    passes
        (id, ``ps``, name), oldest first, as of `GateSecrets`.
    """

    v: Annotated[int, Meta(ge=1)] = VERSION
    saved: float = 0.0
    code: _Code
    server: Annotated[str, Meta(min_length=1, max_length=500)]
    embedded: bool = False
    token: Annotated[str, Meta(min_length=1, max_length=200)]
    key: Secret
    mesh_key: Secret
    passes: Annotated[list[_Pass], Meta(max_length=MAX_PASSES)] = []

    @property
    def secrets(self) -> GateSecrets:
        """What a `Gatekeeper` goes on with."""
        return GateSecrets(key=self.key, mesh_key=self.mesh_key, passes=tuple(self.passes))

    def __repr__(self) -> str:
        return f"SavedGate(code={self.code!r}, …)"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [("code", self.code)]


class SavedPass(Struct, frozen=True, kw_only=True):
    """A device's pass in one room, given for one name: who joins under another one is somebody else.

    Attributes
    ----------
    met
        How the host was known when it gave the pass: of that much is the pass a proof (`Newcomer.met`).
    """

    v: Annotated[int, Meta(ge=1)] = VERSION
    saved: float = 0.0
    code: _Code
    name: _Name
    pass_: Secret = msgspec.field(name="pass")
    met: Literal["proved", "confirmed", "first"]

    def __repr__(self) -> str:
        return f"SavedPass(code={self.code!r}, …)"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [("code", self.code)]


Saved = SavedGate | SavedPass
S = TypeVar("S", SavedGate, SavedPass)


class Slot:
    """One file, and the lock by which this process alone uses it."""

    def __init__(self, path: Path, lock: FileLock) -> None:
        self._path, self._lock = path, lock

    def write(self, saved: Saved) -> None:
        """Save this in place of what was there. Raises `OSError`."""
        ownfiles.write(self._path, msgspec.json.encode(msgspec.structs.replace(saved, saved=time.time())))

    def remove(self) -> None:
        """Forget what is saved here. Never raises."""
        with contextlib.suppress(OSError):
            self._path.unlink(missing_ok=True)

    def release(self) -> None:
        """Another process may use it from now on. Never raises."""
        with contextlib.suppress(OSError):
            self._lock.release()


@dataclass(frozen=True, slots=True)
class Claim(Generic[S]):
    """What could be had.

    Attributes
    ----------
    slot
        Where to save; None: nothing is saved.
    saved
        What an earlier process left there.
    why
        Why nothing is saved, in words for the person; empty where there is nothing to say.
    """

    slot: Slot | None = None
    saved: S | None = field(default=None, repr=False)
    why: str = ""


def is_on() -> bool:
    """Whether secrets are saved and read at all: ``POOLED_KEEP_SECRETS``."""
    return os.environ.get("POOLED_KEEP_SECRETS", "").strip().lower() not in ("0", "false", "no", "off")


def folder(kind: Kind) -> Path:
    """Where they lie. Not made by this call."""
    override = os.environ.get("POOLED_DATA_DIR")
    return (Path(override) if override else user_data_path("pooled_nb", appauthor=False)) / kind


def claim_gate(code: str) -> Claim[SavedGate]:
    """Take the place of a hosted room. Never raises.

    A living process that hosts it keeps it: this one then saves nothing.
    """
    claim = _claim("rooms", SavedGate, [code], lambda saved: True)
    if claim.slot is not None or claim.why or not is_on():
        return claim
    return Claim(
        why="Another process of this user holds this room's saved keys, so nothing is saved here: links and "
        "passes count only while this process lives. End that process, then host again."
    )


def claim_pass(code: str, name: str) -> Claim[SavedPass]:
    """Take a place for this process's pass: one that holds a pass for this name, else a free one.

    Never raises.
    """
    slots = [f"{code}-{n}" for n in range(SLOTS)]
    return _claim("passes", SavedPass, slots, lambda saved: saved.name == name)


def _claim(kind: Kind, form: type[S], names: list[str], fits: Callable[[S], bool]) -> Claim[S]:
    if not is_on() or not _CODE.fullmatch(names[0].partition("-")[0]):  # it becomes a file's name
        return Claim()
    try:
        where = folder(kind)
        ownfiles.make_folder(where)
        _clear(where)
        return _take(where, form, names, fits)
    except Exception as error:  # a full disk, a file system without locks: the room works without
        said = str(error) if isinstance(error, PermissionError) and error.errno is None else ""
        why = said or getattr(error, "strerror", None) or type(error).__name__
        what = "its invite links and passes count" if kind == "rooms" else "its host knows this device"
        return Claim(
            why=f"Nothing of this room is saved here ({why}), so {what} only while this process lives. "
            "To save it, name a folder of yours in POOLED_DATA_DIR."
        )


def _take(where: Path, form: type[S], names: list[str], fits: Callable[[S], bool]) -> Claim[S]:
    free = None
    for name in sorted(names, key=lambda name: not (where / f"{name}.json").exists()):
        slot = _lock(where, name)
        if slot is None:
            continue
        saved = _read(where / f"{name}.json", form)
        if saved is not None and fits(saved):
            if free is not None:
                free.release()
            return Claim(slot, saved)
        if saved is None and free is None:  # nothing, or junk that makes room
            free = slot
        else:
            slot.release()  # a pass for another name is left to whoever bears it
        if free is not None and not (where / f"{name}.json").exists():
            break  # nor do those that follow hold anything
    return Claim(free)


def _lock(where: Path, name: str) -> Slot | None:
    """The slot of this name; None: a living process has it."""
    # Taken in one thread and given back in another.
    lock = FileLock(where / f"{name}.lock", timeout=0, mode=0o600, thread_local=False)
    try:
        lock.acquire()
    except Timeout:
        return None
    return Slot(where / f"{name}.json", lock)


def _read(path: Path, form: type[S]) -> S | None:
    data = ownfiles.read(path, MAX_BYTES)
    try:
        saved = None if data is None else msgspec.json.decode(data, type=form)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None
    if saved is None or saved.v != VERSION or saved.code != path.stem.partition("-")[0]:
        return None
    # A clock may have been set back meanwhile: what is a little of the future counts.
    return saved if abs(time.time() - saved.saved) < AGE_S else None


def _clear(where: Path) -> None:
    """Remove what is too old to count, and what a process that was killed left half written."""
    before = time.time() - AGE_S
    for n, path in enumerate(where.iterdir()):
        if n >= MAX_FILES:
            return
        with contextlib.suppress(OSError, Timeout):
            if path.lstat().st_mtime >= before:
                continue
            if path.suffix not in (".json", ".lock"):
                path.unlink(missing_ok=True)
            elif path.suffix == ".json" or not path.with_suffix(".json").exists():
                lock = path.with_suffix(".lock")
                with FileLock(lock, timeout=0, mode=0o600):  # a machine that slept: its process lives
                    path.unlink(missing_ok=True)
                    lock.unlink(missing_ok=True)
