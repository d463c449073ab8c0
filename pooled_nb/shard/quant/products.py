"""Products on a GPU that read weights in 8 or 4 bits, where torch would turn them back first.

On an H200 with 16 rows of a 14336 x 4096 layer: 0.7 times a 16-bit product in int8 and 1.3 times in int4;
turned back first they take 6 and 15 times, torch's own products 68 and 2.2 times (benchmarks/RESULTS.md).
"""

from __future__ import annotations

import functools

import torch

from pooled_nb.shard.faults import no_memory
from pooled_nb.shard.fused import ready
from pooled_nb.shard.quant.numbers import from_halves, pack_halves, to_groups, to_rows

ROWS = 16
"""Of a program; and how many rows there may be: with more, turning weights back once costs less."""
_COLUMNS = 32


def int8_product(rows: torch.Tensor, numbers: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    """``rows [m, k]`` times int8 ``numbers [n, k]`` with a scale a row: ``[m, n]``."""
    from pooled_nb.shard.quant import kernels

    (m, k), n = rows.shape, numbers.shape[0]
    out = torch.empty((m, n), dtype=rows.dtype, device=rows.device)
    with ready.on(rows.device):
        kernels.int8[_grid(m, n)](
            rows, numbers, scales, out, m, n, k, BM=ROWS, BN=_COLUMNS, BK=128, num_warps=4, num_stages=4
        )
    return out


def int4_product(
    rows: torch.Tensor, halves: torch.Tensor, scales: torch.Tensor, zeros: torch.Tensor, group: int
) -> torch.Tensor:
    """``rows [m, k]`` times ``halves [n, k / 2]`` of `numbers.pack_halves`: ``[m, n]``."""
    from pooled_nb.shard.quant import kernels

    (m, k), n = rows.shape, halves.shape[0]
    out = torch.empty((m, n), dtype=rows.dtype, device=rows.device)
    with ready.on(rows.device):
        kernels.int4[_grid(m, n)](
            rows, halves, scales, zeros, out, m, n, k,
            G=group, BM=ROWS, BN=_COLUMNS, num_warps=4, num_stages=4,
        )  # fmt: skip
    return out


def used(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether these products are used on a device: where Triton runs, and gives the right numbers."""
    return device.type == "cuda" and ready.available(device, dtype) and _right(device, dtype)


@functools.cache
def _right(device: torch.device, dtype: torch.dtype) -> bool:
    try:
        return works(device, dtype)
    except Exception as error:  # Triton raises classes of its own
        if no_memory(error):
            raise  # it passes, and other products would have other bits
        return False


@torch.inference_mode()
def works(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether both give what a product with the weights turned back gives, but for rounding."""
    weight = torch.linspace(-1, 1, 64 * 96).mul(37).sin().reshape(64, 96).to(dtype)
    rows = torch.linspace(-1, 1, 16 * 96).mul(23).cos().reshape(16, 96).to(device, dtype)
    numbers, scales = (part.to(device) for part in to_rows(weight))
    small, steps, zeros = to_groups(weight, 32)
    halves, steps, zeros = (part.to(device) for part in (pack_halves(small, 32), steps, zeros))
    pairs = (
        (int8_product(rows, numbers, scales), numbers.float() * scales.float()[:, None]),
        (int4_product(rows, halves, steps, zeros, 32), from_halves(halves, steps, zeros, 32).float()),
    )
    return all(
        torch.allclose(mine.float(), rows.float() @ wide.t(), rtol=0.05, atol=0.2) for mine, wide in pairs
    )


def _grid(m: int, n: int) -> tuple[int, int]:
    return -(-n // _COLUMNS), -(-m // ROWS)
