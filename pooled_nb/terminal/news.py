"""What has changed in a room, line by line."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from pooled_nb.terminal.screen import say as say_it

if TYPE_CHECKING:
    from pooled_nb.room_view import Room


LOOK_S = 0.25
"""How often the room is looked at for news."""
_HOW_FAR = re.compile(r"\d+ %")


class News:
    """Says what has changed in a room since it was last asked to."""

    def __init__(self, room: Room, say: Callable[[str], None] | None = None) -> None:
        self._room = room
        self._say = say or say_it
        self._sentence = ""
        self._names: dict[str, str] = {}
        self._notices: list[str] = []

    @property
    def others(self) -> int:
        """How many other devices are here, as was said last."""
        return len(self._names)

    def repeat(self) -> None:
        """Say the state once more the next time, also where it is the same as before."""
        self._sentence = ""

    def tell(self) -> None:
        """Print it."""
        status = self._room.status()
        names = {device.id: device.name for device in status.devices if not device.me}
        if status.state != "closed":
            for gone in self._names.keys() - names.keys():
                self._say(f"- {self._names[gone]} left")
            for new in [id for id in names if id not in self._names]:
                self._say(f"+ {names[new]} is here")
            self._names = names
        notices = self._room.notices
        for notice in notices:
            if not any(notice is old for old in self._notices) and notice != status.sentence:
                self._say(notice)
        self._notices = notices
        # Each percent would be a line of its own; how far it is shows where somebody waits for it.
        sentence = _HOW_FAR.sub("%", status.sentence)
        if sentence != self._sentence:
            self._sentence = sentence
            self._say(status.sentence)
