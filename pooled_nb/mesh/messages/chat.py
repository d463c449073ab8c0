"""Messages of asking and answering (PROTOCOL section 7)."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta

from pooled_nb.mesh.messages.base import Count, Flag, Id, Message, Part, Real, Sentence, Text40, message

MAX_QUESTION = 8_000
"""Characters of a question of the room's chat."""

Mid = Annotated[int, Meta(ge=0, le=2**31 - 1)]
Rid = Annotated[str, Meta(min_length=1, max_length=32, pattern=r"^[A-Za-z0-9_-]+$")]
Words = Annotated[str, Meta(max_length=400_000)]


Length = Annotated[int, Meta(ge=1, le=2**24)]
OnOff = bool | Annotated[int, Meta(ge=0, le=1)]
"""On, off, or absent for neither: unlike a flag, off is said."""
TokenId = Annotated[int, Meta(ge=0, le=2**31 - 1)]
"""A token. As the key of a map it travels as a text, like every key."""
Bias = Annotated[float, Meta(ge=-100, le=100)]
StopText = Annotated[str, Meta(min_length=1, max_length=200)]


class NbParams(Part, frozen=True, kw_only=True):
    """*(nb)* How this one question wants to be answered; absent: the room's style."""

    max_tokens: Length | None = None
    seed: Annotated[int, Meta(ge=0, le=2**31 - 1)] | None = None
    temperature: Annotated[float, Meta(ge=0, le=5)] | None = None
    top_p: Annotated[float, Meta(gt=0, le=1)] | None = None
    top_k: Annotated[int, Meta(ge=0, le=2**20)] | None = None
    min_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    repetition_penalty: Annotated[float, Meta(gt=0, le=10)] | None = None
    presence_penalty: Annotated[float, Meta(ge=-2, le=2)] | None = None
    logit_bias: Annotated[dict[TokenId, Bias], Meta(max_length=300)] | None = None
    stop: Annotated[list[StopText], Meta(max_length=16)] | None = None
    system: Annotated[str, Meta(max_length=MAX_QUESTION)] | None = None
    thinking: OnOff | None = None


@message("ai-ask")
class Ask(Message, frozen=True, kw_only=True):
    """A question of the room's chat."""

    text: Annotated[str, Meta(max_length=MAX_QUESTION)]
    rid: Rid | None = None
    nb: NbParams | None = None


@message("ai-queued")
class Queued(Message, frozen=True, kw_only=True):
    """The asker's place, from 1."""

    pos: Count
    rid: Rid | None = None


@message("ai-queue")
class Queue(Message, frozen=True, kw_only=True):
    """How many wait."""

    n: Count


@message("ai-busy")
class Busy(Message, frozen=True, kw_only=True):
    """Refused, in words."""

    why: Sentence = ""
    code: Annotated[str, Meta(max_length=20)] = ""
    rid: Rid | None = None


@message("ai-genstart")
class GenStart(Message, frozen=True, kw_only=True):
    """An answer begins; with ``hidden`` nobody says whose, or what was asked.

    *(nb)* ``of``, with ``cont``: `mid` of the answer that goes on.
    """

    mid: Mid
    name: Text40 | None = None
    text: Words | None = None
    asker: Id | None = None
    cont: Flag = False
    hidden: Flag = False
    of: Mid | None = None
    rid: Rid | None = None


@message("ai-token")
class Token(Message, frozen=True, kw_only=True):
    """A piece of the answer; ``d`` 1 drafted, 2 looked up."""

    text: Words
    d: Annotated[int, Meta(ge=0, le=2)] | None = None
    mid: Mid | None = None


class Used(Part, frozen=True, kw_only=True):
    """Tokens in the caches, of the room's context."""

    used: Count = 0
    max: Count = 0


class NbStats(Part, frozen=True, kw_only=True):
    """*(nb)* What one answer took."""

    tokens: Count = 0
    prompt: Count = 0
    reused: Count = 0
    drafted: Count = 0
    accepted: Count = 0
    ms: Real = 0.0
    first_ms: Real = 0.0


@message("ai-gendone")
class GenDone(Message, frozen=True, kw_only=True):
    """The answer ended. *(nb)* ``reason``: stop, max, ctx, abort, error."""

    stats: Sentence | None = None
    ctx: Used | None = None
    failed: Any = None
    capped: Flag = False
    hidden: Flag = False
    mid: Mid | None = None
    reason: Annotated[str, Meta(max_length=10)] | None = None
    nb: NbStats | None = None


@message("ai-visibility")
class Visibility(Message, frozen=True, kw_only=True):
    """Who sees the chat: all, host, asker."""

    mode: Annotated[str, Meta(max_length=10)]


@message("ai-stop")
class Stop(Message, frozen=True, kw_only=True):
    """End after the lap in flight, or take back a waiting question."""

    rid: Rid | None = None


@message("ai-cmd")
class Cmd(Message, frozen=True, kw_only=True):
    """Continue or regenerate the last answer. *(nb)* ``rid`` and ``nb`` as of a question.

    *(nb)* ``mid`` of the answer that is meant: where it is not the newest any more, nothing happens to it.
    """

    cmd: Annotated[str, Meta(max_length=20)]
    mid: Mid | None = None
    rid: Rid | None = None
    nb: NbParams | None = None


@message("ai-regen")
class Regen(Message, frozen=True, kw_only=True):
    """The last answer is being made again. *(nb)* ``mid``: which one, for who has another as its last."""

    mid: Mid | None = None


@message("ai-reset")
class Reset(Message, frozen=True, kw_only=True):
    """New chat."""


class Exchange(Part, frozen=True, kw_only=True):
    """One question and its answer."""

    name: Text40 = ""
    text: Words = ""
    reply: Words = ""
    stats: Sentence = ""
    mid: Mid | None = None


@message("ai-history")
class History(Message, frozen=True, kw_only=True):
    """The last 20 exchanges, for a newcomer."""

    items: Annotated[list[Exchange], Meta(max_length=50)]


class NbStyle(Part, frozen=True, kw_only=True):
    """*(nb)* How long an answer may be, unless a question says otherwise."""

    max_tokens: Length | None = None


@message("ai-style")
class Style(Message, frozen=True, kw_only=True):
    """Style from the next question on."""

    persona: Annotated[str, Meta(max_length=200)] | None = None
    sampling: Annotated[str, Meta(max_length=20)] | None = None
    thinking: OnOff | None = None
    nb: NbStyle | None = None


@message("ai-typing")
class Typing(Message, frozen=True, kw_only=True):
    """Somebody types."""

    name: Text40 | None = None
