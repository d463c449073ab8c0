"""Which bytes of which files a range of layers needs. Decides only: no disk, no network."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from pooled_nb.shard.door import LoadSpec
from pooled_nb.shard.draft_names import draft_name, layers_before
from pooled_nb.shard.found import SMALL, is_weights, needed_files
from pooled_nb.shard.gguf.files import file_of
from pooled_nb.shard.headers import INDEX, SINGLE
from pooled_nb.shard.layout import BLOCK, Block, Layout, blocks
from pooled_nb.shard.tensors import in_range, layer_of, other_tower

REQUEST = 64 << 20
"""Bytes of one request at most."""
OPEN = 12
"""Blocks of one request that are open at once: each is a few files, and there are several requests."""
WASTE = 16 << 20
"""Bytes that a server which ignores ranges may send in vain, besides as many as are wanted."""


def small_files(spec: LoadSpec) -> list[str]:
    """Names of the small files that a load reads, the config first; by the room's list, if it has one.

    Those of a GGUF file are made of its header.
    """
    if file_of(spec.files):
        return []
    names = SMALL if spec.ends else ("config.json", "generation_config.json", INDEX)
    if not spec.files:
        return ["config.json"]
    return [name for name in names if name in spec.files or name == "config.json"]


def weights_files(spec: LoadSpec, where: Mapping[str, str] | None) -> list[str]:
    """Names of the weights files of a range: by the index, else the single file, else all there are."""
    if where is not None:
        return needed_files(dict(where), spec.lo, spec.hi, spec.ends, spec.draft_layers)
    if SINGLE in spec.files or not spec.files:
        return [SINGLE]
    return sorted(name for name in spec.files if is_weights(name))


def chooser(
    spec: LoadSpec, where: Mapping[str, str] | None, layouts: Iterable[Layout]
) -> Callable[[str], bool]:
    """Make the rule that says whether a load of this reads a tensor (DESIGN section 6)."""
    names = where if where is not None else [t.name for layout in layouts for t in layout.tensors]
    before = layers_before(names, spec.draft_layers) if spec.draft_layers else 0

    def chosen(name: str) -> bool:
        return in_range(name, spec.lo, spec.hi, spec.ends) or bool(
            spec.draft_layers and draft_name(name, before)
        )

    return chosen


def wanted(layout: Layout, chosen: Callable[[str], bool]) -> list[Block]:
    """Blocks of a file that hold a tensor of the range; the header is none of them."""
    return [block for block in blocks(layout) if any(chosen(tensor.name) for tensor in block.tensors)]


class Ask(NamedTuple):
    """One request: neighbouring pieces ``[lo, hi)`` of a file."""

    name: str
    pieces: tuple[tuple[int, int], ...]


def requests(name: str, pieces: Sequence[tuple[int, int]], total: int, *, ranged: bool = True) -> list[Ask]:
    """Cut missing pieces into requests: neighbours together, so that few are made and all hands have some.

    Parameters
    ----------
    pieces
        In order.
    total
        Bytes of all files together.
    ranged
        Whether the server knows ranges; else a file comes in one request.
    """
    most = min(REQUEST, max(BLOCK, total // 8))
    found: list[list[tuple[int, int]]] = []
    for lo, hi in pieces:
        run = found[-1] if found else None
        if run and (not ranged or (run[-1][1] == lo and hi - run[0][0] <= most and len(run) < OPEN)):
            run.append((lo, hi))
        else:
            found.append([(lo, hi)])
    return [Ask(name, tuple(run)) for run in found]


def worthwhile(skipped: int, need: int) -> bool:
    """Whether what a server sends in vain, because it ignores ranges, is little enough."""
    return skipped <= need + WASTE


def layer_sizes(layouts: Iterable[Layout], layers: int) -> tuple[list[int], int]:
    """Bytes on disk of each layer, and of the ends: what a device of a range has to fetch.

    A tied head is in no file, so it counts once.
    """
    sizes, ends = [0] * layers, 0
    for layout in layouts:
        for tensor in layout.tensors:
            if other_tower(tensor.name):
                continue
            layer = layer_of(tensor.name)
            if layer is None:
                ends += tensor.hi - tensor.lo
            elif layer < layers:
                sizes[layer] += tensor.hi - tensor.lo
    return sizes, ends
