"""How a link's end is told to people: as an error of who waits for it, and as a sentence of the room."""

from __future__ import annotations

from pooled_nb.errors import LinkFailed, PooledError, RoomClosed, RoomRefused
from pooled_nb.mesh.linkactions import Cause, End


def entry_error(end: End) -> PooledError:
    """What `Mesh.join` raises when the link to the creator ended before this device was in."""
    match end.cause:
        case Cause.BYE:
            # A reason of more than one sentence says itself what to do.
            return RoomRefused(end.why, "" if ". " in end.why else "Ask the room's owner.")
        case Cause.VERSION | Cause.REFUSED:  # this end's own gate, too: an impostor is no bad connection
            return RoomRefused(end.why, end.next_step)
        case Cause.CLOSED:
            return RoomClosed(end.why, "Ask for the code of another room.")
        case Cause.LEFT:
            return RoomClosed(
                "The host left while this device was joining.", "Ask for the code of another room."
            )
        case Cause.OURS:
            return RoomClosed("This device left the room while it was joining.", "Join again.")
        case Cause.NO_PATH:
            return LinkFailed(f"There is no network path to the host: {end.why.rstrip('.')}.", end.next_step)
    return LinkFailed(
        f"The link to the room did not come to be: {end.why.rstrip('.')}.", end.next_step or "Try again."
    )


def connect_error(name: str, end: End) -> LinkFailed:
    """What `Mesh.connect` raises."""
    return LinkFailed(f"There is no link to {name}: {end.why.rstrip('.')}.", end.next_step or "Try again.")


def turned_away(end: End) -> str:
    """Why this device does not come back into the room, which it was told as it knocked."""
    if end.cause is Cause.BYE:
        return f"The host did not take this device back. {end.why}"
    return closed_sentence(end)


def closed_sentence(end: End) -> str:
    """Why this device is no longer in the room, once it was."""
    match end.cause:
        case Cause.BYE:
            return f"The room's owner took this device out. {end.why}"
        case Cause.CLOSED:
            return end.why
        case Cause.LEFT:
            return "The host left: the room is over."
        case Cause.REFUSED:  # this device does not believe the host any more, and knocks no more
            return f"{end.why} {end.next_step}".strip()
        case _:
            return f"The link to the host is gone ({end.why.rstrip('.')}). Join again when it is back."
