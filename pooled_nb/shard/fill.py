"""Filling devices with layers: the arithmetic under a plan."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

_EXACT = 12
"""Workers up to which every order is tried (2¹² sets)."""


class Sizes(NamedTuple):
    """What has to be held.

    Attributes
    ----------
    pieces
        Bytes (weights and caches) of what is never cut: a layer, or layers that share one cache.
    edges
        The layer at which each piece begins, and at last their number.
    ends
        Bytes that only the host holds: embedding, norm and head, and what drafts.
    scratch
        Bytes that each device needs beside its layers.
    """

    pieces: list[int]
    edges: list[int]
    ends: int
    scratch: int = 0


def join_glued(layers: Sequence[int], glued: Sequence[tuple[int, int]]) -> tuple[list[int], list[int]]:
    """Join layers that must not be cut apart.

    Parameters
    ----------
    layers
        Bytes of each.
    glued
        Ranges ``[lo, hi)``; they may touch, overlap or reach too far.

    Returns
    -------
    pieces, edges
        See `Sizes`.
    """
    inside = {i for lo, hi in glued for i in range(max(lo, 0) + 1, min(hi, len(layers)))}
    edges = [i for i in range(len(layers)) if i not in inside] + [len(layers)]
    return [sum(layers[a:b]) for a, b in pairwise(edges)], edges


def fill(start: int, rooms: Sequence[float], sizes: Sizes) -> list[int]:
    """Give each device, in order, all the pieces it can hold from ``start`` on; how many each got."""
    taken = []
    at = start
    for room in rooms:
        first, left = at, room
        while at < len(sizes.pieces) and sizes.pieces[at] <= left:
            left -= sizes.pieces[at]
            at += 1
        taken.append(at - first)
    return taken


def any_order(host: float, rooms: Sequence[float], sizes: Sizes) -> tuple[int, list[int], list[int]] | None:
    """Find an order of the workers, after the host, in which all layers fit.

    For a set of workers only the furthest piece they reach counts: more pieces done is never worse.
    So the best order of a set extends the best of a set with one less. Over 12 workers only the
    largest 12 are tried.

    Returns
    -------
    tuple or None
        Pieces of the host, the workers' indexes in chain order, and how many pieces each of them holds.
    """
    total = len(sizes.pieces)
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


def snap(shares: Sequence[float], rooms: Sequence[float], sizes: Sizes) -> list[int] | None:
    """Cut where layers may be cut, as near as can be to these shares; at least one piece each.

    Parameters
    ----------
    shares
        What part of all layers each device would hold, adding up to 1.

    Returns
    -------
    list or None
        Pieces of each device, in order; None where one of them cannot hold its own.
    """
    total, last = sizes.edges[-1], len(sizes.pieces)
    taken: list[int] = []
    at, wanted = 0, 0.0
    for i, share in enumerate(shares):
        wanted += share * total
        after = len(shares) - i - 1
        if last - after <= at:
            return None
        may = range(at + 1, last - after + 1) if after else [last]
        end = min(may, key=lambda e: abs(sizes.edges[e] - wanted))
        taken.append(end - at)
        if sum(sizes.pieces[at:end]) > rooms[i]:
            return None
        at = end
    return taken
