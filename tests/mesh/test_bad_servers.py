"""PROTOCOL section 2: servers that answer nonsense, or nothing: the next one is tried, the reason is told."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import ssl
import tracemalloc
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from tornado.httpserver import HTTPServer
from tornado.netutil import bind_sockets
from tornado.web import Application
from tornado.websocket import WebSocketHandler

from pooled_nb.errors import RoomError, RoomNotFound, SignalingDown
from pooled_nb.mesh.clock import LoopClock
from pooled_nb.mesh.gatekeeper import GateSettings
from pooled_nb.mesh.ice import IcePolicy
from pooled_nb.mesh.mesh import Mesh
from pooled_nb.mesh.messages.link import DeviceMeta
from pooled_nb.mesh.newcomer import Credentials
from pooled_nb.mesh.peerjs import client
from pooled_nb.mesh.peerjs.session import Session
from pooled_nb.mesh.rtcnetwork import DRAWS, RtcNetwork
from pooled_nb.mesh.signalserver import SignalServer
from pooled_nb.mesh.specs import parse
from pooled_nb.mesh.switchboard import Limits
from pooled_nb.mesh.tls import Certificate
from tests.mesh import certificates
from tests.mesh.recorder import CODE, BothGates, Recorder
from tests.mesh.rtctools import FastClock, linked, nothing_left, registered, served

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Coroutine[Any, Any, None]]


def session(*urls: str, clock: Any = None, resumes: bool = False) -> Session:
    servers = [parse(u) for u in urls]
    return Session(
        clock or LoopClock(),
        [s.socket_url("alpha", "sesame") for s in servers],
        [s.shown for s in servers],
        id="alpha",
        resumes=resumes,
        on_message=lambda message: None,
        on_outage=lambda down: None,
    )


@contextlib.asynccontextmanager
async def tcp(serve: Serve, tls: ssl.SSLContext | None = None) -> AsyncIterator[str]:
    """A server of its own kind, and ``host:port``."""
    writers: list[asyncio.StreamWriter] = []

    async def run(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            await serve(reader, writer)

    server = await asyncio.start_server(run, "127.0.0.1", 0, ssl=tls)
    try:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for writer in writers:
            writer.close()


def says(data: bytes) -> Serve:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(data)
        await writer.drain()
        writer.close()

    return serve


ANSWERS = {
    "closes": (b"", "socket-closed"),
    "garbage": (b"\x00\xff" * 90 + b"\r\n\r\n", "socket-error: this is no signaling server"),
    "another protocol": (b"SSH-2.0-x\r\n", "socket-closed"),
    "a page": (
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi",
        "socket-error: this is no signaling server",
    ),
    "not here": (b"HTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n", "server-error: HTTP 404"),
    "too busy": (b"HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n", "server-error: HTTP 503"),
    "a handshake with another key": (
        b"HTTP/1.1 101 S\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: x\r\n\r\n",
        "socket-error: this is no signaling server",
    ),
    "half a handshake": (b"HTTP/1.1 101 S\r\n\r\n", "socket-error: this is no signaling server"),
    "headers without end": (
        b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 20_000,
        "socket-error: this is no signaling server",
    ),
}


@pytest.mark.parametrize("name", ANSWERS)
async def test_an_answer_that_is_none_moves_on(name: str, caplog: pytest.LogCaptureFixture) -> None:
    """PROTOCOL section 2: "An outage … moves on"; which one is said in a word, and nothing is logged."""
    data, why = ANSWERS[name]
    async with nothing_left(), tcp(says(data)) as bad, served() as good:
        one = session(f"ws://{bad}", good.url)
        await one.register()
        assert one.server == good.url
        await one.close()
        with pytest.raises(SignalingDown) as caught:
            await session(f"ws://{bad}").register()
        assert caught.value.what == f"No signaling server answers: ws://{bad} ({why})."
    assert "sesame" not in caplog.text
    assert not [r for r in caplog.records if r.levelno >= logging.WARNING]


async def test_nobody_is_sent_elsewhere() -> None:
    """PROTOCOL section 2: a redirect is not followed: the token goes to the server that was named, only."""
    async with nothing_left(), served() as other:
        http = other.url.replace("ws://", "http://")
        answer = f"HTTP/1.1 307 Moved\r\nLocation: {http}peerjs\r\nContent-Length: 0\r\n\r\n".encode()
        async with tcp(says(answer)) as bad:
            with pytest.raises(SignalingDown, match="it points elsewhere, HTTP 307"):
                await session(f"ws://{bad}").register()
        assert other.held["streams"] == 0


async def test_a_page_without_end_is_not_kept() -> None:
    """PROTOCOL section 2: what a server sends instead of a handshake takes no memory."""
    sent = 0

    async def endless(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n")
        while sent < 40_000_000:
            writer.write(bytes(100_000))
            sent += 100_000
            await writer.drain()
        writer.close()

    async with nothing_left(), tcp(endless) as bad:
        tracemalloc.start()
        try:
            with pytest.raises(SignalingDown):
                await session(f"ws://{bad}").register()
            most = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert sent == 40_000_000
    assert most < 8_000_000


async def test_every_server_and_why(unused_tcp_port: int) -> None:
    """PROTOCOL section 2: "A joiner that finds no such room on one goes on down the list": in the end it
    hears of every server that was tried, in order, and what was wrong with each.
    """
    dead = f"ws://127.0.0.1:{unused_tcp_port}"
    fast = FastClock(20)  # for the 5 s after which a message to nobody comes back
    async with (
        nothing_left(),
        served(fast) as one,
        served(fast) as two,
        tcp(says(ANSWERS["not here"][0])) as bad,
    ):
        recorder = Recorder()
        recorder.gates = BothGates(GateSettings(), Credentials())
        recorder.mesh = Mesh(
            network=RtcNetwork(LoopClock(), IcePolicy.local()),
            clock=LoopClock(),
            name="late",
            meta=DeviceMeta(),
            listener=recorder,
            gates=recorder.gates,
        )
        with pytest.raises(RoomNotFound) as caught:
            await recorder.mesh.join(CODE, [dead, one.url, f"ws://{bad}", two.url, dead])
        refused, unknown = "(network: connection refused)", "(no such room)"
        assert caught.value.what == (
            f"No room answers under this code: {dead} {refused}, {one.url} {unknown}, "
            f"ws://{bad} (server-error: HTTP 404), {two.url} {unknown}, {dead} {refused}."
        )
        await recorder.mesh.leave()
        assert len(one) == len(two) == 0


class _Mute(WebSocketHandler):
    """Accepts, and says what it is told to."""

    def initialize(self, lines: list[str | bytes], heard: list[str]) -> None:
        self._lines, self._heard = lines, heard

    async def open(self, *args: str, **kwargs: str) -> None:
        self._heard.append(self.get_query_argument("id"))
        for line in self._lines:
            await self.write_message(line, binary=isinstance(line, bytes))

    def on_message(self, message: str | bytes) -> None:
        pass


@contextlib.asynccontextmanager
async def websocket(*lines: str | bytes) -> AsyncIterator[tuple[str, list[str]]]:
    """A server that says these to whoever comes; its URL, and the ids that came."""
    heard: list[str] = []
    sockets = bind_sockets(0, "127.0.0.1")
    http = HTTPServer(Application([(r"/peerjs", _Mute, {"lines": lines, "heard": heard})]))
    http.add_sockets(sockets)
    try:
        yield f"ws://127.0.0.1:{sockets[0].getsockname()[1]}", heard
    finally:
        http.stop()
        await http.close_all_connections()


@pytest.mark.parametrize(
    "lines",
    [
        (),
        ("", "null", "[]", "{", '{"type":"NEWS"}', '{"type":7}', "\x00" * 1_000, "x" * 100_000),
        (b'{"type":"NEWS"}', b"\xff" * 500),
        ('{"type":"OFFER","src":"x","payload":{}}', '{"type":"EXPIRE","src":"x"}'),
    ],
    ids=["silent", "garbage", "bytes", "too early"],
)
async def test_a_server_that_never_registers_us_is_left(lines: tuple[str | bytes, ...]) -> None:
    """PROTOCOL section 2: "no answer in 8 s": an open socket and any talk are no registration."""
    async with nothing_left(), websocket(*lines) as (mute, heard), served() as good:
        one = session(mute, good.url, clock=FastClock(40))
        await one.register()
        assert one.server == good.url
        assert heard == ["alpha"]
        await one.close()
        # A kept token is no reason to believe one that says nothing; one that passes messages on has our id.
        for resumes in {False, not any("EXPIRE" in str(line) for line in lines)}:
            with pytest.raises(SignalingDown, match="no answer"):
                await session(mute, clock=FastClock(80), resumes=resumes).register()


async def test_a_servers_own_words_are_cleaned() -> None:
    """PROTOCOL section 2: what a server says about its refusal is one short line for people, without control
    characters.
    """
    words = "full \x1b[31m<b>now</b>\r\n" + "x" * 900
    error = json.dumps({"type": "ERROR", "payload": {"msg": words}})
    taken = json.dumps({"type": "ID-TAKEN", "payload": {"msg": words}})
    async with nothing_left(), websocket(error) as (bad, _):
        with pytest.raises(SignalingDown) as caught:
            await session(bad).register()
        assert "server-error: full [31m<b>now</b> xxx" in caught.value.what
        assert caught.value.what.isprintable()
        assert len(caught.value.what) < 250
    async with nothing_left(), websocket(taken) as (bad, _):
        with pytest.raises(RoomError) as refused:
            await session(bad).register()
        assert refused.value.what.isprintable()
        assert len(refused.value.what) < 300


async def test_a_drawn_id_that_is_taken_is_drawn_anew() -> None:
    """PROTOCOL section 2: "every other device under a random id": one that is taken is drawn anew."""
    taken = '{"type":"ID-TAKEN","payload":{"msg":"ID is taken"}}'
    async with nothing_left(), websocket(taken) as (bad, heard):
        network = RtcNetwork(LoopClock(), IcePolicy.local())
        with pytest.raises(RoomError, match="does not give this id: ID is taken") as caught:
            await network.register(None, [bad])
        assert "another signaling server" in caught.value.next_step
        assert len(set(heard)) == DRAWS
        heard.clear()
        with pytest.raises(RoomError, match="ID is taken"):
            await network.register("pooled-room-4TKG9P", [bad])
        assert heard == ["pooled-room-4TKG9P"]  # the creator's id is the room's: there is no other


async def test_over_tls(tmp_path: Path) -> None:
    """PROTOCOL section 2: ``wss://…``: register, and be dialed, over TLS."""
    files = certificates.make(tmp_path, "127.0.0.1")
    server = await SignalServer.start(tls=Certificate(*files).context)
    assert server.url.startswith("wss://127.0.0.1:")
    async with nothing_left():
        with certificates.trusted(files[0]):
            async with (
                registered(server.url, id="pooled-room-4TKG9P") as host,
                registered(server.url) as device,
            ):
                assert host.server == server.url
                await linked(device, host)
    await server.close()


