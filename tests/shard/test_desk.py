"""One answer at the desk: samplers, stop texts and drafts together, over a real model of random weights."""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pooled_nb.errors import BadQuestion, FrameRefused, WrongNumbers
from pooled_nb.shard import protocol
from pooled_nb.shard.desk import Desk
from pooled_nb.shard.door import (
    Columns,
    Control,
    Forwarded,
    LoadSpec,
    ModelFacts,
    Prompt,
    Sampled,
    Sampling,
    Turn,
)
from tests.shard.tinychat import write_model

LIGHT = settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
LENGTH = 24
HOW = [
    Sampling(),
    Sampling(repetition_penalty=1.3, presence_penalty=0.6, logit_bias={101: 2.0}),
    Sampling(temperature=0.9, top_k=40, top_p=0.95, min_p=0.02, presence_penalty=1.0, seed=3),
    Sampling(temperature=1.2, repetition_penalty=1.1, logit_bias={32: -100.0, 60: 1.5}, seed=8),
]


@dataclass
class Heard:
    """What one answer brought."""

    tokens: list[int] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    flushed: str = ""
    stopped: bool = False

    @property
    def text(self) -> str:
        return "".join(self.texts) + self.flushed


@dataclass
class Talk:
    """A desk with a model, and a prompt."""

    desk: Desk
    prompt: list[int]

    def do(self, job: protocol.AnyJob) -> object:
        return self.desk.run(job, lambda percent, words: None)

    def lap(self, tokens: list[int], pos: int, control: Control, *, wide: bool = False) -> bytes:
        columns = Columns(pos=pos, n=len(tokens), wide=wide)
        done = self.do(protocol.Forward(columns=columns, control=control, tokens=tokens, last=wide))
        assert isinstance(done, Forwarded)
        return done.data

    def sample(self, data: bytes, pos: int, how: Sampling, **more: object) -> Sampled:
        n = len(more.get("drafts") or ()) + 1  # type: ignore[arg-type]  # a list, where it is given
        done = self.do(protocol.Sample(data=data, pos=pos, n=n, sampling=how, **more))  # type: ignore[arg-type]
        assert isinstance(done, Sampled)
        return done

    def answer(
        self, how: Sampling, length: int = LENGTH, begun: list[int] | None = None, guess: object = None
    ) -> Heard:
        """An answer of some tokens, plain or with drafts: ``guess(what there is) → drafts``."""
        after, heard = begun or [], Heard()
        self.lap(self.prompt[:-1], 0, Control(reset=True), wide=True)
        seen = [*self.prompt, *after]
        pos = len(self.prompt) - 1
        data = self.lap(self.prompt[-1:], pos, Control(), wide=True)
        for token in after:
            pos += 1
            data = self.lap([token], pos, Control())
        drafts: list[int] = []
        drawn = self.sample(data, pos, how, first=True, after=after, seen=seen)
        while True:
            heard.tokens += drawn.tokens
            heard.texts += drawn.texts
            assert len(drawn.tokens) == len(drawn.texts)
            heard.stopped = drawn.stopped
            if drawn.end or drawn.stopped:
                heard.flushed = str(self.do(protocol.Flush()))
                return heard
            if len(heard.tokens) >= length:
                return heard
            control = Control(rb=len(drawn.tokens) - 1 if drafts else None, spec=True)
            pos += len(drawn.tokens)
            drafts = guess(heard.tokens) if callable(guess) else []
            data = self.lap([heard.tokens[-1], *drafts], pos, control)
            drawn = self.sample(data, pos, how, drafts=drafts)


@pytest.fixture(scope="module")
def talk(tmp_path_factory: pytest.TempPathFactory) -> Talk:
    folder = write_model(tmp_path_factory.mktemp("tiny") / "talker", layers=2, initializer_range=0.6)
    desk = Desk()
    facts = desk.run(protocol.Inspect(model=str(folder)), lambda percent, words: None)
    assert isinstance(facts, ModelFacts)
    spec = LoadSpec(
        repo=facts.repo, revision=facts.revision, folder=facts.folder, files=facts.files, lo=0, hi=2,
        config_sha256=facts.config_sha256, ends=True, ctx=256, dtype="float32", device="cpu",
    )  # fmt: skip
    desk.run(protocol.Load(spec=spec), lambda percent, words: None)
    prompt = desk.run(protocol.Render(turns=[Turn(role="user", text="hello")]), lambda percent, words: None)
    assert isinstance(prompt, Prompt)
    return Talk(desk, prompt.ids[:32])


def ended(how: Sampling, whole: Heard) -> Sampling:
    """The same, with a stop text of three characters out of the middle of an answer."""
    middle = len(whole.text) // 2
    stop = (whole.text[middle - 1 : middle + 2], "never said")
    return msgspec.structs.replace(how, stop=stop)


