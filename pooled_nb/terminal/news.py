"""What has changed in a room, line by line."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING

from pooled_nb import download_text
from pooled_nb.counted import still
from pooled_nb.door_text import asks
from pooled_nb.room import doorwords
from pooled_nb.terminal.screen import here
from pooled_nb.terminal.screen import say as say_it

if TYPE_CHECKING:
    from pooled_nb.room.doorfacts import LobbyLine
    from pooled_nb.room_view import Room


_COUNTS = re.compile(r" \(.*\)|\d[\d.,]*")
LOOK_S = 0.25
"""How often the room is looked at for news."""


class News:
    """Says what has changed in a room since it was last asked to.

    Attributes
    ----------
    on_look
        Called each time: what else is to be kept up to date.
    answers
        Whether somebody at this terminal can answer what is asked.
    """

    def __init__(self, room: Room, say: Callable[[str], None] | None = None) -> None:
        self._room = room
        self.on_look: Callable[[], None] = lambda: None
        self._asking: dict[int, str] = {}
        self._decided: set[int] = set()
        self._told: deque[str] = deque(maxlen=64)
        self._say = say or say_it
        self.answers = True
        self._sentence = self._loads = ""
        self._names: dict[str, str] = {}
        self._notices: list[str] = []

    @property
    def others(self) -> int:
        """How many other devices are here, as was said last."""
        return len(self._names)

    def repeat(self) -> None:
        """Say the state once more the next time, also where it is the same as before."""
        self._sentence = ""

    def decided(self, number: int | None) -> None:
        """Who waited was let in or sent away from here, which was said."""
        if number is not None:
            self._decided.add(number)

    def tell(self) -> None:
        """Print it."""
        self.on_look()
        status = self._room.status()
        names = {d.id: d.name for d in status.devices if not (d.me or d.gone)}
        if status.state != "closed":
            gone = [name for id, name in self._names.items() if id not in names]
            new = [name for id, name in names.items() if id not in self._names]
            back = [name for name in new if name in gone]  # a kernel that restarted has another id
            for name in gone:
                if name not in back:
                    self._say(f"- {name} is gone")
            for name in new:
                self._say(f"+ {name} is {'back' if name in back else 'here'}")
            self._tell_lobby(status.lobby, new)
            self._names = names
        notices = self._room.notices
        for notice in notices:
            told = still(notice) == still(status.sentence) or notice.startswith(tuple(self._told))
            if not (told or any(notice is old for old in self._notices) or self._counts_on(notice)):
                self._say(here(notice))
        self._notices = notices
        # Each percent and second would be a line of its own; how far it is shows where somebody waits for it.
        self._tell_load(status.loading if status.asks is None else "")
        said = status.sentence.removesuffix(doorwords.waits(status.lobby)).strip()  # told above
        if status.asks is not None:
            said = download_text.asks(status.asks) if self.answers else f"{said} {download_text.NOBODY}"
        sentence = still(said)
        if sentence and sentence != self._sentence:
            self._sentence = sentence
            self._say(here(said))

    def _tell_load(self, words: str) -> None:
        """What this device fetches, once; numbers that only go on make no line."""
        does = _COUNTS.sub("", words)
        if does and does != self._loads:
            self._say(f"This device: {words}.")
        self._loads = does

    def _counts_on(self, notice: str) -> bool:
        """Whether it is the newest that was told, some seconds later."""
        last = self._notices[-1] if self._notices else ""
        return notice != last and still(notice) == still(last)

    def _tell_lobby(self, lobby: Sequence[LobbyLine], came: Collection[str]) -> None:
        here = {line.number: line.name for line in lobby}
        for gone in self._asking.keys() - here.keys():
            if gone not in self._decided and self._asking[gone] not in came:
                self._say(f"- {self._asking[gone]} waits no longer")
        for line in lobby:
            if line.number not in self._asking:
                who = doorwords.typed(line)
                answer = self._room.lobby_hint or f"/allow {who} lets it in, /deny {who} sends it away."
                self._say(f"{asks(line)} {answer}")
                self._told.append(f"{line.name} asks to join.")  # the room's own notice says no more
        self._asking = here
