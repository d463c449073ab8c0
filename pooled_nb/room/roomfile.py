"""A hosted room as a file, so that it goes on when its host's process has died (PROTOCOL section 8).

It lies beside the room's gate (`keeping`), under the same lock, and is written after every answer. A room
that is closed on purpose leaves none. What others said is in it only where everyone may see the chat
(`memory`).

Its time is the file's: the room's saver touches it each minute, so that the 15 minutes of a resume are
counted from when the room lived last, whenever that was saved. A clock that was set back meanwhile loses
nothing; one that was set forth ends the time early.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, NamedTuple

import msgspec
from msgspec import Meta, structs

from pooled_nb.mesh import ownfiles, stacks
from pooled_nb.room import keeping
from pooled_nb.room.doorfacts import GateChoices, NetworkChoice, WireChoice
from pooled_nb.room.keeping import ROOM, Claim, Kept, SavedGate, Slot
from pooled_nb.room.memory import Memory, SavedChat

VERSION = 1
MAX_BYTES = 4 * 1024 * 1024
RESUME_S = 900.0
"""So long a room can be taken back after its process has died (PROTOCOL section 8, host resume)."""
TOUCH_S = 60.0
"""So often a living room says that it lives."""
MAX_LISTED = 20
"""Rooms that are looked at for one that can go on, the newest first."""

_Urls = Annotated[list[Annotated[str, Meta(max_length=500)]], Meta(max_length=50)]


class SavedWays(msgspec.Struct, frozen=True, kw_only=True):
    """By which ways this room's host reaches others, where its person said so for this room.

    Attributes
    ----------
    relay
        A relay was named for this room alone. It holds a password, so it is not kept.
    """

    stun: _Urls | None = None
    relay_only: bool | None = None
    relay: bool = False
    wire: WireChoice = WireChoice()

    @property
    def choice(self) -> NetworkChoice:
        """What a resumed room begins with.

        A transport that was uninstalled meanwhile counts as none: the room goes on over what is here.
        """
        wire = self.wire
        if wire.transport in stacks.NAMES and wire.transport not in stacks.available():
            wire = structs.replace(wire, transport=None)
        return NetworkChoice(stun=self.stun, relay_only=self.relay_only, **structs.asdict(wire))

    @classmethod
    def of(cls, choice: NetworkChoice) -> SavedWays:
        """What may be kept of a person's choice."""
        wire = WireChoice(**{name: getattr(choice, name) for name in WireChoice.__struct_fields__})
        return cls(stun=choice.stun, relay_only=choice.relay_only, relay=bool(choice.turn), wire=wire)


class Opened(msgspec.Struct, frozen=True, kw_only=True):
    """How it was opened, where the room itself does not know: see `opening.host`."""

    lan: bool = False
    draft: Annotated[str, Meta(max_length=4_000)] | None = None
    give: bool | None = None


class SavedRoom(Kept, frozen=True, kw_only=True):
    """What a room's host goes on with.

    Attributes
    ----------
    gate
        Who comes in; its keys and passes lie with `SavedGate`.
    cut
        The chat was too long to be kept: it begins anew.
    """

    gate: GateChoices = GateChoices()
    ways: SavedWays = SavedWays()
    opened: Opened = Opened()
    memory: Memory
    cut: bool = False

    def packed(self) -> bytes:
        """See `Kept.packed`. What is too large goes: first what screens show of earlier answers.

        What the model has read is kept whole or not at all: with a part of it, answers would be other ones
        than this conversation gives.
        """
        data, chat = msgspec.json.encode(self), self.memory.chat
        while len(data) > MAX_BYTES and len(chat.exchanges) > 1:
            chat = structs.replace(chat, exchanges=chat.exchanges[1:])
            data = msgspec.json.encode(self._with(chat))
        if len(data) > MAX_BYTES and chat.last is not None:
            chat = structs.replace(chat, last=None, turns_of_last=0)
            data = msgspec.json.encode(self._with(chat))
        if len(data) > MAX_BYTES:
            data = msgspec.json.encode(structs.replace(self._with(SavedChat(newest=chat.newest)), cut=True))
        return data

    def _with(self, chat: SavedChat) -> SavedRoom:
        return structs.replace(self, memory=structs.replace(self.memory, chat=chat))


class Found(NamedTuple):
    """A room whose host's process has died, and how many seconds ago it lived last."""

    room: SavedRoom
    ago_s: float


class Taken(NamedTuple):
    """A room that this process has taken back: nobody else can, until the slot is given back."""

    claim: Claim[SavedGate]
    room: SavedRoom


def find(code: str) -> Found | None:
    """What is saved of this room, however old, and whether its host lives or not. Never raises."""
    if not keeping.is_on() or not keeping.is_code(code):
        return None
    return _look(keeping.folder("rooms") / f"{code}{ROOM}.json")


def resumable() -> list[Found]:
    """Rooms that can go on: their process has died, and not too long ago. Newest first. Never raises."""
    where = keeping.folder("rooms")
    if not keeping.is_on() or not ownfiles.is_own(where):
        return []
    try:
        paths = sorted(where.glob(f"*{ROOM}.json"), key=_age)[:MAX_LISTED]  # one may vanish meanwhile
    except OSError:
        return []
    fresh = [path for path in paths if _age(path) < RESUME_S and not keeping.is_held(_code(path))]
    found = [one for path in fresh if (one := _look(path)) is not None and one.ago_s < RESUME_S]
    return sorted(found, key=lambda one: one.ago_s)


def take(code: str) -> Taken | None:
    """Take a room back; None: a living process has it, or nothing readable is saved of it. Never raises."""
    claim = keeping.claim_gate(code)
    if claim.slot is None:
        return None
    found = _look(claim.slot.path.with_name(f"{code}{ROOM}.json"))
    if found is None:
        claim.slot.release()
        return None
    return Taken(claim, found.room)


def slot_of(gate: Slot | None) -> Slot | None:
    """Where the room of this gate is saved."""
    return None if gate is None else gate.beside(ROOM)


def _code(path: Path) -> str:
    return path.name.partition(".")[0]


def _age(path: Path) -> float:
    """Seconds since its room lived last; infinite where that cannot be known."""
    try:
        age = time.time() - path.lstat().st_mtime
    except OSError:
        return float("inf")
    return max(0.0, age) if age > -keeping.AGE_S else float("inf")


def _look(path: Path) -> Found | None:
    age = _age(path)
    data = ownfiles.read(path, MAX_BYTES) if age < keeping.AGE_S else None
    if data is None:
        return None
    try:
        room = msgspec.json.decode(data, type=SavedRoom)
    except Exception:  # other kinds, too: a sampler checks its own numbers
        return None
    return Found(room, age) if room.v == VERSION and room.code == _code(path) else None
