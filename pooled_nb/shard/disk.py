"""Disk copies of checkpoints (PROTOCOL section 7).

Two kinds. A room's copies (`RoomCopies`) have names and stay for a device that comes back. Spilled ones
(`SpilledCopies`) hold what memory does not: files without a name, which end with the process,
however it ends.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import shutil
import sys
import tempfile
import threading
import traceback
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, Protocol, cast

import msgspec
import torch
from filelock import FileLock, Timeout

from pooled_nb.shard import copyfile, diskfolder
from pooled_nb.shard.copyfile import Form, Head
from pooled_nb.shard.door import LoadSpec
from pooled_nb.shard.faults import no_memory
from pooled_nb.shard.frames import LAST_SLOT, SLOTS

_NEW = os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0)

Layers = list[list[torch.Tensor]]


def copy_key(spec: LoadSpec, sig: str) -> str:
    """Hash all that decides what a checkpoint's numbers mean: the room, and what its bits depend on.

    Parameters
    ----------
    sig
        The device's signature in the room's dtype (DESIGN section 5, rule 5).
    """
    model = (spec.repo, spec.revision, spec.config_sha256, spec.lo, spec.hi, spec.ends)
    forms = (spec.dtype, spec.kv, spec.quant)
    how = (*forms, spec.width, spec.cols, spec.attn, spec.experts, spec.exact, spec.device)
    text = msgspec.json.encode((copyfile.MAGIC.decode(), spec.room, *model, *how, sig))
    return hashlib.blake2b(text, digest_size=20).hexdigest()


class Copies(Protocol):
    """Where copies of one engine's checkpoints go. No method fails: what cannot be kept is missing."""

    stays: bool
    """Copies outlive the engine: each save is worth one."""

    def begin(self, slot: int) -> object:
        """Remove what a slot holds. What is written with the returned ticket is its copy until then."""

    def write(
        self,
        slot: int,
        ticket: object,
        length: int,
        forms: list[list[Form]],
        layers: Iterable[list[torch.Tensor]],
    ) -> bool:
        """Write a copy; whether it is there now. May run in another thread than the other methods."""

    def read(self, slot: int) -> tuple[int, Layers] | None:
        """Columns and tensors (on the CPU) of a slot's copy."""

    def remove(self, slot: int) -> None:
        """Remove a slot's copy, also one that is being written."""

    def close(self, *, keep: bool) -> None:
        """Let go of all copies; those that stay are removed too, unless they are to be kept."""


class RoomCopies:
    """Copies under a key: ``FOLDER/KEY/SLOT``, readable by this user alone. One engine at a time holds a key.

    Parameters
    ----------
    folder
        The folder of all copies.
    key
        See `copy_key`.
    lock
        Held; nobody else reads or writes this key's copies.
    most
        Bytes of all copies together, of all keys: the oldest make way.
    """

    stays = True

    def __init__(self, folder: Path, key: str, lock: FileLock, most: int = diskfolder.MOST) -> None:
        self.key = key
        self._folder, self._mine, self._most = folder, folder / key, most
        self._lock = lock
        self._tickets: dict[int, object] = {}
        self._between = threading.Lock()
        """Between removing and the last step of writing: what was removed does not come back."""

    @classmethod
    def open(cls, folder: Path, key: str, most: int = diskfolder.MOST) -> RoomCopies | None:
        """Take a key; None while another engine holds it, or where no file can be written."""
        try:
            diskfolder.make_private(folder, folder / key)
            lock = FileLock(folder / key / diskfolder.LOCK, mode=0o600, thread_local=False)
            lock.acquire(timeout=0)
        except (OSError, Timeout):
            return None
        return cls(folder, key, lock, most)

    def found(self, ctx: int) -> dict[int, int]:
        """Slots whose copies are whole, with their columns; what is not whole is removed.

        Parameters
        ----------
        ctx
            Columns that a slot may have.
        """
        slots: dict[int, int] = {}
        for held in diskfolder.copies(self._mine):
            name = held.path.name
            if not name.isdecimal() or not 1 <= int(name) <= LAST_SLOT:
                continue
            read = self._open(int(name), keep=False)
            if read is None or not 0 <= read[0] <= ctx or len(slots) >= SLOTS:
                diskfolder.unlink(held.path)
            else:
                slots[int(name)] = read[0]
        return slots

    def begin(self, slot: int) -> object:
        """See `Copies.begin`."""
        ticket = object()
        with self._between:
            self._tickets[slot] = ticket
            diskfolder.unlink(self._path(slot))
        return ticket

    def write(
        self,
        slot: int,
        ticket: object,
        length: int,
        forms: list[list[Form]],
        layers: Iterable[list[torch.Tensor]],
    ) -> bool:
        """See `Copies.write`."""
        if self._tickets.get(slot) is not ticket:
            return False  # dropped before its turn came: no other copy makes way for it
        head = Head(self.key, slot, length, forms)

        def until_removed() -> Iterator[list[torch.Tensor]]:
            for layer in layers:
                if self._tickets.get(slot) is not ticket:
                    raise InterruptedError("the slot was dropped")
                yield layer

        part = self._mine / f"{slot}.{secrets.token_hex(8)}{diskfolder.PART}"
        try:
            if not diskfolder.make_room(self._folder, copyfile.size_of(head), self._most):
                return False
            with os.fdopen(os.open(part, _NEW, 0o600), "wb", buffering=0) as file:
                whole = _written(file, head, until_removed())
            with self._between:
                if whole and self._tickets.get(slot) is ticket:
                    os.replace(part, self._path(slot))
                    return True
        except OSError:
            pass
        diskfolder.unlink(part)
        return False

    def read(self, slot: int) -> tuple[int, Layers] | None:
        """See `Copies.read`."""
        return self._open(slot)

    def remove(self, slot: int) -> None:
        """See `Copies.remove`."""
        with self._between:
            self._tickets.pop(slot, None)
            diskfolder.unlink(self._path(slot))

    def close(self, *, keep: bool) -> None:
        """See `Copies.close`."""
        with self._between:
            self._tickets.clear()
        if keep:
            self._lock.release()
            return
        for held in diskfolder.copies(self._mine):
            diskfolder.unlink(held.path)
        diskfolder.remove_key(self._mine, self._lock)

    def _path(self, slot: int) -> Path:
        return self._mine / str(slot)

    def _open(self, slot: int, *, keep: bool = True) -> tuple[int, Layers] | None:
        try:
            with open(self._path(slot), "rb", buffering=0) as file:
                return _read(file, self.key, slot, keep=keep)
        except OSError:
            return None


