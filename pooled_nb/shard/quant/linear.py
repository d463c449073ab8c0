"""Linear layers whose weights are kept in 8 or 4 bits a number; what goes in and comes out is 16-bit.

How a product is computed follows from the device, the dtype and the number of rows alone, so that a row's
bits depend on nothing else (DESIGN section 5, rule 1). What is chosen was measured (benchmarks/RESULTS.md):

- int4 in bf16 on a CPU: torch's own product, at any number of rows, which gives each row the same bits at all
  of them. 2.6 times faster than turning weights back first, at 16 rows.
- int8 in bf16 on a CPU, up to `FEW` rows: torch's own product; as fast at 16 rows, 5 times faster at one.
- On an NVIDIA GPU with Triton, up to as many rows: products of ours (`products`).
- All else: weights are turned back into the room's dtype, a piece at a time on a CPU, then multiplied as
  those of any model are. In float32 torch's own products are 10 to 60 times slower than that.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from pooled_nb.shard.quant import products
from pooled_nb.shard.quant.forms import QUANT_CLASSES, group_of
from pooled_nb.shard.quant.numbers import from_halves, pack_halves, to_groups, to_rows

FEW = 16
"""Rows up to which torch's own int8 product is not slower: the width of frames of generated text."""
PIECE = 4 << 20
"""Bytes of weights that a CPU turns back at once: they stay in its cache, and none is held whole."""


class QuantLinear(nn.Module):
    """Stands in for an `nn.Linear`; its weight is no parameter any more."""

    in_features: int
    out_features: int
    bias: nn.Parameter | None

    @property
    def nbytes(self) -> int:
        """Bytes that stand for the weight."""
        return sum(buffer.nbytes for buffer in self.buffers())

    @property
    def weight(self) -> torch.Tensor:
        """The weight in the room's dtype, made anew: for a model that looks into its weights itself."""
        raise NotImplementedError


class Int8Linear(QuantLinear):
    """``int8-row``: a scale for each number that comes out.

    Parameters
    ----------
    weight
        ``[out, in]``, finite, in the room's dtype.
    """

    numbers: torch.Tensor
    scales: torch.Tensor

    def __init__(self, weight: torch.Tensor, bias: nn.Parameter | None) -> None:
        super().__init__()
        self.out_features, self.in_features = weight.shape
        numbers, scales = to_rows(weight)
        self.register_buffer("numbers", numbers)
        self.register_buffer("scales", scales)
        self.bias = bias

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """As `nn.Linear` does."""
        flat = rows.reshape(-1, self.in_features).contiguous()
        kind = flat.dtype
        if flat.shape[0] <= products.ROWS and products.used(flat.device, kind):
            out = products.int8_product(flat, self.numbers, self.scales)
        elif kind is torch.float16:
            # Before the scale a sum may be too large for it; weights times a scale are as precise as it is.
            out = _by_pieces(flat, self._scaled, self.out_features, None)
        elif flat.shape[0] <= FEW and self.in_features % 32 == 0 and own_int8(flat.device.type, kind):
            # Other rows than these end torch's process.
            out = torch.ops.aten._weight_int8pack_mm(flat, self.numbers, self.scales)
        else:
            out = _by_pieces(
                flat, lambda lo, hi: self.numbers[lo:hi].to(kind), self.out_features, self.scales
            )
        return _biased(out, self.bias).view(*rows.shape[:-1], self.out_features)

    def _scaled(self, lo: int, hi: int) -> torch.Tensor:
        return self.numbers[lo:hi] * self.scales[lo:hi, None]

    @property
    def weight(self) -> torch.Tensor:
        """See `QuantLinear`."""
        return self._scaled(0, self.out_features)


