"""The form in which keys and values are kept: as they are (``f16``), or as int8 with a scale a row (``q8``).

A row is what one head keeps of one column. It is quantized once, when its column is written, from its own
numbers alone, and every later frame attends over what was kept. So whatever a column's bits depend on in
exact mode stays all they depend on (DESIGN section 5): ``q8`` rooms agree among themselves, bit for bit,
and are a class of their own beside ``f16`` ones.
"""

from __future__ import annotations

from typing import Protocol

import torch

_STEPS = 127


class Store(Protocol):
    """Keys and values of one layer's columns: ``[1, heads, columns, dim]`` each, their own head and dim."""

    def write(self, pos: int, keys: torch.Tensor, values: torch.Tensor) -> None:
        """Keep columns ``[pos, pos + n)``; what stood there is gone."""

    def scatter(self, columns: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> None:
        """Keep row ``i`` as column ``columns[i]`` (int64, on the device): where that is no number yet."""

    def read(self, length: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Columns ``[0, length)`` in the room's dtype: good until the next read, of any layer."""

    def copies(self, length: int, start: int = 0) -> list[torch.Tensor]:
        """Copy columns ``[start, length)`` in the form they are kept in."""

    def paste(self, tensors: list[torch.Tensor], length: int, start: int = 0) -> None:
        """Put back what `copies` gave."""

    def zero(self) -> None:
        """Forget all numbers, NaN included."""

    @property
    def nbytes(self) -> int:
        """Bytes allocated for the columns."""


class Scratch:
    """Memory for one layer's columns in the room's dtype, used by one layer after the other.

    Dequantized columns are needed only while their layer attends, so that all layers share it, whatever
    their shapes. It grows to the largest of them.
    """

    def __init__(self) -> None:
        self._pools: dict[tuple[int, torch.dtype, torch.device], torch.Tensor] = {}

    def want(self, which: int, numbers: int, like: torch.Tensor) -> None:
        """See that ``numbers`` of the dtype and place of ``like`` fit into pool ``which``."""
        key = (which, like.dtype, like.device)
        held = self._pools.get(key)
        if held is None or held.numel() < numbers:
            self._pools[key] = torch.zeros(numbers, dtype=like.dtype, device=like.device)

    def view(self, which: int, shape: torch.Size, like: torch.Tensor) -> torch.Tensor:
        """The first numbers of pool ``which``, in this shape; `want` made room for them."""
        return self._pools[which, like.dtype, like.device][: shape.numel()].view(shape)

    @property
    def nbytes(self) -> int:
        """Bytes allocated."""
        return sum(pool.nbytes for pool in self._pools.values())


def open_store(
    kv: str, keys: torch.Tensor, values: torch.Tensor, capacity: int, scratch: Scratch | None = None
) -> Store:
    """Allocate a layer's columns.

    Parameters
    ----------
    kv
        One of `footprint.KV_FORMS`.
    keys, values
        Some columns of this layer, ``[1, heads, n, dim]``: their shape, dtype and place are taken.
    capacity
        Columns to allocate.
    scratch
        Shared between layers; None where what is read must last (layers that attend over another's columns).
    """
    if kv == "f16":
        return PlainStore(keys, values, capacity)
    return Int8Store(keys, values, capacity, scratch or Scratch())


class PlainStore:
    """Columns in the room's dtype; what is read is a view."""

    def __init__(self, keys: torch.Tensor, values: torch.Tensor, capacity: int) -> None:
        self.keys, self.values = _empty(keys, capacity), _empty(values, capacity)
        self._seen: tuple[torch.Tensor, torch.Tensor] | None = None
        self._length = -1

    def write(self, pos: int, keys: torch.Tensor, values: torch.Tensor) -> None:
        """See `Store.write`."""
        self.keys.narrow(2, pos, keys.shape[2]).copy_(keys)
        self.values.narrow(2, pos, values.shape[2]).copy_(values)

    def scatter(self, columns: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> None:
        """See `Store.scatter`."""
        self.keys.index_copy_(2, columns, keys)
        self.values.index_copy_(2, columns, values)

    def read(self, length: int) -> tuple[torch.Tensor, torch.Tensor]:
        """See `Store.read`; these views stay good."""
        if self._seen is None or self._length != length:
            self._seen = self.keys.narrow(2, 0, length), self.values.narrow(2, 0, length)
            self._length = length
        return self._seen

    def copies(self, length: int, start: int = 0) -> list[torch.Tensor]:
        """See `Store.copies`: keys, values."""
        return [_rows(tensor, length, start) for tensor in (self.keys, self.values)]

    def paste(self, tensors: list[torch.Tensor], length: int, start: int = 0) -> None:
        """See `Store.paste`."""
        for mine, given in zip((self.keys, self.values), tensors, strict=True):
            mine.narrow(2, start, length - start).copy_(given)

    def zero(self) -> None:
        """See `Store.zero`."""
        self.keys.zero_()
        self.values.zero_()

    @property
    def nbytes(self) -> int:
        """See `Store.nbytes`."""
        return self.keys.nbytes + self.values.nbytes


class Int8Store:
    """Columns as int8 numbers and a scale for each (column, head) row; dequantized for each frame."""

    def __init__(self, keys: torch.Tensor, values: torch.Tensor, capacity: int, scratch: Scratch) -> None:
        self._scratch = scratch
        self._numbers = [_empty(tensor, capacity, torch.int8) for tensor in (keys, values)]
        self._scales = [_empty(tensor[..., :1], capacity) for tensor in (keys, values)]
        for which, (numbers, scales) in enumerate(zip(self._numbers, self._scales, strict=True)):
            scratch.want(which, numbers.numel(), scales)

    def write(self, pos: int, keys: torch.Tensor, values: torch.Tensor) -> None:
        """See `Store.write`."""
        for numbers, scales, given in zip(self._numbers, self._scales, (keys, values), strict=True):
            quantized, scale = quantize(given)
            numbers.narrow(2, pos, given.shape[2]).copy_(quantized)
            scales.narrow(2, pos, given.shape[2]).copy_(scale)

    def scatter(self, columns: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> None:
        """See `Store.scatter`."""
        for numbers, scales, given in zip(self._numbers, self._scales, (keys, values), strict=True):
            quantized, scale = quantize(given)
            numbers.index_copy_(2, columns, quantized)
            scales.index_copy_(2, columns, scale)

    def read(self, length: int) -> tuple[torch.Tensor, torch.Tensor]:
        """See `Store.read`."""
        keys, values = (self._read(which, length) for which in (0, 1))
        return keys, values

    def _read(self, which: int, length: int) -> torch.Tensor:
        numbers, scales = (held[which].narrow(2, 0, length) for held in (self._numbers, self._scales))
        # Integers up to 127 are exact in every dtype of a room: one rounding, that of the product.
        out = self._scratch.view(which, numbers.shape, scales)
        return out.copy_(numbers).mul_(scales)

    def copies(self, length: int, start: int = 0) -> list[torch.Tensor]:
        """See `Store.copies`: numbers of keys and values, then their scales."""
        return [_rows(tensor, length, start) for tensor in (*self._numbers, *self._scales)]

    def paste(self, tensors: list[torch.Tensor], length: int, start: int = 0) -> None:
        """See `Store.paste`."""
        for mine, given in zip((*self._numbers, *self._scales), tensors, strict=True):
            mine.narrow(2, start, length - start).copy_(given)

    def zero(self) -> None:
        """See `Store.zero`."""
        for tensor in (*self._numbers, *self._scales):
            tensor.zero_()

    @property
    def nbytes(self) -> int:
        """See `Store.nbytes`; the scratch, which others share, is not counted."""
        return sum(tensor.nbytes for tensor in (*self._numbers, *self._scales))


def quantize(rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Quantize each row by its largest number, symmetrically, halves to even.

    Every step rounds as IEEE 754 says, each number by itself: the same bits in frames of any width, and on
    any device of one ``sig``.

    Parameters
    ----------
    rows
        ``[…, dim]``, floating. NaN or infinity in a row makes NaN of what it is read as.

    Returns
    -------
    numbers, scales
        ``[…, dim]`` int8 in −127…127, and ``[…, 1]`` in the dtype of ``rows``: their product is the row.
    """
    wide = rows.float()
    scales = (wide.abs().amax(-1, keepdim=True) / _STEPS).to(rows.dtype)
    step = scales.float()
    # A row of zeros, or of numbers too small for a scale of this dtype, is kept as zeros.
    numbers = (wide / torch.where(step == 0, 1.0, step)).round_().clamp_(-_STEPS, _STEPS)
    return numbers.to(torch.int8), scales


def _empty(like: torch.Tensor, capacity: int, dtype: torch.dtype | None = None) -> torch.Tensor:
    # Zeros, not garbage: a masked column weighs 0, and 0 times NaN would be NaN.
    shape = (like.shape[0], like.shape[1], capacity, like.shape[3])
    return torch.zeros(shape, dtype=dtype or like.dtype, device=like.device)


def _rows(tensor: torch.Tensor, length: int, start: int) -> torch.Tensor:
    return tensor.narrow(2, start, length - start).clone(memory_format=torch.contiguous_format)
