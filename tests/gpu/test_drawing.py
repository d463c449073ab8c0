"""Tokens drawn on the device: those that the CPU draws from the same logits, and alike in every frame."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from pooled_nb.shard.door import Columns, Control, Sampling
from pooled_nb.shard.drawer import Drawer
from pooled_nb.shard.drawing import drawn, draws_on, facts_of, numbers_of
from pooled_nb.shard.handover import Handover
from pooled_nb.shard.history import History
from pooled_nb.shard.sampling import draw, greedy
from tests.gpu.driving import DEVICE, start
from tests.shard.runs import some_tokens
from tests.shard.test_drawing import ASKED, HOWS, KINDS, some_logits

Make = Callable[[str], Path]


def columns(n: int, dim: int, seed: int) -> torch.Tensor:
    return torch.randn((n, dim), generator=torch.Generator().manual_seed(seed)).bfloat16()


@pytest.mark.parametrize("vocab", [50, 1003, 49_152, 128_256])
@pytest.mark.parametrize("kind", KINDS)
def test_the_tokens_are_those_of_the_cpu(kind: str, vocab: int) -> None:
    """DESIGN section 5: greedy and drawn tokens, alone and in frames of 4 and 16 columns."""
    rng = np.random.default_rng([vocab, KINDS.index(kind), 1])
    logits = np.concatenate([some_logits(kind, vocab, rng) for _ in range(4)])
    rows = torch.from_numpy(logits).to(DEVICE)
    for n in (1, 4, 16):
        assert facts_of(rows[:n]).tolist() == [[greedy(row) for row in logits[:n]], [1] * n]
    for how in HOWS:
        sampling = Sampling(**how, seed=int(rng.integers(1 << 40)))
        wanted = [draw(row, sampling, 8 + i) for i, row in enumerate(logits)]
        for n in (1, 4, 16):
            for i in range(0, 16, n):
                numbers = torch.tensor(numbers_of(sampling, 7 + i, n), dtype=torch.float64, device=DEVICE)
                for _ in range(2):  # nothing depends on which block of a kernel comes first
                    assert drawn(rows[i : i + n], sampling, numbers).tolist() == wanted[i : i + n], how


def test_it_is_done_on_this_device(cuda: None) -> None:
    """DESIGN section 5: a few bytes come back from a GPU, not the logits."""
    assert draws_on(torch.device("cuda:0"))


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("name", ["llama", "llama_tied", "gemma2", "gpt2"])
def test_frames(name: str, exact: bool, tiny_model: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """DESIGN section 5: the recorded head gives the bits of the plain one, so tokens are the same."""
    engine, _ = start(tiny_model(name), exact=exact)
    monkeypatch.setenv("POOLED_GRAPHS", "0")
    plain, _ = start(tiny_model(name), exact=exact)
    dim = engine._need().dim
    if DEVICE == "cuda":
        assert [head.recorded for head in engine.ends._passes.values()] == [True]
        assert not any(head.recorded for head in plain.ends._passes.values())
    for n in (1, 5, 16, 20):
        hidden = columns(n, dim, n)
        with torch.inference_mode():
            for mine, other in zip(engine.ends.scores(hidden), plain.ends.scores(hidden), strict=True):
                assert torch.equal(mine.logits[: mine.n], other.logits[: other.n])
                assert torch.equal(mine.facts[:, : mine.n], other.facts[:, : other.n])
        host = Drawer(engine.ends, Handover("cpu"), here=False)
        for how in ASKED:
            data = hidden.view(torch.int16).numpy().tobytes()
            tokens = engine.sample(data, pos=40, n=n, sampling=how, history=History([1, 2, 7]))
            assert tokens == plain.sample(data, pos=40, n=n, sampling=how, history=History([1, 2, 7]))
            assert tokens == host.draw(hidden, how, 40, History([1, 2, 7]))
            stops = engine.sample(
                data, pos=40, n=n, sampling=how, history=History([1, 2, 7]), drafts=[1] * (n - 1)
            )
            assert stops == tokens[: len(stops)]
    engine.unload()
    plain.unload()


def test_a_token_without_the_round_trip_is_the_same(tiny_model: Make) -> None:
    """DESIGN section 5: hidden states that stay on the device give what they give by way of main memory."""
    engine, _ = start(tiny_model("llama"))
    prompt, sampling = some_tokens(20), Sampling(temperature=0.8, top_p=0.9, seed=6)

    def answer(*, stay: bool) -> list[int]:
        tokens, control = list(prompt), Control(reset=True)
        given = prompt
        for step in range(12):
            place = Columns(pos=len(tokens) - len(given), n=len(given), wide=step == 0)
            if stay:
                hidden = engine.run(place, control, tokens=given)
                given = engine.draw(hidden, pos=len(tokens) - 1, sampling=sampling)
            else:
                data = engine.forward(place, control, tokens=given, data=None, last=True).data
                given = engine.sample(data, pos=len(tokens) - 1, n=1, sampling=sampling)
            tokens, control = tokens + given, Control()
        return tokens

    assert answer(stay=True) == answer(stay=False) == answer(stay=True)
    engine.unload()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_states_keep_their_bits_over_the_bus(dtype: torch.dtype) -> None:
    """PROTOCOL section 5: up and down again, through memory that is used again at once."""
    staging, seen = Handover(DEVICE), []
    for n in (64, 3, 70_000, 64):
        data = torch.randn(n, generator=torch.Generator().manual_seed(n)).to(dtype)
        there = staging.states(staging.down(data), dtype).to(DEVICE, non_blocking=True)
        seen.append((there, data))
    for there, data in seen:
        assert staging.down(there) == data.view(torch.uint8).numpy().tobytes()
        assert torch.equal(staging.fetch(there), data)


def test_pinned_memory_is_pinned(cuda: None) -> None:
    """DESIGN section 5: hidden states cross the bus through pinned memory."""
    staging = Handover("cuda")
    assert staging.states(bytes(64), torch.bfloat16).is_pinned()
    assert staging.tokens([1]).is_pinned()
    assert staging.fetch(torch.ones(5, device="cuda")).is_pinned()
