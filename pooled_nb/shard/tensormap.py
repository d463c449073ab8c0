"""Where each tensor of a model lies on this device: in files of a folder, or segments of the range cache.

Headers and index say what there is; nothing of the weights is read here.
"""

from __future__ import annotations

import stat
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from pooled_nb.errors import ModelNotFound
from pooled_nb.shard.headers import INDEX, MAX_HEADER, SINGLE, read_index, read_layout, unread
from pooled_nb.shard.layout import Layout, Tensor
from pooled_nb.shard.tensors import other_tower

OTHER_WEIGHTS = ("*.bin", "*.pt", "*.pth", "*.gguf", "*.h5", "*.msgpack", "*.onnx")
NOT_HERE = "its bytes are not on this device"


class Seen(NamedTuple):
    """What tells that a file is still the one whose header was read."""

    size: int
    mtime_ns: int
    inode: int


@dataclass(frozen=True, slots=True)
class Entry:
    """Where one tensor lies.

    Attributes
    ----------
    file
        A whole file of the model, or a part of one.
    dtype
        Its format's word, as ``BF16``.
    start, end
        Bytes of ``file``.
    name
        The model's file, for sentences: a part of it goes by another name.
    seen
        The state of ``file`` when this was found; None where nobody looked.
    """

    file: Path
    dtype: str
    shape: tuple[int, ...]
    start: int
    end: int
    name: str = ""
    seen: Seen | None = None

    @property
    def source(self) -> str:
        """The file's name, as people know it."""
        return self.name or self.file.name


@dataclass
class TensorMap:
    """The tensors of a model that are here.

    Attributes
    ----------
    entries
        What the files' headers hold, and this device has.
    absent
        What there is besides, by index or headers, and why it cannot be read, in words.
    """

    entries: dict[str, Entry] = field(default_factory=dict)
    absent: dict[str, str] = field(default_factory=dict)

    def dtype(self) -> str | None:
        """See `main_dtype`."""
        return main_dtype(
            (name, entry.dtype, entry.end - entry.start) for name, entry in self.entries.items()
        )


def main_dtype(tensors: Iterable[tuple[str, str, int]]) -> str | None:
    """Name, as torch has it, of the floating dtype that holds most bytes of a text model; None without any.

    Parameters
    ----------
    tensors
        Name, dtype as ``BF16`` and bytes of each.
    """
    sizes: dict[str, int] = {}
    for name, dtype, size in tensors:
        if not other_tower(name):
            sizes[dtype] = sizes.get(dtype, 0) + size
    names = {"F32": "float32", "BF16": "bfloat16", "F16": "float16", "F64": "float64"}
    known = [(size, names[dtype]) for dtype, size in sizes.items() if dtype in names]
    return max(known)[1] if known else None


Locate = Callable[[int, int], tuple[Path, int] | None]
"""Where bytes ``[lo, hi)`` of a model's file lie: in which file on this device, from which byte of it on."""


def look(path: Path) -> Seen:
    """Look at a file. What is none, a pipe say, could be waited for without end.

    Raises
    ------
    OSError
    """
    state = path.stat()
    if not stat.S_ISREG(state.st_mode):
        raise OSError(0, "it is no plain file")
    return Seen(state.st_size, state.st_mtime_ns, state.st_ino)


