"""Decides who is in the room: the creator's roster, and how a device reads it (PROTOCOL section 3)."""

from __future__ import annotations

import msgspec

from pooled_nb.mesh import names
from pooled_nb.mesh.messages.link import DeviceMeta, Hello, Member, Roster

MAX_MEMBERS = 256
"""Devices of one room; what a `Roster` may carry."""


class Membership:
    """The creator's roster: itself first, then in order of joining. It alone makes names unique."""

    def __init__(self, id: str, name: str, meta: DeviceMeta) -> None:
        self._members = {id: Member(id=id, name=names.clean(name), meta=meta)}

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

    def admit(self, id: str, hello: Hello) -> Member | None:
        """Let a device in; None when the room is full.

        Who is in already (its link was replaced) keeps place and name, and says its ``meta`` anew.
        """
        if old := self._members.get(id):
            member = msgspec.structs.replace(old, meta=hello.meta)
        elif len(self._members) >= MAX_MEMBERS:
            return None
        else:
            taken = {m.name for m in self._members.values()}
            member = Member(id=id, name=names.unique(hello.name, taken), meta=hello.meta)
        self._members[id] = member
        return member

    def leave(self, id: str) -> Member | None:
        """Take a device out; None when it was not in. The creator never goes."""
        if id == next(iter(self._members)):
            return None
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
