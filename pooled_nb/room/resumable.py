"""Which room goes on here, and what its person hears of that (PROTOCOL section 8, host resume)."""

from __future__ import annotations

import time
from collections.abc import Sequence

from pooled_nb.errors import ModelNotFound, NotReady, PooledError, RoomError
from pooled_nb.mesh import codes
from pooled_nb.room import keeping, roomfile
from pooled_nb.room.keeping import SavedGate
from pooled_nb.room.meeting import LOCAL
from pooled_nb.room.memory import Memory
from pooled_nb.room.roomfile import RESUME_S, Found, SavedRoom, Taken
from pooled_nb.shard import DeviceFacts, lend_gb

NOTHING = "There is no room here that can go on."
HOST = "Host a new one."
CUT = "The chat was too long to be kept, so it begins anew."
ANEW = "Its chat begins anew: after a restart %pooled resume would have gone on with it."
RELAY = "The relay that was named for this room is not kept: name it again with %pooled network --turn."


def choose(code: str | None) -> Taken:
    """Take back the room of this code, else the one that lived last. Slow work with files.

    Raises
    ------
    BadCode
    NotReady
        There is none, or it is over: since when.
    RoomError
        A living process has it.
    """
    found = look(code)
    taken = roomfile.take(found.room.code)
    if taken is not None:
        return taken
    if keeping.is_held(found.room.code):  # since just now
        raise _held(found.room.code)
    raise NotReady(NOTHING, HOST)


def look(code: str | None) -> Found:
    """Which room `choose` would take now. Raises as that."""
    if not keeping.is_on():
        raise NotReady(
            "Nothing is saved for a restart where POOLED_KEEP_SECRETS is 0, so no room can go on.", HOST
        )
    if code is None:
        rooms = roomfile.resumable()
        if not rooms:
            raise NotReady(NOTHING, HOST)
        return rooms[0]
    plain = codes.parse(code).code
    if keeping.is_held(plain):
        raise _held(plain)
    found = roomfile.find(plain)
    if found is None:
        raise NotReady(f"Of room {codes.shown(plain)} nothing is kept here.", HOST)
    if found.ago_s >= RESUME_S:
        since = time.strftime("%H:%M", time.localtime(time.time() - found.ago_s + RESUME_S))
        raise NotReady(
            f"Room {codes.shown(plain)} is over since {since}: it could go on for 15 minutes.",
            f"Host a new one: under the code {codes.shown(plain)} its devices know it.",
        )
    return found


def offer() -> list[str]:
    """What a person who opens another room is told of one that can go on. Slow work with files."""
    return [offered(found) for found in roomfile.resumable()[:1]]


def offered(found: Found) -> str:
    """One sentence about a room that can go on."""
    memory = found.room.memory
    minutes = int(found.ago_s / 60)
    facts = [memory.label or memory.model, _others(len(memory.seats))]
    facts.append(f"{minutes} min ago" if minutes else "just now")
    about = ", ".join(fact for fact in facts if fact)
    return f"Room {codes.shown(found.room.code)} ({about}) can go on: %pooled resume takes it back."


def anew(code: str) -> list[str]:
    """What a person hears who hosts a room under its code that could go on instead. Slow work with files.

    To be called before anything of the new room is saved: it takes the place of what there was.
    """
    found = roomfile.find(code)
    chat = found is not None and found.ago_s < RESUME_S and bool(found.room.memory.chat.exchanges)
    return [ANEW] if chat else []


def notes(room: SavedRoom, lends: float) -> list[str]:
    """What is not as it was before."""
    said = [CUT] if room.cut else []
    if lends < room.memory.lends_gb - 0.05:
        said.append(f"This device lends {lends:.1f} GB now, and lent {room.memory.lends_gb:.1f} GB before.")
    return said + ([RELAY] if room.ways.relay else [])


def servers(gate: SavedGate | None, listed: str) -> Sequence[str]:
    """Where a room that goes on registers: where it was, then where this user's rooms do."""
    more = [server.strip() for server in listed.split(",") if server.strip()]
    if gate is None:
        return more or [LOCAL]
    return [LOCAL] if gate.embedded else list(dict.fromkeys([gate.server, *more]))


def lent(memory: Memory, facts: DeviceFacts, wanted: str | float | None) -> float:
    """GB that this device lends: as before, where nothing else is wanted and so much is free."""
    if wanted is not None or memory.lends_gb <= 0:
        return lend_gb(facts, wanted)
    return min(memory.lends_gb, facts.free_gb)


def no_model(code: str, error: PooledError) -> ModelNotFound:
    """Its model is not here any more."""
    return ModelNotFound(
        f"Room {codes.shown(code)} cannot go on without its model: {error.what}",
        "What is saved of it stays: put the model back, then resume it.",
    )


def _held(code: str) -> RoomError:
    return RoomError(
        f"Room {codes.shown(code)} is open already in another process of this machine.",
        "Use it there, or end that process.",
    )


def _others(n: int) -> str:
    return f"{n} other device{'' if n == 1 else 's'}" if n else ""
