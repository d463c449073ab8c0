"""The creator's part of a room's links: who enters, who is away, who is gone (PROTOCOL section 3).

`membership` and `seats` decide; here it is done, and told.
"""

from __future__ import annotations

from collections.abc import Callable, Container

from pooled_nb.mesh.awake import AwakeClock
from pooled_nb.mesh.gate import Pass
from pooled_nb.mesh.link import Link
from pooled_nb.mesh.linkactions import Cause, End
from pooled_nb.mesh.linkbook import LinkBook
from pooled_nb.mesh.listener import Guarded
from pooled_nb.mesh.liveness import COMPUTER_S, PHONE_S
from pooled_nb.mesh.membership import Membership
from pooled_nb.mesh.messages.link import Hello, Member
from pooled_nb.mesh.seats import BROKE, KEPT_S, Seats
from pooled_nb.mesh.stripes import Stripes

TAKEN = "Another device came into the room with the id of this one."
CALLED = "another device came in with its name, and it did not answer"


def patience_of(member: Member) -> float:
    """Seconds of silence after which a device is dropped (section 8)."""
    return PHONE_S if member.meta.phone else COMPUTER_S


class RosterKeeper:
    """Made by `links.Links` where this device is the creator.

    Parameters
    ----------
    changed
        Tells everybody the roster.
    chain, spared
        Who holds layers, and who loads them.
    """

    def __init__(
        self,
        membership: Membership,
        *,
        book: LinkBook,
        stripes: Stripes,
        clock: AwakeClock,
        listener: Guarded,
        changed: Callable[[], None],
        chain: Callable[[], Container[str]],
        spared: Callable[[], Container[str]],
    ) -> None:
        self._membership, self._book, self._stripes = membership, book, stripes
        self._clock, self._listener, self._changed = clock, listener, changed
        self._chain, self._spared = chain, spared
        self._seats = Seats()

    def quiet(self, id: str) -> float | None:
        """Seconds since anything was heard of a device that is away; None: it is not away."""
        return self._seats.quiet(id, self._clock.now())

    def enter(self, link: Link, hello: Hello) -> None:
        """``admit`` is out; the roster goes to all, then the room has its say."""
        passed = link.state.passed or Pass()
        if passed.drops:
            self._drop_ghost(passed.drops)
        seat, back, name = passed.seat, passed.came_back, passed.name
        entry = self._membership.admit(link.remote, hello, seat=seat, came_back=back, name=name)
        if entry is None and (spare := self._seats.spare(self._chain(), self._spared())) is not None:
            # A seat that is kept for nobody shuts nobody out.
            self.drop(spare, "it did not come back, and its place was needed")
            entry = self._membership.admit(link.remote, hello, seat=seat, came_back=back, name=name)
        if entry is None:
            link.refuse("The room is full.")
            return
        for id in dict.fromkeys([link.remote, *(gone.id for gone in entry.gone)]):
            self._seats.settled(id)
            for old in self._book.of(id):
                if old is link or not old.is_admitted:
                    continue
                if back:
                    old.drop()
                else:
                    self._stripes.end(old)
                    old.refuse(TAKEN)
        self._changed()
        for gone in entry.gone:
            if gone.id != entry.was:
                self._listener.on_gone(gone.id, gone.name, "another device took its id", left=False)
        if link.ended is None:
            self._listener.on_admitted(entry.member, entry.was)
        elif entry.was != link.remote and entry.was:
            # It broke as the roster went out, and was told as away under an id that the room never saw.
            self._listener.on_gone(
                entry.was, entry.member.name, "it came back and broke off again", left=False
            )

    def lost(self, id: str, end: End, *, quiet: float) -> None:
        """The last admitted link to a device ended; ``quiet``: seconds since anything was heard over it."""
        member = self._membership.get(id)
        if member is None:
            return  # it is here under another id, or was thrown out
        if end.cause not in BROKE:
            self.drop(id, end.why, left=end.cause is Cause.LEFT)
            return
        self._seats.lost(id, quiet=quiet, patience=patience_of(member), now=self._clock.now())
        self._listener.on_away(id, member.name, end.why)

    def drop(self, id: str, why: str, *, left: bool = False) -> None:
        """A device is out of the roster, and its seat is kept no longer."""
        member = self._membership.leave(id)
        self._seats.settled(id)
        if member is not None:
            self._changed()
            self._listener.on_gone(id, member.name, why, left=left)

    def kick(self, id: str, reason: str) -> None:
        """Throw out a device that is away: there is no link to end."""
        if id in self._seats:
            self.drop(id, reason)

    def tick(self) -> None:
        """Time passes. Nobody is judged by a device that has just slept."""
        if not self._clock.judges:
            return
        for id in self._seats.over(self._clock.now(), self._chain(), self._spared()):
            quiet = self._seats.quiet(id, self._clock.now()) or 0.0
            self.drop(id, f"its link broke, and it did not come back in {min(KEPT_S, quiet):.0f} s")

    def _drop_ghost(self, id: str) -> None:
        for link in self._book.of(id):
            if link.is_admitted:
                link.silent(CALLED)
        self.drop(id, CALLED)