class SpilledCopies:
    """Copies that only this process can read, and that end with it.

    Parameters
    ----------
    folder
        The folder of all copies.
    most
        Bytes they may take, those of rooms counted.
    """

    stays = False

    def __init__(self, folder: Path, most: int = diskfolder.MOST) -> None:
        self._folder, self._most = folder, most
        self._files: dict[int, tuple[BinaryIO, int]] = {}

    def begin(self, slot: int) -> object:
        """See `Copies.begin`."""
        self.remove(slot)
        return None

    def write(
        self,
        slot: int,
        ticket: object,
        length: int,
        forms: list[list[Form]],
        layers: Iterable[list[torch.Tensor]],
    ) -> bool:
        """See `Copies.write`."""
        head = Head("", slot, length, forms)
        size = copyfile.size_of(head)
        try:
            diskfolder.make_private(self._folder)
            held = sum(size for _, size in self._files.values())
            held += sum(f.size for key in diskfolder.folders(self._folder) for f in diskfolder.copies(key))
            if held + size > self._most or shutil.disk_usage(self._folder).free - size < diskfolder.FREE:
                return False
            made = tempfile.TemporaryFile(dir=self._folder, buffering=0)  # noqa: SIM115  # it lives on
            file = cast(BinaryIO, made)  # another class on each system
        except OSError:
            return False
        if not _written(file, head, layers):
            file.close()
            return False
        self._files[slot] = (file, size)
        return True

    def read(self, slot: int) -> tuple[int, Layers] | None:
        """See `Copies.read`."""
        held = self._files.get(slot)
        return _read(held[0], "", slot) if held else None

    def remove(self, slot: int) -> None:
        """See `Copies.remove`."""
        held = self._files.pop(slot, None)
        if held:
            held[0].close()

    def close(self, *, keep: bool) -> None:
        """See `Copies.close`."""
        for slot in list(self._files):
            self.remove(slot)


def open_copies(folder: Path, key: str, ctx: int) -> tuple[Copies, dict[int, int]]:
    """Where an engine's copies go, and the slots that are there already, with their columns.

    Parameters
    ----------
    key
        Of its room (`copy_key`); empty: nothing stays.
    ctx
        Columns that a slot may have.
    """
    room = RoomCopies.open(folder, key) if key else None
    return (room, room.found(ctx)) if room else (SpilledCopies(folder), {})


def forget(folder: Path, key: str) -> None:
    """Remove the copies of a key that no engine uses."""
    if (folder / key).is_dir() and (room := RoomCopies.open(folder, key)):
        room.close(keep=False)


def _written(file: BinaryIO, head: Head, layers: Iterable[list[torch.Tensor]]) -> bool:
    try:
        copyfile.write(file, head, layers)
    except OSError:
        return False
    except Exception as error:
        if not no_memory(error):
            traceback.print_exception(error, file=sys.stderr)
        return False
    return True


def _read(file: BinaryIO, key: str, slot: int, *, keep: bool = True) -> tuple[int, Layers] | None:
    try:
        read = copyfile.read(file, key, slot, keep=keep)
    except OSError:
        return None
    except (RuntimeError, MemoryError) as error:
        if not no_memory(error):
            raise
        return None
    return (read[0].length, read[1]) if read else None
