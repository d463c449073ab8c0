"""Who sees an answer, and what the others are told (PROTOCOL section 7, ``ai-visibility``)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import msgspec

from pooled_nb.mesh.messages import Message, chat
from pooled_nb.room.core import Visibility
from pooled_nb.room.outbox import Outbox

_OPEN: dict[Visibility, int] = {"all": 2, "asker": 1, "host": 0}

ELSEWHERE = "The host shows answers on its own screen only; this one appears there."
"""What an asker reads in place of its answer."""

View = Literal["whole", "mine", "hidden"]
"""What of an answer a device hears: all; that it is its own, and how it ended; that there is one."""

PIECE = 400_000
"""Characters of one ``ai-token``."""


def stricter(one: Visibility, other: Visibility) -> Visibility:
    """Whichever shows to fewer: what was asked under one rule is not shown to more under the next."""
    return min(one, other, key=_OPEN.__getitem__)


def sees(device: str, owner: str, mode: Visibility) -> bool:
    """Whether a device that is not the host sees an exchange of ``owner``."""
    return mode == "all" or (mode == "asker" and device == owner)


def view(device: str, owner: str, mode: Visibility) -> View:
    """What a device that is not the host hears of an answer to ``owner``."""
    return "whole" if sees(device, owner, mode) else "mine" if device == owner else "hidden"


def begun(message: chat.GenStart, to: View) -> chat.GenStart:
    """What a device hears when an answer begins; its asker also which of its questions it is."""
    if to == "whole":
        return message
    hidden = chat.GenStart(mid=message.mid, hidden=True)
    if to == "hidden":
        return hidden
    return msgspec.structs.replace(hidden, asker=message.asker, rid=message.rid)


def ended(message: chat.GenDone, to: View) -> chat.GenDone:
    """What a device hears when it ends; its asker also why."""
    if to == "whole":
        return message
    hidden = chat.GenDone(mid=message.mid, hidden=True)
    if to == "hidden":
        return hidden
    return msgspec.structs.replace(
        hidden, reason=message.reason, failed=message.failed, capped=message.capped
    )


def so_far(start: chat.GenStart, text: str, done: chat.GenDone | None, to: View) -> list[Message]:
    """An answer told again to one device, up to now."""
    told: list[Message] = [begun(start, to)]
    if to == "whole":
        pieces = (text[at : at + PIECE] for at in range(0, len(text), PIECE))
        told += [chat.Token(text=piece, mid=start.mid) for piece in pieces]
    return [*told, ended(done, to)] if done else told


@dataclass(slots=True)
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
        """An answer begins. Others learn only that."""
        mine: View = "mine" if message.asker == self.owner else "hidden"
        self._tell(message, begun(message, "hidden"), begun(message, mine))

    def piece(self, message: chat.Token) -> None:
        """Text, only to those who see it."""
        self._show(message)

    def done(self, message: chat.GenDone) -> None:
        """The answer ended. Its asker also learns why."""
        self._tell(message, ended(message, "hidden"), ended(message, "mine"))

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
