"""Tokens drawn where the logits are: the same code runs on a GPU, so most is proved here, on a CPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pooled_nb.errors import WrongNumbers
from pooled_nb.shard import drawing, sampling
from pooled_nb.shard.door import Sampling
from pooled_nb.shard.drawer import Drawer
from pooled_nb.shard.drawing import drawn, draws_on, facts_of, numbers_of
from pooled_nb.shard.engine import Engine
from pooled_nb.shard.handover import Handover
from pooled_nb.shard.history import History
from pooled_nb.shard.sampling import draw, greedy
from tests.shard.conftest import Make
from tests.shard.runs import DEVICE, load

Logits = npt.NDArray[np.float32]
few = settings(max_examples=200, deadline=None)


def tokens_of(logits: Logits, how: Sampling, pos: int) -> list[int]:
    rows = torch.from_numpy(logits).to(DEVICE)
    numbers = torch.tensor(numbers_of(how, pos, len(logits)), dtype=torch.float64, device=DEVICE)
    return drawn(rows, how, numbers).tolist()


def tokens_by_numpy(logits: Logits, how: Sampling, pos: int) -> list[int]:
    return [draw(row, how, pos + i + 1) for i, row in enumerate(logits)]


def some_logits(kind: str, vocab: int, rng: np.random.Generator) -> Logits:
    normal = rng.standard_normal((4, vocab))
    made: dict[str, Any] = {
        "plain": lambda: normal * 3,
        "flat": lambda: normal * 0.1,
        "bf16": lambda: torch.from_numpy(normal * 4).bfloat16().float().numpy(),
        "ties": lambda: rng.integers(-3, 4, (4, vocab)) * 0.7,
        "equal": lambda: np.full((4, vocab), normal[0, 0]),
        "one": lambda: np.where(np.arange(vocab) == rng.integers(vocab), 1e30, 0),
        "huge": lambda: normal * 1e38,
        "tiny": lambda: -np.abs(normal) * 1e-30,
        "wild": lambda: rng.standard_cauchy((4, vocab)),
    }
    values = np.broadcast_to(made[kind](), (4, vocab))
    return np.clip(values, -3.4e38, 3.4e38).astype(np.float32)


KINDS = ["plain", "flat", "bf16", "ties", "equal", "one", "huge", "tiny", "wild"]
HOWS = [
    {"temperature": 0.7, "top_k": 20, "top_p": 0.95},
    {"temperature": 1.0},
    {"temperature": 1.3, "top_p": 0.9},
    {"temperature": 0.8, "min_p": 0.05},
    {"temperature": 2.0, "top_k": 1000, "min_p": 0.3},
    {"temperature": 0.6, "top_k": 40, "top_p": 0.5, "min_p": 0.1},
    {"temperature": 1e-310, "top_p": 0.5},
    {"temperature": 1e-6, "top_k": 3},
    {"temperature": 1e300, "top_p": 0.3},
    {"temperature": 1e5, "top_k": 49, "top_p": 0.999},
    {"temperature": 1.0, "top_p": 0.0},
    {"temperature": 1.0, "min_p": 1.0},
    {"temperature": 0.9, "top_k": 1 << 40, "top_p": 0.01},
]


@pytest.mark.parametrize(("vocab", "times"), [(50, 20), (1003, 8), (49_152, 1), (128_256, 1)])
@pytest.mark.parametrize("kind", KINDS)
def test_the_tokens_are_those_of_the_cpu(kind: str, vocab: int, times: int) -> None:
    """DESIGN section 5: temperature, top-k, top-p, min-p and the draw: some 14,000 tokens, none differs."""
    rng = np.random.default_rng([vocab, KINDS.index(kind)])
    for time in range(times):
        logits = some_logits(kind, vocab, rng)
        best, finite = facts_of(torch.from_numpy(logits).to(DEVICE)).tolist()
        assert best == [greedy(row) for row in logits]
        assert all(finite)
        for how in HOWS:
            sampled = Sampling(**how, seed=int(rng.integers(1 << 40)))
            assert tokens_of(logits, sampled, time) == tokens_by_numpy(logits, sampled, time), how


@few
@given(
    st.lists(st.sampled_from([-3.0, -1.0, -0.0, 0.0, 0.5, 2.0]), min_size=1, max_size=30),
    st.floats(5e-324, 1.7e308),
    st.integers(2, 31),
    st.sampled_from([0.0, 0.01, 0.3, 0.5, 0.77, 0.95, 1.0]),
    st.sampled_from([0.0, 0.05, 0.3, 1.0]),
    st.integers(0, 1000),
)
def test_ties_and_edges(values: list[float], t: float, k: int, p: float, least: float, pos: int) -> None:
    """DESIGN section 5: among equals the lowest id, at every bound, for every temperature there is."""
    logits = np.array([values], dtype=np.float32)
    how = Sampling(temperature=t, top_k=k, top_p=p, min_p=least, seed=5)
    assert tokens_of(logits, how, pos) == tokens_by_numpy(logits, how, pos)
    assert facts_of(torch.from_numpy(logits))[0].tolist() == [values.index(max(values))]


@few
@given(st.lists(st.sampled_from([-1.0, 0.0, 1.0, 2.0]), min_size=2, max_size=40), st.data())
def test_top_k_keeps_the_same(values: list[float], data: st.DataObject) -> None:
    """DESIGN section 5: exactly k tokens remain, of equal ones those with the lowest ids."""
    k = data.draw(st.integers(1, len(values) - 1))
    logits = np.array(values, dtype=np.float32)
    wanted = sampling._top_k(logits, k)
    assert wanted is not None
    assert drawing._top_k(torch.from_numpy(logits)[None], k).tolist() == [wanted.tolist()]


@pytest.mark.parametrize("how", HOWS)
def test_a_column_is_drawn_alike_alone_and_with_others(how: dict[str, float]) -> None:
    """DESIGN section 5: a verify frame draws what a plain frame draws, so no sum may depend on the frame."""
    rng = np.random.default_rng(4)
    logits = np.concatenate([some_logits(kind, 5003, rng) for kind in ("plain", "flat", "ties", "bf16")])
    sampled = Sampling(**how, seed=8)  # type: ignore[arg-type]
    alone = [tokens_of(logits[i : i + 1], sampled, 100 + i)[0] for i in range(len(logits))]
    assert tokens_of(logits, sampled, 100) == alone


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_a_column_that_is_not_finite_is_told_from_the_others(bad: float) -> None:
    """DESIGN section 5: NaN or infinity is caught; it changes no other column and no draw fails for it."""
    logits = some_logits("plain", 300, np.random.default_rng(1))
    clean = facts_of(torch.from_numpy(logits))
    how = Sampling(temperature=0.7, top_k=20, top_p=0.9, seed=2)
    wanted = tokens_of(logits, how, 3)
    logits[2, 299] = bad
    facts = facts_of(torch.from_numpy(logits))
    assert facts[1].tolist() == [1, 1, 0, 1]
    assert [facts[0, i] for i in (0, 1, 3)] == [clean[0, i] for i in (0, 1, 3)]
    found = tokens_of(logits, how, 3)
    assert [found[i] for i in (0, 1, 3)] == [wanted[i] for i in (0, 1, 3)]
    assert 0 <= found[2] < 300


def test_the_trial_says_where_it_can_be_done(monkeypatch: pytest.MonkeyPatch) -> None:
    """CASES: float64 is not everywhere (MPS, some Intel GPUs): there the CPU draws, as before."""
    place = torch.device(DEVICE)
    draws_on.cache_clear()
    assert draws_on(place)
    for fails in (TypeError("Cannot convert a MPS Tensor to float64"), RuntimeError("no fp64")):

        def refuse(*args: Any, fails: Exception = fails) -> Any:
            raise fails

        draws_on.cache_clear()
        with monkeypatch.context() as patch:
            patch.setattr(drawing, "drawn", refuse)
            assert not draws_on(place)
    draws_on.cache_clear()
    with monkeypatch.context() as patch:
        patch.setattr(drawing, "drawn", lambda *args: torch.zeros(2, dtype=torch.int64))
        assert not draws_on(place), "wrong tokens are no tokens"
    draws_on.cache_clear()


@pytest.fixture(scope="module")
def engine(tiny_model: Make) -> Engine:
    return load(tiny_model("llama"))


ASKED = [
    Sampling(),
    Sampling(temperature=0.9, top_k=1),
    Sampling(temperature=0.8, seed=3),
    Sampling(temperature=0.8, top_k=30, top_p=0.9, seed=4),
    Sampling(temperature=0.7, repetition_penalty=1.3, presence_penalty=0.5, logit_bias={7: 2.0}, seed=5),
    Sampling(repetition_penalty=1.3),
]


def columns(engine: Engine, n: int, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn((n, engine._need().dim), generator=generator)


@pytest.mark.parametrize("how", ASKED)
def test_a_frame_draws_what_the_cpu_draws_from_it(how: Sampling, engine: Engine) -> None:
    """DESIGN section 5: right drafts, wrong drafts, ends and none; the history grows alike."""
    here = Drawer(engine.ends, Handover(DEVICE), here=True)
    there = Drawer(engine.ends, Handover("cpu"), here=False)
    for n in (1, 4, 16, 23):  # more than a pass of the head has rows, too
        hidden = columns(engine, n, n)
        whole = there.draw(hidden, how, 40, History([1, 2, 7]))
        assert len(whole) == n
        tries: list[tuple[list[int] | None, set[int]]] = [(None, set()), (None, {whole[n // 2]})]
        for wrong in (0, n // 2, n - 1):
            tries.append(([*whole[:wrong], *([1] * n)][: n - 1], set()))
        tries.append((whole[:-1], {whole[-1]}))
        for drafts, ends in tries:
            told: list[list[int]] = [[], []]
            histories = [History([1, 2, 7]), History([1, 2, 7])]
            drawn = []
            for drawer, history, heard in zip((here, there), histories, told, strict=True):

                def end(token: int, heard: list[int] = heard, ends: set[int] = ends) -> bool:
                    heard.append(token)
                    return token in ends

                drawn.append(drawer.draw(hidden, how, 40, history, drafts, end))
            assert drawn[0] == drawn[1] == told[0] == told[1]
            assert histories[0].tokens == histories[1].tokens == [1, 2, 7, *drawn[0]]


@pytest.mark.parametrize("how", ASKED)
def test_only_what_is_reached_must_be_finite(how: Sampling, engine: Engine) -> None:
    """DESIGN section 5: what a wrong draft gives fails no answer; a column that counts does."""
    drawer = Drawer(engine.ends, Handover(DEVICE), here=True)
    hidden = columns(engine, 4, 9)
    right = drawer.draw(hidden, how, 5, History())
    hidden[2] = float("nan")
    assert drawer.draw(hidden, how, 5, History(), [right[0], 1, 1]) == right[:2]
    assert drawer.draw(hidden, how, 5, History(), right[:3], lambda token: token == right[1]) == right[:2]
    with pytest.raises(WrongNumbers, match="produced here, by the final norm or the head"):
        drawer.draw(hidden, how, 5, History(), right[:3])
    with pytest.raises(WrongNumbers):
        drawer.draw(hidden, how, 5, History())
