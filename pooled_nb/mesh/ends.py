"""How a link's end is told to people: as an error of who waits for it, and as a sentence of the room."""

from __future__ import annotations

from pooled_nb.errors import LinkFailed, PooledError, RoomClosed, RoomRefused
from pooled_nb.mesh.linkstate import Cause, End


def entry_error(end: End) -> PooledError:
    """What `Mesh.join` raises when the link to the creator ended before this device was in."""
    match end.cause:
        case Cause.BYE:
            return RoomRefused(end.why, "Ask the room's owner.")
        case Cause.VERSION:
            return RoomRefused(end.why, end.next_step)
        case Cause.CLOSED:
            return RoomClosed(end.why, "Ask for the code of another room.")
        case Cause.LEFT:
            return RoomClosed(
                "The host left while this device was joining.", "Ask for the code of another room."
            )
        case Cause.OURS:
            return RoomClosed("This device left the room while it was joining.", "Join again.")
    return LinkFailed(f"The link to the room did not come to be: {end.why}.", end.next_step or "Try again.")


def connect_error(name: str, end: End) -> LinkFailed:
    """What `Mesh.connect` raises."""
    return LinkFailed(f"There is no link to {name}: {end.why.rstrip('.')}.", end.next_step or "Try again.")


def closed_sentence(end: End) -> str:
    """Why this device is no longer in the room, once it was."""
    match end.cause:
        case Cause.BYE:
            return f"The room's owner took this device out: {end.why}"
        case Cause.CLOSED:
            return end.why
        case Cause.LEFT:
            return "The host left: the room is over."
        case _:
            return f"The link to the host is gone ({end.why.rstrip('.')}). Join again when it is back."
