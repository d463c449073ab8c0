"""Where the tensors of a weights file lie, and the blocks that it is fetched, kept and checked in.

Blocks are cut by one rule from the header alone, so that every device of a room cuts the same ones, and a
hash of one says the same everywhere (PROTOCOL section 6, ``nb-hash``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from pooled_nb.shard.tensors import layer_of, other_tower

BLOCK = 16 << 20
"""Bytes after which a block ends, where the next tensor would pass them; a larger tensor is one by itself."""


class Tensor(NamedTuple):
    """One tensor: bytes ``[lo, hi)`` of its file; ``kind`` is its format's word for a dtype (``BF16``)."""

    name: str
    kind: str
    shape: tuple[int, ...]
    lo: int
    hi: int


class Layout(NamedTuple):
    """What a file's header says. The header is its first ``header`` bytes; tensors are in order of ``lo``."""

    size: int
    header: int
    tensors: tuple[Tensor, ...]


class Block(NamedTuple):
    """Bytes ``[lo, hi)`` of a file, and the tensors in them; the header is a block without any."""

    lo: int
    hi: int
    tensors: tuple[Tensor, ...]


def blocks(layout: Layout) -> list[Block]:
    """Cut a file: its header, then neighbouring tensors of one layer (or of none, or of one other tower).

    What lies between two tensors of a block (GGUF aligns them) is part of it.
    """
    found = [Block(0, layout.header, ())]
    run: list[Tensor] = []
    for tensor in layout.tensors:
        if run and (_kin(tensor) != _kin(run[0]) or tensor.hi - run[0].lo > BLOCK):
            found.append(_block(run))
            run = []
        run.append(tensor)
    if run:
        found.append(_block(run))
    return found


def _kin(tensor: Tensor) -> tuple[int | None, bool]:
    return layer_of(tensor.name), other_tower(tensor.name)


def _block(run: Sequence[Tensor]) -> Block:
    return Block(run[0].lo, run[-1].hi, tuple(run))
