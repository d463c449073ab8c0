"""What is told again to a device that comes back: the answers that it asked for (PROTOCOL section 8).

A device whose link broke does not know what became of its questions, so it sends each again under the same
``rid``. Whoever was answered hears that answer once more, and nothing is answered twice.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

import msgspec

from pooled_nb.mesh.messages import Message, chat
from pooled_nb.room.audience import so_far, stricter, view
from pooled_nb.room.core import Visibility

KEPT = 32
"""Answers that are remembered."""
NEW_CHAT = "A new chat began, so the answer is gone. Ask again."


@dataclass(slots=True)
class Replay:
    """One answer as it was told, to whom, and who might see it. ``gone``: a new chat began since."""

    start: chat.GenStart
    text: str
    done: chat.GenDone
    owner: str
    mode: Visibility
    gone: bool = False


class Replays:
    """The newest answers, by asker and ``rid``."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[str, str], Replay] = OrderedDict()

    def add(self, asker: str, rid: str | None, replay: Replay) -> None:
        """Remember an answer; without ``rid`` nobody can ask for it again."""
        if rid is None:
            return
        self._kept[asker, rid] = replay
        self._kept.move_to_end((asker, rid))
        while len(self._kept) > KEPT:
            self._kept.popitem(last=False)

    def find(self, asker: str, rid: str | None, rule: Visibility) -> list[Message]:
        """What its asker is told again; nothing where that was not answered.

        ``rule``: who may see answers now. What was shown to more than it allows is not shown again.
        """
        replay = self._kept.get((asker, rid)) if rid is not None else None
        if replay is None:
            return []
        if replay.gone:
            return [chat.Busy(why=NEW_CHAT, code="gone", rid=rid)]
        to = view(asker, replay.owner, stricter(replay.mode, rule))
        start = msgspec.structs.replace(replay.start, asker=asker)
        return so_far(start, replay.text, replay.done, to)

    def renamed(self, was: str, now: str) -> None:
        """A device came back under another id."""
        kept, self._kept = self._kept, OrderedDict()
        for (asker, rid), replay in kept.items():
            replay.owner = now if replay.owner == was else replay.owner
            self._kept[now if asker == was else asker, rid] = replay

    def new_chat(self) -> None:
        """What was said before is gone from every screen."""
        for replay in self._kept.values():
            replay.gone, replay.text = True, ""
