"""The kernels as functions over tensors; block sizes follow from shapes."""

from __future__ import annotations

import torch

from pooled_nb.shard.fused import kernels

_MOST_M = 64
_N = 64
_ENOUGH = 64
"""Programs that keep a GPU busy: below that a buffer is cut into stretches."""
_STRETCHES = 32
"""Of a buffer, at most."""


def norm(x: torch.Tensor, delta: torch.Tensor | None, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """RMS norm of rows ``[rows, dim]``; a delta is first added to them, in place."""
    rows, dim = x.shape
    out = torch.empty_like(x)
    block = _power(dim)
    given = x if delta is None else delta
    kernels.norm[(rows,)](
        x, given, weight, out, dim, eps, ADDS=delta is not None, BLOCK=block, num_warps=_warps(block)
    )
    return out


def place(
    qkv: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
    norms: tuple[torch.Tensor, torch.Tensor] | None,
    eps: float,
    keys: torch.Tensor,
    values: torch.Tensor,
    targets: torch.Tensor,
    heads: int,
) -> torch.Tensor:
    """Norm and turn queries and keys; write keys and values to their columns.

    Parameters
    ----------
    qkv
        ``[rows, (heads + 2 * groups) * size]``.
    cos, sin
        ``[rows, size]``, as transformers' rotary modules give them.
    norms
        Weights ``[size]`` of the norms of queries and keys, where there are such norms.
    keys, values
        ``[1, groups, columns, size]``, each group's columns lying together.
    targets
        ``[rows]`` int64.

    Returns
    -------
    Tensor
        Queries ``[rows, heads, size]``.
    """
    rows, (groups, size) = qkv.shape[0], (keys.shape[1], keys.shape[3])
    q = torch.empty((rows, heads, size), dtype=qkv.dtype, device=qkv.device)
    q_norm, k_norm = norms if norms is not None else (cos, cos)
    kernels.place[(rows, heads + 2 * groups)](
        qkv, cos, sin, q_norm, k_norm, q, keys, values, targets,
        keys.stride(1), values.stride(1), size // 2, eps,
        HEADS=heads, GROUPS=groups, NORMS=norms is not None, BLOCK=_power(size // 2), num_warps=1,
    )  # fmt: skip
    return q


def gate(both: torch.Tensor) -> torch.Tensor:
    """Silu of the first half of each row times its second half: ``[rows, inner]``."""
    rows, inner = both.shape[0], both.shape[1] // 2
    out = torch.empty((rows, inner), dtype=both.dtype, device=both.device)
    block = min(1024, _power(inner))
    kernels.gate[(rows, -(-inner // block))](both, out, inner, BLOCK=block, num_warps=4)
    return out


def attend(
    q: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    positions: torch.Tensor,
    length: int,
    scale: float,
) -> torch.Tensor:
    """Attention of rows over the first ``length`` columns; each sees those up to its own position.

    Parameters
    ----------
    q
        ``[rows, heads, size]``.
    keys, values
        ``[1, groups, columns, size]``, each group's columns lying together.
    positions
        ``[rows]`` int64.

    Returns
    -------
    Tensor
        ``[rows, heads, size]``.
    """
    rows, heads, size = q.shape
    groups = keys.shape[1]
    repeats = heads // groups
    m = min(max(16, _power(repeats)) if rows == 1 else max(16, _power(repeats * rows)), _MOST_M)
    m = max(m, _power(repeats))
    tiles = -(-rows // (m // repeats))
    split = _split(tiles * groups, length)
    splits = -(-length // split)
    out = torch.empty_like(q)
    block = max(16, _power(size))
    one = splits == 1
    parts = out if one else torch.empty((splits, rows, heads, size), dtype=torch.float32, device=q.device)
    sums = out if one else torch.empty((splits, rows, heads, 2), dtype=torch.float32, device=q.device)
    kernels.attend[(tiles, groups, splits)](
        q, keys, values, positions, parts, sums, scale,
        keys.stride(1), values.stride(1), rows, length, split,
        HEADS=heads, REPEATS=repeats, SIZE=size, SIZE_BLOCK=block, M=m, N=_N, ONE=one,
        num_warps=4, num_stages=2,
    )  # fmt: skip
    if not one:
        kernels.join[(rows, heads)](
            parts, sums, out, rows, splits,
            HEADS=heads, SIZE=size, SIZE_BLOCK=block, BLOCK=_STRETCHES, num_warps=4,
        )  # fmt: skip
    return out


def _split(programs: int, length: int) -> int:
    """Columns of a stretch: by how many rows and columns there are, never by where they are."""
    if programs >= _ENOUGH:
        return length
    return max(_N, -(-length // _STRETCHES // _N) * _N)


def _power(number: int) -> int:
    """The next power of two."""
    return 1 << max(0, number - 1).bit_length()


def _warps(block: int) -> int:
    return 4 if block <= 1024 else 8
