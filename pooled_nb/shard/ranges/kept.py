"""A model of the cache in numbers, for people."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from pooled_nb.shard.ranges import disk
from pooled_nb.shard.ranges.hubcache import hub_file
from pooled_nb.shard.ranges.segments import joined

if TYPE_CHECKING:
    from pooled_nb.shard.ranges.modelfiles import ModelFiles

_INDEX = "model.safetensors.index.json"
_MAX_INDEX = 128 << 20


class KeptFile(Struct, frozen=True, kw_only=True):
    """A file of a model: bytes of it that are here, and its size."""

    name: str
    bytes: int
    size: int


class Kept(Struct, frozen=True, kw_only=True):
    """A model, as far as it is here.

    Attributes
    ----------
    label
        Its name for people; may be empty.
    bytes
        On the disk, with small files and pieces on their way.
    total
        Of all its weights, where that is known.
    whole
        Whether all its weights are here.
    used
        When it was used last, in seconds since the epoch.
    open
        Public and not gated; None: not known.
    files
        Weights files of which bytes are here.
    """

    repo: str
    revision: str
    label: str
    bytes: int
    total: int | None
    whole: bool
    used: float
    open: bool | None
    files: list[KeptFile]


class _Metadata(Struct):
    total_size: int = 0


class _Index(Struct):
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)
    weight_map: dict[str, str] = {}


def describe(model: ModelFiles) -> Kept | None:
    """What is here of a model; None where nothing is."""
    about = model.about
    if about is None:
        return None
    files = [
        KeptFile(name=file.name, bytes=sum(hi - lo for lo, hi in joined(file.held())), size=file.size)
        for file in model.files()
    ]
    used = 0.0
    for path in (model.home, model.used):
        with contextlib.suppress(OSError):
            used = max(used, path.stat().st_mtime)
    total, named = _said(model, files)
    return Kept(
        repo=model.repo,
        revision=model.revision,
        label=about.label,
        bytes=bytes_below(model.home),
        total=total,
        whole=total is not None
        and sum(file.bytes for file in files) >= total
        and named <= {file.name for file in files},
        used=used,
        open=about.open,
        files=files,
    )


def bytes_below(folder: Path) -> int:
    """Bytes of all files in a folder, and in those in it."""
    return sum(
        disk.regular_size(Path(inside, file)) or 0 for inside, _, files in os.walk(folder) for file in files
    )


def _said(model: ModelFiles, files: list[KeptFile]) -> tuple[int | None, set[str]]:
    """Bytes of all its weights, where that is known, and the files that its index names."""
    found: list[tuple[float, Path]] = []  # a room may have brought another; of these the newest
    with contextlib.suppress(OSError):
        found = [(path.lstat().st_mtime, path) for path in model.folder.glob(f"*/{_INDEX}")]
    index = max(found, default=(0.0, None))[1]
    if index is None and (cached := hub_file(model.repo, model.revision, _INDEX)) is not None:
        index = cached.resolve()  # the hub's cache has links to what it keeps
    if index is None or (size := disk.regular_size(index)) is None:
        return sum(file.size for file in files) or None, set()
    data = disk.read_range(index, 0, size) if size <= _MAX_INDEX else None
    try:
        said = msgspec.json.decode(data or b"", type=_Index)
    except (msgspec.MsgspecError, ValueError):
        return None, set()
    named = set(said.weight_map.values())
    sizes = {file.name: file.size for file in files}
    every = sum(sizes[name] for name in named) if named <= sizes.keys() else 0
    return said.metadata.total_size or every or None, named
