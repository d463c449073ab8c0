"""A GGUF file's first part: facts about the model, and where its tensors lie. Read strictly: it is untrusted.

It is the magic, a version, two counts, the facts (key, type, value) and the tensors (name, dimensions, type,
offset); then, at the next multiple of the alignment, the numbers. How long it is, is said nowhere.
"""

from __future__ import annotations

import struct
from math import prod
from typing import Any, NamedTuple

from pooled_nb.errors import ModelError, ModelNotFound, ModelNotSupported
from pooled_nb.shard.gguf.kinds import TYPES

MAX_HEADER = 100_000_000
"""Bytes of the first part, as of a safetensors header."""
START = 24
"""Bytes up to the first fact."""
MAX_FACTS, MAX_TENSORS = 4096, 65536
MAX_ITEMS = 4_000_000
"""Entries of all lists together: vocabularies have up to 300,000 tokens, and twice as many merges."""
MAX_KEY, MAX_NAME = 256, 128
"""Bytes; the format itself allows 64 for a tensor's name."""
_MAX_DIM, _MAX_NUMBERS = 1 << 32, 1 << 44
_MAX_ALIGNMENT = 1 << 16

_PLAIN = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _LIST = 8, 9


class RawTensor(NamedTuple):
    """One tensor: bytes ``[lo, hi)`` of the file; ``shape`` with rows first, as torch has it."""

    name: str
    type: str
    shape: tuple[int, ...]
    lo: int
    hi: int


class Header(NamedTuple):
    """What the first ``end`` bytes say; tensors in order of ``lo``."""

    end: int
    facts: dict[str, Any]
    tensors: tuple[RawTensor, ...]


class _MoreNeeded(Exception):
    """The bytes end before the first part does."""


def read_header(head: bytes, size: int, name: str) -> Header | None:
    """Read the first part of a file; None where ``head`` ends before it does.

    Parameters
    ----------
    head
        The file's first bytes.
    size
        Bytes of the whole file.
    name
        The file's, for the sentences.

    Raises
    ------
    ModelNotFound
        It is cut short, is none, or contradicts itself.
    ModelNotSupported
        It is one that is not read, and says why.
    """
    try:
        return _read(_Bytes(head, name), size, name)
    except _MoreNeeded:
        if len(head) >= size:
            raise damaged(name, "it ends before its header does") from None
        if len(head) >= MAX_HEADER:
            raise damaged(name, f"its header would have over {MAX_HEADER / 1e6:.0f} MB") from None
        return None


def damaged(name: str, why: str) -> ModelNotFound:
    """Say why a file is none that can be read."""
    return ModelNotFound(f"{name} is not a whole GGUF file: {why}.", "Delete it and fetch it again.")


def unsupported(name: str, why: str, step: str = "Choose another model.") -> ModelError:
    """Say that a file is whole, and not read all the same."""
    return ModelNotSupported(f"{name} {why}.", step)


class _Bytes:
    """A cursor over bytes that may end anywhere."""

    def __init__(self, data: bytes, name: str) -> None:
        self._data, self._name = data, name
        self.at = 0
        self._items = 0

    def take(self, count: int) -> bytes:
        end = self.at + count
        if end > MAX_HEADER:
            raise damaged(self._name, f"its header would have over {MAX_HEADER / 1e6:.0f} MB")
        if end > len(self._data):
            raise _MoreNeeded
        found = self._data[self.at : end]
        self.at = end
        return found

    def number(self, form: str) -> Any:
        return struct.unpack(f"<{form}", self.take(struct.calcsize(f"<{form}")))[0]

    def text(self, most: int = MAX_HEADER) -> str:
        length = self.number("Q")
        if length > most:
            raise damaged(self._name, f"a text in its header would have {length} bytes")
        try:
            return self.take(length).decode()
        except UnicodeDecodeError as error:
            raise damaged(self._name, "a text in its header is none") from error

    def value(self) -> Any:
        kind = self.number("I")
        return self._list() if kind == _LIST else self._one(kind)

    def _one(self, kind: int) -> Any:
        if kind == _STRING:
            return self.text()
        if kind not in _PLAIN:
            raise damaged(self._name, f"a fact in its header has the type {kind}, which is none")
        return self.number(_PLAIN[kind])

    def _list(self) -> list[Any]:
        kind, count = self.number("I"), self.number("Q")
        self._items += count
        if self._items > MAX_ITEMS:
            raise damaged(self._name, f"the lists in its header would have over {MAX_ITEMS} entries")
        if kind in _PLAIN:
            form = f"<{count}{_PLAIN[kind]}"
            return list(struct.unpack(form, self.take(struct.calcsize(form))))
        if kind != _STRING:
            raise damaged(self._name, f"a list in its header has the type {kind}, which is none")
        return [self.text() for _ in range(count)]


