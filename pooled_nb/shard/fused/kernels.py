"""Triton kernels for decoder layers of the Llama kind. Imported only where Triton is there.

Sizes of blocks follow from shapes alone and nothing is tuned by timing, so the same shapes give the same bits
in every process. A row's bits depend on that row, its position, the columns it sees and the length of the
buffer (DESIGN section 5, rules 1, 2 and 4). Roundings to the room's dtype stand where transformers has them.
"""

# Names in a kernel are Triton's: pointers, strides, and upper case for what is compiled in.
from __future__ import annotations

from typing import Any

import triton
import triton.language as tl


@triton.jit
def norm(x_at, delta_at, weight_at, out_at, dim, eps, ADDS: tl.constexpr, BLOCK: tl.constexpr) -> Any:
    """One row: with ``ADDS`` the residual takes the delta first, in place; then RMS norm of it."""
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    inside = cols < dim
    x = tl.load(x_at + row * dim + cols, mask=inside, other=0.0)
    kind = x.dtype
    if ADDS:
        delta = tl.load(delta_at + row * dim + cols, mask=inside, other=0.0)
        x = (x.to(tl.float32) + delta.to(tl.float32)).to(kind)
        tl.store(x_at + row * dim + cols, x, mask=inside)
    wide = x.to(tl.float32)
    scale = tl.rsqrt(tl.sum(wide * wide, axis=0) / dim + eps)
    weight = tl.load(weight_at + cols, mask=inside, other=0.0)
    normed = (wide * scale).to(kind)
    out = (weight.to(tl.float32) * normed.to(tl.float32)).to(kind)
    tl.store(out_at + row * dim + cols, out, mask=inside)


@triton.jit
def place(
    qkv_at, cos_at, sin_at, q_norm_at, k_norm_at, q_at, keys_at, values_at, targets_at,
    keys_group, values_group, half, eps,
    HEADS: tl.constexpr, GROUPS: tl.constexpr, NORMS: tl.constexpr, BLOCK: tl.constexpr,
) -> Any:  # fmt: skip
    """One head of one row: queries are normed and turned, keys too and written, values are written."""
    row, head = tl.program_id(0), tl.program_id(1)
    cols = tl.arange(0, BLOCK)
    inside = cols < half
    size = 2 * half
    at = qkv_at + row * (HEADS + 2 * GROUPS) * size + head * size
    a = tl.load(at + cols, mask=inside, other=0.0)
    b = tl.load(at + half + cols, mask=inside, other=0.0)
    target = tl.load(targets_at + row)
    kind = a.dtype
    if head >= HEADS + GROUPS:
        value_at = values_at + (head - HEADS - GROUPS) * values_group + target * size
        tl.store(value_at + cols, a, mask=inside)
        tl.store(value_at + half + cols, b, mask=inside)
    else:
        asks = head < HEADS
        if NORMS:
            wide_a, wide_b = a.to(tl.float32), b.to(tl.float32)
            squares = tl.sum(wide_a * wide_a, axis=0) + tl.sum(wide_b * wide_b, axis=0)
            norm_scale = tl.rsqrt(squares / size + eps)
            heads = head + tl.zeros_like(cols)
            mine, theirs = inside & (heads < HEADS), inside & (heads >= HEADS)
            weight_a = tl.load(q_norm_at + cols, mask=mine, other=0.0).to(tl.float32)
            weight_a += tl.load(k_norm_at + cols, mask=theirs, other=0.0).to(tl.float32)
            weight_b = tl.load(q_norm_at + half + cols, mask=mine, other=0.0).to(tl.float32)
            weight_b += tl.load(k_norm_at + half + cols, mask=theirs, other=0.0).to(tl.float32)
            a = (weight_a * (wide_a * norm_scale).to(kind).to(tl.float32)).to(kind)
            b = (weight_b * (wide_b * norm_scale).to(kind).to(tl.float32)).to(kind)
        cos_a = tl.load(cos_at + row * size + cols, mask=inside, other=0.0).to(tl.float32)
        cos_b = tl.load(cos_at + row * size + half + cols, mask=inside, other=0.0).to(tl.float32)
        sin_a = tl.load(sin_at + row * size + cols, mask=inside, other=0.0).to(tl.float32)
        sin_b = tl.load(sin_at + row * size + half + cols, mask=inside, other=0.0).to(tl.float32)
        one, other = a.to(tl.float32), b.to(tl.float32)
        plain_a, plain_b = (one * cos_a).to(kind), (other * cos_b).to(kind)
        turned_a, turned_b = (-other * sin_a).to(kind), (one * sin_b).to(kind)
        a = (plain_a.to(tl.float32) + turned_a.to(tl.float32)).to(kind)
        b = (plain_b.to(tl.float32) + turned_b.to(tl.float32)).to(kind)
        if asks:
            tl.store(q_at + (row * HEADS + head) * size + cols, a, mask=inside)
            tl.store(q_at + (row * HEADS + head) * size + half + cols, b, mask=inside)
        else:
            key_at = keys_at + (head - HEADS) * keys_group + target * size
            tl.store(key_at + cols, a, mask=inside)
            tl.store(key_at + half + cols, b, mask=inside)


