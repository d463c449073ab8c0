"""Filling devices with layers: the arithmetic under a plan."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

_EXACT = 12
"""Workers up to which every order is tried (2¹² sets)."""


class Sizes(NamedTuple):
    """Bytes each layer takes (weights and cache), and what embedding, norm and head take on the host."""

    layers: list[int]
    ends: int


def fill(start: int, rooms: Sequence[float], sizes: Sizes) -> list[int]:
    """Give each device, in order, all the layers it can hold from ``start`` on; how many each got."""
    taken = []
    at = start
    for room in rooms:
        first, left = at, room
        while at < len(sizes.layers) and sizes.layers[at] <= left:
            left -= sizes.layers[at]
            at += 1
        taken.append(at - first)
    return taken


def any_order(host: float, rooms: Sequence[float], sizes: Sizes) -> tuple[int, list[int], list[int]] | None:
    """Find an order of the workers, after the host, in which all layers fit.

    For a set of workers only the furthest layer they reach counts: more layers done is never worse.
    So the best order of a set extends the best of a set with one less. Over 12 workers only the
    largest 12 are tried.

    Returns
    -------
    tuple or None
        Layers of the host, the workers' indexes in chain order, and how many layers each of them holds.
    """
    total = len(sizes.layers)
    own = fill(0, [host], sizes)[0]
    if own < 1:
        return None
    picked = sorted(range(len(rooms)), key=lambda i: -rooms[i])[:_EXACT]
    reach: dict[int, tuple[int, tuple[int, ...]]] = {0: (own, ())}
    for mask in range(1 << len(picked)):
        at, order = reach[mask]
        if at == total:
            taken, start = [], own
            for i in order:
                taken += fill(start, [rooms[i]], sizes)
                start += taken[-1]
            return own, list(order), taken
        for bit, i in enumerate(picked):
            if not mask >> bit & 1:
                further = at + fill(at, [rooms[i]], sizes)[0]
                known = reach.get(mask | 1 << bit)
                if known is None or further > known[0]:
                    reach[mask | 1 << bit] = (further, (*order, i))
    return None
