"""All links of one device in one room, and the roster that follows from them (PROTOCOL section 3).

The deciders (`linkstate`, `linkbook`, `membership`, `liveness`) say what is to be done; here it is done.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

from pooled_nb.mesh.binarypack import PackError
from pooled_nb.mesh.clock import Clock
from pooled_nb.mesh.doorways import Doorways
from pooled_nb.mesh.frame import Frame
from pooled_nb.mesh.gate import Gates, Pass, Side
from pooled_nb.mesh.jobs import Jobs
from pooled_nb.mesh.link import Link, packed
from pooled_nb.mesh.linkactions import Cause, End
from pooled_nb.mesh.linkbook import LinkBook
from pooled_nb.mesh.linkstate import LinkState
from pooled_nb.mesh.listener import Guarded, LinkFacts
from pooled_nb.mesh.liveness import COMPUTER_S, HOST_S, PHONE_S, Liveness
from pooled_nb.mesh.membership import Membership, Present, read_roster
from pooled_nb.mesh.messages import Message
from pooled_nb.mesh.messages.link import DeviceMeta, Hello, Member, Pledge, Roster
from pooled_nb.mesh.network import Connection
from pooled_nb.mesh.stripes import STRIPE, Stripes
from pooled_nb.mesh.versions import PROTOCOL

log = logging.getLogger(__name__)

TAKEN = "Another device came into the room with the id of this one."
SPARE_LINK_S = 1.0
"""Seconds that the second of two links lives on: what the other end sent over it still arrives."""


class Links:
    """The `LinkOwner`. Made once this device is registered.

    Parameters
    ----------
    id, creator
        PeerJS ids of this device and of the room's creator.
    listener
        The room, guarded.
    on_entered
        A device that joins got its first roster.
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
        clock: Clock,
        jobs: Jobs,
        gates: Gates,
        listener: Guarded,
        on_entered: Callable[[], None],
        on_lost: Callable[[End], None],
        on_outcome: Callable[[str, End | None], None],
        keepalive_ms: float,
    ) -> None:
        self.id, self.creator, self.name = id, creator, name
        self.is_creator = id == creator
        self.book = LinkBook(id)
        self._present = Present()
        self._meta = meta
        self._membership = Membership(id, name, meta) if self.is_creator else None
        self._clock, self._jobs, self._gates, self._listener = clock, jobs, gates, listener
        self._on_entered, self._on_lost, self._on_outcome = on_entered, on_lost, on_outcome
        self._keepalive_ms = keepalive_ms
        self._liveness: Liveness[int] = Liveness(clock.now())
        self._doorways = Doorways(
            id,
            membership=self._membership,
            present=self._present,
            book=self.book,
            liveness=self._liveness,
            clock=clock,
        )
        self.stripes = Stripes(self.book, doorways=self._doorways, gates=gates, clock=clock, spawn=jobs.spawn)
        self._watched: frozenset[str] = frozenset()
        self._spared: frozenset[str] = frozenset()
        self._chain: frozenset[str] = frozenset()
        self._keys = 0
        self._closing: list[Link] = []
        self._known: set[str] = set()
        """Devices that an admitted link existed to: dialing them again says ``back``."""
        self._missed: dict[str, End] = {}
        """Devices whose admitted link ended while another one was still coming to be."""

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
        if self._membership is not None:
            self._roster_changed(self._membership)

    def add(self, connection: Connection, side: Side, *, since: float | None = None) -> Link:
        """Take a connection, dialed (from ``since`` on, in clock seconds) or incoming."""
        remote = connection.remote
        back = connection.dialed and remote in self._known
        state = LinkState(
            side=side,
            dialed=connection.dialed,
            gate=self._gates.door(self._doorways.of(connection, side)),
            own=Hello(name=self.name, meta=self._meta, v=PROTOCOL, back=back),
            now=self._clock.now() if since is None else since,
            member=self._present.get(remote) is not None,
        )
        self._keys += 1
        link = Link(
            self._keys,
            connection,
            clock=self._clock,
            state=state,
            owner=self,
            keepalive_ms=self._keepalive_ms,
        )
        link.wire.chained = link.remote in self._chain
        self.book.add(link)
        link.start()
        return link

    def incoming(self, connection: Connection) -> None:
        """Somebody dialed this device. The creator dials nobody, so nobody else may come under its id."""
        remote = connection.remote
        if connection.label == STRIPE:
            self.stripes.take(connection)
        elif remote in (self.id, self.creator) or not self.book.make_room(remote):
            self.spawn(connection.close())
        else:
            self.add(connection, Side.CREATOR if self.is_creator else Side.PEER)

    def has_room(self) -> bool:
        """Whether one more device may come now; else it waits where it dials."""
        return self.book.has_room(self._clock.now())

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
        return LinkFacts(
            rtt_s=self._liveness.rtt(link.key),
            path=link.connection.path,
            quiet_s=self._liveness.quiet(link.key, self._clock.now()),
            answered_s=self._liveness.answered_ping_of(link.key),
            label=link.connection.label,
            dialed=link.state.dialed,
            fallback=link.wire.fallback,
            queued=link.wire.queued,
            stripes=sum(stripe.home is link and stripe.is_proved for stripe in self.stripes.of(to)),
        )

    def seat_of(self, id: str) -> str | None:
        """See `Mesh.seat`."""
        return self._membership.seat_of(id) if self._membership else None

    def watch(self, ids: Iterable[str]) -> None:
        """See `Mesh.watch`."""
        self._watched = frozenset(ids)

    def spare(self, ids: Iterable[str]) -> None:
        """See `Mesh.spare`."""
        self._spared = frozenset(ids)

    def chain(self, ids: Iterable[str]) -> None:
        """See `Mesh.chain`."""
        self._chain = frozenset(ids)
        for link in self.book:
            link.wire.chained = link.remote in self._chain

    def set_meta(self, meta: DeviceMeta) -> None:
        """See `Mesh.set_meta`."""
        before, self._meta = self._meta, meta
        if self._membership is not None:
            if self._membership.set_meta(self.id, meta):
                self._roster_changed(self._membership)
        elif before.contrib_gb != meta.contrib_gb and (link := self.book.used(self.creator)):
            link.send(Pledge(gb=meta.contrib_gb or 0.0))

    def close(self, reason: str) -> None:
        """Leave every link: the creator says that the room is over, a device that it leaves."""
        self.stripes.close()
        for link in self.book:
            if self.is_creator:
                link.refuse(reason, closed=True)
            else:
                link.leave()

    @property
    def all_over(self) -> bool:
        """Whether every link ended and its connection is closed."""
        self._closing = [link for link in self._closing if not link.is_over]
        return not self._closing and not list(self.book)

    def tick(self, now: float) -> None:
        """Time passes: pings, silence, and what each link waits for."""
        by_key = {link.key: link for link in self.book}
        self._liveness.watch(self._keys_of(self._watched))
        self._liveness.spare(self._keys_of(self._spared))
        due = self._liveness.tick(now)
        for key in due.silent:
            quiet = self._liveness.quiet(key, now)
            if link := by_key.get(key):
                link.silent(f"nothing was heard of it for {quiet:.0f} s")
        for key, ts in due.pings:
            if link := by_key.get(key):
                link.ping(ts)
        for link in self.book:
            link.tick(now)
        self.stripes.tick(now)
        self._closing = [link for link in self._closing if not link.is_over]

    # -- LinkOwner ---------------------------------------------------------------------------------

    def opened(self, link: Link) -> None:
        """See `LinkOwner`."""
        patience = HOST_S if link.state.side is Side.JOINER else COMPUTER_S
        self._liveness.add(link.key, self._clock.now(), patience)

    def heard(self, link: Link) -> None:
        """See `LinkOwner`."""
        self._liveness.heard(link.key, self._clock.now())

    def answered(self, link: Link, ts: object) -> None:
        """See `LinkOwner`."""
        self._liveness.answered(link.key, ts, self._clock.now())

    def admitted(self, link: Link) -> None:
        """See `LinkOwner`."""
        hello = link.state.hello or Hello()
        self._known.add(link.remote)
        self._missed.pop(link.remote, None)
        if hello.meta.phone and link.state.side is not Side.JOINER:
            self._liveness.patience(link.key, PHONE_S)
        spare = self.book.admitted_now(link)
        if self._membership is not None:
            self._enter(self._membership, link, hello)
        elif link.state.side is Side.PEER:
            if spare is not None:
                self._clock.call_later(SPARE_LINK_S, spare.drop)
            self._on_outcome(link.remote, None)
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
                self._roster_changed(self._membership)
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
        self._liveness.remove(link.key)
        self._closing.append(link)
        lost = self.book.remove(link)
        self.stripes.settle(link.remote)
        if link.state.side is Side.JOINER:
            if not self.book.of(link.remote):
                self._on_lost(end)
            return
        if end.cause is Cause.VERSION:
            self._listener.notice_once(f"{end.why} {end.next_step}", self._clock.now())
        if self._membership is not None:
            if lost:
                self._gone(self._membership, link.remote, end)
            return
        self._peer_ended(link.remote, end, lost=lost)

    def spawn(self, job: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """See `LinkOwner`."""
        return self._jobs.spawn(job)

    # -- inside ------------------------------------------------------------------------------------

    def _enter(self, membership: Membership, link: Link, hello: Hello) -> None:
        """Creator: ``admit`` is out; the roster goes to all, then the room has its say (section 3)."""
        passed = link.state.passed or Pass()
        entry = membership.admit(
            link.remote, hello, seat=passed.seat, came_back=passed.came_back, name=passed.name
        )
        if entry is None:
            link.refuse("The room is full.")
            return
        for id in {link.remote, *(gone.id for gone in entry.gone)}:
            for old in self.book.of(id):
                if old is link or not old.is_admitted:
                    continue
                if passed.came_back:
                    old.drop()
                else:
                    self.stripes.end(old)
                    old.refuse(TAKEN)
        self._roster_changed(membership)
        for gone in entry.gone:
            same = gone.id != link.remote
            why = "it came back over another link" if same else "another device took its id"
            self._listener.on_gone(gone.id, gone.name, why, left=False)
        if link.ended is None:
            self._listener.on_admitted(entry.member)

    def _gone(self, membership: Membership, id: str, end: End) -> None:
        member = membership.leave(id)
        if member is not None:
            self._roster_changed(membership)
            self._listener.on_gone(id, member.name, end.why, left=end.cause is Cause.LEFT)

    def _peer_ended(self, id: str, end: End, *, lost: bool) -> None:
        if lost:
            self._missed[id] = end
        if self.book.of(id):
            return  # another link is coming to be, or is used already
        self._on_outcome(id, end)
        if missed := self._missed.pop(id, None):
            self._listener.on_gone(id, self.name_of(id), missed.why, left=missed.cause is Cause.LEFT)

    def _take_roster(self, members: tuple[Member, ...]) -> None:
        self._present.take(members, [link.remote for link in self.book])

    def _roster_changed(self, membership: Membership) -> None:
        self._take_roster(membership.members)
        message = membership.message
        if (data := self.packed(message)) is not None:
            self.broadcast(data, message)
        self._listener.on_roster(self.roster)

    def _read_roster(self, link: Link, message: Roster) -> None:
        members = read_roster(message, creator=self.creator, me=self.id)
        if members is None:
            return
        first, link.state.entered = not self.roster, True
        self._take_roster(members)
        self.name = next(member.name for member in members if member.id == self.id)
        here = {member.id for member in members}
        self._listener.on_roster(members)
        if first:
            self._on_entered()
        for link in self.book:
            link.roster(link.remote in here)

    def _keys_of(self, ids: frozenset[str]) -> list[int]:
        return [link.key for id in ids if (link := self.book.used(id)) is not None]
