"""Memory on the device: nothing grows over a thousand answers, and a load that is over leaves nothing."""

from __future__ import annotations

import gc
import itertools
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
import torch

from pooled_nb.shard.door import Sampling
from tests.gpu.driving import DEVICE, answer, chain, run, start
from tests.shard.runs import roles, some_tokens

Make = Callable[[str], Path]

TURNS = 63 if DEVICE == "cuda" else 3
"""Through all kinds of answers, of which there are 16: whole ones, so that the same slots are kept."""
HOWS = (
    (Sampling(), 0, 0),
    (Sampling(temperature=0.8, top_p=0.95, seed=3), 0, 1),
    (Sampling(), 6, 2),
    (Sampling(temperature=0.7, top_k=20, repetition_penalty=1.1, seed=9), 3, 3),
)
"""How tokens are drawn, drafts that are wrong, the slot that is kept."""
PROMPTS = [some_tokens(n, n) for n in (5, 30, 250, 262)]


def held() -> tuple[int, int]:
    """Bytes of tensors, and what the allocator took from the device."""
    if DEVICE != "cuda":
        return 0, 0
    gc.collect()
    torch.cuda.synchronize()
    return torch.cuda.memory_allocated(), torch.cuda.memory_reserved()


@pytest.mark.timeout(170)
@pytest.mark.parametrize("name", ["llama", "qwen3"])
def test_a_thousand_answers(name: str, tiny_model: Make) -> None:
    """DESIGN section 9: short answers of every kind, over a bucket's end, with slots kept and dropped."""
    empty = held()
    engine, loaded = start(tiny_model(name), ctx=512)
    kinds = list(itertools.product(PROMPTS, HOWS))
    first = []
    for _ in range(3):  # every graph is recorded by then, and every block of the allocator taken
        first = [answer(engine, prompt, 6, how, drafts=n, save=slot) for prompt, (how, n, slot) in kinds]
    before, process = held(), psutil.Process().memory_info().rss
    for number in range(TURNS * len(kinds)):
        prompt, (how, n, slot) = kinds[number % len(kinds)]
        assert answer(engine, prompt, 6, how, drafts=n, save=slot) == first[number % len(kinds)], number
    assert held() == before
    # Beside weights and caches: buffers, kept slots, and cuBLAS's workspaces of two streams.
    assert before[0] - empty[0] < loaded.weights + loaded.cache + (128 << 20)
    assert psutil.Process().memory_info().rss - process < 48e6
    engine.unload()


def test_a_load_that_is_over_leaves_nothing(tiny_model: Make, cuda: None) -> None:
    """DESIGN section 5: graphs and their pools go with the layers; the next load finds all of it."""
    kinds = roles(250, 20)
    tokens = some_tokens(len(kinds))
    levels = []
    for _ in range(5):
        made = chain(tiny_model("llama"))
        run(made, tokens, kinds)
        run(made, tokens, kinds)
        made.engines[0].unload()
        del made
        levels.append(held())
    # The first load leaves what libraries keep for good: cuBLAS's workspace, say.
    assert levels[1:] == [levels[1]] * 4