class Int4Linear(QuantLinear):
    """``int4-g128``: a scale and a zero for each group of a row.

    Parameters
    ----------
    weight
        ``[out, in]``, finite, in the room's dtype.
    group
        Numbers of a group; it divides ``in``.
    device
        Where it will compute: a CPU may keep the numbers in an order of its own.
    """

    numbers: torch.Tensor
    scales: torch.Tensor
    zeros: torch.Tensor
    both: torch.Tensor

    def __init__(self, weight: torch.Tensor, bias: nn.Parameter | None, group: int, device: str) -> None:
        super().__init__()
        self.out_features, self.in_features = weight.shape
        self.group = group
        numbers, scales, zeros = to_groups(weight, group)
        self.own = self.out_features % 16 == 0 and own_int4(device, weight.dtype)
        if self.own:
            pack = torch.ops.aten._convert_weight_to_int4pack_for_cpu
            self.register_buffer("numbers", pack(numbers.to(torch.int32), 1))
            self.register_buffer("both", torch.stack((scales.t(), zeros.t()), 2).contiguous())
        else:
            self.register_buffer("numbers", pack_halves(numbers, group))
            self.register_buffer("scales", scales)
            self.register_buffer("zeros", zeros)
        self.bias = bias

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """As `nn.Linear` does."""
        flat = rows.reshape(-1, self.in_features).contiguous()
        if self.own:
            out = self._own(flat)
        elif flat.shape[0] <= products.ROWS and products.used(flat.device, flat.dtype):
            out = products.int4_product(flat, self.numbers, self.scales, self.zeros, self.group)
        else:
            out = _by_pieces(flat, self._wide, self.out_features, None)
        return _biased(out, self.bias).view(*rows.shape[:-1], self.out_features)

    def _own(self, flat: torch.Tensor) -> torch.Tensor:
        product = torch.ops.aten._weight_int4pack_mm_for_cpu
        out: torch.Tensor = product(flat, self.numbers, self.group, self.both)
        return out

    def _wide(self, lo: int, hi: int) -> torch.Tensor:
        return from_halves(self.numbers[lo:hi], self.scales[lo:hi], self.zeros[lo:hi], self.group)

    @property
    def weight(self) -> torch.Tensor:
        """See `QuantLinear`."""
        if not self.own:
            return self._wide(0, self.out_features)
        unit = torch.eye(self.in_features, dtype=self.both.dtype)
        return torch.cat([self._own(unit[at : at + 64]) for at in range(0, len(unit), 64)]).t().contiguous()


def quantized(weight: torch.Tensor, bias: nn.Parameter | None, form: str, device: str) -> QuantLinear:
    """What stands in for a linear layer of this weight.

    Parameters
    ----------
    form
        ``int8`` or ``int4``; a row that no group divides is kept in int8 in both.
    device
        Kind of the device that will compute.
    """
    group = group_of(weight.shape[1]) if form == "int4" else None
    return Int8Linear(weight, bias) if group is None else Int4Linear(weight, bias, group, device)


def _by_pieces(
    flat: torch.Tensor,
    weight: Callable[[int, int], torch.Tensor],
    out: int,
    scales: torch.Tensor | None,
) -> torch.Tensor:
    """Multiply with weights that are turned back for it, some of their rows at a time."""
    step = out
    if flat.device.type == "cpu":
        step = max(16, PIECE // max(1, flat.shape[1] * flat.dtype.itemsize) // 16 * 16)
    parts = [functional.linear(flat, weight(lo, min(out, lo + step))) for lo in range(0, out, step)]
    whole = parts[0] if len(parts) == 1 else torch.cat(parts, 1)
    return whole if scales is None else whole.mul_(scales)


def _biased(out: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    return out if bias is None else out.add_(bias)


def samples(rows: torch.Tensor, weight: torch.Tensor) -> list[torch.Tensor]:
    """The products of ``rows`` with a weight in each form, for the device's signature.

    It must tell apart what computes them in another way.
    """
    kind = weight.device.type
    return [quantized(weight.cpu(), None, form, kind).to(weight.device)(rows) for form in QUANT_CLASSES]


@functools.cache
def own_int8(device: str, dtype: torch.dtype) -> bool:
    """Whether torch's own int8 product is used here; tried once."""
    if device != "cpu" or dtype is not torch.bfloat16:
        return False

    def product(rows: torch.Tensor, weight: torch.Tensor) -> tuple[Any, torch.Tensor]:
        numbers, scales = to_rows(weight)
        return torch.ops.aten._weight_int8pack_mm(rows, numbers, scales), numbers * scales[:, None]

    return _agrees(product)


@functools.cache
def own_int4(device: str, dtype: torch.dtype) -> bool:
    """Whether torch's own int4 product is used here; tried once."""
    if device != "cpu" or dtype is not torch.bfloat16:
        return False

    def product(rows: torch.Tensor, weight: torch.Tensor) -> tuple[Any, torch.Tensor]:
        numbers, scales, zeros = to_groups(weight, 32)
        packed = torch.ops.aten._convert_weight_to_int4pack_for_cpu(numbers.to(torch.int32), 1)
        both = torch.stack((scales.t(), zeros.t()), 2).contiguous()
        own = torch.ops.aten._weight_int4pack_mm_for_cpu(rows, packed, 32, both)
        return own, from_halves(pack_halves(numbers, 32), scales, zeros, 32)

    return _agrees(product)


def _agrees(product: Callable[[torch.Tensor, torch.Tensor], tuple[Any, torch.Tensor]]) -> bool:
    """Whether an operation of torch's that may change or go with a version does what it did."""
    weight = torch.linspace(-1, 1, 64 * 96).mul(37).sin().reshape(64, 96).bfloat16()
    rows = torch.linspace(-1, 1, 16 * 96).mul(23).cos().reshape(16, 96).bfloat16()
    try:
        mine, wide = product(rows, weight)
    except (AttributeError, RuntimeError, NotImplementedError):
        return False
    return bool(torch.allclose(mine.float(), rows.float() @ wide.float().t(), rtol=0.05, atol=0.2))