@pytest.mark.parametrize(
    ("names", "days", "trust", "why"),
    [
        (("127.0.0.1",), 1, False, "its certificate is not accepted, self-signed certificate"),
        (("127.0.0.1",), -1, True, "its certificate is not accepted, certificate has expired"),
        (("other.example",), 1, True, "its certificate is not accepted, IP address mismatch"),
    ],
)
async def test_a_bad_certificate_is_named(
    names: tuple[str, ...],
    days: int,
    trust: bool,
    why: str,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """PROTOCOL section 2: "``ssl-unavailable``" moves on, and says what is wrong with the certificate."""
    files = certificates.make(tmp_path, *names, days=days)
    server = await SignalServer.start(tls=Certificate(*files).context)
    async with nothing_left(), served() as good, registered(good.url) as other:
        with certificates.trusted(files[0]) if trust else contextlib.nullcontext():
            with pytest.raises(SignalingDown, match=f"ssl-unavailable: {why}"):
                await session(server.url).register()
            one = session(server.url, good.url)
            await one.register()
        assert one.server == other.server == good.url
        await one.close()
    await server.close()


async def test_no_tls_where_it_is_expected(caplog: pytest.LogCaptureFixture) -> None:
    """PROTOCOL section 2: the plain server under ``wss://``, and the other way round, each in words."""

    async def web(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(100)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await writer.drain()
        writer.close()

    plain = await SignalServer.start(limits=Limits(handshake_s=0.2))
    async with nothing_left(), tcp(web) as other:
        for url in (plain.url.replace("ws://", "wss://"), f"wss://{other}"):
            with pytest.raises(SignalingDown, match="ssl-unavailable: it does not speak TLS"):
                await session(url).register()
    await plain.close()
    assert not [r for r in caplog.records if r.levelno >= logging.WARNING]


async def test_the_times_are_those_of_the_protocol() -> None:
    """PROTOCOL section 2: "no answer in 8 s, 20 s for the last", and a reconnection gets 8 s, too."""
    assert (client.ANSWER_S, client.LAST_ANSWER_S) == (8.0, 20.0)
    assert client.BACKOFF_S == (2.0, 4.0, 8.0, 16.0, 30.0)
