"""A mixture's experts, read one by one into the tensor that holds all of them.

Files hold each expert by itself, and transformers' models all of a layer in one tensor. By itself it reads a
layer's experts, stacks them, and joins the stacks: for a moment they are held twice, which for a range of few
layers is more than a shard may take (DESIGN section 6).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

Read = Callable[[], torch.Tensor]


@contextmanager
def experts_in_place() -> Iterator[None]:
    """Let transformers fuse experts without a second copy. Whatever it fuses in another way stays its own."""
    from transformers.core_model_loading import WeightConverter

    kind: Any = WeightConverter
    plain = kind.materialize_tensors

    def materialize(self: Any) -> Any:
        lists = _parts(self)
        if lists is None:
            return plain(self)
        self.collected_tensors.clear()
        self.operations = []  # of this layer's converter alone: each has one of its own
        return {self.target_patterns[0]: fused(lists)}

    kind.materialize_tensors = materialize
    try:
        yield
    finally:
        kind.materialize_tensors = plain


def _parts(converter: Any) -> list[list[Read]] | None:
    """What is stacked, then joined in the second dimension; None where a converter does anything else."""
    steps = [(type(step).__name__, getattr(step, "dim", None)) for step in converter.operations]
    sources, collected = converter.source_patterns, converter.collected_tensors
    joined = steps == [("MergeModulelist", 0), ("Concatenate", 1)]
    if not joined and not (steps == [("MergeModulelist", 0)] and len(sources) == 1):
        return None
    lists = [collected.get(source) or [] for source in sources]
    same = len({len(reads) for reads in lists}) == 1 and len(collected) == len(sources)
    if (
        len(converter.target_patterns) != 1
        or not same
        or not all(callable(r) for reads in lists for r in reads)
    ):
        return None  # an expert is missing, say: transformers says so
    return lists if lists[0] else None


def fused(parts: Sequence[Sequence[Read]]) -> torch.Tensor:
    """Read experts into one tensor ``[experts, rows of all parts, columns]``; beside it, one of each part.

    Raises
    ------
    ValueError
        The experts of a part differ in shape.
    """
    first = [reads[0]() for reads in parts]
    if not all(part.ndim for part in first):
        raise ValueError("an expert is a single number")
    count, rows = len(parts[0]), [part.shape[0] for part in first]
    shape = (count, sum(rows), *first[0].shape[1:])
    whole = torch.empty(shape, dtype=first[0].dtype, device=first[0].device)
    at = 0
    for j, reads in enumerate(parts):
        expected = torch.Size((rows[j], *shape[2:]))
        for i, read in enumerate(reads):
            expert = first[j] if i == 0 else read()
            if expert.shape != expected:
                raise ValueError(f"experts have the shapes {list(expected)} and {list(expert.shape)}")
            whole[i, at : at + rows[j]] = expert
            del expert
        at += rows[j]
    return whole
