"""Which file of a folder holds which tensor, from the safetensors headers and the index: no weight is read.

A safetensors file starts with the header's length (u64, little-endian) and the header (JSON): for each
tensor its dtype, shape and byte range, counted from the header's end.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any

from pooled_nb.errors import ModelNotFound

MAX_HEADER = 100_000_000
BITS = {"F64": 64, "F32": 32, "F16": 16, "BF16": 16, "F8_E4M3": 8, "F8_E5M2": 8, "BOOL": 8}
BITS |= {f"{sign}{bits}": bits for sign in "IU" for bits in (8, 16, 32, 64)}
INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"
OTHER_WEIGHTS = ("*.bin", "*.pt", "*.pth", "*.gguf", "*.h5", "*.msgpack", "*.onnx")


@dataclass(frozen=True, slots=True)
class Entry:
    """Where one tensor lies: ``start`` and ``end`` are bytes of the file."""

    file: Path
    dtype: str
    shape: tuple[int, ...]
    start: int
    end: int


@dataclass
class TensorMap:
    """The tensors of a folder.

    Attributes
    ----------
    entries
        What the files' headers hold.
    absent
        What the index names without a header to show for it, and why, in words.
    """

    entries: dict[str, Entry] = field(default_factory=dict)
    absent: dict[str, str] = field(default_factory=dict)

    def dtype(self) -> str | None:
        """Name, as torch has it, of the floating dtype that holds most bytes; None when nothing is there."""
        sizes: dict[str, int] = {}
        for entry in self.entries.values():
            sizes[entry.dtype] = sizes.get(entry.dtype, 0) + entry.end - entry.start
        names = {"F32": "float32", "BF16": "bfloat16", "F16": "float16", "F64": "float64"}
        known = [(size, names[dtype]) for dtype, size in sizes.items() if dtype in names]
        return max(known)[1] if known else None


def _damaged(file: Path, why: str) -> ModelNotFound:
    return ModelNotFound(
        f"{file.name} is not a whole safetensors file: {why}.", "Delete it and fetch it again."
    )


def read_header(file: Path) -> dict[str, Entry]:
    """Read one file's header.

    Raises
    ------
    ModelNotFound
        The file cannot be read, is cut short, or its header contradicts itself.
    """
    try:
        size = file.stat().st_size
        with file.open("rb") as stream:
            length = int.from_bytes(stream.read(8), "little")
            if not 2 <= length <= min(MAX_HEADER, size - 8):
                raise _damaged(file, "its header is cut short or too long")
            header: Any = json.loads(stream.read(length))
    except OSError as error:
        raise ModelNotFound(f"{file.name} cannot be read: {error.strerror}.", "Check the folder.") from error
    except ValueError as error:
        raise _damaged(file, "its header is no JSON") from error
    if not isinstance(header, dict):
        raise _damaged(file, "its header is no table")
    entries = {}
    for name, fact in header.items():
        if name == "__metadata__":
            continue
        try:
            dtype = str(fact["dtype"])
            shape = tuple(int(n) for n in fact["shape"])
            start, end = (int(n) for n in fact["data_offsets"])
        except (KeyError, TypeError, ValueError) as error:
            raise _damaged(file, f"it does not say where {name} lies") from error
        if min(shape, default=0) < 0 or not 0 <= start <= end:
            raise _damaged(file, f"the range of {name} is impossible")
        if end + 8 + length > size:
            raise _damaged(file, f"it ends before {name} does")
        if dtype in BITS and prod(shape) * BITS[dtype] != (end - start) * 8:
            raise _damaged(file, f"{name} has another size than its shape says")
        entries[name] = Entry(file, dtype, shape, start + 8 + length, end + 8 + length)
    return entries


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
    index = folder / INDEX
    if index.exists():
        return _indexed(folder, index)
    files = [folder / SINGLE] if (folder / SINGLE).exists() else sorted(folder.glob("*.safetensors"))
    if not files:
        others = sorted(file.name for pattern in OTHER_WEIGHTS for file in folder.glob(pattern))
        only = f", only {others[0]}" if others else ""
        raise ModelNotFound(
            f"The folder {folder.name} holds no safetensors file{only}.",
            "Use a model that is published as safetensors; other formats are not read.",
        )
    found = TensorMap()
    for file in files:
        for name, entry in read_header(file).items():
            if name in found.entries:
                raise ModelNotFound(
                    f"{found.entries[name].file.name} and {file.name} both hold {name}.",
                    f"Remove the stray file, or add {INDEX}.",
                )
            found.entries[name] = entry
    return found


def _indexed(folder: Path, index: Path) -> TensorMap:
    try:
        where: Any = json.loads(index.read_bytes())["weight_map"]
    except OSError as error:
        raise ModelNotFound(f"{INDEX} cannot be read: {error.strerror}.", "Check the folder.") from error
    except (ValueError, KeyError, TypeError) as error:
        raise ModelNotFound(f"{INDEX} is damaged.", "Delete it and fetch it again.") from error
    found = TensorMap()
    if not isinstance(where, dict) or not all(isinstance(file, str) for file in where.values()):
        raise ModelNotFound(f"{INDEX} is damaged.", "Delete it and fetch it again.")
    headers: dict[str, dict[str, Entry] | None] = {}
    for name, file in where.items():
        if file not in headers:
            # The index comes from outside: a name in it never leads out of the folder.
            path = folder / file
            plain = Path(file).name == file and file.endswith(".safetensors")
            headers[file] = read_header(path) if plain and path.exists() else None
        held = headers[file]
        if held is None:
            found.absent[name] = f"{file}, which the index names for it, is not in the folder"
        elif name not in held:
            found.absent[name] = f"{file}, which the index names for it, does not hold it"
        else:
            found.entries[name] = held[name]
    return found
