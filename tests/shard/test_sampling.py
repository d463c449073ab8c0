"""From logits to a token."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from transformers.generation.logits_process import (
    MinPLogitsWarper,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from pooled_nb.errors import BadQuestion
from pooled_nb.shard import sampling as drawing
from pooled_nb.shard.door import Sampling
from pooled_nb.shard.history import History
from pooled_nb.shard.sampling import draw, draw_columns, greedy, uniform

Logits = npt.NDArray[np.float32]
# Few different values, so that ties are the rule.
logits_lists = st.lists(st.sampled_from([-3.0, -1.0, 0.0, 0.5, 2.0]), min_size=1, max_size=30)
few = settings(max_examples=150, deadline=None)


def array(values: list[float]) -> Logits:
    return np.array(values, dtype=np.float32)


def test_the_random_number_is_fixed_for_ever() -> None:
    """DESIGN section 5: an RNG keyed by (seed, position); these numbers must never change."""
    assert [uniform(0, 0), uniform(7, 12), uniform(2**64 - 1, 5)] == [
        0.011546754286331562, 0.3789813427788066, 0.05541565898515444,
    ]  # fmt: skip
    assert uniform(-1, 5) == uniform(2**64 - 1, 5)


@few
@given(st.integers(-(2**70), 2**70), st.integers(0, 2**32))
def test_the_random_number_is_in_range_and_of_its_key(seed: int, position: int) -> None:
    """DESIGN section 5: the same for the same key, another for another."""
    u = uniform(seed, position)
    assert 0.0 <= u < 1.0
    assert u == uniform(seed, position)
    assert u != uniform(seed, position + 1)
    assert u != uniform(seed + 1, position)


@few
@given(logits_lists)
def test_greedy_takes_the_lowest_of_equals(values: list[float]) -> None:
    """DESIGN section 5: greedy text is the same bit for bit, so ties have a rule."""
    assert greedy(array(values)) == values.index(max(values))
    assert draw(array(values), Sampling(), 3) == values.index(max(values))
    assert draw(array(values), Sampling(temperature=0.7, top_k=1), 3) == values.index(max(values))


def allowed(values: list[float], sampling: Sampling) -> set[int]:
    """The plain meaning of top-k and top-p, one token at a time."""
    order = sorted(range(len(values)), key=lambda i: (-values[i], i))
    if sampling.top_k:
        order = order[: sampling.top_k]
    weights = [float(np.exp((values[i] - max(values)) / sampling.temperature)) for i in order]
    kept, total = [], 0.0
    for i, weight in zip(order, weights, strict=True):
        kept.append(i)
        total += weight
        if total >= sampling.top_p * sum(weights) * (1 - 1e-12):
            break
    return {i for i, weight in zip(kept, weights, strict=False) if weight >= sampling.min_p * (1 - 1e-12)}


@few
@given(
    logits_lists,
    st.floats(0.1, 3.0),
    st.integers(0, 31),
    st.sampled_from([0.01, 0.3, 0.5, 0.77, 0.95, 1.0]),
    st.sampled_from([0.0, 0.05, 0.3, 1.0]),
    st.integers(0, 1000),
)
def test_only_allowed_tokens_are_drawn(
    values: list[float], t: float, k: int, p: float, least: float, position: int
) -> None:
    """DESIGN section 5: temperature, top-k, top-p and min-p, with their rules for ties and edges."""
    sampling = Sampling(temperature=t, top_k=k, top_p=p, min_p=least, seed=5)
    token = draw(array(values), sampling, position)
    assert token in allowed(values, sampling)
    assert token == draw(array(values), sampling, position)


def kept_by_transformers(values: list[float], sampling: Sampling) -> set[int]:
    """What Hugging Face's own warpers keep, in its own order."""
    ids: Any = None
    scores: Any = torch.tensor([values], dtype=torch.float64)
    scores = TemperatureLogitsWarper(sampling.temperature)(ids, scores)
    if sampling.top_k:
        scores = TopKLogitsWarper(sampling.top_k)(ids, scores)
    if sampling.top_p < 1:
        scores = TopPLogitsWarper(sampling.top_p)(ids, scores)
    if sampling.min_p:
        scores = MinPLogitsWarper(sampling.min_p)(ids, scores)
    return set(torch.isfinite(scores[0]).nonzero().flatten().tolist())


@few
@given(
    st.lists(st.floats(-8, 8, width=16), min_size=1, max_size=12, unique=True),
    st.floats(0.3, 3.0),
    st.integers(0, 12),
    st.floats(0.05, 1.0),
    st.floats(0.0, 1.0),
)
def test_the_kept_tokens_are_those_of_transformers(
    values: list[float], t: float, k: int, p: float, least: float
) -> None:
    """DESIGN section 5: what may be drawn is what transformers' warpers keep, and all of that is."""
    sampling = Sampling(temperature=t, top_k=k, top_p=p, min_p=least)
    theirs = kept_by_transformers(values, sampling)
    nearly = [Sampling(temperature=t, top_k=k, top_p=p * f, min_p=least * f) for f in (1 - 1e-9, 1 - 1e-7)]
    assume(all(kept_by_transformers(values, other) == theirs for other in nearly))  # no tie with a bound
    assert allowed(values, sampling) == theirs
    drawn = {draw(array(values), sampling, position) for position in range(60)}
    assert drawn <= theirs
    weights = np.exp((np.array(sorted(values[i] for i in theirs)) - max(values)) / t)
    if weights.min() > 0.2 * weights.sum():
        assert drawn == theirs, "60 draws miss none of at most five, each with a fifth of the weight"


