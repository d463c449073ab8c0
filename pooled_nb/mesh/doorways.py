"""What the gates of one device's links may know of each other and of the roster (PROTOCOL sections 3, 4)."""

from __future__ import annotations

from pooled_nb.mesh.clock import Clock
from pooled_nb.mesh.gate import Doorway, Side
from pooled_nb.mesh.link import Link
from pooled_nb.mesh.linkbook import LinkBook
from pooled_nb.mesh.liveness import Liveness
from pooled_nb.mesh.membership import Membership, Present
from pooled_nb.mesh.network import Connection


class Doorways:
    """Makes the `Doorway` of each connection.

    Parameters
    ----------
    own
        This device's PeerJS id.
    membership
        The creator's; None on any other device.
    """

    def __init__(
        self,
        own: str,
        *,
        membership: Membership | None,
        present: Present,
        book: LinkBook,
        liveness: Liveness[int],
        clock: Clock,
    ) -> None:
        self._own, self._membership, self._present = own, membership, present
        self._book, self._liveness, self._clock = book, liveness, clock

    def of(self, connection: Connection, side: Side) -> Doorway:
        """For a link of this side, or (``PEER``) for a stripe."""
        remote = connection.remote

        def holder(seat: str) -> tuple[str, float] | None:
            link = self._of_seat(seat, remote)
            if link is None:
                return None
            return link.remote, self._liveness.quiet(link.key, self._clock.now())

        def probe(seat: str) -> None:
            link = self._of_seat(seat, remote)
            ts = None if link is None else self._liveness.ping(link.key, self._clock.now())
            if link is not None and ts is not None:
                link.ping(ts)

        return Doorway(
            side,
            self._own,
            remote,
            connection.dialed,
            connection.fingerprints,
            seat=lambda: self._membership.seat_of(remote) if self._membership else None,
            holder=holder,
            probe=probe,
        )

    def _of_seat(self, seat: str, but: str) -> Link | None:
        """The admitted link of the device that has this seat under another id."""
        id = self._membership.holder(seat) if self._membership else None
        return self._book.used(id) if id is not None and id != but else None
