"""Driving engines frame by frame, as a room would."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from pooled_nb.shard.door import Columns, Control, LoadSpec
from pooled_nb.shard.engine import DTYPES, Engine
from tests.shard import tiny

torch.set_num_threads(1)
COLS, WIDTH, BUCKET = 32, 16, 256
DEVICE = os.environ.get("POOLED_TEST_DEVICE", "cpu")
"""``cuda`` runs the same proofs on a GPU."""


def spec(folder: Path, lo: int = 0, hi: int = tiny.LAYERS, **changes: Any) -> LoadSpec:
    plain: dict[str, Any] = {
        "repo": "local/tiny", "revision": "0", "folder": str(folder), "config_sha256": "", "lo": lo, "hi": hi,
        "ends": lo == 0, "ctx": 512, "dtype": "float32", "device": DEVICE, "width": WIDTH, "cols": COLS,
    }  # fmt: skip
    return LoadSpec(**{**plain, **changes})


def load(folder: Path, lo: int = 0, hi: int = tiny.LAYERS, **changes: Any) -> Engine:
    engine = Engine()
    engine.load(spec(folder, lo, hi, **changes), folder, lambda percent, words: None)
    return engine


@dataclass
class Chain:
    """Engines in layer order, the host first."""

    engines: Sequence[Engine]
    dtype: str = "float32"

    def lap(self, tokens: list[int], pos: int, *, wide: bool, control: Control | None = None) -> bytes:
        """Hidden states of all columns of one frame."""
        columns = Columns(pos=pos, n=len(tokens), wide=wide)
        control = control or Control()
        data = self.engines[0].forward(columns, control, tokens=tokens, data=None, last=False).data
        for engine in self.engines[1:]:
            data = engine.forward(columns, control, tokens=None, data=data, last=False).data
        return data

    def states(self, data: bytes) -> torch.Tensor:
        dim = self.engines[0]._need().dim
        return torch.frombuffer(bytearray(data), dtype=DTYPES[self.dtype]).view(-1, dim)

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        ends = self.engines[0]._ends
        assert ends is not None
        return ends.logits(hidden)

    def run(
        self, tokens: list[int], generated: Sequence[bool], cut: Callable[[int], int] = lambda most: most
    ) -> torch.Tensor:
        """All columns of a conversation from its start, cut into frames by ``cut(most columns allowed)``."""
        pos, out = 0, []
        while pos < len(tokens):
            n = cut(longest(pos, generated))
            control = Control(reset=pos == 0)
            data = self.lap(tokens[pos : pos + n], pos, wide=not generated[pos], control=control)
            out.append(self.states(data))
            pos += n
        return torch.cat(out)


def longest(pos: int, generated: Sequence[bool]) -> int:
    """Columns of the longest frame of one class that may start here."""
    grid = BUCKET if generated[pos] else COLS
    end = (pos // grid + 1) * grid
    if generated[pos]:
        end = min(end, pos + WIDTH)
    n = 1
    while pos + n < min(end, len(generated)) and generated[pos + n] == generated[pos]:
        n += 1
    return n


def roles(*lengths: int) -> list[bool]:
    """Prompt, answer, prompt, answer … of these lengths."""
    return [bool(i % 2) for i, length in enumerate(lengths) for _ in range(length)]


def some_tokens(count: int, seed: int = 7) -> list[int]:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return torch.randint(3, tiny.VOCAB - 3, (count,)).tolist()


def first_difference(mine: torch.Tensor, other: torch.Tensor) -> int | None:
    """The first column whose bits differ."""
    same: Iterable[bool] = (torch.equal(a, b) for a, b in zip(mine, other, strict=True))
    return next((i for i, equal in enumerate(same) if not equal), None)
