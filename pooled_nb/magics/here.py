"""The room that a magic is about."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pooled_nb.errors import NotReady

if TYPE_CHECKING:
    from pooled_nb.room_view import Room

NO_ROOM = (
    "This kernel is in no room.",
    "Open one with %pooled host MODEL, or join with %pooled join CODE.",
)


def the_room() -> Room:
    """The one this kernel is in.

    Raises
    ------
    NotReady
        It is in none.
    """
    from pooled_nb.api import current

    room = current()
    if room is None:
        raise NotReady(*NO_ROOM)
    return room
