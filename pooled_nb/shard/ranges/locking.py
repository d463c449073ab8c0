"""Who uses a model's files: locks that end with the process that holds them, however it ends.

A model is used by many at a time, and removed by one alone. filelock has exclusive locks only, so whoever
uses a model holds a lock on a file of its own, made behind a gate; who removes it holds the gate and finds
none of these files locked. The lock files lie outside what is removed.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import sys
from collections.abc import Iterator
from pathlib import Path

from filelock import FileLock, Timeout

from pooled_nb.errors import ModelNotFound
from pooled_nb.shard.ranges.disk import unlink

GATE_S = 30.0
"""Seconds that a gate may be held by others: they move a folder away, or make one file."""
_GATE, _USE = "gate", "use-"


def try_lock(path: Path) -> FileLock | None:
    """Take a lock now; None while another has it.

    Raises
    ------
    OSError
        No lock can be made there.
    """
    lock = FileLock(path, thread_local=False)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        return None
    except NotImplementedError as error:  # a file system without locks
        raise OSError(None, str(error)) from error
    return lock


@contextlib.contextmanager
def in_use(locks: Path) -> Iterator[None]:
    """Keep a model from being removed. Where nothing can be written, nothing is removed either.

    Raises
    ------
    ModelNotFound
        Another process holds the gate for very long.
    """
    mine = _enter(locks)
    try:
        yield
    finally:
        if mine is not None:
            _end(mine)


def _enter(locks: Path) -> FileLock | None:
    try:
        with gate(locks):
            return try_lock(locks / f"{_USE}{os.getpid()}-{secrets.token_hex(4)}")
    except OSError:
        return None


def _end(lock: FileLock) -> None:
    path = Path(lock.lock_file)
    if sys.platform != "win32":
        unlink(path)  # an open file cannot be removed on Windows; elsewhere it is ours only while held
    with contextlib.suppress(OSError):
        lock.release()
    if sys.platform == "win32":
        unlink(path)


@contextlib.contextmanager
def gate(locks: Path) -> Iterator[None]:
    """Hold a model's gate.

    Raises
    ------
    ModelNotFound
        Another process holds it for very long.
    OSError
        No lock can be made there.
    """
    locks.mkdir(parents=True, exist_ok=True)
    lock = FileLock(locks / _GATE, thread_local=False)
    try:
        lock.acquire(timeout=GATE_S, poll_interval=0.005)
    except Timeout as error:
        raise ModelNotFound(
            f"Another process has been removing this model for {GATE_S:.0f} seconds.", "Try again later."
        ) from error
    except NotImplementedError as error:
        raise OSError(None, str(error)) from error
    try:
        yield
    finally:
        lock.release()


@contextlib.contextmanager
def alone(locks: Path) -> Iterator[bool]:
    """Hold a model's gate; whether nobody uses the model. Then nobody begins to, within the block.

    Raises
    ------
    ModelNotFound, OSError
        See `gate`.
    """
    with gate(locks):
        yield all(_is_over(path) for path in locks.glob(f"{_USE}*"))


def _is_over(path: Path) -> bool:
    lock = try_lock(path)
    if lock is None:
        return False
    _end(lock)
    return True


def sweep(locks: Path) -> None:
    """Remove the locks of blocks, of a model that is gone. The gate is held, and nobody uses the model."""
    with contextlib.suppress(OSError):
        for path in locks.iterdir():
            if path.name != _GATE:
                unlink(path)
