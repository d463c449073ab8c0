"""One stripe: a connection to a device that has a link, which carries slices alone (PROTOCOL sections 4, 5).

It says nothing of the room. Its control channel carries ``mesh`` both ways, and once both proofs stand its
slices count as those of the link do.
"""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Callable, Coroutine
from typing import Any

from pooled_nb.errors import LinkFailed
from pooled_nb.mesh.binarypack import pack
from pooled_nb.mesh.chunks import Assembler, Close
from pooled_nb.mesh.clock import Clock
from pooled_nb.mesh.gate import GateAction, Pass, Refuse, Say
from pooled_nb.mesh.gatepeer import MeshExchange
from pooled_nb.mesh.link import Link
from pooled_nb.mesh.linkstate import OPEN_S, OPEN_TRYING_S, PROVING_S
from pooled_nb.mesh.linkwire import HELD_SLICES
from pooled_nb.mesh.messages import Message, read, write
from pooled_nb.mesh.messages.link import Bye, Leaving, MeshProof, Ping, Pong
from pooled_nb.mesh.network import Connection
from pooled_nb.mesh.pace import STRANGER, Inbox, cost
from pooled_nb.mesh.wire.slices import SLICE

LEAVE_S = 0.3
"""Seconds that the other end has to close a stripe that is given up."""


class _State(enum.Enum):
    CONNECTING = "connecting"
    PROVING = "proving"
    PROVED = "proved"
    CLOSED = "closed"


class Stripe:
    """One stripe. Made by `Stripes`.

    Attributes
    ----------
    key
        Names it on the wire of its link.
    links
        The links to its device that lived when it came: it may serve any of them.
    home
        The one that it serves.
    done
        Set once it is proved (None), or closed (why).
    over
        Set once it is closed.
    """

    def __init__(
        self,
        key: str,
        connection: Connection,
        *,
        links: list[Link],
        exchange: MeshExchange,
        clock: Clock,
        changed: Callable[[Stripe], None],
        spawn: Callable[[Coroutine[Any, Any, None]], object],
    ) -> None:
        self.key, self.remote, self.links = key, connection.remote, links
        self.dialed = connection.dialed
        self.home: Link | None = None
        self.done: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._connection, self._exchange, self._clock = connection, exchange, clock
        self._changed, self._spawn = changed, spawn
        self._state = _State.CONNECTING
        self._said = self._joined = False
        self._left_at: float | None = None
        self._since = clock.now()
        self._assembler, self._inbox = Assembler(), Inbox(STRANGER, self._since)
        self._held: list[bytes] = []

    @property
    def connection(self) -> Connection:
        """The one that it is."""
        return self._connection

    @property
    def is_proved(self) -> bool:
        """Whether its slices count."""
        return self._state is _State.PROVED

    @property
    def is_closed(self) -> bool:
        """Whether it is over."""
        return self._state is _State.CLOSED

    def start(self) -> None:
        """Listen to the connection."""
        connection = self._connection
        connection.on_state = self._ended
        connection.control.on_close = lambda: self.close("the other end closed it")
        connection.wire.on_close = self._wire_closed
        connection.wire.on_message = self._hold
        connection.control.on_open = self._opened
        if connection.control.is_open:
            self._opened()
        connection.control.on_message = self._received
        self._ended(connection.state)

    def serve(self, link: Link | None) -> None:
        """Be one of this link's channels from now on; None: of none."""
        if self._left_at is not None:
            link = None
        if link is not self.home:
            if self.home is not None:
                self.home.wire.drop(self.key)
            self.home, self._joined = link, False
        if link is None or self._joined or self.is_closed:
            return
        if self._said:  # the other end may be sending as soon as it has our proof
            link.wire.expect(self.key)
        if not self.is_proved:
            return
        self._joined = True
        wire = self._connection.wire
        link.wire.add(self.key, wire, self._connection.keepalive)
        wire.on_close, take = self._wire_closed, wire.on_message
        held, self._held = self._held, []
        for data in held:
            if take is not None:
                take(data)

    def close(self, why: str) -> None:
        """It is over. The link goes on."""
        if self.is_closed:
            return
        self._state = _State.CLOSED
        self._exchange.closed()
        self.serve(None)
        self._held.clear()
        self._inbox.clear()
        if not self.done.done():
            self.done.set_result(why)
        self.over.set_result(None)
        self._spawn(self._connection.close())
        self._changed(self)

    def give_up(self) -> None:
        """Close it in peace: the other end hears of it first, so that nothing is put into it any more."""
        if self._left_at is None and not self.is_closed:
            self._left_at = self._clock.now()
            self.serve(None)
            self._say(Leaving())

    def ask(self) -> None:
        """Have something in flight, so that both ends see whether anything comes through."""
        self._say(Ping())

    def tick(self, now: float) -> None:
        """Time passes."""
        waited = now - self._since
        if self._left_at is not None and now - self._left_at >= LEAVE_S:
            self.close("this end gave it up")
        match self._state:
            case _State.CONNECTING:
                trying = self._connection.state in ("new", "connecting", "connected")
                if waited >= (OPEN_TRYING_S if trying else OPEN_S):
                    self.close(f"no network path opened within {waited:.0f} s")
            case _State.PROVING if waited >= PROVING_S:
                self.close("it did not prove itself")
            case _State.PROVING:
                self._run(self._exchange.tick(now))
        self._read_on()

    # -- inside --------------------------------------------------------------------------------------

    def _opened(self) -> None:
        if self._state is _State.CONNECTING:
            self._state, self._since = _State.PROVING, self._clock.now()
            self._run(self._exchange.opened(self._since))

    def _ended(self, state: str) -> None:
        if state in ("failed", "closed"):
            self.close(self._connection.failure or "the other end closed it")

    def _wire_closed(self) -> None:
        self.close("its wire closed")

    def _hold(self, data: bytes) -> None:
        if len(self._held) < HELD_SLICES and len(data) <= SLICE:
            self._held.append(data)

    def _received(self, data: bytes) -> None:
        if self.is_closed:
            return
        self._opened()  # some stacks hand over the first message before `open`
        if not self._inbox.put(data):
            self.close("it sent more than a stripe may")
        self._read_on()

    def _read_on(self) -> None:
        # What waits here for credit is a flood: the next tick is soon enough.
        while not self.is_closed and (data := self._inbox.take(self._clock.now())) is not None:
            value = self._assembler.feed(data, admitted=False)
            self._inbox.spent(cost(self._assembler.values, len(data)))
            if isinstance(value, Close):
                self.close("the other end closed it")
            elif (message := read(value)) is not None:
                self._heard(message)

    def _heard(self, message: Message) -> None:
        """One of the few messages that a stripe passes; all others are of no meaning here (section 4)."""
        match message:
            case MeshProof() if self._state is _State.PROVING:
                self._run(self._exchange.message(message, self._clock.now()))
            case Ping(ts=ts):
                self._say(Pong(ts=ts))
            case Leaving() | Bye():
                self.close("the other end closed it")

    def _run(self, actions: list[GateAction]) -> None:
        for action in actions:
            match action:
                case Say(message):
                    self._say(message)
                    self._said = True
                    self._changed(self)
                case Pass() if not self.is_closed:
                    self._state = _State.PROVED
                    if not self.done.done():
                        self.done.set_result(None)
                    self._changed(self)
                case Refuse(reason):
                    self.close(reason)

    def _say(self, message: Message) -> None:
        try:
            self._connection.control.send(pack(write(message)))
        except LinkFailed:
            self.close("the connection broke")
