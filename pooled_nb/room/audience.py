"""Who sees an answer, and what the others are told (PROTOCOL section 7, ``ai-visibility``)."""

from __future__ import annotations

from dataclasses import dataclass

from pooled_nb.mesh.messages import Message, chat
from pooled_nb.room.core import Visibility
from pooled_nb.room.outbox import Outbox

_OPEN: dict[Visibility, int] = {"all": 2, "asker": 1, "host": 0}

ELSEWHERE = "The host shows answers on its own screen only; this one appears there."
"""What an asker reads in place of its answer."""


def stricter(one: Visibility, other: Visibility) -> Visibility:
    """Whichever shows to fewer: what was asked under one rule is not shown to more under the next."""
    return min(one, other, key=_OPEN.__getitem__)


def sees(device: str, owner: str, mode: Visibility) -> bool:
    """Whether a device that is not the host sees an exchange of ``owner``."""
    return mode == "all" or (mode == "asker" and device == owner)


@dataclass(frozen=True, slots=True)
class Audience:
    """Those who hear of one answer. The host's own screen sees all and needs no message.

    Parameters
    ----------
    me
        The host's id.
    owner
        Whose question it is.
    mode
        As it was when the answer began: a change counts from the next one on.
    """

    outbox: Outbox
    me: str
    owner: str
    mode: Visibility

    def start(self, message: chat.GenStart) -> None:
        """An answer begins. Others learn only that; its asker also which of its questions it is."""
        hidden = chat.GenStart(mid=message.mid, hidden=True)
        mine = chat.GenStart(mid=message.mid, hidden=True, asker=message.asker, rid=message.rid)
        self._tell(message, hidden, mine if message.asker == self.owner else hidden)

    def piece(self, message: chat.Token) -> None:
        """Text, only to those who see it."""
        self._show(message)

    def done(self, message: chat.GenDone) -> None:
        """The answer ended. Its asker also learns why."""
        hidden = chat.GenDone(mid=message.mid, hidden=True)
        mine = chat.GenDone(
            mid=message.mid,
            hidden=True,
            reason=message.reason,
            failed=message.failed,
            capped=message.capped,
        )
        self._tell(message, hidden, mine)

    def regen(self, mid: int) -> None:
        """The exchange of this answer goes from the screens that show it."""
        self._show(chat.Regen(mid=mid))

    def _show(self, message: Message) -> None:
        if self.mode == "all":
            self.outbox.broadcast(message)
        elif self.mode == "asker" and self.owner != self.me:
            self.outbox.send(self.owner, message)

    def _tell(self, whole: Message, hidden: Message, mine: Message) -> None:
        if self.mode == "all":
            self.outbox.broadcast(whole)
        elif self.owner == self.me:
            self.outbox.broadcast(hidden)
        else:
            self.outbox.send(self.owner, whole if self.mode == "asker" else mine)
            self.outbox.broadcast(hidden, but=self.owner)