@triton.jit
def gate(both_at, out_at, inner, BLOCK: tl.constexpr) -> Any:
    """Part of one row: silu of the first half times the second half."""
    row = tl.program_id(0)
    cols = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = cols < inner
    gated = tl.load(both_at + row * 2 * inner + cols, mask=inside, other=0.0)
    up = tl.load(both_at + row * 2 * inner + inner + cols, mask=inside, other=0.0)
    wide = gated.to(tl.float32)
    silu = (wide / (1.0 + tl.exp(-wide))).to(gated.dtype)
    out = (silu.to(tl.float32) * up.to(tl.float32)).to(gated.dtype)
    tl.store(out_at + row * inner + cols, out, mask=inside)


@triton.jit
def attend(
    q_at, keys_at, values_at, positions_at, out_at, sums_at, scale,
    keys_group, values_group, rows, length, split,
    HEADS: tl.constexpr, REPEATS: tl.constexpr, SIZE: tl.constexpr, SIZE_BLOCK: tl.constexpr,
    M: tl.constexpr, N: tl.constexpr, ONE: tl.constexpr,
) -> Any:  # fmt: skip
    """Some rows of the heads of a group, over one stretch of the buffer.

    With several stretches (not ``ONE``) what comes out is float32 sums, with each row's maximum and weight
    beside them.
    """
    tile, group, part = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    each: tl.constexpr = M // REPEATS
    m = tl.arange(0, M)
    row = tile * each + m // REPEATS
    head = group * REPEATS + m % REPEATS
    real = (m < each * REPEATS) & (row < rows)
    cols = tl.arange(0, SIZE_BLOCK)
    wide = cols < SIZE
    position = tl.load(positions_at + row, mask=real, other=-1)
    place_of = (row * HEADS + head) * SIZE
    q = tl.load(q_at + place_of[:, None] + cols[None, :], mask=real[:, None] & wide[None, :], other=0.0)
    most = tl.full([M], float("-inf"), tl.float32)
    weight = tl.zeros([M], tl.float32)
    sums = tl.zeros([M, SIZE_BLOCK], tl.float32)
    begin = part * split
    # What no row sees would add nothing: it is left out.
    end = tl.minimum(tl.minimum(begin + split, length), tl.max(position, axis=0).to(tl.int32) + 1)
    for start in range(begin, end, N):
        n = start + tl.arange(0, N)
        there = n < length
        key = tl.load(
            keys_at + group * keys_group + n[None, :] * SIZE + cols[:, None],
            mask=there[None, :] & wide[:, None],
            other=0.0,
        )
        scores = tl.dot(q, key) * scale
        scores = tl.where(there[None, :] & (n[None, :] <= position[:, None]), scores, float("-inf"))
        higher = tl.maximum(most, tl.max(scores, axis=1))
        # A row that has seen nothing yet has no maximum, and minus infinity less itself is no number.
        base = tl.where(higher == float("-inf"), 0.0, higher)
        parts = tl.exp(scores - base[:, None])
        fade = tl.exp(most - base)
        weight = weight * fade + tl.sum(parts, axis=1)
        value = tl.load(
            values_at + group * values_group + n[:, None] * SIZE + cols[None, :],
            mask=there[:, None] & wide[None, :],
            other=0.0,
        )
        sums = sums * fade[:, None] + tl.dot(parts.to(value.dtype), value)
        most = higher
    inside = real[:, None] & wide[None, :]
    if ONE:
        # Pads of a tile have no weight. Plus zero: which blocks ran shows in no sign.
        out = sums / tl.where(weight == 0.0, 1.0, weight)[:, None] + 0.0
        tl.store(out_at + place_of[:, None] + cols[None, :], out.to(q.dtype), mask=inside)
    else:
        at = (part * rows + row) * HEADS + head
        tl.store(out_at + at[:, None] * SIZE + cols[None, :], sums, mask=inside)
        tl.store(sums_at + at * 2, most, mask=real)
        tl.store(sums_at + at * 2 + 1, weight, mask=real)


@triton.jit
def join(
    parts_at, sums_at, out_at, rows, count,
    HEADS: tl.constexpr, SIZE: tl.constexpr, SIZE_BLOCK: tl.constexpr, BLOCK: tl.constexpr,
) -> Any:  # fmt: skip
    """One head of one row: the stretches together."""
    row, head = tl.program_id(0), tl.program_id(1)
    part = tl.arange(0, BLOCK)
    there = part < count
    cols = tl.arange(0, SIZE_BLOCK)
    wide = cols < SIZE
    at = (part * rows + row) * HEADS + head
    most = tl.load(sums_at + at * 2, mask=there, other=float("-inf"))
    weight = tl.load(sums_at + at * 2 + 1, mask=there, other=0.0)
    sums = tl.load(
        parts_at + at[:, None] * SIZE + cols[None, :], mask=there[:, None] & wide[None, :], other=0.0
    )
    fade = tl.exp(most - tl.max(most, axis=0))
    out = tl.sum(sums * fade[:, None], axis=0) / tl.sum(weight * fade, axis=0) + 0.0
    kind = out_at.dtype.element_ty
    tl.store(out_at + (row * HEADS + head) * SIZE + cols, out.to(kind), mask=wide)
