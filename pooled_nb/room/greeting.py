"""What a device hears that comes in, or comes back (PROTOCOL section 3, order after admission)."""

from __future__ import annotations

from typing import Protocol

from pooled_nb.mesh.messages import Message, chat
from pooled_nb.mesh.messages import deal as wire
from pooled_nb.room.answering import Answering
from pooled_nb.room.core import State
from pooled_nb.room.dealer import Dealer
from pooled_nb.room.outbox import Outbox
from pooled_nb.room.style import is_default_style, style_message


class House(Protocol):
    """What is told of."""

    @property
    def state(self) -> State:
        """The room's state now."""

    @property
    def answering(self) -> Answering:
        """The host's queue and conversation."""


class Greeting:
    """Tells newcomers what there is, and those who came too early the rest of it later.

    Attributes
    ----------
    degraded
        What everybody hears while the room is degraded.
    """

    def __init__(self, *, house: House, dealer: Dealer, outbox: Outbox) -> None:
        self.degraded = wire.Degraded(why="")
        self._house, self._dealer, self._outbox = house, dealer, outbox
        self._early: dict[str, None] = {}
        """Who came while the room was not online: the history follows."""

    def greet(self, id: str, *, back: bool = False) -> None:
        """A device is admitted; ``back``: it was here before."""
        state, answering = self._house.state, self._house.answering
        settings = answering.settings
        told: list[Message] = []
        if settings.visibility != "all":
            told.append(chat.Visibility(mode=settings.visibility))
        if not is_default_style(settings):
            told.append(style_message(settings))
        if state == "online" and self._dealer.deal:
            told += [self._dealer.layers(self._dealer.deal), self._dealer.ready_all()]
            # Also none: the screen of who comes back may show a chat that is over.
            told += self._history(id, always=back or settings.visibility == "all")
        else:
            self._early[id] = None
            told.append(wire.Wait())
            if state == "degraded":
                told.append(self.degraded)  # else it would think that its first question starts the room
        for message in [*told, *answering.greet(id)]:
            self._outbox.send(id, message)

    def online(self) -> None:
        """The room is online: who came before that hears what was said."""
        early, self._early = self._early, {}
        for id in early:
            for message in self._history(id, always=False):
                self._outbox.send(id, message)

    def left(self, id: str) -> None:
        """It hears nothing any more."""
        self._early.pop(id, None)

    def _history(self, id: str, *, always: bool) -> list[Message]:
        answering = self._house.answering
        items = answering.conversation.seen_by(id, answering.settings.visibility)
        if items or always:
            return [chat.History(items=items)]
        return []
