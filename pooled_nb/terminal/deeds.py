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
    from pooled_nb.job import Job
    from pooled_nb.room.core import DeviceLine
    from pooled_nb.room_view import Room


def answer(room: Room, ask: Callable[[], Answer]) -> None:
    """Ask, stream to stdout; what it took goes to stderr."""
    with wait("asking", lambda: devices(room), lambda: own(room)) as view:
        print_answer(ask(), view, say=aside)


def start(room: Room, number: int | None = None) -> None:
    """Deal and load, with a bar for each device. Who asks to join meanwhile is asked about, at a terminal."""
    _dealt(room, room.start(devices=number, wait=False), asks=number is not None)


def redeal(room: Room) -> None:
    """Deal anew, with a bar for each device."""
    _dealt(room, room.redeal(wait=False))


def _dealt(room: Room, job: Job[Room], *, asks: bool = False) -> None:
    with wait("dealing the layers", lambda: devices(room), lambda: own(room)) as view:

        def tick() -> None:
            view.report(*room.progress)
            view.tick()
            room.ask_person(view)
            if asks:
                door.ask_about(room, view)

        job.result(tick=tick)


def leave_politely(room: Room) -> None:
    """Leave after the answer, and say meanwhile what is waited for; Ctrl-C leaves at once."""
    aside("Leaving politely. Ctrl-C leaves at once.")
    try:
        room.leave(after_answer=True)
    except KeyboardInterrupt:
        aside("Left at once.")


def own(room: Room) -> str:
    """What this device's own load does."""
    status = room.seen()
    return status.loading if status is not None else ""


def devices(room: Room) -> Sequence[DeviceLine]:
    """Those of the room as it was at its last change."""
    status = room.seen()
    return status.devices if status is not None else []
