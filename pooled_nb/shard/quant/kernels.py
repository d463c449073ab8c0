"""Triton products with weights that stay in 8 or 4 bits. Imported only where Triton is there.

One program computes up to 16 rows of some columns that come out, over the whole row in a fixed order, so that
a row's bits depend on no other row. Sums are in float32, and scaled before they are rounded.
"""

# Names in a kernel are Triton's: upper case for sizes and for what is compiled in.
from __future__ import annotations

from typing import Any

import triton
import triton.language as tl


@triton.jit
def int8(x, w, s, out, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr) -> Any:
    """Rows times int8 numbers, each row of which has a scale."""
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
def int4(x, w, s, z, out, M, N, K, G: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr) -> Any:
    """Rows times numbers of 4 bits: a group's first half in the low bits, its second in the high ones."""
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
