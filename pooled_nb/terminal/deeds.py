"""What is done in a room with its progress on the screen: ask, and deal the layers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from pooled_nb.printed import print_answer
from pooled_nb.terminal import door
from pooled_nb.terminal.loading import wait
from pooled_nb.terminal.screen import aside

if TYPE_CHECKING:
    from pooled_nb.answer import Answer
    from pooled_nb.room.core import DeviceLine
    from pooled_nb.room_view import Room


def answer(room: Room, ask: Callable[[], Answer]) -> None:
    """Ask, stream to stdout; what it took goes to stderr."""
    with wait("asking", lambda: devices(room)) as view:
        print_answer(ask(), view, say=aside)


def start(room: Room, number: int | None) -> None:
    """Deal and load, with a bar for each device. Who asks to join meanwhile is asked about, at a terminal."""
    with wait("dealing the layers", lambda: devices(room)) as view:

        def tick() -> None:
            view.report(*room.progress)
            view.tick()
            if number is not None:
                door.ask_about(room, view)

        room.start(devices=number, wait=False).result(tick=tick)


def devices(room: Room) -> Sequence[DeviceLine]:
    """Those of the room as it was at its last change."""
    status = room.seen()
    return status.devices if status is not None else []
