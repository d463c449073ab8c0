"""All stripes of one device, dialed and incoming (PROTOCOL sections 4, 5).

A stripe is of an id, not of one link: where a link is dialed anew while the stripe comes to be, the stripe
goes to the one that is used.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from pooled_nb.errors import LinkFailed
from pooled_nb.mesh.clock import Clock
from pooled_nb.mesh.doorways import Doorways
from pooled_nb.mesh.gate import Gates, Side
from pooled_nb.mesh.gatepeer import MeshExchange
from pooled_nb.mesh.link import Link
from pooled_nb.mesh.linkbook import LinkBook
from pooled_nb.mesh.linkwire import OWN
from pooled_nb.mesh.network import Connection, Line
from pooled_nb.mesh.stripe import Stripe
from pooled_nb.mesh.stuck import Stuck
from pooled_nb.mesh.wiresettings import MAX_STRIPES

STRIPE = "stripe"
"""Label of a stripe's connection."""
MAX_UNPROVED = 64
"""Stripes of all devices together that are not proved yet: each costs a handshake. So many of devices that
have an admitted link, and as many of all others: who is in the room does not wait for who is before its gate.
"""

IN_USE_S = 5.0
"""Seconds after a frame for which a link's stripes are asked whether they carry: longer than it takes to find
out that one does not. So both ends find out at once, and not first the one and, with what it answers, the
other."""


def no_stripe(name: str, why: str) -> LinkFailed:
    """What `Dialing.stripe` raises."""
    return LinkFailed(f"There is no stripe to {name}: {why}.", "Frames go over the link itself meanwhile.")


