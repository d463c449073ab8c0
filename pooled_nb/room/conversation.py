"""The room's one conversation, as the host keeps it: exchanges for people, turns for the model."""

from __future__ import annotations

from dataclasses import dataclass, field

from pooled_nb.mesh.messages.chat import Exchange
from pooled_nb.shard import Turn

SHOWN = 20
"""Exchanges a newcomer gets (PROTOCOL section 6, ``ai-history``)."""


@dataclass(slots=True)
class Conversation:
    """Questions and answers in order. An answer keeps the ids it was generated as, so that its tokens
    are found in the caches again (DESIGN section 5, rule 3).
    """

    system: str = ""
    turns: list[Turn] = field(default_factory=list)
    exchanges: list[Exchange] = field(default_factory=list)

    def ask(self, text: str) -> list[Turn]:
        """The turns that a prompt for this question is made of. Nothing is kept yet."""
        head = [Turn(role="system", text=self.system)] if self.system else []
        return [*head, *self.turns, Turn(role="user", text=text)]

    def answered(self, text: str, reply: str, ids: list[int], *, name: str, mid: int, stats: str) -> None:
        """Keep an exchange. An answer of no token leaves no trace in what the model reads."""
        item = Exchange(name=name, text=text, reply=reply, stats=stats, mid=mid)
        self.exchanges = [*self.exchanges, item][-SHOWN:]
        if ids:
            self.turns += [
                Turn(role="user", text=text),
                Turn(role="assistant", text=reply, ids=list(ids)),
            ]

    def recent(self) -> list[Exchange]:
        """What a newcomer is shown."""
        return list(self.exchanges)

    def clear(self) -> None:
        """New chat."""
        self.turns.clear()
        self.exchanges.clear()
