"""Biases and penalties: the logits that Hugging Face's own processors make, without walking the history."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from transformers.generation.logits_process import (
    RepetitionPenaltyLogitsProcessor,
    SequenceBiasLogitsProcessor,
)

from pooled_nb.errors import BadQuestion
from pooled_nb.shard.door import Sampling
from pooled_nb.shard.history import History, Ids
from pooled_nb.shard.penalties import check_bias, processed

VOCAB = 24
few = settings(max_examples=120, deadline=None)
token_lists = st.lists(st.integers(0, VOCAB - 1), max_size=30)
logits_of = st.lists(
    st.floats(-40, 40, width=32), min_size=VOCAB, max_size=VOCAB
).map(lambda values: np.array(values, dtype=np.float32))  # fmt: skip
# transformers before 5.24 takes no bias for token 0.
biases = st.dictionaries(st.integers(1, VOCAB - 1), st.floats(-100, 100), max_size=5)


@few
@given(logits_of, token_lists, token_lists, st.floats(0.1, 10), biases)
def test_bias_and_repetition_are_hugging_faces(
    logits: npt.NDArray[np.float32],
    prompt: list[int],
    answer: list[int],
    penalty: float,
    bias: dict[int, float],
) -> None:
    """DESIGN section 5: who moves here from transformers finds the same processed logits, bit for bit."""
    scores = torch.from_numpy(logits.copy())[None]
    seen = torch.tensor([[*prompt, *answer] or [0]])
    if bias:
        named: list[list[list[int] | float]] = [[[token], value] for token, value in bias.items()]
        scores = SequenceBiasLogitsProcessor(named)(seen, scores)
    if prompt or answer:
        scores = RepetitionPenaltyLogitsProcessor(penalty)(seen, scores)
    sampling = Sampling(repetition_penalty=penalty, logit_bias=bias)
    mine = processed(logits, sampling, History([*prompt, *answer], len(answer)))
    assert np.array_equal(mine, scores[0].numpy())


@few
@given(logits_of, token_lists, token_lists, st.floats(-2, 2), st.floats(0.5, 2))
def test_presence_is_subtracted_once_from_what_the_answer_said(
    logits: npt.NDArray[np.float32], prompt: list[int], answer: list[int], presence: float, penalty: float
) -> None:
    """DESIGN section 5: OpenAI's: of the answer alone, however often, after the repetition penalty."""
    history = History([*prompt, *answer], len(answer))
    before = processed(logits, Sampling(repetition_penalty=penalty), history)
    mine = processed(logits, Sampling(repetition_penalty=penalty, presence_penalty=presence), history)
    said = np.isin(np.arange(VOCAB), answer)
    assert np.array_equal(mine[~said], before[~said])
    assert np.array_equal(mine[said], before[said] - np.float32(presence))


@few
@given(token_lists, token_lists, token_lists)
def test_a_history_that_grows_counts_like_one_that_is_given(
    prompt: list[int], begun: list[int], more: list[int]
) -> None:
    """PROTOCOL section 7, ``cont: 1``: an answer that goes on is one longer answer, for penalties, too."""
    grown = History([*prompt, *begun], len(begun))
    for token in more:
        grown.add(token)
    whole = History([*prompt, *begun, *more], len(begun) + len(more))
    assert grown.tokens == whole.tokens
    assert grown.start == whole.start == len(prompt)
    for mine, other in ((grown.seen, whole.seen), (grown.said, whole.said)):
        assert sorted(mine.array()) == sorted(other.array())
    assert set(grown.said.array()) == {*begun, *more}


@few
@given(token_lists, token_lists, token_lists)
def test_a_copy_grows_by_itself(tokens: list[int], more: list[int], other: list[int]) -> None:
    """PROTOCOL section 7: what a draft model guesses counts for its own penalties, and for no other's."""
    history = History(tokens, len(tokens) // 2)
    made = history.copy()
    for token in more:
        made.add(token)
    for token in other:
        history.add(token)
    for mine, ids in ((made, more), (history, other)):
        whole = History([*tokens, *ids], len(tokens) // 2 + len(ids))
        assert (mine.tokens, mine.start) == (whole.tokens, whole.start)
        assert sorted(mine.seen.array()) == sorted(whole.seen.array())
        assert sorted(mine.said.array()) == sorted(whole.said.array())


def test_tokens_without_a_logit_are_passed_over() -> None:
    """DESIGN section 5: an embedding may have more rows than the head, and a prompt may name them."""
    how = Sampling(repetition_penalty=2.0, presence_penalty=1.0)
    mine = processed(np.full(4, 8.0, dtype=np.float32), how, History([1, 9, 2, 7], 2))
    assert mine.tolist() == [8, 4, 3, 8]


def test_ids_grow_without_end() -> None:
    """DESIGN section 3: the thousandth token costs what the first did: each id is kept once."""
    ids = Ids([3, 3])
    for token in [5, 3, *range(1000), 5]:
        ids.add(token)
    assert sorted(ids.array()) == list(range(1000))


def test_nothing_asked_costs_nothing() -> None:
    """DESIGN section 5: the plain sampler reads the logits as they are; others never write to them."""
    logits = np.arange(VOCAB, dtype=np.float32)
    history = History([1, 2], 1)
    assert processed(logits, Sampling(temperature=0.7, min_p=0.1), history) is logits
    processed(logits, Sampling(repetition_penalty=1.3, presence_penalty=1, logit_bias={0: 5}), history)
    assert np.array_equal(logits, np.arange(VOCAB, dtype=np.float32))


@few
@given(
    st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=VOCAB, max_size=VOCAB),
    st.floats(1e-300, 1.7e308),
    st.floats(-1.7e308, 1.7e308),
    st.floats(-1.7e308, 1.7e308),
)
@example([3e38] * VOCAB, 5e-324, -1.7e308, 1.7e308)
@example([0.0] * VOCAB, 5e-324, 0.0, -1.7e308)
@pytest.mark.filterwarnings("error")
def test_logits_stay_finite(values: list[float], penalty: float, presence: float, bias: float) -> None:
    """DESIGN section 5: whatever is not refused leaves numbers that a token can be drawn with."""
    sampling = Sampling(repetition_penalty=penalty, presence_penalty=presence, logit_bias={1: bias, 2: 0})
    mine = processed(np.array(values, dtype=np.float32), sampling, History(list(range(VOCAB)), 9))
    assert np.isfinite(mine).all()
    assert mine.dtype == np.float32


def test_a_bias_for_no_token_is_refused() -> None:
    """PROTOCOL section 7: refused at the question, in words, not in the middle of an answer."""
    check_bias(Sampling(logit_bias={23: -100.0}), VOCAB)
    check_bias(Sampling(), VOCAB)
    with pytest.raises(BadQuestion, match="token 24, and this model has tokens 0 to 23"):
        check_bias(Sampling(logit_bias={3: 1.0, 24: 1.0}), VOCAB)
    with pytest.raises(BadQuestion):
        processed(np.zeros(4, dtype=np.float32), Sampling(logit_bias={4: 1.0}), History())


def test_a_prompt_token_without_a_row_in_the_head() -> None:
    """DESIGN section 5: an embedding may be larger than the head; what cannot be drawn needs no penalty."""
    mine = processed(np.ones(4, dtype=np.float32), Sampling(repetition_penalty=2), History([1, 7]))
    assert mine.tolist() == [1.0, 0.5, 1.0, 1.0]
