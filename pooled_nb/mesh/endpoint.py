"""This device at a signaling server: `network.Endpoint` (PROTOCOL section 2).

OFFER, ANSWER and CANDIDATE in and out; everything a server says is untrusted, and what does not belong
to a dial or a connection that is known here is ignored.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any

from pooled_nb.errors import LinkFailed, PooledError, RoomNotFound
from pooled_nb.mesh import descriptions, stacks
from pooled_nb.mesh.callers import Callers
from pooled_nb.mesh.clock import Clock, Timer
from pooled_nb.mesh.deadline import Deadline
from pooled_nb.mesh.ice import IcePolicy
from pooled_nb.mesh.network import Connection, Line
from pooled_nb.mesh.peerjs import shapes
from pooled_nb.mesh.peerjs.session import Session
from pooled_nb.mesh.rtc import CONNECT_S, RtcConnection
from pooled_nb.mesh.stack import Stack

log = logging.getLogger(__name__)

MAX_NEW = 32
"""Incoming connections of one line that are not connected yet; who dials then waits in it (`callers`)."""
MAX_NEW_PER_DEVICE = {Line.LINK: 12, Line.STRIPE: 9}
"""The same, from one device. Before its link is admitted: that, 8 stripes at most, and a redial of some. From
then on its stripes, and a redial of one.
"""
A_TURN = {Line.LINK: 4, Line.STRIPE: 2}
"""OFFERs of one line that are answered in one turn: each costs the loop 5 ms."""
GIVES_WAY_S = 8.0
"""Seconds after which one of them gives its place to who waits in line."""
MAX_INCOMING = 1_024
MAX_HELD = 256
"""Signaling messages kept until somebody takes incoming connections."""

Key = tuple[str, str]
"""(PeerJS id of the other device, connectionId)"""


class RtcEndpoint:
    """See `network.Endpoint`. Made by `rtcnetwork.RtcNetwork.register`.

    Parameters
    ----------
    ice
        How a new connection looks for a path, by the place in the list of the server that answered; asked
        for each of them, so that what changed meanwhile counts from the next one on.
    ready
        Waited for, for a bounded time, before this device dials or is dialed: what ``ice`` says by then.
    stack
        What its connections run on; None: aiortc.
    urls, shown
        See `Session`.

    Attributes
    ----------
    token
        What lets this device take its id over later; the creator keeps it with the room.
    """

    def __init__(
        self,
        *,
        id: str,
        token: str,
        resumes: bool,
        clock: Clock,
        ice: Callable[[int], IcePolicy],
        ready: Callable[[int], Awaitable[None]] | None = None,
        stack: Stack | None = None,
        urls: Sequence[str],
        shown: Sequence[str],
    ) -> None:
        self.id = id
        self.token = token
        self.server = ""
        self.passed: tuple[str, ...] = ()
        self._on_connection: Callable[[Connection], None] | None = None
        self._held: list[shapes.PeerMessage] = []
        self.on_outage: Callable[[bool], None] | None = None
        self._clock = clock
        self._choose_ice, self._ready = ice, ready
        self._stack = stack or stacks.get()
        self._session = Session(
            clock, urls, shown, id=id, resumes=resumes, on_message=self._received, on_outage=self._outage
        )
        self._connections: dict[Key, RtcConnection] = {}
        self._dials: dict[Key, asyncio.Future[str]] = {}
        self._answering: set[asyncio.Task[None]] = set()
        self.line_of: Callable[[str, str], Line | None] = lambda remote, label: Line.LINK
        self.has_room: Callable[[Line], bool] = lambda line: True
        self._since: dict[Key, tuple[Line, float]] = {}
        """Incoming connections: the line that they stood in, and when they were answered."""
        self._callers = {
            line: Callers(at_once=MAX_NEW, each=MAX_NEW_PER_DEVICE[line], a_turn=A_TURN[line])
            for line in Line
        }
        self._turn: Timer | None = None
        self._closed = False

    @property
    def on_connection(self) -> Callable[[Connection], None] | None:
        """See `network.Endpoint`. Who dialed before it was set is reported soon after."""
        return self._on_connection

    @on_connection.setter
    def on_connection(self, call: Callable[[Connection], None] | None) -> None:
        self._on_connection = call
        if call is not None and self._held:
            held, self._held = self._held, []
            for message in held:
                asyncio.get_running_loop().call_soon(self._received, message)

    @property
    def is_up(self) -> bool:
        """Whether the signaling server is reachable now."""
        return self._session.is_up

    async def register(self) -> None:
        """Register at the first server that answers; raises as `network.Network.register`."""
        await self._session.register()
        self.server, self.passed = self._session.server, self._session.passed
        try:
            self._choose_ice(self._session.index)  # what it refuses is refused here
            if self._ready is not None:
                await self._ready(self._session.index)
        except BaseException:
            await self.close()
            raise

    async def dial(self, remote: str, *, label: str = "") -> RtcConnection:
        """See `network.Endpoint`. The connection that could not be made is closed."""
        if not self._session.is_up:
            raise self._session.down()
        cid = shapes.random_connection_id()
        key = (remote, cid)
        answered: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        connection = self._make(key, label or cid, dialed=True)
        self._dials[key] = answered
        deadline = Deadline(self._clock, CONNECT_S, lambda: self._unanswered(key))
        try:
            offer = await connection.offer()
            self._session.send(
                "OFFER",
                remote,
                shapes.OfferPayload(
                    sdp=shapes.Description("offer", offer),
                    connection_id=cid,
                    label=connection.label,
                    reliable=True,
                    serialization="binary",
                ),
            )
            await connection.accept(descriptions.take(await answered))
        except BaseException:
            answered.cancel()
            await connection.close()
            raise
        finally:
            deadline.cancel()
            self._dials.pop(key, None)
        return connection

    def hurry(self) -> None:
        """See `network.Endpoint`."""
        self._session.hurry()

    async def close(self) -> None:
        """See `network.Endpoint`. Connections that are still being made end."""
        self._closed = True
        self._on_connection = self.on_outage = None
        self._held.clear()
        for callers in self._callers.values():
            callers.clear()
        if self._turn is not None:
            self._turn.cancel()
        for (remote, _), answered in list(self._dials.items()):
            _fail(
                answered,
                LinkFailed(f"The dial to {remote} was given up: this device left the signaling server."),
            )
        await self._session.close()
        tasks = list(self._answering)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # what the server says

    def _received(self, message: shapes.PeerMessage) -> None:
        if self._closed:
            return
        if self._on_connection is None and isinstance(message, (shapes.Offer, shapes.Candidate)):
            # The server hands over what waited for this id at once, before the room can have said who
            # takes it. Candidates of our own dials go on.
            key = (message.src, message.payload.connection_id)
            if key not in self._connections:
                if len(self._held) < MAX_HELD:
                    self._held.append(message)
                return
        match message:
            case shapes.Offer(src=src, payload=payload):
                speaks = (
                    payload.serialization == "binary" and payload.reliable and payload.sdp.type == "offer"
                )
                line = self.line_of(src, _label(payload))
                if (src, payload.connection_id) not in self._connections and speaks and line:
                    self._callers[line].offer(message, self._clock.now())
                    if self._turn is None:  # else others wait, and the next turn is soon
                        self._answer_some()
            case shapes.Answer(src=src, payload=payload):
                waiting = self._dials.get((src, payload.connection_id))
                if waiting is not None and not waiting.done() and payload.sdp.type == "answer":
                    waiting.set_result(payload.sdp.sdp)
            case shapes.Candidate(src=src, payload=payload):
                if (connection := self._connections.get((src, payload.connection_id))) is not None:
                    connection.candidate(payload.candidate)
                else:
                    for callers in self._callers.values():
                        callers.candidate(src, payload)
            case shapes.Expire(src=src):
                self._absent(src)
            case shapes.Leave(src=src):
                # It left signaling; its links live on, and only what still waits for it is over.
                for (remote, _), waiting in list(self._dials.items()):
                    if remote == src:
                        _fail(waiting, LinkFailed(f"{src} left while it was being dialed.", "Try again."))

    def _answer_some(self) -> None:
        """Answer who waits in line, a few in one turn of the loop."""
        if self._turn is not None:
            self._turn.cancel()
            self._turn = None
        for line, callers in self._callers.items():
            while caller := callers.next(self._new(line), self._clock.now(), room=self.has_room(line)):
                self._offered(line, caller.offer.src, caller.offer.payload)
                if connection := self._connections.get(caller.key):
                    for candidate in caller.candidates:
                        connection.candidate(candidate)
        waiting = {
            line: wake for line, callers in self._callers.items() if (wake := callers.wake) is not None
        }
        if waiting and not self._closed:
            for line in waiting:
                self._give_way(line)
            wait = max(0.0, min(waiting.values()) - self._clock.now())
            self._turn = self._clock.call_later(wait, self._answer_some)

    def _offered(self, line: Line, src: str, payload: shapes.OfferPayload) -> None:
        key = (src, payload.connection_id)
        call = self._on_connection
        if key in self._connections or call is None or self._full():
            return
        try:
            taken = descriptions.take(payload.sdp.sdp)
            connection = self._make(key, _label(payload), dialed=False)
        except PooledError as error:  # of the offer, or of this device's own settings
            log.info("an offer of %s is refused: %s", src, error)
            return
        except Exception:  # of the stack; who stands behind is answered all the same
            log.exception("an offer of %s could not be taken", src)
            return
        self._since[key] = line, self._clock.now()
        try:
            call(connection)
        except Exception:
            log.exception("the handler of an incoming connection failed")
            self._spawn(connection.close())
            return
        self._spawn(self._answer(connection, taken))

    async def _answer(self, connection: RtcConnection, taken: descriptions.Taken) -> None:
        try:
            sdp = await connection.answer(taken)
            self._session.send(
                "ANSWER",
                connection.remote,
                shapes.AnswerPayload(
                    sdp=shapes.Description("answer", sdp), connection_id=connection.connection_id
                ),
            )
        except asyncio.CancelledError:
            await connection.close()
            raise
        except Exception as error:
            log.info("an offer of %s could not be answered: %s", connection.remote, error)
            await connection.close()

    def _spawn(self, job: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(job)
        self._answering.add(task)
        task.add_done_callback(self._answering.discard)

    def _absent(self, src: str) -> None:
        for (remote, _), waiting in list(self._dials.items()):
            if remote == src:
                _fail(
                    waiting,
                    RoomNotFound(
                        f"Nobody is registered as {src} at {self.server}.",
                        "Check the code, and that its host is still running.",
                    ),
                )

    def _unanswered(self, key: Key) -> None:
        waiting = self._dials.get(key)
        if waiting is None:
            return
        if not self._session.is_up:
            _fail(waiting, self._session.down())
        else:
            _fail(
                waiting,
                LinkFailed(
                    f"{key[0]} did not answer in {CONNECT_S:.0f} s.",
                    "Check that it is still running, and try again.",
                ),
            )

    def _outage(self, down: bool) -> None:
        if self.on_outage is not None:
            self.on_outage(down)

    # connections

    def _coming(self, line: Line) -> list[Key]:
        """Connections of one line that are coming to be, the oldest first."""
        return [
            key
            for key, (stood, _) in self._since.items()
            if stood is line and self._connections[key].state in ("new", "connecting")
        ]

    def _new(self, line: Line) -> Counter[str]:
        """The same by device."""
        return Counter(key[0] for key in self._coming(line))

    def _give_way(self, line: Line) -> None:
        """Where all places are taken, those that do not come to be hold theirs for so long while others wait:
        the oldest go, as many as wait.
        """
        coming, now = self._coming(line), self._clock.now()
        if len(coming) < MAX_NEW:
            return
        slow = [key for key in coming if now - self._since[key][1] >= GIVES_WAY_S]
        for key in slow[: len(self._callers[line])]:
            del self._since[key]
            self._spawn(self._connections[key].close())

    def _full(self) -> bool:
        return sum(not c.dialed for c in self._connections.values()) >= MAX_INCOMING

    def _make(self, key: Key, label: str, *, dialed: bool) -> RtcConnection:
        connection = RtcConnection(
            remote=key[0],
            connection_id=key[1],
            label=label,
            dialed=dialed,
            clock=self._clock,
            ice=self._choose_ice(self._session.index),
            stack=self._stack,
        )
        self._connections[key] = connection
        connection.on_released = lambda: self._forget(key)
        return connection

    def _forget(self, key: Key) -> None:
        self._connections.pop(key, None)
        self._since.pop(key, None)


def _label(payload: shapes.OfferPayload) -> str:
    return payload.label or payload.connection_id


def _fail(waiting: asyncio.Future[str], error: Exception) -> None:
    if not waiting.done():
        waiting.set_exception(error)
