"""How much memory caches take: one arithmetic for dealing, for loading and for the sentences. No torch.

What is counted here is what `cache.Slab` allocates: columns in whole buckets, in the form the room keeps them
in; a running state and a snapshot of it for each column of a ``spec`` frame (PROTOCOL section 5).
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from pooled_nb.shard.door import BUCKET

KV_FORMS = ("f16", "q8")
"""What ``ai-load.kv`` may say (PROTOCOL section 6); ``f16`` is the room's dtype, whatever it is."""
KVQ = "int8-row"
"""Name of our layout of ``q8``: int8, symmetric, one scale of the room's dtype for each row."""
COLUMNS = 16
"""Columns of the longest ``spec`` frame: 1 + 15 drafts (PROTOCOL section 7)."""


class CacheSizes(Struct, frozen=True, kw_only=True):
    """Bytes of a model's caches.

    Attributes
    ----------
    token
        Of one token in each layer's cache.
    state
        Of all copies of each layer's running state.
    scratch
        Of one token where a device reads what it keeps in another form: once a device, whatever it holds.
    """

    token: list[int]
    state: list[int]
    scratch: int = 0


def capacity(ctx: int) -> int:
    """Columns that are allocated for ``ctx`` tokens: whole buckets."""
    return -(-ctx // BUCKET) * BUCKET


def cache_sizes(
    kv_bytes: Sequence[int],
    kv_rows: Sequence[int],
    state_bytes: Sequence[int],
    *,
    kv: str,
    itemsize: int,
    glued: Sequence[tuple[int, int]] = (),
) -> CacheSizes:
    """Sizes of caches, by layer.

    Parameters
    ----------
    kv_bytes, kv_rows, state_bytes, glued
        As in `ModelFacts`; lists that are empty count as zeros.
    kv
        ``f16`` keeps the room's dtype; ``q8`` one byte a number and a scale of that dtype a row.
    itemsize
        Bytes of a number of the room's dtype.
    """
    count = len(kv_bytes)
    numbers = [size // 2 for size in kv_bytes]
    rows = list(kv_rows) or [0] * count
    states = [size * (1 + COLUMNS) for size in state_bytes] or [0] * count
    plain = [n * itemsize for n in numbers]
    if kv == "f16":
        return CacheSizes(token=plain, state=states)
    kept = [n + r * itemsize for n, r in zip(numbers, rows, strict=True)]
    # What later layers read too is not the shared scratch, which the next layer overwrites.
    lasting = {i for lo, hi in glued for i in range(lo, hi)}
    token = [kept[i] + (plain[i] if i in lasting else 0) for i in range(count)]
    shared = max((plain[i] for i in range(count) if i not in lasting), default=0)
    return CacheSizes(token=token, state=states, scratch=shared)


def range_bytes(sizes: CacheSizes, lo: int, hi: int, ctx: int) -> int:
    """Bytes of the caches of layers ``[lo, hi)`` on one device, for ``ctx`` tokens."""
    columns = capacity(ctx)
    return columns * (sum(sizes.token[lo:hi]) + sizes.scratch) + sum(sizes.state[lo:hi])
