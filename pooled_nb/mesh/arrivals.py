"""Who dials this device, and what becomes of it: a link, a stripe, or nothing (PROTOCOL sections 2 to 5)."""

from __future__ import annotations

from pooled_nb.mesh.gate import Side
from pooled_nb.mesh.links import Links
from pooled_nb.mesh.network import Connection, Line
from pooled_nb.mesh.stripes import STRIPE


class Arrivals:
    """Of one device in one room; what its endpoint asks before it answers an OFFER, and then hands over."""

    def __init__(self, links: Links) -> None:
        self._links = links

    def line_of(self, remote: str, label: str) -> Line | None:
        """See `network.Endpoint.line_of`."""
        return self._links.stripes.line_of(remote) if label == STRIPE else Line.LINK

    def has_room(self, line: Line) -> bool:
        """See `network.Endpoint.has_room`."""
        return self._links.stripes.has_room() if line is Line.STRIPE else self._links.has_room()

    def take(self, connection: Connection) -> None:
        """Somebody dialed this device. The creator dials nobody, so nobody else may come under its id."""
        links, remote = self._links, connection.remote
        if connection.label == STRIPE:
            links.stripes.take(connection)
        elif remote in (links.id, links.creator) or not links.book.make_room(remote):
            links.spawn(connection.close())
        else:
            links.add(connection, Side.CREATOR if links.is_creator else Side.PEER)
