"""The mesh of one device: how it enters a room, speaks in it, and leaves. All on the mesh loop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from pooled_nb.errors import AlreadyInRoom
from pooled_nb.mesh import codes, names
from pooled_nb.mesh.arrivals import Arrivals
from pooled_nb.mesh.awake import AwakeClock
from pooled_nb.mesh.clock import Clock
from pooled_nb.mesh.dialing import Dialing
from pooled_nb.mesh.ends import closed_sentence, turned_away
from pooled_nb.mesh.entering import Entering, left_early
from pooled_nb.mesh.gate import Gates, Side
from pooled_nb.mesh.jobs import Jobs
from pooled_nb.mesh.knocking import BREAKS, Knocking
from pooled_nb.mesh.linkactions import End
from pooled_nb.mesh.links import Links
from pooled_nb.mesh.linkstate import LinkState
from pooled_nb.mesh.listener import Guarded, LinkFacts, MeshListener
from pooled_nb.mesh.messages.link import DeviceMeta
from pooled_nb.mesh.network import Connection, Endpoint, Network
from pooled_nb.mesh.registration import Registration
from pooled_nb.mesh.sending import Sending
from pooled_nb.mesh.striper import Striper
from pooled_nb.mesh.wiresettings import DEFAULT, WireSettings

__all__ = ["LinkFacts", "Mesh", "MeshListener"]

log = logging.getLogger(__name__)

LEAVE_S = 5.0
"""Seconds after which leaving waits no longer for connections to close."""


class Mesh(Sending):
    """One device's place in one room; it enters once, and leaves once.

    Parameters
    ----------
    network, clock
        What carries bytes, and the mesh loop's time: the simulator replaces just these.
    name, meta
        What this device is called (the creator may make it unique), and what it says of itself.
    listener
        The room.
    gates
        What stands before admission (PROTOCOL section 4): a `Gatekeeper`, or a `Newcomer`.
    wiring
        How its links carry frames.
    """

    def __init__(
        self,
        *,
        network: Network,
        clock: Clock,
        name: str,
        meta: DeviceMeta,
        listener: MeshListener,
        gates: Gates,
        wiring: WireSettings = DEFAULT,
    ) -> None:
        self._network, self._clock = network, clock
        self._name, self._meta, self._gates = names.clean(name), meta, gates
        self._listener = Guarded(listener)
        self._awake = AwakeClock(clock)
        self._wiring = wiring
        self._jobs = Jobs(clock)
        self._dialing = Dialing(
            links=lambda: None if self._closed else self._links,
            dial=self._dial,
            jobs=self._jobs,
            now=self._awake.now,
        )
        self._registration = Registration(clock, self._listener)
        self._striper = Striper(
            wiring.stripes,
            dialing=self._dialing,
            jobs=self._jobs,
            clock=self._awake,
            is_up=lambda: self._registration.is_up,
        )
        self._knocking = Knocking(
            clock=self._awake,
            jobs=self._jobs,
            dial=self._dial_creator,
            hurry=self._registration.hurry,
            linked=lambda: bool(self._book().of(self._room)),
            give_up=lambda end: self._over(end, closed_sentence(end)),
        )
        self._registration.on_signaling = self._knocking.signaling
        self._entering = Entering(
            clock=clock,
            take=self._take,
            drop=self._registration.drop,
            dial=self._dial_creator,
            link=self._to_creator,
            notice=self._listener.on_notice,
        )
        self._room = ""
        self._chain: tuple[str, ...] = ()
        self._largest: int | None = None
        self._links: Links | None = None
        self._inside = self._busy = self._closed = False
        self._left: asyncio.Task[None] | None = None
        self.end: End | None = None
        """How this device's place in the room ended; None while it has one, and after `leave`."""

    # -- entering and leaving ----------------------------------------------------------------------

    async def create(self, code: str, servers: Sequence[str], *, token: str | None = None) -> None:
        """Open the room ``code``; this device is its creator.

        Raises
        ------
        SignalingDown
            No server answers.
        RoomError
            The code is taken.
        """
        self._begin()
        try:
            self._room = codes.room_id(code)
            endpoint = await self._network.register(self._room, servers, token=token)
            links = await self._take(endpoint)
        except BaseException:
            self._busy = False
            raise
        self._inside = True
        links.begin()

    async def join(self, code: str, servers: Sequence[str]) -> None:
        """Find the room, be admitted, and get the first roster. A join that failed may be tried again.

        Raises
        ------
        RoomNotFound
            It is on none of the servers that answered.
        RoomRefused, RoomClosed
            It said no, in its words; or it ended meanwhile.
        LinkFailed
            There is no path to it.
        SignalingDown
            No server answers.
        """
        self._begin()
        try:
            self._room = codes.room_id(code)
            await self._entering.find(self._network, list(servers))
        except BaseException:
            await self._give_up()
            raise

    async def leave(self) -> None:
        """Leave on purpose: say so, give it 300 ms, close everything. Never raises; once is enough.

        The creator's leaving ends the room: ``bye {closed: 1}`` to all. Nothing is told to the listener.
        """
        self._listener.mute()
        await asyncio.shield(self._close())

    async def abandon(self) -> None:
        """Close everything without a word: this device, or the one that takes its place, comes back soon.

        For a host whose kernel restarts: the others notice at once that their links broke, and knock. Nothing
        is told to the listener. Never raises.
        """
        self._listener.mute()
        await asyncio.shield(self._close(quietly=True))

    # -- links -------------------------------------------------------------------------------------

    async def connect(self, to: str) -> None:
        """Return once an admitted link to a device of the roster exists; dial it unless there is one.

        Raises
        ------
        LinkFailed
            There is no path, or it is not in the room.
        """
        await self._dialing.connect(to)

    async def relink(self, to: str) -> None:
        """Return once a fresh link to a device has taken over (section 6, ``ai-next {relink: 1}``).

        The old one is closed with its stripes, also where no fresh one comes to be. The other end keeps the
        one that is fresh; what was in flight over the old one is lost.

        Raises
        ------
        LinkFailed
            As `connect`.
        """
        await self._dialing.relink(to)

    # -- what is set -------------------------------------------------------------------------------

    def watch(self, ids: Sequence[str]) -> None:
        """Ping these devices every 500 ms from now on (while an answer runs); an empty list stops."""
        if self._links is not None:
            self._links.watch(ids)

    def spare(self, ids: Sequence[str]) -> None:
        """Do not drop these devices for silence: they load (PROTOCOL section 8). Replaces the list before."""
        if self._links is not None:
            self._links.spare(ids)

    def chain(self, ids: Sequence[str], *, largest: int | None = None) -> None:
        """Take frames of these devices from now on, and keep nothing of others'. Replaces the list before.

        Call it with every deal, before the devices hear of it; their links may come to be later. ``largest``:
        payload bytes of the largest frame of its model, by which what a link may hold is bounded.
        """
        self._chain, self._largest = tuple(ids), largest
        if self._links is not None:
            self._links.chain(ids, largest)
            self._striper.tick(self._links)

    def set_meta(self, meta: DeviceMeta) -> None:
        """Say something else of this device from now on; a changed loan is told at once (``pledge``)."""
        self._meta = meta
        if self._links is not None:
            self._links.set_meta(meta)

    def kick(self, id: str, reason: str) -> None:
        """Throw a device out, in words; the creator alone can.

        All its links end, those that wait at the gate too, and its place in the roster goes at once.
        """
        if self._links is not None and self._links.is_creator:
            self._links.kick(id, reason)

    def decided(self) -> None:
        """A person decided something at the gate: links that waited for it act now."""
        for link in self._book():
            link.tick(self._awake.now())

    # -- inside: entering --------------------------------------------------------------------------

    def _begin(self) -> None:
        if self._closed or self._busy:
            raise AlreadyInRoom("This device is in a room already, or was.", "Leave it and start anew.")
        self._busy = True

    async def _take(self, endpoint: Endpoint) -> Links:
        if self._closed:  # left while it registered
            await endpoint.close()
            raise left_early()
        if self._links is not None:  # of an id at a server that did not know the room
            self._links.close("")
        self._links = links = Links(
            id=endpoint.id,
            creator=self._room,
            name=self._name,
            meta=self._meta,
            clock=self._awake,
            jobs=self._jobs,
            gates=self._gates,
            listener=self._listener,
            on_entered=self._entered,
            on_lost=self._lost,
            on_outcome=self._dialing.outcome,
            wiring=self._wiring,
        )
        links.chain(self._chain, self._largest)
        self._registration.take(endpoint, Arrivals(links))
        self._awake.begin(self._tick)
        return links

    def _entered(self) -> None:
        self._inside = True
        self._entering.entered()
        if self._knocking.stop():
            self._listener.on_back()

    def _lost(self, end: End) -> None:
        """The link to the creator ended."""
        if self._entering.ended(end) or not self._inside or self._closed:
            return
        knocks = self._knocking.is_on
        if end.cause not in BREAKS:
            self._over(end, turned_away(end) if knocks else closed_sentence(end))
        elif not knocks:
            self._knocking.begin(end)
            self._listener.on_away(
                self._room, self._links.name_of(self._room) if self._links else "", end.why
            )

    def _over(self, end: End, why: str) -> None:
        self.end = end
        self._close()
        self._listener.on_closed(why)
        self._listener.mute()

    async def _dial_creator(self) -> None:
        began = self._awake.now()
        links, connection = await self._dial(self._room)
        links.add(connection, Side.JOINER, since=began).hurries = self._knocking.is_on

    async def _dial(self, to: str, label: str = "") -> tuple[Links, Connection]:
        connection = await self._registration.dial(to, label=label)
        if self._links is None or self._closed:  # left while it dialed
            await connection.close()
            raise left_early()
        return self._links, connection

    def _to_creator(self) -> LinkState | None:
        links = self._book().of(self._room)
        return links[-1].state if links else None

    # -- inside: leaving ---------------------------------------------------------------------------

    async def _give_up(self) -> None:
        """A join failed: everything is as it was, and it may be tried again."""
        if self._closed:
            return  # leaving cleans up
        if self._links is not None:
            self._links.close("")
        await self._registration.drop()
        self._awake.stop()
        await self._settle()
        self._links, self._inside, self._busy = None, False, False

    def _close(self, *, quietly: bool = False) -> asyncio.Task[None]:
        """Leave, once."""
        self._closed = True
        self._knocking.stop()
        if self._left is None:
            self._left = asyncio.get_running_loop().create_task(self._shut_down(quietly))
        return self._left

    async def _shut_down(self, quietly: bool) -> None:
        try:
            self._awake.stop()
            self._dialing.cancel()
            self._striper.cancel()
            self._entering.abort()
            if self._links is not None and quietly:
                self._links.abandon()
            elif self._links is not None:
                self._links.close("The room is over.")
            # Signaling goes at once: who dials now is told that nobody is here.
            await self._registration.drop()
            await self._settle()
        except Exception:
            log.exception("leaving was not clean")

    async def _settle(self) -> None:
        links = self._links
        await self._jobs.settle(LEAVE_S, also=lambda: links is None or links.all_over)

    # -- inside: the rest --------------------------------------------------------------------------

    def _tick(self, late: bool) -> None:
        now, links = self._clock.now(), self._links
        if links is not None:
            links.tick(now, late=late)
        self._registration.tick(now)
        self._knocking.tick()
        if links is not None and not self._closed:
            for id in links.redials():
                self._jobs.spawn(self._dialing.connect(id))
            self._striper.tick(links)
