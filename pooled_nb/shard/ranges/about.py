"""What the folders of the cache say of themselves: names of a room, which are no names of folders."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec import Struct

from pooled_nb.shard.ranges import disk, names

ABOUT = "about.json"
"""The file that says it."""
_MAX = 64 << 10

T = TypeVar("T")


class About(Struct, frozen=True, kw_only=True):
    """What a model's folder is of."""

    repo: str
    revision: str
    label: str = ""
    open: bool | None = None


class AboutFile(Struct, frozen=True, kw_only=True):
    """What a file's folder is of."""

    name: str
    size: int

    @property
    def folder(self) -> str:
        """Name of the folder: files of two sizes never mix, whoever is right."""
        return f"{names.file_key(self.name)}-{self.size:x}"


def read(folder: Path, kind: type[T]) -> T | None:
    """Read what a folder says; None where it says nothing, or nonsense."""
    path = folder / ABOUT
    size = disk.regular_size(path)
    data = disk.read_range(path, 0, size) if size and size <= _MAX else None
    try:
        return None if data is None else msgspec.json.decode(data, type=kind)
    except (msgspec.MsgspecError, ValueError):
        return None


def write(folder: Path, about: About | AboutFile) -> None:
    """Write what a folder is of; it is made if need be.

    Raises
    ------
    OSError
    """
    folder.mkdir(parents=True, exist_ok=True)
    disk.put(folder / ABOUT, msgspec.json.encode(about))
