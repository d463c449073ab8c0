"""What one device would have said: the real engine over all layers, without a room.

The room's host writes down what it answers (`Spied`). `replay` keeps a conversation of its own from that, by
PROTOCOL section 7 alone, asks the engine the same, and compares.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, cast

from msgspec import json

from pooled_nb.room.conversation import Conversation, Last
from pooled_nb.room.memory import SavedChat
from pooled_nb.shard import Columns, Control, LoadSpec, Prompt, Sampled, Sampling, Turn, protocol
from pooled_nb.shard.door import Forwarded
from tests.shard.runs import longest
from tests.sim.clocks import HERE
from tests.sim.realshard import LAYERS, SimDesk, facts, folder

Entry = tuple[str, Last | SavedChat | None]
"""What became of a conversation: answered, grown, dropped, cleared, or recalled by a host that goes on."""


class Spied(Conversation):
    """A host's conversation that writes down what becomes of it."""

    __slots__ = ()
    log: ClassVar[list[Entry]] = []

    @classmethod
    def begin(cls) -> list[Entry]:
        """A new run: its log."""
        cls.log = []
        return cls.log

    def _write(self, what: str, last: Last | None) -> None:
        machine = HERE.get()
        if machine is None or not machine.unheard:  # what ends with its process was never said
            self.log.append((what, last))

    def answered(self, last: Last) -> None:
        """See `Conversation`."""
        self._write("answered", last)
        super().answered(last)

    def grown(self, last: Last) -> None:
        """See `Conversation`."""
        self._write("grown", last)
        super().grown(last)

    def drop_last(self) -> None:
        """See `Conversation`."""
        self._write("dropped", None)
        super().drop_last()

    def clear(self) -> None:
        """See `Conversation`."""
        self._write("cleared", None)
        super().clear()


@dataclass
class Answer:
    """What one device drew where a room said something: equal tokens, and the first that is not."""

    ids: list[int] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    end: bool = False
    rest: str = ""
    """Text that was held back, and comes out at the end."""

    def take(self, drawn: Sampled) -> None:
        """Some more tokens."""
        self.ids += drawn.tokens
        self.texts += drawn.texts
        self.end = drawn.end or drawn.stopped

    def text(self, tokens: int) -> str:
        """What the first tokens say, without what is held back."""
        return "".join(self.texts[:tokens])


class OneDevice:
    """The whole model in one engine, which reads a conversation from its start to its end."""

    _answers: ClassVar[dict[bytes, Answer]] = {}
    _ones: ClassVar[dict[int, OneDevice]] = {}

    def __init__(self, ctx: int) -> None:
        model, self._desk, self._ctx = facts(), SimDesk(), ctx
        self._fed: list[tuple[int, bool]] = []
        """Tokens that the caches hold, and which of them were generated."""
        spec = LoadSpec(
            repo=model.repo,
            revision=model.revision,
            folder=str(folder()),
            config_sha256=model.config_sha256,
            lo=0,
            hi=LAYERS,
            ends=True,
            ctx=ctx,
            dtype="float32",
        )
        self._run(protocol.Load(spec=spec))

    @classmethod
    def answer(
        cls, turns: list[Turn], how: Sampling, thinking: bool | None, said: list[int], ctx: int
    ) -> Answer:
        """What one device draws at each token of ``said``, and after the last; once a process."""
        key = json.encode((turns, how, thinking, said, ctx))
        if key not in cls._answers:
            if ctx not in cls._ones:
                cls._ones[ctx] = OneDevice(ctx)
            one = cls._ones[ctx]
            cls._answers[key] = one._read(turns, how, thinking, said)
        return cls._answers[key]

    def _read(self, turns: list[Turn], how: Sampling, thinking: bool | None, said: list[int]) -> Answer:
        prompt = cast(Prompt, self._run(protocol.Render(turns=turns, thinking=thinking, sampling=how)))
        whole = list(zip(prompt.ids, prompt.generated, strict=True))
        if self._fed != whole[: len(self._fed)] or len(self._fed) == len(whole):
            self._fed = []
        data = b""
        while len(self._fed) < len(whole):
            data = self._forward(
                whole[: len(self._fed) + longest(len(self._fed), prompt.generated)], last=True
            )
        out = Answer()
        out.take(self._sample(data, how, seen=prompt.ids))
        begun = len(whole)
        whole += [(token, True) for token in said]
        flags = [generated for _, generated in whole]
        while (
            out.ids == said[: len(out.ids)]
            and not out.end
            and len(out.ids) <= len(said)
            and begun < len(whole)
        ):
            n = longest(len(self._fed), flags)
            before = len(self._fed) - begun
            data = self._forward(whole[: len(self._fed) + n], last=False)
            out.take(self._sample(data, how, drafts=said[before + 1 : before + n]))
            if len(self._fed) == len(whole):
                break
        if out.ids[: len(said)] != said:
            self._fed = []
        out.rest = cast(str, self._run(protocol.Flush()))
        return out

    def _forward(self, upto: list[tuple[int, bool]], *, last: bool) -> bytes:
        """Run what is new, up to there."""
        pos = len(self._fed)
        new = upto[pos:]
        job = protocol.Forward(
            columns=Columns(pos=pos, n=len(new), wide=not new[0][1]),
            control=Control(reset=pos == 0),
            tokens=[token for token, _ in new],
            data=None,
            last=last,
        )
        ran = cast(Forwarded, self._run(job))
        self._fed = upto
        return ran.data

    def _sample(
        self, data: bytes, how: Sampling, *, seen: list[int] | None = None, drafts: list[int] | None = None
    ) -> Sampled:
        n = 1 + len(drafts or ())
        job = protocol.Sample(
            data=data,
            pos=len(self._fed) - n,
            n=n,
            sampling=how,
            first=seen is not None,
            after=[] if seen is not None else None,
            seen=seen,
            drafts=drafts or None,
        )
        return cast(Sampled, self._run(job))

    def _run(self, job: protocol.AnyJob) -> object:
        return self._desk.run(job, lambda *_: None)


