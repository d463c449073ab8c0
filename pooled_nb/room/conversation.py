"""The room's one conversation, as the host keeps it: exchanges for people, turns for the model."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from pooled_nb.mesh.messages.chat import Exchange
from pooled_nb.room.audience import sees, stricter
from pooled_nb.room.core import AskOptions, Reason, Visibility
from pooled_nb.shard import Sampling, Turn

SHOWN = 20
"""Exchanges a newcomer gets (PROTOCOL section 6, ``ai-history``)."""


@dataclass(slots=True, eq=False)
class Item:
    """An exchange, whose question it is, who may see it, and how it ended.

    ``rid`` is what its owner called the question, or the wish to continue it; ``before`` how many characters
    of the reply were there before it went on.
    """

    exchange: Exchange
    owner: str
    mode: Visibility
    rid: str | None = None
    reason: Reason = "stop"
    before: int = 0


@dataclass(slots=True, eq=False)
class Last:
    """The newest answer, with all that it takes to continue it or to make it anew.

    ``of`` is whatever brought it about; ``turns`` is what it was asked with, question and system prompt
    included; ``how`` and ``thinking`` as they were; ``used`` counts its prompt and its tokens; ``rid`` and
    ``before`` as of `Item`.
    """

    of: object
    owner: str
    name: str
    text: str
    turns: list[Turn]
    options: AskOptions
    how: Sampling
    thinking: bool | None
    mode: Visibility
    mid: int
    reply: str
    ids: list[int]
    reason: Reason
    used: int
    stats: str
    rid: str | None = None
    before: int = 0


@dataclass(slots=True)
class Conversation:
    """Questions and answers in order. An answer keeps the ids it was generated as, so that its tokens
    are found in the caches again (DESIGN section 5, rule 3).
    """

    turns: list[Turn] = field(default_factory=list)
    items: list[Item] = field(default_factory=list)
    last: Last | None = None
    read: list[Item] = field(default_factory=list)
    """Of which exchanges the turns are: two of each, also of those that are not shown any more."""
    turns_of_last: int = 0
    """How many of the turns are of the newest exchange."""

    @property
    def exchanges(self) -> list[Exchange]:
        """What the host's screen shows."""
        return [item.exchange for item in self.items]

    def ask(self, text: str, system: str = "", *, anew: bool = False) -> list[Turn]:
        """The turns that a prompt for this question is made of. Nothing is kept yet.

        ``anew``: the newest exchange is made again, and is not among them.
        """
        head = [Turn(role="system", text=system)] if system else []
        turns = self.turns[: len(self.turns) - self.turns_of_last] if anew else self.turns
        return [*head, *turns, Turn(role="user", text=text)]

    def answered(self, last: Last) -> None:
        """Keep a new exchange. An answer of no token, or that failed, is not among what the model reads."""
        self._keep(last)

    def grown(self, last: Last) -> None:
        """Keep the newest exchange as it is now: its answer went on."""
        self.items = self.items[:-1]
        self._show(last)
        self._unread()
        # What is shown is right up to where it failed: it was read before, and goes on being read.
        self._read(last, read=bool(last.ids))

    def drop_last(self) -> None:
        """The newest exchange is made anew."""
        self.items = self.items[:-1]
        self._unread()
        self.last = None

    def with_last(self, last: Last) -> Conversation:
        """The same, as it was before its newest exchange gave way: it is this one again."""
        before = replace(self, turns=list(self.turns), items=list(self.items), read=list(self.read))
        before._keep(last)
        return before

    def renamed(self, was: str, now: str) -> None:
        """A device came back under another id: what it asked is its own still."""
        for item in [*self.items, *self.read]:
            if item.owner == was:
                item.owner = now
        if self.last and self.last.owner == was:
            self.last.owner = now

    def seen_by(self, device: str, mode: Visibility) -> list[Exchange]:
        """What a newcomer is shown: what it may see, by the rule of then and by that of now."""
        return [i.exchange for i in self.items if sees(device, i.owner, stricter(i.mode, mode))]

    def clear(self) -> None:
        """New chat."""
        self.turns.clear()
        self.items.clear()
        self.read.clear()
        self.turns_of_last, self.last = 0, None

    def _unread(self) -> None:
        """The turns of the newest exchange go."""
        if self.turns_of_last:
            del self.turns[-self.turns_of_last :]
            del self.read[-1:]
        self.turns_of_last = 0

    def _keep(self, last: Last) -> None:
        self._show(last)
        self._read(last, read=bool(last.ids) and last.reason != "error")

    def _show(self, last: Last) -> None:
        exchange = Exchange(name=last.name, text=last.text, reply=last.reply, stats=last.stats, mid=last.mid)
        item = Item(exchange, last.owner, last.mode, last.rid, last.reason, last.before)
        self.items = [*self.items, item][-SHOWN:]

    def _read(self, last: Last, *, read: bool) -> None:
        self.last, self.turns_of_last = last, 0
        if read:
            answer = Turn(role="assistant", text=last.reply, ids=list(last.ids), thinking=last.thinking)
            self.turns += [Turn(role="user", text=last.text), answer]
            self.read.append(self.items[-1])
            self.turns_of_last = 2