@pytest.mark.parametrize("how", HOW)
def test_drafts_change_nothing(talk: Talk, how: Sampling) -> None:
    """DESIGN section 5: verify frames with right and wrong drafts give the tokens and texts of plain ones."""
    plain = talk.answer(how)
    ends = ended(how, plain)
    short = talk.answer(ends)
    assert short.stopped
    assert len(short.tokens) < len(plain.tokens)

    @LIGHT
    @given(st.data())
    def check(data: st.DataObject) -> None:
        def guess(so_far: list[int]) -> list[int]:
            right = plain.tokens[len(so_far) :][: data.draw(st.integers(0, 6))]
            return right + data.draw(st.lists(st.integers(0, 200), max_size=3))

        drafted = talk.answer(how, guess=guess)
        assert drafted.tokens[: len(plain.tokens)] == plain.tokens
        assert drafted.texts[: len(plain.texts)] == plain.texts
        assert talk.answer(ends, guess=guess) == short

    check()


@pytest.mark.parametrize("how", HOW[1:])
def test_an_answer_that_goes_on_counts_as_one(talk: Talk, how: Sampling) -> None:
    """PROTOCOL section 7, ``cont: 1``: penalties and stop texts see one longer answer."""
    plain = talk.answer(how)
    ends = ended(how, plain)
    whole = talk.answer(ends)
    assert whole.stopped
    for cut in range(1, len(whole.tokens), 3):
        part = talk.answer(ends, cut)
        rest = talk.answer(ends, begun=part.tokens)
        assert part.tokens + rest.tokens == whole.tokens
        assert part.text + rest.text == whole.text


def test_penalties_count_what_was_said(talk: Talk) -> None:
    """PROTOCOL section 7: OpenAI's presence counts the answer, Hugging Face's repetition the prompt, too."""
    often = talk.answer(Sampling(logit_bias={97: 100.0}), 8)
    assert often.tokens == [97] * 8
    once = talk.answer(Sampling(logit_bias={97: 100.0}, presence_penalty=90.0), 3, begun=[97])
    assert once.tokens[0] != 97
    fresh = talk.answer(Sampling(logit_bias={97: 100.0}, presence_penalty=90.0), 3)
    assert fresh.tokens[0] == 97
    assert fresh.tokens[1:] == once.tokens[:2]
    known = talk.prompt[0]
    assert talk.answer(Sampling(logit_bias={known: 100.0}), 1).tokens == [known]
    assert talk.answer(Sampling(logit_bias={known: 100.0}, repetition_penalty=1e6), 1).tokens != [known]


def test_a_control_token_ends_an_answer_like_the_models_own_end(talk: Talk) -> None:
    """PROTOCOL section 7: asked for as a stop, it is the end: it adds no text."""
    start = 263  # <|im_start|>
    how = Sampling(logit_bias={start: 100.0}, stop=("<|im_start|>",))
    drawn = talk.answer(how)
    assert drawn.tokens == [start]
    assert (drawn.text, drawn.stopped) == ("", False)


def test_no_more_of_the_head_is_computed_than_is_drawn(talk: Talk, monkeypatch: pytest.MonkeyPatch) -> None:
    """DESIGN section 5: a wrong first draft costs one block of rows, and what it gives fails no answer."""
    prompt = talk.prompt[:16]
    pos = len(prompt) - 1
    talk.lap(prompt[:-1], 0, Control(reset=True), wide=True)
    data = talk.lap([prompt[-1], *prompt[1:]], pos, Control(spec=True))
    ends = talk.desk._engine.ends
    head, computed = ends._head, list[int]()

    def watched(hidden: torch.Tensor, rows: int) -> torch.Tensor:
        computed.append(len(hidden))
        logits = head(hidden, rows)
        logits[1:] = torch.nan
        return logits

    monkeypatch.setattr(ends, "_head", watched)
    [token] = talk.sample(data, pos, Sampling(), first=True, seen=prompt, drafts=[300] * 15).tokens
    assert computed == [4]
    with pytest.raises(WrongNumbers):
        talk.sample(data, pos, Sampling(), first=True, seen=prompt, drafts=[token] * 15)


def test_an_answer_has_a_beginning(talk: Talk, monkeypatch: pytest.MonkeyPatch) -> None:
    """PROTOCOL section 7: without what was said before, penalties would count anew, and say nothing of it."""
    data = talk.lap(talk.prompt, 0, Control(reset=True), wide=True)
    monkeypatch.setattr(talk.desk, "_text", None)
    with pytest.raises(FrameRefused, match="No answer has begun"):
        talk.sample(data, len(talk.prompt) - 1, Sampling())


def test_what_cannot_be_is_refused_at_the_question(talk: Talk) -> None:
    """PROTOCOL section 7: a bias for a token that is none; tokens of before that are none; lost drafts."""
    turns = [Turn(role="user", text="hello")]
    with pytest.raises(BadQuestion, match="tokens 0 to 266"):
        talk.do(protocol.Render(turns=turns, sampling=Sampling(logit_bias={267: 1.0})))
    talk.do(protocol.Render(turns=turns, sampling=Sampling(logit_bias={266: 1.0})))
    data = talk.lap(talk.prompt, 0, Control(reset=True), wide=True)
    pos = len(talk.prompt) - 1
    for wrong in ({"seen": [267]}, {"seen": [-1]}, {"seen": [1, 2], "after": [1]}, {"after": [900]}):
        with pytest.raises(FrameRefused):
            talk.sample(data, pos, Sampling(), first=True, **wrong)
    with pytest.raises(FrameRefused, match="0 drafts, and 2 came"):
        talk.do(protocol.Sample(data=data, pos=pos, n=1, sampling=Sampling(), first=True, drafts=[1, 2]))
