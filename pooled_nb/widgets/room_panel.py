"""A room: its code, the devices and their layers, the numbers, what to do next."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import traitlets

from pooled_nb.room.core import Status
from pooled_nb.widgets.base import STATIC, Fallback, Panel
from pooled_nb.widgets.heard import Custom
from pooled_nb.widgets.settings import chosen
from pooled_nb.widgets.sources import RoomSource
from pooled_nb.widgets.state import room_state

NUMBERS_S = 0.25
"""Between two paintings that change numbers only; a state shows at once."""


class RoomPanel(Panel):
    """The panel of one room.

    Parameters
    ----------
    source
        The room.
    fallback
        What stands where no widget can be shown.
    """

    _esm = STATIC / "room.js"
    _css = STATIC / "panel.css"
    room = traitlets.Dict().tag(sync=True)

    def __init__(self, source: RoomSource, *, fallback: Fallback) -> None:
        self._source = source
        self._mark: object = None
        self._before: Status | None = None
        self._numbers_at = 0.0
        super().__init__(fallback=fallback, room=self._state())

    def _listen(self) -> Callable[[], None]:
        return self._source.watch(self.wake)

    def _state(self) -> dict[str, Any]:
        source = self._source
        status, left = source.seen(), source.left
        if status is not None and not left and status.state != "closed":
            self._before = status
        return room_state(
            status, source.role, source.progress, source.notices, left=left, before=self._before
        )

    def _draw(self, now: float) -> float | None:
        mark = self._what_is_so()
        if mark == self._mark and now < self._numbers_at:
            return self._numbers_at
        self.room = self._state()
        self._mark, self._numbers_at = mark, now + NUMBERS_S
        return None

    def _what_is_so(self) -> object:
        """What shows at once: all but what counts up while the room works."""
        source = self._source
        status = source.seen()
        if status is None:
            return source.left, source.role
        return (
            source.left,
            source.role,
            status.state,
            status.can,
            status.mine,
            status.answering,
            status.settings,
            source.notices[-1:],
        )

    def _rests(self) -> bool:
        return self._source.left

    def _do(self, said: Custom, now: float) -> None:
        status = self._source.seen()
        if status is None or self._source.left:
            return
        # Only what a button of now says: a click may come late, or from a page that missed a change.
        if said.cmd == "set" and "set" in status.can:
            options = chosen(said.key, said.value)
            if options is not None:
                self._source.command("set", options)
        elif said.cmd in [button["cmd"] for button in self._state()["actions"]]:
            self._source.command(said.cmd, {})