def _read(data: _Bytes, size: int, name: str) -> Header:
    if data.take(4) != b"GGUF":
        raise damaged(name, "it does not begin as one")
    version = data.number("I")
    if version & 0xFFFF == 0:
        raise unsupported(name, "is written for big-endian machines")
    if version not in (2, 3):
        raise unsupported(name, f"is GGUF of version {version}", "Fetch a newer file: 2 and 3 are read.")
    tensors, facts = data.number("Q"), data.number("Q")
    if tensors > MAX_TENSORS or facts > MAX_FACTS:
        raise damaged(name, f"its header would have {tensors} tensors and {facts} facts")
    said: dict[str, Any] = {}
    for _ in range(facts):
        key = data.text(MAX_KEY)
        if key in said:
            raise damaged(name, f"its header names {key} twice")
        said[key] = data.value()
    if said.get("split.count", 1) not in (0, 1):
        raise unsupported(
            name,
            f"is one of {said['split.count']!r:.40} parts of a model",
            "Join them with llama.cpp's llama-gguf-split --merge, or choose one that is a single file.",
        )
    raw = [_tensor(data, name) for _ in range(tensors)]
    alignment = said.get("general.alignment", 32)
    if not isinstance(alignment, int) or not 8 <= alignment <= _MAX_ALIGNMENT or alignment % 8:
        raise damaged(name, f"its tensors would be aligned to {alignment!r:.40} bytes")
    return _placed(data.at, said, raw, alignment, size, name)


def _tensor(data: _Bytes, name: str) -> tuple[str, str, tuple[int, ...], int, int]:
    """One tensor's name, type, shape, offset and bytes."""
    own, count = data.text(MAX_NAME), data.number("I")
    if not 1 <= count <= 4:
        raise damaged(name, f"{own} has {count} dimensions")
    dims = [data.number("Q") for _ in range(count)]
    if not all(0 < dim < _MAX_DIM for dim in dims) or prod(dims) > _MAX_NUMBERS:
        raise damaged(name, f"{own} has the impossible shape {dims}")
    number, offset = data.number("I"), data.number("Q")
    type = TYPES.get(number)
    if type is None:
        raise unsupported(
            name,
            f"holds {own} as type {number}, which is not read",
            "Choose a file of the usual types: F32, F16, BF16, Q4_0 to Q8_0, Q2_K to Q6_K, IQ1 to IQ4.",
        )
    if dims[0] % type.group:
        raise damaged(name, f"a row of {own} has {dims[0]} numbers, which {type.name} cannot hold")
    return own, type.name, tuple(reversed(dims)), offset, prod(dims) // type.group * type.size


def _placed(
    end: int,
    facts: dict[str, Any],
    raw: list[tuple[str, str, tuple[int, ...], int, int]],
    alignment: int,
    size: int,
    name: str,
) -> Header:
    """Tensors follow each other, each at the first multiple of the alignment, and nothing else is there."""

    def padded(at: int) -> int:
        return (at + alignment - 1) // alignment * alignment

    start, at, tensors = padded(end), 0, list[RawTensor]()
    seen: set[str] = set()
    for own, type, shape, offset, length in sorted(raw, key=lambda tensor: tensor[3]):
        if own in seen:
            raise damaged(name, f"its header names {own} twice")
        seen.add(own)
        if offset != padded(at):
            how = "overlaps the tensor before it" if offset < at else "does not follow the tensor before it"
            raise damaged(name, f"{own} {how}")
        at = offset + length
        tensors.append(RawTensor(own, type, shape, start + offset, start + at))
    if not start + at <= size <= start + padded(at):
        short = start + at - size
        count = f"{abs(short)} {'byte' if abs(short) == 1 else 'bytes'}"
        raise damaged(name, f"it is {count} {'shorter' if short > 0 else 'longer'} than its header says")
    return Header(start, facts, tuple(tensors))