@few
@given(st.lists(st.sampled_from([0.0, 0.1, 0.4, 1.0]), min_size=1, max_size=30), st.floats(0, 1))
def test_top_p_is_the_same_from_the_few_largest_alone(values: list[float], p: float) -> None:
    """DESIGN section 5: a vocabulary is not sorted where a few tokens reach top-p; ties keep their rule."""
    weights = np.array([*values, 1.0])  # the largest weighs 1
    whole = drawing._top_p(weights, p)
    order = sorted(range(weights.size), key=lambda i: (-weights[i], i))
    assert sorted(order[: whole.size]) == whole.tolist()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(drawing, "_FEW", 3)
        assert drawing._top_p(weights, p).tolist() == whole.tolist()


def after(tokens: list[int], salt: int) -> Logits:
    """A model of eight tokens: logits by all that stands before, of few values."""
    rng = np.random.default_rng([salt, *tokens])
    return rng.integers(-3, 4, 8).astype(np.float32) * np.float32(0.7)


samplings = st.builds(
    Sampling,
    temperature=st.sampled_from([0.0, 0.7, 2.0]),
    top_k=st.sampled_from([0, 1, 3]),
    top_p=st.sampled_from([0.6, 1.0]),
    min_p=st.sampled_from([0.0, 0.2]),
    repetition_penalty=st.sampled_from([1.0, 1.4, 0.8]),
    presence_penalty=st.sampled_from([0.0, 1.5, -1.0]),
    logit_bias=st.dictionaries(st.integers(0, 7), st.sampled_from([-100.0, 1.0]), max_size=2),
    seed=st.integers(0, 99),
)


def starts(base: list[int], drafts: list[int]) -> Iterator[tuple[list[int], list[int]]]:
    """What stands before each column's token: what was drawn, and the drafts up to there."""
    for i in range(len(drafts) + 1):
        yield list(base), drafts[:i]


@few
@given(samplings, st.data())
def test_verify_frames_draw_what_plain_frames_draw(sampling: Sampling, data: st.DataObject) -> None:
    """DESIGN section 5, speculation for any sampler: right drafts, wrong ones, in frames of any width."""
    prompt = data.draw(st.lists(st.integers(0, 7), min_size=1, max_size=4))
    salt, end = data.draw(st.integers(0, 99)), data.draw(st.integers(0, 7))
    plain = list(prompt)
    history = History(prompt)
    while len(plain) < len(prompt) + 12 and (plain == prompt or plain[-1] != end):
        [token] = draw_columns([after(plain, salt)], sampling, len(plain) - 1, history)
        plain.append(token)
    drafted = list(prompt)
    history = History(prompt)
    while len(drafted) < len(plain):
        right = plain[len(drafted) : len(drafted) + data.draw(st.integers(0, 4))]
        drafts = right + data.draw(st.lists(st.integers(0, 7), max_size=3))
        rows = (after([*base, *guess], salt) for base, guess in starts(drafted, drafts))
        drawn = draw_columns(rows, sampling, len(drafted) - 1, history, drafts, lambda token: token == end)
        assert len(list(rows)) == len(drafts) + 1 - len(drawn), "no column past the last that is drawn"
        drafted += drawn
        assert history.tokens == drafted
    assert drafted[: len(plain)] == plain
    assert len(drafted) == len(plain) or end not in plain[len(prompt) :]


def test_the_distribution_is_right() -> None:
    """DESIGN section 5: drawn from the full model's logits; 4,000 positions against softmax."""
    values = array([1.0, 0.0, 2.0, -1.0])
    counts = np.bincount(
        [draw(values, Sampling(temperature=1.3, seed=1), i) for i in range(4000)], minlength=4
    )
    wanted = np.exp(values / 1.3)
    wanted /= wanted.sum()
    assert np.abs(counts / 4000 - wanted).max() < 0.03


@pytest.mark.parametrize(
    "wrong",
    [
        {"temperature": float("nan")}, {"temperature": float("inf")}, {"temperature": -0.1},
        {"top_p": float("nan")}, {"top_p": 1.1}, {"top_p": -0.1}, {"top_k": -1},
        {"min_p": float("nan")}, {"min_p": 1.1}, {"repetition_penalty": 0.0}, {"stop": ("a", "")},
        {"repetition_penalty": float("nan")}, {"presence_penalty": float("inf")}, {"logit_bias": {-1: 1.0}},
        {"logit_bias": {1: float("nan")}},
    ],
)  # fmt: skip
def test_numbers_that_name_no_distribution_are_refused(wrong: dict[str, Any]) -> None:
    """DESIGN section 5: NaN would draw one token for ever, in silence."""
    with pytest.raises(BadQuestion, match=next(iter(wrong))):
        Sampling(**wrong)


@few
@given(logits_lists, st.floats(0, 1.7e308), st.floats(0, 1), st.floats(0, 1), st.integers(0, 40))
def test_every_sampling_that_there_is_draws(
    values: list[float], t: float, p: float, least: float, k: int
) -> None:
    """DESIGN section 5: whatever is not refused draws a token, down to the smallest temperature."""
    sampling = Sampling(temperature=t, top_p=p, min_p=least, top_k=k)
    assert 0 <= draw(array(values), sampling, 3) < len(values)


def test_extremes_do_not_overflow() -> None:
    """DESIGN section 5: no temperature and no logit makes the draw fail."""
    wild = array([-3e38, 3e38, 0.0])
    assert draw(wild, Sampling(temperature=1e-6, seed=1), 1) == 1
    assert draw(array([5.0]), Sampling(temperature=2.0, top_p=0.5, top_k=3), 1) == 0
    large = np.random.default_rng(0).standard_normal(50_000).astype(np.float32)
    assert large[draw(large, Sampling(temperature=1.0, top_k=40, top_p=0.9), 9)] >= np.sort(large)[-40]
