"""By which ways this device reaches others, said in a room or ahead of one."""

from __future__ import annotations

from typing import Unpack

import msgspec

from pooled_nb.api import current
from pooled_nb.door import Network
from pooled_nb.room.doorfacts import NetworkChoice
from pooled_nb.room_commands import network_choice
from pooled_nb.room_door import NetworkChanges


def network(**changes: Unpack[NetworkChanges]) -> Network:
    """By which ways this device reaches others, in its room or else in later ones; alone it shows that.

    Parameters
    ----------
    changes
        As of `Room.network`. Without a room what is said is remembered, in a file that only this user can
        read: a join that found no path has no room.

    Raises
    ------
    BadOption
        No relay or server can be read from it, which is not repeated; there is no such value; or it cannot be
        saved.
    """
    room = current()
    if room is not None and room.done():
        return room.network(**changes)
    from pooled_nb.room import ways

    facts = ways.remember(network_choice(changes) or NetworkChoice())
    return Network(**msgspec.structs.asdict(facts))
