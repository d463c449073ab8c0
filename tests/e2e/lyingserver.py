"""A signaling server that lies on demand, over the switchboard of ours; and a relay in the middle."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

from tornado.httpserver import HTTPServer
from tornado.netutil import bind_sockets
from tornado.web import Application
from tornado.websocket import WebSocketClosedError, WebSocketHandler

from pooled_nb.mesh import descriptions
from pooled_nb.mesh.binarypack import unpack
from pooled_nb.mesh.clock import LoopClock
from pooled_nb.mesh.ice import IcePolicy
from pooled_nb.mesh.rtc import RtcConnection
from pooled_nb.mesh.switchboard import Drop, Limits, Send, Switchboard

Signal = dict[str, Any]
"""One message as it goes out: ``type``, ``src``, ``dst``, ``payload``."""
Lie = Callable[[Signal], list[Signal]]
"""What is delivered in place of one message."""


def honest(signal: Signal) -> list[Signal]:
    return [signal]


class LyingServer:
    """Attributes
    ----------
    lie
        Asked for every message about another device.
    passed
        What came from devices, in order.
    """

    def __init__(self) -> None:
        self.lie: Lie = honest
        self.passed: list[Signal] = []
        self.url = ""
        self._clock = LoopClock()
        self._board = Switchboard(Limits(rate=10_000, burst=10_000))
        self._numbers = itertools.count(1)
        self._sockets: dict[int, _Socket] = {}
        self._ids: dict[str, int] = {}

    def say(self, signal: Signal) -> None:
        """Deliver this to its ``dst`` as if a device had sent it."""
        member = self._ids.get(signal["dst"])
        if member is not None and (socket := self._sockets.get(member)) is not None:
            socket.push(json.dumps(signal))

    def free(self, id: str) -> None:
        """Forget who holds an id, without a word to anybody: the next one may have it."""
        self._board.gone(self._ids.pop(id))

    def offers(self, src: str | None = None) -> list[Signal]:
        return [one for one in self.passed if one["type"] == "OFFER" and src in (None, one["src"])]

    def join(self, socket: _Socket, id: str, token: str) -> int:
        member = next(self._numbers)
        self._sockets[member] = socket
        actions = self._board.join(member, key="peerjs", id=id, token=token, now=self._clock.now())
        if not any(isinstance(action, Drop) for action in actions):
            self._ids[id] = member
        self._do(actions)
        return member

    def received(self, member: int, text: str) -> None:
        self._do(self._board.receive(member, text, self._clock.now()))

    def gone(self, member: int) -> None:
        self._sockets.pop(member, None)
        self._board.gone(member)

    def _do(self, actions: list[Any]) -> None:
        for action in actions:
            match action:
                case Send(member, text):
                    signal = json.loads(text)
                    if signal["type"] not in ("OFFER", "ANSWER", "CANDIDATE"):
                        self._sockets[member].push(text.decode())
                        continue
                    self.passed.append(signal)
                    for told in self.lie(signal):
                        self.say(told)
                case Drop(member):
                    if (socket := self._sockets.get(member)) is not None:
                        socket.close()


class _Socket(WebSocketHandler):
    def initialize(self, server: LyingServer) -> None:
        self._server, self._member = server, 0

    def check_origin(self, origin: str) -> bool:
        return True

    def open(self, *args: str, **kwargs: str) -> None:
        self._member = self._server.join(
            self, self.get_query_argument("id"), self.get_query_argument("token")
        )

    def on_message(self, message: str | bytes) -> None:
        if isinstance(message, str):
            self._server.received(self._member, message)

    def on_close(self) -> None:
        self._server.gone(self._member)

    def push(self, text: str) -> None:
        with contextlib.suppress(WebSocketClosedError):
            sent = asyncio.ensure_future(self.write_message(text))
            sent.add_done_callback(lambda f: f.cancelled() or f.exception())


@contextlib.asynccontextmanager
async def lying_server() -> AsyncIterator[LyingServer]:
    lying = LyingServer()
    server = HTTPServer(Application([("/peerjs", _Socket, {"server": lying})]))
    sockets = bind_sockets(0, "127.0.0.1", reuse_port=False)
    server.add_sockets(sockets)
    lying.url = f"ws://127.0.0.1:{sockets[0].getsockname()[1]}/"
    try:
        yield lying
    finally:
        server.stop()
        for socket in list(lying._sockets.values()):
            socket.close()
        await server.close_all_connections()


class Middle:
    """A relay in the middle: answers the victim in the creator's name, and dials the creator in the victim's.

    Each end gets a connection of its own, with a certificate of its own; every byte of the control channel
    is handed on, but messages of the types in `swallows` that the creator says.
    """

    def __init__(self, server: LyingServer, creator: str) -> None:
        self._server, self._creator = server, creator
        self._jobs: set[asyncio.Task[None]] = set()
        self._far: dict[str, RtcConnection] = {}
        self._made: list[RtcConnection] = []
        self.swallows: tuple[str, ...] = ()
        self.near: RtcConnection | None = None
        """Its end of the victim's link."""
        server.lie = self._lie

    def _lie(self, signal: Signal) -> list[Signal]:
        cid = signal["payload"]["connectionId"]
        if signal["type"] == "OFFER" and signal["dst"] == self._creator:
            self._spawn(self._between(signal))
            return []
        if signal["type"] == "ANSWER" and (far := self._far.get(cid)) is not None:
            self._spawn(far.accept(descriptions.take(signal["payload"]["sdp"]["sdp"])))
            return []
        return [signal]

    async def _between(self, offer: Signal) -> None:
        victim, cid, label = offer["src"], offer["payload"]["connectionId"], offer["payload"]["label"]
        near, far = (
            self._make(victim, cid, label, dialed=False),
            self._make(self._creator, cid, label, dialed=True),
        )
        self.near, self._far[cid] = near, far
        early: list[bytes] = []

        def to_far(data: bytes) -> None:
            far.control.send(data) if far.control.is_open else early.append(data)

        def flush() -> None:
            for data in early:
                far.control.send(data)
            early.clear()

        near.control.on_message, far.control.on_open = to_far, flush
        far.control.on_message = lambda data: self._to_near(near, data)
        answer = await near.answer(descriptions.take(offer["payload"]["sdp"]["sdp"]))
        payload = {"sdp": {"type": "answer", "sdp": answer}, "type": "data", "connectionId": cid}
        self._server.say({"type": "ANSWER", "src": self._creator, "dst": victim, "payload": payload})
        forged = {**offer["payload"], "sdp": {"type": "offer", "sdp": await far.offer()}}
        self._server.say({"type": "OFFER", "src": victim, "dst": self._creator, "payload": forged})

    def _to_near(self, near: RtcConnection, data: bytes) -> None:
        message = unpack(data)
        if not (isinstance(message, dict) and message.get("t") in self.swallows):
            near.control.send(data)

    def _make(self, remote: str, cid: str, label: str, *, dialed: bool) -> RtcConnection:
        connection = RtcConnection(
            remote=remote,
            connection_id=cid,
            label=label,
            dialed=dialed,
            clock=LoopClock(),
            ice=IcePolicy.local(),
        )
        self._made.append(connection)
        return connection

    def _spawn(self, job: Any) -> None:
        task = asyncio.ensure_future(job)
        self._jobs.add(task)
        task.add_done_callback(self._jobs.discard)

    async def close(self) -> None:
        self._server.lie = honest
        await asyncio.gather(*self._jobs, return_exceptions=True)
        await asyncio.gather(*(connection.close() for connection in self._made))