def replay(log: list[Entry], ctx: int) -> list[str]:
    """What is wrong with a room's answers, as one device would have given them; nothing: they are equal."""
    wrong: list[str] = []
    turns: list[Turn] = []
    of_last = 0
    known: list[tuple[list[Turn], int]] = [([], 0)]
    """What was read after each change: a host that was restarted goes on from one of them."""
    for what, last in log:
        if isinstance(last, SavedChat):
            found = next((one for one in reversed(known) if one == (last.turns, last.turns_of_last)), None)
            if found is None:
                wrong.append(f"a conversation came back that never was: {last.turns}")
            turns, of_last = list(last.turns), last.turns_of_last
        elif what == "dropped":
            del turns[len(turns) - of_last :]
            of_last = 0
        elif what == "cleared":
            turns, of_last = [], 0
        elif last is not None:
            if what == "grown":
                del turns[len(turns) - of_last :]
            head = [turn for turn in last.turns if turn.role == "system"]
            asked = [*head, *turns, Turn(role="user", text=last.text)]
            if last.turns != asked:
                wrong.append(f"answer {last.mid} to {last.text!r} was asked with other turns")
            wrong += _compare(last, asked, ctx)
            of_last = 0
            if last.ids and (last.reason != "error" or what == "grown"):
                answer = Turn(role="assistant", text=last.reply, ids=list(last.ids), thinking=last.thinking)
                turns += [Turn(role="user", text=last.text), answer]
                of_last = 2
        known.append((list(turns), of_last))
    return wrong


def _compare(last: Last, asked: list[Turn], ctx: int) -> list[str]:
    """One answer against that of one device, bit for bit; one that was cut short is a beginning of it."""
    said = list(last.ids)
    alone = OneDevice.answer(asked, last.how, last.thinking, said, ctx)
    name = f"answer {last.mid} to {last.text!r} ({last.reason}, {len(said)} tokens)"
    if alone.ids[: len(said)] != said:
        return [f"{name} differs from one device's: {said} is not {alone.ids}"]
    wrong = []
    ended = alone.end and len(alone.ids) >= len(said)
    if last.reason == "stop" and not ended:
        wrong.append(f"{name} ended, and one device's goes on")
    text = alone.text(len(said))
    if last.reason in ("stop", "ctx"):
        text += alone.rest
    if last.reply != text:
        wrong.append(f"{name} reads {last.reply!r}, one device's {text!r}")
    return wrong
