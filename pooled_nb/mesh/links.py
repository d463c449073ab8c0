"""All links of one device in one room, and the roster that follows from them (PROTOCOL section 3).

The deciders (`linkstate`, `linkbook`, `membership`, `liveness`) say what is to be done; here it is done.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

from pooled_nb.mesh.awake import AwakeClock
from pooled_nb.mesh.binarypack import PackError
from pooled_nb.mesh.doorways import Doorways
from pooled_nb.mesh.frame import Frame
from pooled_nb.mesh.gate import Gates, Side
from pooled_nb.mesh.jobs import Jobs
from pooled_nb.mesh.link import Link, packed
from pooled_nb.mesh.linkactions import Cause, End
from pooled_nb.mesh.linkbook import LinkBook
from pooled_nb.mesh.linkstate import LinkState
from pooled_nb.mesh.listener import Guarded, LinkFacts
from pooled_nb.mesh.liveness import COMPUTER_S, HOST_S, PHONE_S
from pooled_nb.mesh.membership import Membership, Present, read_roster
from pooled_nb.mesh.messages import Message
from pooled_nb.mesh.messages.link import DeviceMeta, Hello, Member, Pledge, Roster
from pooled_nb.mesh.network import Connection
from pooled_nb.mesh.peers import Peers
from pooled_nb.mesh.pulse import Pulse
from pooled_nb.mesh.rosterkeeper import RosterKeeper, patience_of
from pooled_nb.mesh.stripes import Stripes
from pooled_nb.mesh.versions import PROTOCOL
from pooled_nb.mesh.wiresettings import WireSettings

log = logging.getLogger(__name__)


class Links:
    """The `LinkOwner`. Made once this device is registered.

    Parameters
    ----------
    id, creator
        PeerJS ids of this device and of the room's creator.
    clock
        Links live by the time of a device that is awake; pings and silence by the real one (`liveness`).
    listener
        The room, guarded.
    on_entered
        A device got the first roster over a link to the creator.
    on_lost
        The last link to the creator ended (devices only).
    on_outcome
        A link between devices: admitted (None), or how the last one to that id ended.
    """

    def __init__(
        self,
        *,
        id: str,
        creator: str,
        name: str,
        meta: DeviceMeta,
        clock: AwakeClock,
        jobs: Jobs,
        gates: Gates,
        listener: Guarded,
        on_entered: Callable[[], None],
        on_lost: Callable[[End], None],
        on_outcome: Callable[[str, End | None], None],
        wiring: WireSettings,
    ) -> None:
        self.id, self.creator, self.name = id, creator, name
        self.is_creator = id == creator
        self.book = LinkBook(id)
        self._present = Present()
        self._meta = meta
        self._membership = Membership(id, name, meta) if self.is_creator else None
        self._awake, self._clock = clock, clock.real
        self._jobs, self._gates, self._listener = jobs, gates, listener
        self._on_entered, self._on_lost = on_entered, on_lost
        self._wiring = wiring
        self._pulse = Pulse(self.book, clock.real, self._stripes_of)
        self._doorways = Doorways(
            id,
            membership=self._membership,
            present=self._present,
            book=self.book,
            pulse=self._pulse,
            silence=self.silence,
        )
        self.stripes = Stripes(self.book, doorways=self._doorways, gates=gates, clock=clock, spawn=jobs.spawn)
        self._peers = Peers(
            self.book, clock=clock, listener=listener, name_of=self.name_of, on_outcome=on_outcome
        )
        self._keeper: RosterKeeper | None = None
        if self._membership is not None:
            self._keeper = RosterKeeper(
                self._membership,
                book=self.book,
                stripes=self.stripes,
                clock=clock,
                listener=listener,
                changed=self._roster_changed,
                chain=lambda: self._chain,
                spared=lambda: self._pulse.spared,
            )
        self._chain: frozenset[str] = frozenset()
        self._largest: int | None = None
        self._lost_at: float | None = None
        """At a device: when the creator was heard last, where there is no link to it; awake seconds."""
        self._over = False
        self._keys = 0
        self._closing: list[Link] = []
        self._known: set[str] = set()
        """Devices that an admitted link existed to: dialing them again says ``back``."""

    # -- what the mesh asks ------------------------------------------------------------------------

    @property
    def roster(self) -> tuple[Member, ...]:
        """See `Mesh.roster`."""
        return self._present.members

    def packed(self, message: Message) -> bytes | None:
        """A message as bytes; None where it is too large to send, which people are told."""
        try:
            return packed(message)
        except PackError as error:
            log.warning("a message %s was not sent: %s", message.t, error)
            said = f"Something was too large to send to the other devices: {error}."
            self._listener.notice_once(said, self._clock.now())
            return None

    def begin(self) -> None:
        """The creator opens the room: it is alone in it."""
        self._roster_changed()

    def add(self, connection: Connection, side: Side, *, since: float | None = None) -> Link:
        """Take a connection, dialed (from ``since`` on, in awake seconds) or incoming."""
        remote = connection.remote
        back = connection.dialed and remote in self._known
        state = LinkState(
            side=side,
            dialed=connection.dialed,
            gate=self._gates.door(self._doorways.of(connection, side)),
            own=Hello(name=self.name, meta=self._meta, v=PROTOCOL, back=back),
            now=self._awake.now() if since is None else since,
            member=self._present.get(remote) is not None,
        )
        self._keys += 1
        link = Link(
            self._keys,
            connection,
            clock=self._awake,
            state=state,
            owner=self,
            settings=self._wiring,
        )
        link.wire.chained = link.remote in self._chain
        link.wire.most(self._largest)
        self.book.add(link)
        link.start()
        return link

    def has_room(self) -> bool:
        """Whether one more device may come now; else it waits where it dials."""
        return self.book.has_room(self._awake.now())

    def broadcast(self, data: bytes, message: Message, *, but: str | None = None) -> None:
        """Send a packed message over every admitted link to a device of the roster."""
        here = {member.id for member in self.roster}
        for link in self.book.admitted:
            if link.remote in here and link.remote != but:
                link.send(message, data)

    def name_of(self, id: str) -> str:
        """What people call a device."""
        return self._present.name_of(id)

    def facts(self, to: str) -> LinkFacts | None:
        """What is known of the link to a device; None: there is no admitted one."""
        link = self.book.used(to)
        if link is None:
            return None
        wanted = self._wiring.stripes if link.key in self.stripes.wanting() else 0
        return self._pulse.facts(link, wanted=wanted)

    def silence(self, id: str) -> float | None:
        """See `Mesh.silence`."""
        if id == self.id or self._present.get(id) is None:
            return None
        if (link := self.book.used(id)) is not None:
            return self._pulse.quiet(link)
        if self._keeper is not None:
            return self._keeper.quiet(id)
        lost = self._lost_at if id == self.creator else None
        return None if lost is None else max(0.0, self._awake.now() - lost)

    def patience(self, id: str) -> float:
        """See `Mesh.patience`."""
        if id == self.creator and not self.is_creator:
            return COMPUTER_S if self._chain else HOST_S
        member = self._present.get(id)
        return patience_of(member) if member else COMPUTER_S

    def seat_of(self, id: str) -> str | None:
        """See `Mesh.seat`."""
        return self._membership.seat_of(id) if self._membership else None

    def watch(self, ids: Iterable[str]) -> None:
        """See `Mesh.watch`."""
        self._pulse.watch(ids)

    def redials(self) -> list[str]:
        """Neighbours that are to be dialed anew now."""
        return self._peers.due(self._chain)

    def spare(self, ids: Iterable[str]) -> None:
        """See `Mesh.spare`."""
        self._pulse.spared = frozenset(ids)

    def chain(self, ids: Iterable[str], largest: int | None) -> None:
        """See `Mesh.chain`."""
        self._chain, self._largest = frozenset(ids), largest
        for link in self.book:
            link.wire.chained = link.remote in self._chain
            link.wire.most(largest)
            if link.state.side is Side.JOINER:  # an answer waits for who holds layers: it is no guest
                self._pulse.patience(link, self.patience(link.remote))

    def set_meta(self, meta: DeviceMeta) -> None:
        """See `Mesh.set_meta`."""
        before, self._meta = self._meta, meta
        if self._membership is not None:
            if self._membership.set_meta(self.id, meta):
                self._roster_changed()
        elif before.contrib_gb != meta.contrib_gb and (link := self.book.used(self.creator)):
            link.send(Pledge(gb=meta.contrib_gb or 0.0))

    def close(self, reason: str) -> None:
        """Leave every link: the creator says that the room is over, a device that it leaves."""
        self._over = True
        self.stripes.close()
        for link in self.book:
            if self.is_creator:
                link.refuse(reason, closed=True)
            else:
                link.leave()

    def abandon(self) -> None:
        """Close every link without a word: this device may come back (`Mesh.abandon`)."""
        self._over = True
        self.stripes.close()
        for link in self.book:
            link.drop()

    def kick(self, id: str, reason: str) -> None:
        """See `Mesh.kick`."""
        for link in self.book.of(id):
            link.refuse(reason)
        if self._keeper is not None:
            self._keeper.kick(id, reason)

    @property
    def all_over(self) -> bool:
        """Whether every link ended and its connection is closed."""
        self._closing = [link for link in self._closing if not link.is_over]
        return not self._closing and not list(self.book)

    def tick(self, now: float, *, late: bool) -> None:
        """Time passes: pings, silence, and what each link waits for, unless this device slept just now."""
        self._pulse.tick(now)
        if not late:
            awake = self._awake.now()
            for link in self.book:
                link.tick(awake)
            self.stripes.tick(awake, self._quiet)
        self._peers.tick()
        if self._keeper is not None:
            self._keeper.tick()
        self._closing = [link for link in self._closing if not link.is_over]

    # -- LinkOwner ---------------------------------------------------------------------------------

    def opened(self, link: Link) -> None:
        """See `LinkOwner`."""
        patience = self.patience(link.remote) if link.state.side is Side.JOINER else COMPUTER_S
        self._pulse.opened(link, patience)

    def heard(self, link: Link) -> None:
        """See `LinkOwner`."""
        self._pulse.heard(link)

    def answered(self, link: Link, ts: object) -> None:
        """See `LinkOwner`."""
        self._pulse.answered(link, ts)

    def admitted(self, link: Link) -> None:
        """See `LinkOwner`."""
        hello = link.state.hello or Hello()
        self._known.add(link.remote)
        if hello.meta.phone and link.state.side is not Side.JOINER:
            self._pulse.patience(link, PHONE_S)
        spare = self.book.admitted_now(link)
        if self._keeper is not None:
            self._keeper.enter(link, hello)
        elif link.state.side is Side.PEER:
            self._peers.admitted(link, spare)
        elif spare is not None:
            spare.drop()

    def released(self, link: Link) -> None:
        """See `LinkOwner`."""
        self.stripes.settle(link.remote)

    def delivered(self, link: Link, message: Message) -> None:
        """See `LinkOwner`. Where a roster or a pledge may come from, `LinkState` has checked."""
        if isinstance(message, Roster):
            self._read_roster(link, message)
        elif isinstance(message, Pledge):
            if self._membership is not None and self._membership.pledge(link.remote, message.gb):
                self._roster_changed()
        else:
            self._listener.on_message(link.remote, message)

    def framed(self, link: Link, frame: Frame) -> None:
        """See `LinkOwner`."""
        self._listener.on_frame(link.remote, frame)

    def noticed(self, link: Link, text: str) -> None:
        """See `LinkOwner`."""
        self._listener.on_notice(text)

    def ended(self, link: Link, end: End) -> None:
        """See `LinkOwner`."""
        quiet = self._pulse.ended(link)
        self._closing.append(link)
        lost = self.book.remove(link)
        self.stripes.settle(link.remote)
        if self._over:
            return  # this device goes: of the others nothing is told any more
        if link.state.side is Side.JOINER:
            if lost:
                self._lost_at = self._awake.now() - quiet
            if not self.book.of(link.remote):
                self._on_lost(end)
            return
        if end.cause is Cause.VERSION:
            self._listener.notice_once(f"{end.why} {end.next_step}", self._clock.now())
        if self._keeper is None:
            self._peers.ended(link, end, lost=lost)
        elif lost:
            self._keeper.lost(link.remote, end, quiet=quiet)

    def spawn(self, job: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """See `LinkOwner`."""
        return self._jobs.spawn(job)

    # -- inside ------------------------------------------------------------------------------------

    def _quiet(self, link: Link) -> float:
        return self._pulse.quiet(link) if self._awake.judges else math.inf

    def _stripes_of(self, link: Link) -> list[Connection]:
        return self.stripes.carriers(link)

    def _take_roster(self, members: tuple[Member, ...]) -> None:
        self._present.take(members, [link.remote for link in self.book])

    def _roster_changed(self) -> None:
        membership = self._membership
        if membership is None:
            return
        self._take_roster(membership.members)
        message = membership.message
        if (data := self.packed(message)) is not None:
            self.broadcast(data, message)
        self._listener.on_roster(self.roster)

    def _read_roster(self, link: Link, message: Roster) -> None:
        members = read_roster(message, creator=self.creator, me=self.id)
        if members is None:
            return
        first, link.state.entered = not link.state.entered, True
        self._take_roster(members)
        self.name = next(member.name for member in members if member.id == self.id)
        here = {member.id for member in members}
        self._listener.on_roster(members)
        if first:
            self._on_entered()
        self._peers.roster(here, first=first)
