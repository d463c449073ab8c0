"""PROTOCOL section 7: drafts from a small model with the same tokenizer, on the host."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pooled_nb.shard import Sampling, Want, chat, draft_loading, loader
from pooled_nb.shard.door import Columns, Control
from pooled_nb.shard.draft_model import DraftModel
from pooled_nb.shard.history import History
from tests.shard import tinychat, tinydrafts
from tests.shard.runs import load, some_tokens
from tests.shard.speculating import GREEDY, SEEDED, Host

TOKENS = some_tokens(60)
KINDS = ["llama", "qwen3_5_text"]
WARM = Sampling(temperature=0.8, top_p=0.9, seed=4, presence_penalty=0.4)
Folder = Callable[[str], Path]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    made: dict[str, Path] = {}

    def make(name: str) -> Path:
        if name not in made:
            made[name] = tinydrafts.make(name, tmp_path_factory.mktemp(name) / name)
        return made[name]

    return make


class Fresh:
    """What a model guesses when it reads everything at once."""

    def __init__(self, folder: Path) -> None:
        self._engine = load(folder, exact=False)

    def guess(self, tokens: list[int], most: int, sampling: Sampling, start: int) -> list[int]:
        tokens, history = list(tokens), History(tokens, len(tokens) - start)
        for _ in range(most):
            columns = Columns(pos=0, n=len(tokens), wide=True)
            ran = self._engine.forward(columns, Control(reset=True), tokens=tokens, data=None, last=True)
            pos = len(tokens) - 1
            tokens += self._engine.sample(ran.data, pos=pos, n=1, sampling=sampling, history=history)
        return tokens[-most:]


@pytest.mark.parametrize("sampling", [GREEDY, WARM], ids=["greedy", "seeded"])
@pytest.mark.parametrize("name", KINDS)
def test_what_it_guessed_before_leaves_no_trace(name: str, sampling: Sampling, folder: Folder) -> None:
    """PROTOCOL sections 5 and 7: guesses are taken back, by length or by the snapshots of a spec frame."""
    model, fresh = DraftModel(load(folder(name), exact=False), 512, clock=lambda: 0.0), Fresh(folder(name))
    history = History(TOKENS)
    model.begin(history, frozenset())
    guessed: list[int] = []
    for kept, most in ((0, 3), (2, 4), (0, 3), (4, 1), (1, 5)):
        for token in [*guessed[:kept], 77]:
            history.add(token)
        guessed = model.guess(most, sampling)
        assert guessed == fresh.guess(history.tokens, most, sampling, len(TOKENS))
    # Laps without a wish, then an answer made anew, and a prompt that goes on.
    for token in some_tokens(20, 3):
        history.add(token)
    assert model.guess(2, sampling) == fresh.guess(history.tokens, 2, sampling, len(TOKENS))
    for prompt in (TOKENS[:30], TOKENS[:30] + some_tokens(9, 5)):
        history = History(prompt)
        model.begin(history, frozenset())
        history.add(5)
        assert model.guess(3, sampling) == fresh.guess(history.tokens, 3, sampling, len(prompt))


@pytest.mark.parametrize("name", KINDS)
def test_a_prompt_that_was_not_read_to_its_end(name: str, folder: Folder) -> None:
    """PROTOCOL section 5: without a spec frame there is nothing to roll back to, and states begin anew."""
    times = iter(range(100))
    model = DraftModel(load(folder(name), exact=False), 512, clock=lambda: next(times))
    long = some_tokens(200)
    model.begin(History(long), frozenset())
    assert model.guess(2, GREEDY) == []
    model.begin(History(long[:30]), frozenset())
    assert model.guess(2, GREEDY) == Fresh(folder(name)).guess(long[:30], 2, GREEDY, 30)


def test_a_long_prompt_is_read_in_parts(folder: Folder) -> None:
    """PROTOCOL section 7: what drafts never holds up an answer; until it has caught up it guesses nothing.

    A call waits for little: one narrow frame where that takes long, several wide ones where they do not.
    """
    times = iter(range(100))
    model = DraftModel(load(folder("llama"), exact=False), 512, clock=lambda: next(times))
    long = History(some_tokens(400))
    model.begin(long, frozenset())
    guesses = [model.guess(2, GREEDY) for _ in range(25)]  # each frame takes a second here
    assert [len(guess) for guess in guesses] == [0] * 23 + [2, 2]
    quick = DraftModel(load(folder("llama"), exact=False), 512, clock=lambda: 0.0)
    quick.begin(long, frozenset())
    assert [len(quick.guess(2, GREEDY)) for _ in range(2)] == [0, 2]
    assert quick.guess(2, GREEDY) == guesses[-1]


def test_beyond_its_own_context_it_is_silent(folder: Folder) -> None:
    """CASES: a draft model may hold less than the room; there is nothing to say about it."""
    model = DraftModel(load(folder("llama"), exact=False, ctx=64), 64, clock=lambda: 0.0)
    history = History(some_tokens(61))
    model.begin(history, frozenset())
    assert [len(model.guess(9, GREEDY)), len(model.guess(2, GREEDY))] == [4, 2]
    for token in (7, 8, 9, 10):
        history.add(token)
    assert model.guess(1, GREEDY) == []
    other = History([3, 4, 5, 10_000])
    model.begin(other, frozenset())
    assert model.guess(1, GREEDY) == []  # a token that it cannot read
    model.begin(History(some_tokens(9)), frozenset())
    assert model.guess(1, Sampling(logit_bias={10_000: 1.0})) == []
    assert len(model.guess(1, Sampling(logit_bias={100: 1.0}))) == 1


def test_it_ends_where_an_answer_ends(folder: Folder) -> None:
    """PROTOCOL section 7: the end token is never run, so nothing is guessed after one."""
    model = DraftModel(load(folder("llama"), exact=False), 512, clock=lambda: 0.0)
    model.begin(History(TOKENS), frozenset())
    guessed = model.guess(6, GREEDY)
    model.begin(History(TOKENS), frozenset({guessed[2]}))
    assert model.guess(6, GREEDY) == guessed[: guessed.index(guessed[2]) + 1]


@pytest.mark.parametrize("draft", KINDS)
def test_the_answer_is_that_without_drafts(draft: str, folder: Folder) -> None:
    """PROTOCOL section 7: the same stream as plain decoding, for any sampler, whatever drafts."""
    host = Host(folder("llama"), folder(draft))
    assert (host.loaded.drafts, host.loaded.note) == ("model", "")
    length = 24 if draft == "llama" else 12
    for sampling in (GREEDY, SEEDED):
        plain = host.answer(TOKENS, length, sampling)
        for want in (Want(draft=4), Want(lookup=6, draft=3)):
            drafted = host.answer(TOKENS, length, sampling, want)
            assert drafted.tokens == plain.tokens
            assert drafted.tried["draft"] > 0
            if draft == "llama":  # the model itself
                assert drafted.right["draft"] > 0.9 * drafted.tried["draft"]


def test_it_may_fail_in_an_answer(
    folder: Folder, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """PROTOCOL section 7: whatever goes wrong while drafting costs speed, and never the answer."""
    host = Host(folder("llama"), folder("llama"))
    plain = host.answer(TOKENS, 12, GREEDY)
    run, calls = DraftModel._run, 0

    def fail(self: DraftModel, tokens: list[int], *, spec: bool = False) -> bytes:
        nonlocal calls
        calls += 1
        if calls == 5:
            raise RuntimeError("CUDA error: out of memory")
        return run(self, tokens, spec=spec)

    monkeypatch.setattr(DraftModel, "_run", fail)
    assert host.answer(TOKENS, 12, GREEDY, Want(draft=3)).tokens == plain.tokens
    assert calls == 5
    said = capfd.readouterr().err
    assert said == "pooled_nb: drafting is off: RuntimeError: CUDA error: out of memory\n"


@pytest.mark.parametrize("what", ["tokenizer", "memory", "files"])
def test_without_it_the_room_goes_on(
    what: str, folder: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CASES: what drafts is no part of the model: where it cannot be loaded, the model is, and says so."""
    draft = tmp_path / "small"
    tinychat.write_model(draft)
    if what == "tokenizer":
        other = tinychat.tokenizer()
        other.add_tokens(["<think>"])
        other.save_pretrained(draft)
        words = "local/small has another tokenizer than the room's model."
    elif what == "memory":
        load_range, calls = loader.load_range, 0

        def full(*args: Any, **kwargs: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == 2:
                raise RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory")
            return load_range(*args, **kwargs)

        monkeypatch.setattr("pooled_nb.shard.engine.load_range", full)
        words = "memory does not hold what drafts"
    else:

        def gone(folder: Path) -> Any:
            (draft / "model.safetensors").unlink()
            return chat.load_tokenizer(folder)

        monkeypatch.setattr("pooled_nb.shard.draft_model.load_tokenizer", gone)
        words = "model.safetensors cannot be read"
    host = Host(folder("llama"), draft)
    assert host.loaded.drafts == ""
    assert words in host.loaded.note
    assert len(host.answer(TOKENS, 4, GREEDY, Want(draft=2)).tokens) == 4


def test_what_is_said_of_what_should_not_happen(capfd: pytest.CaptureFixture[str]) -> None:
    """CASES: a bug in what drafts is no fault of the shard, and the person has nothing to do."""
    said = draft_loading._words(KeyError("x"))
    assert said == "What was to draft cannot be loaded here (KeyError). Answers come without it."
    assert "KeyError: 'x'" in capfd.readouterr().err


def test_the_real_model_drafts_for_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """PROTOCOL section 7: SmolLM2 in bf16: its own guesses are nearly always right; the text is the same."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    model = "HuggingFaceTB/SmolLM2-135M-Instruct"
    host = Host(model, model, dtype="bfloat16")
    tokenizer = host.desk._needs_ends().tokenizer
    prompt = tokenizer.encode("<|im_start|>user\nName five colours.<|im_end|>\n<|im_start|>assistant\n")
    sampling = Sampling(temperature=0.7, top_k=40, seed=1)
    plain = host.answer(prompt, 8, sampling)
    drafted = host.answer(prompt, 8, sampling, Want(draft=4))
    assert drafted.tokens == plain.tokens
    assert drafted.right["draft"] > 0.6 * drafted.tried["draft"] > 0
