"""Links between two devices, neither of them the creator: how they end, and are dialed anew (section 3)."""

from __future__ import annotations

from collections.abc import Callable, Container

from pooled_nb.mesh.awake import AwakeClock
from pooled_nb.mesh.link import Link
from pooled_nb.mesh.linkactions import Cause, End
from pooled_nb.mesh.linkbook import LinkBook
from pooled_nb.mesh.listener import Guarded
from pooled_nb.mesh.redials import Redials
from pooled_nb.mesh.seats import KEPT_S

SPARE_LINK_S = 1.0
"""Seconds that the second of two links lives on: what the other end sent over it still arrives."""


class Peers:
    """Made by `links.Links`.

    Parameters
    ----------
    name_of
        What people call a device.
    on_outcome
        A link was admitted (None), or how the last one to that id ended.
    """

    def __init__(
        self,
        book: LinkBook,
        *,
        clock: AwakeClock,
        listener: Guarded,
        name_of: Callable[[str], str],
        on_outcome: Callable[[str, End | None], None],
    ) -> None:
        self._book, self._clock, self._listener = book, clock, listener
        self._name_of, self._on_outcome = name_of, on_outcome
        self._redials = Redials()
        self._expected: dict[str, float] = {}
        """Devices that the first roster after an absence did not name, and until when they are waited for."""
        self._missed: dict[str, End] = {}
        """Devices whose admitted link ended while another one was still coming to be."""

    def admitted(self, link: Link, spare: Link | None) -> None:
        """A link is admitted; ``spare`` is the one that is used no longer."""
        self._missed.pop(link.remote, None)
        self._redials.settled(link.remote)
        if spare is not None:
            self._clock.call_later(SPARE_LINK_S, spare.drop)
        self._on_outcome(link.remote, None)

    def ended(self, link: Link, end: End, *, lost: bool) -> None:
        """A link ended; ``lost``: there is no admitted one to its device any more."""
        id = link.remote
        if lost and end.cause is not Cause.OURS:  # what this device closed itself is told to nobody
            self._missed[id] = end
            if link.state.dialed:
                self._redials.lost(id, end.cause, self._clock.now())
        if self._book.of(id):
            return  # another link is coming to be, or is used already
        self._expected.pop(id, None)
        self._on_outcome(id, end)
        if missed := self._missed.pop(id, None):
            self._listener.on_gone(id, self._name_of(id), missed.why, left=missed.cause is Cause.LEFT)

    def roster(self, here: Container[str], *, first: bool) -> None:
        """Who is in the room now; ``first``: the first roster over a link to the creator.

        Where that was away, and perhaps was started again, others come back as this device did, one after
        the other: links to them are kept for as long as a seat is. Who was named since, and is no longer, is
        out at once (a device that was thrown out still knows the mesh key).
        """
        until = self._clock.now() + KEPT_S
        for link in self._book:
            id = link.remote
            if id in here:
                self._expected.pop(id, None)
            elif first and link.is_admitted:
                self._expected.setdefault(id, until)
            if id in here or id not in self._expected:
                link.roster(id in here)

    def tick(self) -> None:
        """Time passes. Nobody is judged by a device that has just slept."""
        over = [id for id, until in self._expected.items() if self._clock.now() >= until]
        for id in over if self._clock.judges else ():
            del self._expected[id]
            for link in self._book.of(id):
                link.roster(False)

    def due(self, chain: Container[str]) -> list[str]:
        """Neighbours of the chain that are to be dialed anew now."""
        return self._redials.due(self._clock.now(), chain)
