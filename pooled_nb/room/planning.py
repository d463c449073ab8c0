"""What the next answer is made of: a new one, one that goes on, or one made anew. Decides only."""

from __future__ import annotations

from dataclasses import dataclass

from pooled_nb.room import again
from pooled_nb.room.audience import stricter
from pooled_nb.room.conversation import Conversation, Last
from pooled_nb.room.core import Again, AskOptions, ChatSettings, Visibility
from pooled_nb.room.feed import Feed
from pooled_nb.room.queue import Entry
from pooled_nb.room.style import sampling, system_of
from pooled_nb.shard import Sampling, Turn


@dataclass(frozen=True, slots=True)
class Question:
    """What was asked, and by whom. ``feed`` is set when this device asks.

    With ``again`` it asks for an answer to be continued or made anew, and ``text`` is empty: the one of
    ``mid`` (None: the newest), which comes of ``of``. ``mode`` is the rule of when it was asked. ``seed`` was
    drawn then, for where none is given: asked again after a restart, it gives the same text.
    """

    text: str
    name: str
    options: AskOptions
    feed: Feed | None = None
    again: Again | None = None
    mid: int | None = None
    of: object = None
    mode: Visibility = "all"
    seed: int | None = None


@dataclass(slots=True, eq=False)
class Plan:
    """How one answer is going to be made. ``length`` counts the tokens that come now.

    ``begun`` is the answer that goes on; ``replaces`` the one that gives way to this.
    """

    entry: Entry[Question]
    owner: str
    name: str
    text: str
    turns: list[Turn]
    options: AskOptions
    how: Sampling
    thinking: bool | None
    length: int
    mode: Visibility
    begun: Last | None = None
    replaces: Last | None = None

    @property
    def prompt(self) -> list[Turn]:
        """What the model reads: up to where it speaks, or goes on speaking."""
        begun = self.begun
        if begun is None:
            return self.turns
        open_answer = Turn(role="assistant", text=begun.reply, ids=begun.ids, thinking=begun.thinking)
        return [*self.turns, open_answer]


def plan(
    entry: Entry[Question], conversation: Conversation, settings: ChatSettings, *, host: str, ctx: int
) -> Plan | str:
    """The plan for what is next in the queue, by the settings of now; or why there is none, in words."""
    question, last = entry.question, conversation.last
    mode = stricter(question.mode, settings.visibility)
    if question.again is None:
        return _new(entry, question.text, question.name, question.options, conversation, settings, mode)
    what = question.again
    if why := again.why_not(what, last, asker=entry.asker, host=entry.asker == host, ctx=ctx):
        return why
    if last is None or last.of is not question.of:
        return again.gone(what)
    mode = stricter(last.mode, mode)
    if what == "regen":
        options = again.anew(last.options, question.options)
        return _new(entry, last.text, last.name, options, conversation, settings, mode, last=last)
    return Plan(
        entry=entry,
        owner=last.owner,
        name=last.name,
        text=last.text,
        turns=last.turns,
        options=last.options,
        how=last.how,
        thinking=last.thinking,
        length=question.options.max_tokens or last.options.max_tokens or settings.max_tokens,
        mode=mode,
        begun=last,
    )


def _new(
    entry: Entry[Question],
    text: str,
    name: str,
    options: AskOptions,
    conversation: Conversation,
    settings: ChatSettings,
    mode: Visibility,
    *,
    last: Last | None = None,
) -> Plan:
    system = system_of(options, settings)
    return Plan(
        entry=entry,
        owner=last.owner if last else entry.asker,
        name=name,
        text=text,
        turns=conversation.ask(text, system, anew=last is not None),
        options=options,
        how=sampling(options, settings.style, entry.question.seed),
        thinking=settings.thinking if options.thinking is None else options.thinking,
        length=options.max_tokens or settings.max_tokens,
        mode=mode,
        replaces=last,
    )
