"""What a device knows of its room: the part of `Mesh` that only answers (PROTOCOL sections 3 and 8)."""

from __future__ import annotations

from pooled_nb.mesh.awake import AwakeClock
from pooled_nb.mesh.knocking import Knocking
from pooled_nb.mesh.links import Links
from pooled_nb.mesh.listener import LinkFacts
from pooled_nb.mesh.liveness import COMPUTER_S
from pooled_nb.mesh.messages.link import Member
from pooled_nb.mesh.registration import Registration


class Known:
    """Read only; `Mesh` sets what is behind it."""

    _links: Links | None
    _name: str
    _registration: Registration
    _awake: AwakeClock
    _knocking: Knocking

    @property
    def id(self) -> str:
        """This device's PeerJS id; empty until it entered a room."""
        return self._links.id if self._links else ""

    @property
    def name(self) -> str:
        """What this device is called in the room."""
        return self._links.name if self._links else self._name

    @property
    def creator(self) -> str:
        """The creator's PeerJS id; empty until this device entered a room."""
        return self._links.creator if self._links else ""

    @property
    def is_creator(self) -> bool:
        """Whether this device opened the room."""
        return self._links is not None and self._links.is_creator

    @property
    def roster(self) -> tuple[Member, ...]:
        """Who is here: creator first, then in order of joining, this device included."""
        return self._links.roster if self._links else ()

    @property
    def server(self) -> str:
        """The signaling server that answered, as people see it."""
        return self._registration.server

    @property
    def signaling_up(self) -> bool:
        """Whether the signaling server is reachable now: who wants to join finds the room."""
        return self._registration.is_up

    @property
    def token(self) -> str:
        """What lets this device take its id over there later: kept with the room, shown to nobody."""
        return self._registration.token

    def facts(self, to: str) -> LinkFacts | None:
        """What is known of the link to a device; None: there is no admitted one."""
        return self._links.facts(to) if self._links else None

    def silence(self, id: str) -> float | None:
        """Seconds since anything was heard of a device of the roster, also while its link is lost.

        None: it is not in the roster, or it is this device. Where this one is not the creator, also of any
        other device to which there is no link now.
        """
        return self._links.silence(id) if self._links else None

    def patience(self, id: str) -> float:
        """Seconds of silence after which a device is dropped (PROTOCOL section 8): 15, of a phone 60.

        Of the creator: 30 where this device holds no layers, else 15.
        """
        return self._links.patience(id) if self._links else COMPUTER_S

    @property
    def clock(self) -> AwakeClock:
        """This device's own time, without what it stalled or slept through.

        What waits for another device counts by it: who sleeps judges nobody (section 8).
        """
        return self._awake

    @property
    def knocking(self) -> tuple[float, float] | None:
        """Seconds since this device lost the creator, and after how many it is given up; None: it is in.

        The second is 60 at first (section 3), then the 900 in which a host may take its room back.
        """
        return self._knocking.since

    def seat(self, id: str) -> str:
        """The creator's name for a device's seat: the id of its pass (section 3). Empty: it has none."""
        return (self._links.seat_of(id) if self._links else None) or ""
