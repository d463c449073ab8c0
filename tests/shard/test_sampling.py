"""From logits to a token."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pooled_nb.errors import BadQuestion
from pooled_nb.shard.door import Sampling
from pooled_nb.shard.sampling import draw, greedy, uniform

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
    return set(kept)


@few
@given(
    logits_lists,
    st.floats(0.1, 3.0),
    st.integers(0, 31),
    st.sampled_from([0.01, 0.3, 0.5, 0.77, 0.95, 1.0]),
    st.integers(0, 1000),
)
def test_only_allowed_tokens_are_drawn(
    values: list[float], t: float, k: int, p: float, position: int
) -> None:
    """DESIGN section 5: temperature, top-k and top-p, with their rules for ties and edges."""
    sampling = Sampling(temperature=t, top_k=k, top_p=p, seed=5)
    token = draw(array(values), sampling, position)
    assert token in allowed(values, sampling)
    assert token == draw(array(values), sampling, position)


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
    ],
)  # fmt: skip
def test_numbers_that_name_no_distribution_are_refused(wrong: dict[str, float]) -> None:
    """DESIGN section 5: NaN would draw one token for ever, in silence."""
    with pytest.raises(BadQuestion, match=next(iter(wrong))):
        Sampling(**wrong)  # type: ignore[arg-type]  # a mapping of names to numbers


@few
@given(logits_lists, st.floats(0, 1.7e308), st.floats(0, 1), st.integers(0, 40))
def test_every_sampling_that_there_is_draws(values: list[float], t: float, p: float, k: int) -> None:
    """DESIGN section 5: whatever is not refused draws a token, down to the smallest temperature."""
    sampling = Sampling(temperature=t, top_p=p, top_k=k)
    assert 0 <= draw(array(values), sampling, 3) < len(values)


def test_extremes_do_not_overflow() -> None:
    """DESIGN section 5: no temperature and no logit makes the draw fail."""
    wild = array([-3e38, 3e38, 0.0])
    assert draw(wild, Sampling(temperature=1e-6, seed=1), 1) == 1
    assert draw(array([5.0]), Sampling(temperature=2.0, top_p=0.5, top_k=3), 1) == 0
    large = np.random.default_rng(0).standard_normal(50_000).astype(np.float32)
    assert large[draw(large, Sampling(temperature=1.0, top_k=40, top_p=0.9), 9)] >= np.sort(large)[-40]