class Stripes:
    """All stripes of one device."""

    def __init__(
        self,
        book: LinkBook,
        *,
        doorways: Doorways,
        gates: Gates,
        clock: Clock,
        spawn: Callable[[Coroutine[Any, Any, None]], object],
    ) -> None:
        self._book, self._doorways, self._gates = book, doorways, gates
        self._clock, self._spawn = clock, spawn
        self._stripes: list[Stripe] = []
        self._stuck: dict[int, Stuck] = {}
        """By the keys of their links."""
        self._count = 0

    def of(self, remote: str) -> list[Stripe]:
        """Living stripes to a device."""
        return [stripe for stripe in self._stripes if stripe.remote == remote]

    def carriers(self, link: Link) -> list[Connection]:
        """Connections of the proved stripes that carry this link's slices."""
        return [s.connection for s in self.of(link.remote) if s.home is link and s.is_proved]

    def obstacle(self, remote: str, *, dialed: bool) -> str | None:
        """Why one more stripe to that device is not taken; None: it is, a link of any state to it exists."""
        if not self._book.of(remote):
            return "its link is gone"
        if len(self.of(remote)) >= MAX_STRIPES:
            return f"it has {MAX_STRIPES} already"
        if not dialed and not self._has_room(admitted=self._book.used(remote) is not None):
            return "too many others are being proved"
        return None

    def line_of(self, remote: str) -> Line | None:
        """Where a device that dials a stripe waits; None: it has no link, and is not heard."""
        if self._book.used(remote) is not None:
            return Line.STRIPE
        return Line.LINK if self._book.of(remote) else None

    def has_room(self) -> bool:
        """Whether one more stripe may come of a device that has an admitted link."""
        return self._has_room(admitted=True)

    def wanting(self) -> dict[int, str]:
        """Links whose stripes are this end's to open, and their devices: it dialed them, their frames are
        taken, and they have a wire.
        """
        return {
            link.key: link.remote
            for link in self._book.admitted
            if link.state.dialed and link.wire.chained and not link.wire.fallback
        }

    def give_up(self, key: int) -> None:
        """A link, by its key, left the chain: stripes that this end opened for it go, but for those that
        serve another one which wants them.
        """
        wanting = self.wanting()
        for stripe in list(self._stripes):
            serves = stripe.home is not None and stripe.home.key in wanting
            if stripe.dialed and not serves and any(link.key == key for link in stripe.links):
                stripe.give_up()

    def take(self, connection: Connection) -> Stripe | None:
        """Take a connection that is a stripe, dialed or incoming; None: it is closed (`obstacle`)."""
        remote = connection.remote
        if self.obstacle(remote, dialed=connection.dialed) is not None:
            self._spawn(connection.close())
            return None
        self._count += 1
        stripe = Stripe(
            f"{STRIPE} {self._count}",
            connection,
            links=self._book.of(remote),
            exchange=MeshExchange(lambda: self._gates.mesh_key, self._doorways.of(connection, Side.PEER)),
            clock=self._clock,
            changed=self._changed,
            spawn=self._spawn,
        )
        self._stripes.append(stripe)
        stripe.start()
        return stripe

    async def prove(self, connection: Connection, name: str) -> Stripe:
        """Take a stripe that this device dialed, and return once it is proved.

        Raises
        ------
        LinkFailed
            With the reason why it did not come to be.
        """
        why = self.obstacle(connection.remote, dialed=True)
        stripe = self.take(connection)
        if stripe is not None:
            why = await asyncio.shield(stripe.done)
        if stripe is None or why is not None:
            raise no_stripe(name, why or "")
        return stripe

    def settle(self, remote: str) -> None:
        """Links of that device changed: its stripes serve the one that is used, and end with their last."""
        used = self._book.used(remote)
        for stripe in self.of(remote):
            alive = [link for link in stripe.links if link.ended is None]
            if not alive:
                stripe.close("its link is gone")
            elif used in alive:
                stripe.serve(used)
            elif stripe.home is not None:
                # What the other end still sends over a link that another took over arrives.
                stripe.serve(stripe.home if stripe.home in alive else None)

    def end(self, link: Link) -> None:
        """The device of this link is gone, and another has its id: its stripes are not that other one's."""
        for stripe in self.of(link.remote):
            if stripe.home is link:
                stripe.close("another device has its id")

    def tick(self, now: float, quiet: Callable[[Link], float]) -> None:
        """Time passes.

        Parameters
        ----------
        quiet
            Seconds since anything was heard over a link; infinity while nobody is to be judged.
        """
        for stripe in list(self._stripes):
            stripe.tick(now)
        homes = {stripe.home for stripe in self._stripes}
        links = {link.key: link for link in self._book.admitted if link.wire.chained or link in homes}
        self._stuck = {key: self._stuck.get(key) or Stuck(now) for key in links}
        for key, link in links.items():
            self._look(link, self._stuck[key], now, quiet(link))

    def close(self) -> None:
        """This device leaves."""
        for stripe in list(self._stripes):
            stripe.close("this device left the room")

    def _look(self, link: Link, decider: Stuck, now: float, quiet: float) -> None:
        """What nothing comes through is told to the link's wire; of that, its stripes are closed."""
        stripes = [s for s in self.of(link.remote) if s.home is link and s.is_proved]
        stats = {OWN: link.connection.stats()} | {s.key: s.connection.stats() for s in stripes}
        said = {key: counts.stuck_s for key, counts in stats.items() if counts is not None}
        stuck = decider.tick(now, quiet, said)
        link.wire.counted(stats, stuck)
        for stripe in stripes:
            counts = stats[stripe.key]
            if stripe.key in stuck:
                stripe.close("nothing comes through it")
            elif counts is not None and not counts.in_flight and link.wire.alive.idle_s < IN_USE_S:
                stripe.ask()

    def _has_room(self, *, admitted: bool) -> bool:
        unproved = [s for s in self._stripes if not (s.is_proved or s.dialed)]
        return sum((self._book.used(s.remote) is not None) is admitted for s in unproved) < MAX_UNPROVED

    def _changed(self, stripe: Stripe) -> None:
        if stripe.is_closed:
            if stripe in self._stripes:
                self._stripes.remove(stripe)
        else:
            self.settle(stripe.remote)
