"""The file of one checkpoint: a head, the numbers, and a checksum over all of it (PROTOCOL section 7).

What is torn, longer or altered anywhere reads as missing. Tensors go through one after the other, because a
copy is written when memory is short: safetensors would hold all of them a second time, and checks no sums.
"""

from __future__ import annotations

import hashlib
import io
import math
import os
from collections.abc import Callable, Iterable
from typing import BinaryIO

import msgspec
import torch
from msgspec import Struct

MAGIC = b"pnbckpt1"
_HEAD_MAX = 1 << 22
_COUNT = 4
_SUM = 32
_PIECE = 1 << 24

_DTYPES = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (
        torch.float64, torch.float32, torch.bfloat16, torch.float16,
        torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool,
    )
}  # fmt: skip


class Form(Struct, frozen=True, array_like=True):
    """A tensor's dtype (torch name) and shape."""

    dtype: str
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        """Bytes its numbers take.

        Raises
        ------
        KeyError
            No tensor of ours has this dtype.
        """
        return math.prod(self.shape) * _DTYPES[self.dtype].itemsize


class Head(Struct, frozen=True):
    """What a file holds: for which key and slot, of how many columns, and its tensors layer by layer."""

    key: str
    slot: int
    length: int
    layers: list[list[Form]]

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors."""
        return sum(form.nbytes for layer in self.layers for form in layer)


def form_of(tensor: torch.Tensor) -> Form:
    """Describe a tensor."""
    return Form(str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape))


def size_of(head: Head) -> int:
    """Bytes of the whole file."""
    return len(MAGIC) + _COUNT + len(msgspec.msgpack.encode(head)) + head.nbytes + _SUM


def write(file: BinaryIO, head: Head, layers: Iterable[list[torch.Tensor]]) -> None:
    """Write a checkpoint from where the file stands, and see that it is on the disk.

    Raises
    ------
    OSError
        The disk is full, or the like.
    ValueError
        The tensors are not those of the head.
    """
    digest = hashlib.blake2b(digest_size=_SUM)

    def put(data: bytes | memoryview) -> None:
        digest.update(data)
        _put(file, data)

    packed = msgspec.msgpack.encode(head)
    put(MAGIC + len(packed).to_bytes(_COUNT, "little") + packed)
    for forms, tensors in zip(head.layers, layers, strict=True):
        for form, tensor in zip(forms, tensors, strict=True):
            if form_of(tensor) != form:
                raise ValueError(f"{form_of(tensor)} is not {form}")
            put(_bytes(tensor.detach().cpu().contiguous()))
    _put(file, digest.digest())
    file.flush()
    os.fsync(file.fileno())


def read(
    file: BinaryIO, key: str, slot: int, *, keep: bool = True
) -> tuple[Head, list[list[torch.Tensor]]] | None:
    """Read a checkpoint from the beginning of a file.

    Parameters
    ----------
    keep
        Off: the tensors are only checked, and none is returned.

    Returns
    -------
    Head and tensors by layer, on the CPU
        None when it is not whole, or is of another key or slot.

    Raises
    ------
    OSError
        The disk fails.
    """
    file.seek(0)
    digest = hashlib.blake2b(digest_size=_SUM)

    def take(size: int) -> bytes:
        data = file.read(size)
        digest.update(data)
        return data

    start = take(len(MAGIC) + _COUNT)
    count = int.from_bytes(start[len(MAGIC) :], "little")
    if len(start) != len(MAGIC) + _COUNT or start[: len(MAGIC)] != MAGIC or count > _HEAD_MAX:
        return None
    try:
        head = msgspec.msgpack.decode(take(count), type=Head)
        whole = len(start) + count + head.nbytes + _SUM
    except (msgspec.DecodeError, KeyError):
        return None
    if any(size < 0 for layer in head.layers for form in layer for size in form.shape):
        return None
    # Before anything is allocated: a head may say any size.
    if file.seek(0, io.SEEK_END) != whole or (head.key, head.slot) != (key, slot):
        return None
    file.seek(len(start) + count)
    layers: list[list[torch.Tensor]] = []
    for forms in head.layers:
        tensors = []
        for form in forms:
            numbers = torch.empty(form.shape, dtype=_DTYPES[form.dtype])
            if not _fill(file, _bytes(numbers), digest.update):
                return None
            tensors.append(numbers)
        layers.append(tensors if keep else [])
    return (head, layers) if file.read(_SUM) == digest.digest() else None


def _bytes(tensor: torch.Tensor) -> memoryview:
    """The numbers of a contiguous CPU tensor, as they lie in memory."""
    return tensor.view(-1).view(torch.uint8).numpy().data.cast("B")


def _put(file: BinaryIO, data: bytes | memoryview) -> None:
    """Write all of it: a file without a buffer may take a part."""
    rest = memoryview(data)
    while rest:
        rest = rest[file.write(rest) :]


def _fill(file: BinaryIO, into: memoryview, seen: Callable[[memoryview], object]) -> bool:
    """Read as many bytes as fit; false where the file ends before."""
    at = 0
    while at < len(into):
        part = into[at : at + _PIECE]
        got = file.readinto(part)  # type: ignore[attr-defined]
        if not got:
            return False
        seen(part[:got])
        at += got
    return True
