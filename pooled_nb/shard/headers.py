"""What a safetensors file's header and a model's index say: read strictly, before anything else of them is.

A safetensors file starts with the header's length (u64, little-endian) and the header (JSON): for each
tensor its dtype, shape and byte range, counted from the header's end. Both come from outside. What the
safetensors library refuses is refused here, and duplicate names besides: two readers would read two models.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from math import prod
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from pooled_nb.errors import ModelNotFound
from pooled_nb.shard.gguf.layout import SUFFIX, header_of, layout_of
from pooled_nb.shard.layout import Layout, Tensor

MAX_HEADER = 100_000_000
"""Bytes of a header, as the library has it; of an index, too."""
PREFIX = 8
"""Bytes of the header's length."""
INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"

BITS = {"F64": 64, "F32": 32, "F16": 16, "BF16": 16, "BOOL": 8, "C64": 64, "F4": 4}
BITS |= {f"{sign}{bits}": bits for sign in "IU" for bits in (8, 16, 32, 64)}
BITS |= {f"F8_{form}": 8 for form in ("E4M3", "E5M2", "E8M0", "E4M3FNUZ", "E5M2FNUZ")}
BITS |= {"F6_E2M3": 6, "F6_E3M2": 6}

_Count = Annotated[int, Meta(ge=0)]
_METADATA = "__metadata__"


class _Fact(Struct):
    dtype: str
    shape: Annotated[list[_Count], Meta(max_length=64)]
    data_offsets: tuple[_Count, _Count]


class _Index(Struct):
    weight_map: dict[str, str]


_table = msgspec.json.Decoder(dict[str, msgspec.Raw])
_fact = msgspec.json.Decoder(_Fact)
_metadata = msgspec.json.Decoder(dict[str, str] | None)
_index = msgspec.json.Decoder(_Index)


def header_end(start: bytes, size: int, name: str) -> int:
    """Where the header of a file ends.

    Parameters
    ----------
    start
        The file's first 8 bytes, or more of them.
    size
        Bytes of the whole file.
    name
        The file's, for the sentences.

    Raises
    ------
    ModelNotFound
        No such file has such a header.
    """
    length = int.from_bytes(start[:PREFIX], "little")
    if len(start) < PREFIX or not 2 <= length <= size - PREFIX:
        raise damaged(name, "it ends before its header does")
    if length > MAX_HEADER:
        raise damaged(name, f"its header would have {length / 1e6:.0f} MB")
    return PREFIX + length


def safetensors_layout(head: bytes, size: int, name: str) -> Layout:
    """Read a file's header.

    Parameters
    ----------
    head
        The file's first bytes: up to its header's end at least.
    size
        Bytes of the whole file.
    name
        The file's, for the sentences.

    Raises
    ------
    ModelNotFound
        It is cut short, is no header, contradicts itself, or does not say where each byte belongs.
    """
    end = header_end(head, size, name)
    if len(head) < end:
        raise damaged(name, "it ends before its header does")
    text = bytes(head[PREFIX:end])
    if not text.startswith(b"{"):
        raise damaged(name, "its header is no table")
    try:
        facts = _table.decode(text)
        _metadata.decode(facts.pop(_METADATA, b"null"))
        tensors = [_tensor(key, fact, name) for key, fact in facts.items()]
        _refuse_twice(text)
    except _Twice as error:
        raise damaged(name, f"its header names {_short(error.name)} twice") from error
    except (ValueError, RecursionError, msgspec.MsgspecError) as error:
        raise damaged(name, "its header is no JSON of tensors") from error
    found = sorted(tensors, key=lambda tensor: (tensor.lo, tensor.hi))
    at = 0
    for tensor in found:
        if tensor.lo != at:
            how = "overlaps the tensor before it" if tensor.lo < at else "leaves a hole before it"
            raise damaged(name, f"{_short(tensor.name)} {how}")
        at = tensor.hi
    if end + at != size:
        raise damaged(name, _difference(end + at - size))
    return Layout(size, end, tuple(t._replace(lo=t.lo + end, hi=t.hi + end) for t in found))


def _difference(short: int) -> str:
    count = f"{abs(short)} {'byte' if abs(short) == 1 else 'bytes'}"
    return f"it is {count} {'shorter' if short > 0 else 'longer'} than its header says"


def _tensor(key: str, raw: msgspec.Raw, name: str) -> Tensor:
    """Read one entry; its range still counts from the header's end."""
    try:
        fact = _fact.decode(raw)
    except (msgspec.ValidationError, RecursionError) as error:
        raise damaged(name, f"it does not say where {_short(key)} lies") from error
    if fact.dtype not in BITS:
        raise damaged(name, f"{_short(key)} has the dtype {_short(fact.dtype)!r}, which is none")
    lo, hi = fact.data_offsets
    if hi < lo:
        raise damaged(name, f"the range of {_short(key)} is impossible")
    if prod(fact.shape) * BITS[fact.dtype] != (hi - lo) * 8:
        raise damaged(name, f"{_short(key)} has another size than its shape says")
    return Tensor(key, fact.dtype, tuple(fact.shape), lo, hi)


def read_layout(file: Path) -> Layout:
    """Read the header of a file on this device; of a GGUF file, too.

    Raises
    ------
    ModelNotFound
        It cannot be read, or `safetensors_layout` refuses it.
    ModelNotSupported
        It is a GGUF file of a model that is not read.
    """
    if file.suffix == SUFFIX:
        return layout_of(*header_of(file), file.name)
    try:
        with file.open("rb") as stream:
            size = os.fstat(stream.fileno()).st_size
            start = stream.read(PREFIX)
            rest = stream.read(header_end(start, size, file.name) - PREFIX)
    except OSError as error:
        raise unread(file.name, error) from error
    return safetensors_layout(start + rest, size, file.name)


def read_index(data: bytes, name: str = INDEX) -> dict[str, str]:
    """Read which file of a model holds which tensor. The names come from outside, and are not checked here.

    Raises
    ------
    ModelNotFound
        It is no index.
    """
    try:
        if len(data) > MAX_HEADER:
            raise ValueError("too large")
        found = _index.decode(data).weight_map
        _refuse_twice(data)
    except _Twice as error:
        raise ModelNotFound(
            f"{name} names {_short(error.name)} twice.", "Delete it and fetch it again."
        ) from error
    except (ValueError, RecursionError, msgspec.MsgspecError) as error:
        raise ModelNotFound(f"{name} is damaged.", "Delete it and fetch it again.") from error
    return found


class _Twice(Exception):
    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


def _refuse_twice(text: bytes) -> None:
    """Refuse a name that stands twice in one table. What it holds is known to be typed and bounded."""

    def look(pairs: list[tuple[str, Any]]) -> None:
        if len({name for name, _ in pairs}) < len(pairs):
            raise _Twice(_first_twice(name for name, _ in pairs))

    json.loads(text, object_pairs_hook=look)


def _first_twice(names: Iterable[str]) -> str:
    seen: set[str] = set()
    return next(name for name in names if name in seen or seen.add(name))  # type: ignore[func-returns-value]


def damaged(name: str, why: str) -> ModelNotFound:
    """Say why a file is none that can be read."""
    return ModelNotFound(f"{name} is not a whole safetensors file: {why}.", "Delete it and fetch it again.")


def unread(name: str, error: OSError) -> ModelNotFound:
    """Say that a file cannot be read."""
    return ModelNotFound(f"{name} cannot be read: {error.strerror or error}.", "Check the folder.")


def _short(words: str) -> str:
    return words if len(words) <= 120 else f"{words[:119]}…"
