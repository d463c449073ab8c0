"""What tells two states of the same weights apart, without reading all of them.

A model's next checkpoint has the same names and sizes. A hash over all bytes settles it and costs a minute
for each hundred GB, so weights are told apart by pieces of every tensor; where only the whole file's hash is
known (the hub names it), it is taken once and kept.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import msgspec

from pooled_nb.errors import ModelNotFound
from pooled_nb.shard.headers import read_layout
from pooled_nb.shard.kept import cache_folder
from pooled_nb.shard.layout import Tensor

_PIECE = 4096
"""Bytes read at a tensor's start, middle and end."""
_SPREAD = 8
_LARGE = 1 << 20
"""And of the whole file ``_SPREAD`` pieces of this size, evenly spaced."""
_KEPT = 4096
"""Hashes of whole files kept."""
_SHA256 = re.compile(r"[0-9a-f]{64}")


def file_sha256(path: Path) -> str:
    """SHA-256 of a file, as 64 hex digits."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def weights_sample(path: Path) -> str:
    """Hash pieces of every tensor of a safetensors file: 64 hex digits; empty where it is none.

    Tensors go in by name, so that two files of the same numbers agree however they are laid out. What is
    read is 12 KiB a tensor and 8 MiB more: a second for a model of 100 GB.
    """
    try:
        tensors = sorted(read_layout(path).tensors)
        digest = hashlib.sha256()
        with path.open("rb") as stream:
            for tensor in tensors:
                line = f"{tensor.name} {tensor.kind} {list(tensor.shape)}\n"
                digest.update(line.encode("utf-8", "replace"))
                for at, size in _pieces(0, tensor.hi - tensor.lo, 3, _PIECE):
                    digest.update(_read(stream, tensor.lo + at, size))
            for at, size in _spread(tensors):
                digest.update(_read(stream, at, size))
    except (ModelNotFound, OSError):
        return ""
    return digest.hexdigest()


def _spread(tensors: list[Tensor]) -> Iterator[tuple[int, int]]:
    """Pieces evenly spaced over all numbers, in the order of the names."""
    total = sum(tensor.hi - tensor.lo for tensor in tensors)
    begin = 0
    wanted = list(_pieces(0, total, _SPREAD, _LARGE))
    for tensor in tensors:
        end = begin + tensor.hi - tensor.lo
        for at, size in wanted:
            first, last = max(at, begin), min(at + size, end)
            if first < last:
                yield tensor.lo + first - begin, last - first
        begin = end


def _pieces(start: int, length: int, count: int, size: int) -> Iterator[tuple[int, int]]:
    """Where ``count`` pieces begin, first at the start and last at the end; all of it if it is short."""
    if length <= count * size:
        yield start, length
        return
    for i in range(count):
        yield start + (length - size) * i // (count - 1), size


def _read(stream: BinaryIO, at: int, size: int) -> bytes:
    stream.seek(at)
    return stream.read(size)


def known_sha256(path: Path) -> str:
    """Return a whole file's hash: the hub's cache names its files by it, else it is taken once and kept."""
    with contextlib.suppress(OSError):
        if path.is_symlink() and _SHA256.fullmatch(blob := path.resolve().name):
            return blob
    state = path.stat()
    key = f"{path.resolve()} {state.st_size} {state.st_mtime_ns} {state.st_ino}"
    store = cache_folder() / "hashes.json"
    kept = _kept(store)
    if key not in kept:
        kept[key] = file_sha256(path)
        with contextlib.suppress(OSError):  # a cache that cannot be written costs time, nothing else
            store.parent.mkdir(parents=True, exist_ok=True)
            beside = store.with_name(f".hashes-{os.getpid()}.json")
            newest = json.dumps(dict(list(kept.items())[-_KEPT:]))
            beside.write_text(newest, encoding="utf-8")
            beside.replace(store)
    return kept[key]


def _kept(store: Path) -> dict[str, str]:
    try:
        return msgspec.json.decode(store.read_bytes(), type=dict[str, str])
    except (OSError, msgspec.MsgspecError, ValueError):
        return {}