def tensor_map(
    files: Mapping[str, tuple[Layout, Locate]],
    where: Mapping[str, str] | None = None,
    *,
    place: str = "on this device",
    seen: Mapping[Path, Seen] | None = None,
) -> TensorMap:
    """Find every tensor of a model whose headers are known.

    Parameters
    ----------
    files
        Of each weights file whose header is here: what the header says, and where its bytes lie.
    where
        Which file holds which tensor, as the model's index says; None: the model has none.
    place
        Where a file is missed that the index names, for the sentence.
    seen
        States of files that were looked at before their headers were read.

    Raises
    ------
    ModelNotFound
        Two of the files hold the same tensor.
    """
    states: dict[Path, Seen | None] = dict(seen or {})
    holder: dict[str, str] = {}
    tensors: dict[str, Tensor] = {}
    for file, (layout, _) in sorted(files.items()):
        for tensor in layout.tensors:
            if tensor.name in holder:
                raise _both(holder[tensor.name], file, tensor.name, indexed=where is not None)
            holder[tensor.name], tensors[tensor.name] = file, tensor
    found = TensorMap()
    for name, file in (holder if where is None else where).items():
        if file not in files:
            found.absent[name] = f"{file}, which the index names for it, is not {place}"
        elif holder.get(name) != file:
            found.absent[name] = f"{file}, which the index names for it, does not hold it"
        elif (entry := _entry(tensors[name], file, files[file][1], states)) is not None:
            found.entries[name] = entry
        else:
            found.absent[name] = NOT_HERE
    return found


def _entry(tensor: Tensor, file: str, locate: Locate, states: dict[Path, Seen | None]) -> Entry | None:
    at = locate(tensor.lo, tensor.hi)
    if at is None:
        return None
    path, start = at
    if path not in states:
        try:
            states[path] = look(path)
        except OSError:  # deleted a moment ago
            states[path] = None
    state, end = states[path], start + tensor.hi - tensor.lo
    if state is None or state.size < end:
        return None
    return Entry(path, tensor.kind, tensor.shape, start, end, file, state)


def _both(one: str, other: str, name: str, *, indexed: bool) -> ModelNotFound:
    step = "Fetch the model again." if indexed else f"Remove the stray file, or add {INDEX}."
    return ModelNotFound(f"{one} and {other} both hold {name}.", step)


def whole(path: Path) -> Locate:
    """Say where a file's bytes lie that is here whole."""
    return lambda lo, hi: (path, lo)


def read_map(folder: Path) -> TensorMap:
    """Find every tensor of a folder.

    The index decides where there is one, then ``model.safetensors``, then all safetensors files together;
    other files are strays and are not looked at. A folder may hold only a device's own range, so an indexed
    file that is not here is no error until one of its tensors is needed.

    Raises
    ------
    ModelNotFound
        No safetensors file is there, a file or the index is damaged, or two files hold the same tensor.
    """
    where = folder_index(folder)
    if where is not None:
        # The index comes from outside: a name in it never leads out of the folder.
        plain = {f for f in where.values() if Path(f).name == f and f.endswith(".safetensors")}
        files = [path for name in sorted(plain) if (path := folder / name).exists()]
    elif (folder / SINGLE).exists():
        files = [folder / SINGLE]
    else:
        files = sorted(folder.glob("*.safetensors"))
        if not files:
            others = sorted(file.name for pattern in OTHER_WEIGHTS for file in folder.glob(pattern))
            only = f", only {others[0]}" if others else ""
            raise ModelNotFound(
                f"The folder {folder.name} holds no safetensors file{only}.",
                "Use a model that is published as safetensors; other formats are not read.",
            )
    return _of_files(files, where)


def _of_files(files: Iterable[Path], where: Mapping[str, str] | None) -> TensorMap:
    seen: dict[Path, Seen] = {}
    layouts: dict[str, tuple[Layout, Locate]] = {}
    for file in files:
        try:
            seen[file] = look(file)  # before the header is read: a file that changes since is refused
        except OSError as error:
            raise unread(file.name, error) from error
        layouts[file.name] = (read_layout(file), whole(file))
    return tensor_map(layouts, where, place="in the folder", seen=seen)


def folder_index(folder: Path) -> dict[str, str] | None:
    """Read the index of a folder; None where it has none.

    Raises
    ------
    ModelNotFound
        It is damaged.
    """
    index = folder / INDEX
    if not index.exists():
        return None
    try:
        look(index)
        with index.open("rb") as stream:
            return read_index(stream.read(MAX_HEADER + 1))
    except OSError as error:
        raise unread(INDEX, error) from error
