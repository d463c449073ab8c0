"""Decides who is in the room: the creator's roster, and how a device reads it (PROTOCOL section 3)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import msgspec

from pooled_nb.mesh import names
from pooled_nb.mesh.messages.link import DeviceMeta, Hello, Member, Roster

MAX_MEMBERS = 256
"""Devices of one room; what a `Roster` may carry."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A device was let in.

    Attributes
    ----------
    member
        Its line.
    gone
        Lines that ended for it: its own under the id that it had, and that of a device whose id it has now.
    was
        The id under which its seat stood here until now; empty: it did not.
    """

    member: Member
    gone: tuple[Member, ...] = ()
    was: str = ""


class Membership:
    """The creator's roster: itself first, then in order of joining. It alone makes names unique."""

    def __init__(self, id: str, name: str, meta: DeviceMeta) -> None:
        # The creator proves its links, too: with the key and passes at its gate.
        self._members = {id: Member(id=id, name=names.clean(name), meta=meta, a=True)}
        self._seats: dict[str, str] = {}

    @property
    def members(self) -> tuple[Member, ...]:
        """Everybody, creator first."""
        return tuple(self._members.values())

    @property
    def message(self) -> Roster:
        """What goes to all after every change."""
        return Roster(members=list(self._members.values()))

    def get(self, id: str) -> Member | None:
        """The device of this id, if it is in the room."""
        return self._members.get(id)

    def seat_of(self, id: str) -> str | None:
        """The seat of the device that has this id: empty where it was given none; None: nobody has it."""
        return self._seats.get(id, "") if id in self._members else None

    def holder(self, seat: str) -> str | None:
        """The device that has this seat, if one is here."""
        return next((id for id, taken in self._seats.items() if taken == seat), None)

    def called(self, name: str) -> str | None:
        """The device of this name, if one is here."""
        return next((id for id, member in self._members.items() if member.name == name), None)

    def admit(
        self, id: str, hello: Hello, *, seat: str = "", came_back: bool = False, name: str = ""
    ) -> Entry | None:
        """Let a device in; None when the room is full, and for the creator's own id.

        Who proved the pass of a seat (``came_back``) keeps its place and name, whatever its id is now, and
        says its ``meta`` anew. Where that seat is empty, nothing of it was kept but the ``name`` that its
        pass was given for. Anybody else is new: where it has the id of a device that is here, that one is
        gone (section 3: a seat goes to nobody but who proves its pass).
        """
        if id == next(iter(self._members)):
            return None
        was = self.holder(seat) if came_back and seat else None
        held = self._members.get(id)
        if was is None and held is None and len(self._members) >= MAX_MEMBERS:
            return None
        gone = [self._members[was]] if was is not None and was != id else []
        gone += [held] if held is not None and was != id else []
        others = {m.name for key, m in self._members.items() if key not in (id, was)}
        called = self._members[was].name if was is not None else names.unique(name or hello.name, others)
        member = Member(id=id, name=called, meta=hello.meta, a=hello.auth)
        lines: list[Member] = []
        for key, line in self._members.items():
            if key == was:
                lines.append(member)
            elif key != id:
                lines.append(line)
        if was is None:
            lines.append(member)
        else:
            del self._seats[was]
        self._members = {line.id: line for line in lines}
        self._seats[id] = seat
        return Entry(member, tuple(gone), was or "")

    def leave(self, id: str) -> Member | None:
        """Take a device out; None when it was not in. The creator never goes."""
        if id == next(iter(self._members)):
            return None
        self._seats.pop(id, None)
        return self._members.pop(id, None)

    def set_meta(self, id: str, meta: DeviceMeta) -> bool:
        """What a device says of itself changed. False: it is not in, or nothing changed."""
        member = self._members.get(id)
        if member is None or member.meta == meta:
            return False
        self._members[id] = msgspec.structs.replace(member, meta=meta)
        return True

    def pledge(self, id: str, gb: float) -> bool:
        """A device changed the memory it lends, in GB; it never lends above its own ``pledgeMax``."""
        member = self._members.get(id)
        if member is None:
            return False
        most = member.meta.pledge_max
        gb = gb if most is None else min(gb, most)
        return self.set_meta(id, msgspec.structs.replace(member.meta, contrib_gb=gb))


class Present:
    """Who is here, as this device knows it, and what people call each."""

    def __init__(self) -> None:
        self.members: tuple[Member, ...] = ()
        self._names: dict[str, str] = {}
        """Of those of the roster, and of those whose link outlives their place: its end is told by name."""

    def take(self, members: tuple[Member, ...], linked: Iterable[str]) -> None:
        """A new roster; ``linked`` are the devices to which there is a link."""
        kept = {id: self._names[id] for id in linked if id in self._names}
        self.members, self._names = members, kept | {member.id: member.name for member in members}

    def get(self, id: str) -> Member | None:
        """A device's line."""
        return next((member for member in self.members if member.id == id), None)

    def name_of(self, id: str) -> str:
        """What people call a device."""
        return self._names.get(id, "a device")


def read_roster(roster: Roster, *, creator: str, me: str) -> tuple[Member, ...] | None:
    """A roster as a device takes it from the creator; None where it must be ignored.

    It begins with the creator and names this device. Names are cleaned again: they reach screens,
    and the creator is another person's program. Of two lines with one id the first counts.
    """
    seen: dict[str, Member] = {}
    for member in roster.members:
        if member.id not in seen:
            seen[member.id] = msgspec.structs.replace(member, name=names.clean(member.name))
    if me not in seen or next(iter(seen)) != creator:
        return None
    return tuple(seen.values())
