"""Small Triton products with weights in 8 and 4 bits, to measure beside torch's: the engine uses none yet.

One program computes up to 16 rows of some columns that come out, over the whole row in a fixed order, so that
a row's bits depend on no other row.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

ROWS, COLUMNS = 16, 32


@triton.jit
def _int8(x, w, s, out, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m = tl.program_id(1) * BM + tl.arange(0, BM)
    n = tl.program_id(0) * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        a = tl.load(x + m[:, None] * K + k[None, :], mask=(m[:, None] < M) & (k[None, :] < K), other=0.0)
        b = tl.load(w + n[None, :] * K + k[:, None], mask=(n[None, :] < N) & (k[:, None] < K), other=0)
        total = tl.dot(a, b.to(a.dtype), total)
    scale = tl.load(s + n, mask=n < N, other=0.0).to(tl.float32)
    kept = (m[:, None] < M) & (n[None, :] < N)
    tl.store(out + m[:, None] * N + n[None, :], total * scale[None, :], mask=kept)


@triton.jit
def _int4(x, w, s, z, out, M, N, K, G: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    m = tl.program_id(1) * BM + tl.arange(0, BM)
    n = tl.program_id(0) * BN + tl.arange(0, BN)
    half = tl.arange(0, G // 2)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for group in range(K // G):
        k = group * G + half
        low = tl.load(x + m[:, None] * K + k[None, :], mask=m[:, None] < M, other=0.0)
        high = tl.load(x + m[:, None] * K + (k + G // 2)[None, :], mask=m[:, None] < M, other=0.0)
        b = tl.load(
            w + n[None, :] * (K // 2) + (group * (G // 2) + half)[:, None], mask=n[None, :] < N, other=0
        )
        scale = tl.load(s + n * (K // G) + group, mask=n < N, other=0.0).to(tl.float32)
        zero = tl.load(z + n * (K // G) + group, mask=n < N, other=0.0).to(tl.float32)
        first = ((b & 15).to(tl.float32) - 8.0) * scale[None, :] + zero[None, :]
        second = ((b >> 4).to(tl.float32) - 8.0) * scale[None, :] + zero[None, :]
        total = tl.dot(low, first.to(low.dtype), total)
        total = tl.dot(high, second.to(low.dtype), total)
    tl.store(out + m[:, None] * N + n[None, :], total, mask=(m[:, None] < M) & (n[None, :] < N))


def int8_product(rows: torch.Tensor, numbers: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    """``rows [M, K]`` times int8 ``numbers [N, K]`` with a scale a row."""
    (M, K), N = rows.shape, numbers.shape[0]
    out = torch.empty((M, N), dtype=rows.dtype, device=rows.device)
    grid = (triton.cdiv(N, COLUMNS), triton.cdiv(M, ROWS))
    _int8[grid](rows, numbers, scales, out, M, N, K, BM=ROWS, BN=COLUMNS, BK=128, num_warps=4, num_stages=4)
    return out


def int4_product(
    rows: torch.Tensor, halves: torch.Tensor, scales: torch.Tensor, zeros: torch.Tensor, group: int
) -> torch.Tensor:
    """``rows [M, K]`` times ``halves [N, K / 2]`` of `numbers.pack_halves`."""
    (M, K), N = rows.shape, halves.shape[0]
    out = torch.empty((M, N), dtype=rows.dtype, device=rows.device)
    grid = (triton.cdiv(N, COLUMNS), triton.cdiv(M, ROWS))
    _int4[grid](
        rows, halves, scales, zeros, out, M, N, K, G=group, BM=ROWS, BN=COLUMNS, num_warps=4, num_stages=4
    )
    return out
