"""What the tests of the real network share: clocks, a server, and the check for what was left behind."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from tornado.websocket import WebSocketClientConnection, websocket_connect

from pooled_nb.mesh import descriptions, stacks
from pooled_nb.mesh.clock import Clock, LoopClock, Timer
from pooled_nb.mesh.endpoint import RtcEndpoint
from pooled_nb.mesh.ice import IcePolicy
from pooled_nb.mesh.network import Channel, Connection
from pooled_nb.mesh.rtc import RtcConnection
from pooled_nb.mesh.rtcnetwork import RtcNetwork
from pooled_nb.mesh.signalserver import SignalServer

STACKS = [
    pytest.param(
        name,
        marks=pytest.mark.skipif(
            name not in stacks.available(), reason=f"the package {name} is not installed"
        ),
    )
    for name in stacks.NAMES
]
"""Each WebRTC stack, for a test that runs over all of them."""


class FastClock:
    """The loop's clock, ``speed`` times as fast: a back-off of 2 s takes 2 s / speed."""

    def __init__(self, speed: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._speed = speed

    def now(self) -> float:
        return self._loop.time() * self._speed

    def call_later(self, delay: float, callback: Callable[[], None]) -> Timer:
        return self._loop.call_later(delay / self._speed, callback)

    async def sleep(self, delay: float) -> None:
        await asyncio.sleep(delay / self._speed)


class HandClock:
    """A clock that moves when told to."""

    def __init__(self) -> None:
        self._now = 0.0
        self._timers: list[_HandTimer] = []

    def now(self) -> float:
        return self._now

    def call_later(self, delay: float, callback: Callable[[], None]) -> Timer:
        timer = _HandTimer(self._now + delay, callback)
        self._timers.append(timer)
        return timer

    async def sleep(self, delay: float) -> None:
        done = asyncio.Event()
        self.call_later(delay, done.set)
        await done.wait()

    def advance(self, seconds: float) -> None:
        self._now += seconds
        due = sorted((t for t in self._timers if t.at <= self._now), key=lambda t: t.at)
        self._timers = [t for t in self._timers if t.at > self._now]
        for timer in due:
            if not timer.cancelled:
                timer.callback()


class _HandTimer:
    def __init__(self, at: float, callback: Callable[[], None]) -> None:
        self.at, self.callback, self.cancelled = at, callback, False

    def cancel(self) -> None:
        self.cancelled = True


async def until(what: Callable[[], Any], seconds: float = 20.0) -> None:
    """Wait for a condition; the bound only ends a test that hangs."""
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end, "this never came true"
        await asyncio.sleep(0.005)


@contextlib.asynccontextmanager
async def nothing_left() -> AsyncIterator[None]:
    """Whatever ran inside, no task of it is alive afterwards."""
    before = asyncio.all_tasks()
    yield
    with contextlib.suppress(AssertionError):
        await until(lambda: not asyncio.all_tasks() - before, 7.0)
    left = asyncio.all_tasks() - before
    assert not left, f"left behind: {left}"


@contextlib.asynccontextmanager
async def served(clock: Clock | None = None, port: int = 0) -> AsyncIterator[SignalServer]:
    server = await SignalServer.start(port=port, clock=clock)
    try:
        yield server
    finally:
        await server.close()


@contextlib.asynccontextmanager
async def registered(
    *servers: str,
    id: str | None = None,
    token: str | None = None,
    clock: Clock | None = None,
    transport: str = stacks.DEFAULT,
) -> AsyncIterator[RtcEndpoint]:
    """An endpoint over loopback; its connections are closed with it."""
    network = RtcNetwork(clock or LoopClock(), IcePolicy.local(), transport=transport)
    endpoint = await network.register(id, list(servers), token=token)
    try:
        yield endpoint
    finally:
        connections = list(endpoint._connections.values())
        await endpoint.close()
        await asyncio.gather(*(c.close() for c in connections))


class Inbox:
    """What a channel received, in order."""

    def __init__(self, channel: Channel) -> None:
        self._queue: asyncio.Queue[bytes] = asyncio.Queue()
        channel.on_message = self._queue.put_nowait

    async def get(self) -> bytes:
        return await asyncio.wait_for(self._queue.get(), 20)


async def opened(*connections: Connection) -> None:
    for connection in connections:
        await until(
            lambda c=connection: c.control.is_open and c.wire.is_open and c.keepalive.is_open  # type: ignore[misc]
        )


class Pair:
    """Makes both ends of a connection, without signaling; of one stack each."""

    def __init__(self, near: str, far: str) -> None:
        self.stacks = stacks.get(near), stacks.get(far)

    def __call__(
        self, clock: Clock | None = None, label: str = "dc_1", ice: IcePolicy | None = None
    ) -> tuple[RtcConnection, RtcConnection]:
        clock, ice = clock or LoopClock(), ice or IcePolicy.local()
        return self.end(0, clock, label, ice), self.end(1, clock, label, ice)

    def end(self, side: int, clock: Clock, label: str, ice: IcePolicy) -> RtcConnection:
        """The dialer is 0, the dialed 1."""
        return RtcConnection(
            remote=("far", "near")[side],
            connection_id="dc_1",
            label=label,
            dialed=side == 0,
            clock=clock,
            ice=ice,
            stack=self.stacks[side],
        )


async def join(near: RtcConnection, far: RtcConnection) -> None:
    answer = await far.answer(descriptions.take(await near.offer()))
    await near.accept(descriptions.take(answer))
    await opened(near, far)


async def close(*connections: Connection) -> None:
    await asyncio.gather(*(c.close() for c in connections))


async def linked(a: RtcEndpoint, b: RtcEndpoint, label: str = "") -> tuple[Connection, Connection]:
    """``a`` dials ``b``; both ends, open."""
    incoming: asyncio.Queue[Connection] = asyncio.Queue()
    b.on_connection = incoming.put_nowait
    near = await a.dial(b.id, label=label)
    far = await asyncio.wait_for(incoming.get(), 20)
    await opened(near, far)
    return near, far


ROOM = "pooled-room-4TKG9P"


class Raw:
    """A client that says whatever it likes."""

    def __init__(self) -> None:
        self.heard: asyncio.Queue[str | bytes | None] = asyncio.Queue()
        self.socket: WebSocketClientConnection

    async def say(self, text: str) -> None:
        await self.socket.write_message(text)

    async def hear(self, type: str) -> dict:
        while True:
            text = await asyncio.wait_for(self.heard.get(), 20)
            assert text is not None
            if (message := json.loads(text))["type"] == type:
                return message

    def close(self) -> None:
        self.socket.close()


async def raw(server: SignalServer, id: str) -> Raw:
    peer = Raw()
    peer.socket = await websocket_connect(
        f"{server.url}peerjs?key=peerjs&id={id}&token=t&version=1.5.5",
        on_message_callback=peer.heard.put_nowait,
    )
    await peer.hear("OPEN")
    return peer


async def offer_text(cid: str = "dc_1") -> tuple[RtcConnection, dict]:
    """A real offer, and the connection that made it."""
    connection = RtcConnection(
        remote=ROOM, connection_id=cid, label=cid, dialed=True, clock=LoopClock(), ice=IcePolicy.local()
    )
    return connection, {
        "sdp": {"type": "offer", "sdp": await connection.offer()},
        "type": "data",
        "connectionId": cid,
        "label": cid,
        "reliable": True,
        "serialization": "binary",
    }


def said(type: str, payload: object = None, dst: str = ROOM) -> str:
    return json.dumps({"type": type, "dst": dst, "payload": payload})