def swapped(sdp: str) -> str:
    """The description with another certificate's fingerprint."""
    return _fingerprints(sdp, lambda line: [line[:-2] + ("00" if not line.endswith("00") else "01")])


def doubled(sdp: str) -> str:
    """The description with a second fingerprint."""
    return _fingerprints(sdp, lambda line: [line, line[:-2] + ("00" if not line.endswith("00") else "01")])


def _fingerprints(sdp: str, change: Callable[[str], list[str]]) -> str:
    lines: list[str] = []
    for line in sdp.split("\r\n"):
        lines += change(line) if line.startswith("a=fingerprint:") else [line]
    return "\r\n".join(lines)


def with_sdp(signal: Signal, change: Callable[[str], str]) -> Signal:
    """The same message with another description."""
    payload = signal["payload"]
    changed = {**payload["sdp"], "sdp": change(payload["sdp"]["sdp"])}
    return {**signal, "payload": {**payload, "sdp": changed}}


def candidate(src: str, dst: str, cid: str, port: int) -> Signal:
    """One more way to ``src``, where nobody is."""
    line = f"candidate:{port} 1 udp 2122252543 127.0.0.1 {port} typ host"
    payload = {"candidate": {"candidate": line, "sdpMid": "0"}, "type": "data", "connectionId": cid}
    return {"type": "CANDIDATE", "src": src, "dst": dst, "payload": payload}
