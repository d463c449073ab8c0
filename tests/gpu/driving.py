"""Driving engines on the device, with the frames that rooms of GPUs use."""

from __future__ import annotations

import itertools
import os
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pooled_nb.shard.door import BUCKET, Columns, Control

if TYPE_CHECKING:
    import torch

    from pooled_nb.shard.door import Loaded
    from pooled_nb.shard.engine import Engine
    from tests.shard.runs import Chain

DEVICE = os.environ.get("POOLED_TEST_DEVICE") or "cuda"
WIDTH, COLS, LAYERS = 16, 256, 6
CTX = 800
"""Over three buckets and into a fourth."""

Cut = Callable[[int], int]
"""How many columns a frame takes, of the most that it may."""


def start(folder: Path, lo: int = 0, hi: int = LAYERS, **changes: Any) -> tuple[Engine, Loaded]:
    """An engine with these layers, and what it said of its load."""
    from pooled_nb.shard.engine import Engine
    from tests.shard.runs import spec

    engine = Engine()
    plain = {"device": DEVICE, "cols": COLS, "ctx": CTX, "dtype": "bfloat16"}
    loaded = engine.load(spec(folder, lo, hi, **{**plain, **changes}), folder, lambda percent, words: None)
    return engine, loaded


def chain(folder: Path, shards: int = 1, **changes: Any) -> Chain:
    """Engines that share a model in nearly equal parts."""
    from tests.shard.runs import Chain

    cuts = [0, *(LAYERS * i // shards for i in range(1, shards)), LAYERS]
    engines = [start(folder, lo, hi, **changes)[0] for lo, hi in itertools.pairwise(cuts)]
    return Chain(engines, changes.get("dtype", "bfloat16"))


def end(made: Chain) -> None:
    """Free what it holds: tests of one process share the device's memory."""
    for engine in made.engines:
        engine.unload()


def longest(pos: int, generated: Sequence[bool], cols: int = COLS) -> int:
    """Columns of the longest frame of one class that may start here."""
    most = (pos // BUCKET + 1) * BUCKET if generated[pos] else (pos // cols + 1) * cols
    most = min(most, len(generated), pos + WIDTH if generated[pos] else most)
    n = 1
    while pos + n < most and generated[pos + n] == generated[pos]:
        n += 1
    return n


def run(
    made: Chain, tokens: list[int], generated: Sequence[bool], cut: Cut = lambda most: most, cols: int = COLS
) -> torch.Tensor:
    """All columns of a conversation from its start: ``[n, dim]``."""
    import torch

    pos, out = 0, []
    while pos < len(tokens):
        n = cut(longest(pos, generated, cols))
        control = Control(reset=pos == 0)
        out.append(
            made.states(made.lap(tokens[pos : pos + n], pos, wide=not generated[pos], control=control))
        )
        pos += n
    return torch.cat(out)


def cutter(seed: int) -> Cut:
    """All, one, or anything: the ends are where kernels change."""
    draw = random.Random(seed)
    return lambda most: draw.choice((most, 1, draw.randint(1, most), draw.randint(1, most)))


def answer(
    engine: Engine, prompt: Sequence[int], length: int, sampling: Any, *, drafts: int = 0, save: int = 0
) -> list[int]:
    """An answer of so many tokens, as a room draws it, with wrong drafts if any.

    ``save``: the slot that keeps the state after the prompt; what it kept before is dropped.
    """
    tokens, pos, data = list(prompt), 0, b""
    while pos < len(tokens):
        n = min(COLS - pos % COLS, len(tokens) - pos)
        columns = Columns(pos=pos, n=n, wide=True)
        control = Control(reset=pos == 0, dp=(save,) if save and not pos else ())
        ran = engine.forward(columns, control, tokens=tokens[pos : pos + n], data=None, last=True)
        pos, data = pos + n, ran.data
    drawn, rb = engine.sample(data, pos=pos - 1, n=1, sampling=sampling)[:1], None
    while len(drawn) < length:
        n = min(1 + drafts, BUCKET - pos % BUCKET)
        control = Control(spec=drafts > 0, rb=rb, sv=save)
        columns = Columns(pos=pos, n=n, wide=False)
        given = [drawn[-1], *[(drawn[-1] + 1 + i) % 200 for i in range(n - 1)]]
        ran = engine.forward(columns, control, tokens=given, data=None, last=False)
        drawn += engine.sample(ran.data, pos=pos, n=n, sampling=sampling)[:1]
        pos, rb, save = pos + 1, 0 if drafts else None, 0
    return drawn
