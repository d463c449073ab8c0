"""What outlives a process: gates of rooms that were hosted here, passes of rooms that were joined.

A host's process that is killed and started again takes its code back, and every link and pass that it gave
out goes on to count; a device that starts again takes its seat (PROTOCOL sections 3 and 4). All of it is
secret, so it lies in files of this user alone: 0600 in a 0700 folder of the user's data folder, ``rooms``
and ``passes`` (DESIGN section 7; ``POOLED_DATA_DIR`` names another folder). That is as safe as the process
itself: whoever may read these files as this user may read its memory, too. Where several people share one
account nothing can be kept from them; ``POOLED_KEEP_SECRETS=0`` then neither saves nor reads anything, and
who starts again knocks again. A Colab machine is one person's and ends with its files: there they are kept.

Beside a gate lies what the room remembers (`roomfile`, ``CODE.room.json``), under the same lock.

A slot belongs to the process that holds its lock, which ends with the process: two kernels on one machine
never use one pass. What is older than a day is not read, and removed; what a room remembers, after an hour.
Everything here does slow work with files, so the mesh loop calls it in a thread (`pooled_nb.room.saver`);
reading never raises.
"""

from __future__ import annotations

import contextlib
import os
import re
import threading
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
ROOM_AGE_S = 3_600.0
"""A chat that nobody takes back is removed after that, at the next look: it holds what others said."""
SLOTS = 32
"""Processes of one machine in one room that keep their passes."""
MAX_FILES = 1_000
"""Files of a folder that are looked at when it is cleared of old ones."""
LOCK_S = 0.2
"""A gate's lock is waited for so long: `is_held` takes it for a moment."""
ROOM = ".room"
"""Between code and ``.json``: what a room remembers."""

_CODE = re.compile(r"[A-Z0-9]{4,6}")
_Code = Annotated[str, Meta(pattern=r"^[A-Z0-9]{4,6}$")]
_Name = Annotated[str, Meta(max_length=200)]
_PassId = Annotated[str, Meta(pattern=r"^[0-9a-f]{32}$")]
_Pass = tuple[_PassId, Digest, _Name]
Kind = Literal["rooms", "passes"]


class Kept(Struct, frozen=True, kw_only=True):
    """What a file holds; it says nothing of that.

    Attributes
    ----------
    saved
        Seconds since 1970; when it was written.
    """

    v: Annotated[int, Meta(ge=1)] = VERSION
    saved: float = 0.0
    code: _Code

    def packed(self) -> bytes:
        """As it is written."""
        return msgspec.json.encode(self)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(code={self.code!r}, …)"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [("code", self.code)]


class SavedGate(Kept, frozen=True, kw_only=True):
    """A hosted room. Holds secrets, and says none of them.

    Attributes
    ----------
    server, embedded
        The spec that the room was registered at, and whether that server ran in the host's own process.
    token
        What takes the room's id over at that server, and only there.
    passes
        (id, ``ps``, name), oldest first, as of `GateSecrets`.
    """

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


class SavedPass(Kept, frozen=True, kw_only=True):
    """A device's pass in one room, given for one name: who joins under another one is somebody else.

    Attributes
    ----------
    met
        How the host was known when it gave the pass: of that much is the pass a proof (`Newcomer.met`).
    """

    name: _Name
    pass_: Secret = msgspec.field(name="pass")
    met: Literal["proved", "confirmed", "first"]


S = TypeVar("S", SavedGate, SavedPass)


class Slot:
    """One file, and the lock by which this process alone uses it. For any thread."""

    def __init__(self, path: Path, lock: FileLock | None) -> None:
        self.path = path
        self._lock = lock
        self._turn = threading.Lock()
        self._over = False
        self._beside: list[Slot] = []

    def beside(self, kind: str) -> Slot:
        """Another file of the same code, under the same lock: it ends when this one does."""
        other = Slot(self.path.with_name(f"{self.path.stem}{kind}.json"), None)
        self._beside.append(other)
        return other

    def write(self, saved: Kept) -> None:
        """Save this in place of what was there, unless it is given back. Raises `OSError`."""
        data = msgspec.structs.replace(saved, saved=time.time()).packed()
        with self._turn:
            if not self._over:
                ownfiles.write(self.path, data)

    def touch(self) -> None:
        """What is saved still counts now. Never raises."""
        with contextlib.suppress(OSError), self._turn:
            if not self._over:
                os.utime(self.path)

    def remove(self) -> None:
        """Forget what is saved here. Never raises."""
        with contextlib.suppress(OSError), self._turn:
            self.path.unlink(missing_ok=True)

    def end(self, *, keep: bool) -> None:
        """Give it back: what is saved stays for the next process, or is forgotten. Never raises.

        A write that is under way in another thread ends first, and none comes after it.
        """
        for other in self._beside:
            other.end(keep=keep)
        with self._turn:
            over, self._over = self._over, True
            if not keep and not over:
                with contextlib.suppress(OSError):
                    self.path.unlink(missing_ok=True)
        if self._lock is not None:
            with contextlib.suppress(OSError):
                self._lock.release()

    def release(self) -> None:
        """Another process may use it from now on. Never raises."""
        self.end(keep=True)


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


def is_code(text: str) -> bool:
    """Whether this is a room's code, which may become a file's name."""
    return _CODE.fullmatch(text) is not None


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
    if not is_on() or not is_code(names[0].partition("-")[0]):
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
        slot = _lock(where, name, LOCK_S if form is SavedGate else 0.0)
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


def _lock(where: Path, name: str, seconds: float) -> Slot | None:
    """The slot of this name; None: a living process has it."""
    # Taken in one thread and given back in another.
    lock = FileLock(where / f"{name}.lock", timeout=seconds, mode=0o600, thread_local=False)
    try:
        lock.acquire(poll_interval=0.02)
    except Timeout:
        return None
    return Slot(where / f"{name}.json", lock)


def is_held(code: str) -> bool:
    """Whether a living process hosts this room here, or takes it back. Never raises."""
    try:
        lock = FileLock(folder("rooms") / f"{code}.lock", timeout=0, mode=0o600)
        if not Path(lock.lock_file).exists():
            return False
        with lock:
            return False
    except Timeout:
        return True
    except Exception:  # a file system without locks: nothing was saved there either
        return False


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
    now = time.time()
    for n, path in enumerate(where.iterdir()):
        if n >= MAX_FILES:
            return
        with contextlib.suppress(OSError, Timeout):
            chat = path.name.endswith(f"{ROOM}.json")
            if path.lstat().st_mtime >= now - (ROOM_AGE_S if chat else AGE_S):
                continue
            if path.suffix not in (".json", ".lock"):
                path.unlink(missing_ok=True)
            elif path.suffix == ".json" or not path.with_suffix(".json").exists():
                lock = path.with_name(f"{path.name.partition('.')[0]}.lock")
                with FileLock(lock, timeout=0, mode=0o600):  # a machine that slept: its process lives
                    path.unlink(missing_ok=True)
                    if not chat or not lock.with_suffix(".json").exists():
                        lock.unlink(missing_ok=True)
