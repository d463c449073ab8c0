"""What the gates of one device's links may know of each other and of the roster (PROTOCOL sections 3, 4)."""

from __future__ import annotations

from collections.abc import Callable

from pooled_nb.mesh import names
from pooled_nb.mesh.gate import Doorway, Side
from pooled_nb.mesh.link import Link
from pooled_nb.mesh.linkbook import LinkBook
from pooled_nb.mesh.membership import Membership, Present
from pooled_nb.mesh.namesakes import Holder
from pooled_nb.mesh.network import Connection
from pooled_nb.mesh.pulse import Pulse


class Doorways:
    """Makes the `Doorway` of each connection.

    Parameters
    ----------
    own
        This device's PeerJS id.
    membership
        The creator's; None on any other device.
    silence
        Seconds since a device of the roster was heard.
    """

    def __init__(
        self,
        own: str,
        *,
        membership: Membership | None,
        present: Present,
        book: LinkBook,
        pulse: Pulse,
        silence: Callable[[str], float | None],
    ) -> None:
        self._own, self._membership, self._present = own, membership, present
        self._book, self._pulse, self._silence = book, pulse, silence

    def of(self, connection: Connection, side: Side) -> Doorway:
        """For a link of this side, or (``PEER``) for a stripe."""
        remote = connection.remote

        def holder(seat: str) -> tuple[str, float] | None:
            link = self._of_seat(seat, remote)
            if link is None:
                return None
            return link.remote, self._pulse.quiet(link)

        def probe(seat: str) -> None:
            self._pulse.ask(self._of_seat(seat, remote))

        return Doorway(
            side,
            self._own,
            remote,
            connection.dialed,
            connection.fingerprints,
            seat=lambda: self._membership.seat_of(remote) if self._membership else None,
            holder=holder,
            probe=probe,
            namesake=lambda name, seat: self._namesake(name, seat, remote),
            ask=lambda id: self._pulse.ask(self._book.used(id)),
        )

    def _namesake(self, name: str, seat: str, remote: str) -> Holder | None:
        membership = self._membership
        if membership is None or (seat and membership.holder(seat) is not None):
            return None
        id = membership.called(names.clean(name))
        if id is None or id in (remote, self._own) or id in self._pulse.spared:
            return None
        quiet = self._silence(id)
        return None if quiet is None else Holder(id, quiet)

    def _of_seat(self, seat: str, but: str) -> Link | None:
        """The admitted link of the device that has this seat under another id."""
        id = self._membership.holder(seat) if self._membership else None
        return self._book.used(id) if id is not None and id != but else None
