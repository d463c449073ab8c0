"""PROTOCOL section 2: whatever is sent to the signaling server ends at most its sender (real sockets)."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import AsyncIterator

import pytest
from tornado.httpclient import HTTPRequest
from tornado.websocket import WebSocketClientConnection, websocket_connect

from pooled_nb.mesh.quota import AddressLimits
from pooled_nb.mesh.signalserver import SignalServer
from pooled_nb.mesh.switchboard import Limits
from tests.mesh.rawsocket import BINARY, CLOSE, PING, PONG, TEXT, frame, handshake, wire
from tests.mesh.rtctools import nothing_left, until


@contextlib.asynccontextmanager
async def running(limits: Limits | None = None, **more) -> AsyncIterator[SignalServer]:
    server = await SignalServer.start(limits=limits, **more)
    try:
        yield server
    finally:
        await server.close()


async def joined(server: SignalServer, id: str, address: str | None = None) -> WebSocketClientConnection:
    headers = {"X-Forwarded-For": address} if address else {}
    return await websocket_connect(
        HTTPRequest(f"{server.url}peerjs?key=peerjs&id={id}&token=sesame", headers=headers)
    )


async def told(socket: WebSocketClientConnection) -> dict | None:
    text = await asyncio.wait_for(socket.read_message(), 20)
    return None if text is None else json.loads(text)


def offer(dst: str, payload: object = "x") -> str:
    return json.dumps({"type": "OFFER", "dst": dst, "payload": payload})


HELLO = json.dumps({"type": "OFFER", "dst": "b", "payload": "split"}).encode()
BAD = {
    "binary": frame(BINARY, b"\xff" * 200),
    "binary json": frame(BINARY, HELLO),
    "not utf-8": frame(TEXT, b"\xff\xfe\xfd"),
    "half a surrogate": frame(TEXT, b"\xed\xa0\x80"),
    "unmasked": frame(TEXT, HELLO, mask=False),
    "never finished": frame(TEXT, b"{", fin=False) + frame(0, b"x" * 1_000, fin=False) * 20,
    "two at once": frame(TEXT, b"{", fin=False) + frame(TEXT, b"}"),
    "nothing to go on with": frame(0, b"x"),
    "many small pieces": frame(TEXT, b"[", fin=False) + frame(0, b"", fin=False) * 5_000 + frame(0, b""),
    "pieces beyond the limit": frame(TEXT, b"x" * 60_000, fin=False) + frame(0, b"x" * 60_000, fin=False) * 2,
    "compressed, as nobody agreed": frame(TEXT, b"\x00" * 100, rsv=4),
    "a reserved bit": frame(TEXT, b"{}", rsv=1),
    "an unknown kind": frame(0x3, b"x"),
    "an unknown control": frame(0xB, b"x"),
    "a control of 200 bytes": bytes([0x89, 0xFE, 0, 200]) + bytes(204),
    "a control in pieces": frame(PING, b"x", fin=False),
    "a length of 2^63": bytes([0x81, 0xFF, 0x7F]) + b"\xff" * 7 + b"1234",
    "the largest length": bytes([0x81, 0xFF]) + b"\xff" * 8 + b"1234",
    "close with half a code": frame(CLOSE, b"\x03"),
    "close with a code that is none": frame(CLOSE, b"\x00\x05"),
    "close with a reserved code": frame(CLOSE, b"\x03\xee"),
    "close with a reason that is no text": frame(CLOSE, b"\x03\xe8\xff\xfe"),
    "close, then more": frame(CLOSE, b"\x03\xe8") + frame(TEXT, HELLO),
    "pongs that nobody asked for": frame(PONG, b"x" * 125) * 500,
    "pings": frame(PING, b"x" * 125) * 500,
    "no frames at all": b"GET / HTTP/1.1\r\n\r\n" * 50,
    "deep": frame(TEXT, b"[" * 60_000),
    "numbers": frame(TEXT, b'{"type":"OFFER","dst":"b","payload":' + b"9" * 50_000 + b"e999}"),
    "twice the same field": frame(TEXT, b'{"type":"OFFER","type":"LEAVE","dst":7,"dst":[]}'),
}


@pytest.mark.parametrize("name", BAD)
async def test_a_bad_frame_ends_at_most_its_sender(name: str, caplog: pytest.LogCaptureFixture) -> None:
    """PROTOCOL section 2: frames of every wrong kind: two others go on talking, and no log has a token."""
    caplog.set_level(logging.INFO)
    async with nothing_left(), running() as server:
        a, b = await joined(server, "a"), await joined(server, "b")
        assert await told(a) == await told(b) == {"type": "OPEN"}
        async with wire(server, handshake("bad")) as bad:
            assert await bad.reader.readuntil(b'{"type":"OPEN"}')
            bad.writer.write(BAD[name])
            await bad.writer.drain()
            await a.write_message(offer("b", name))
            heard = await told(b)
            while heard is not None and heard["src"] == "bad":  # it may have been good enough to be passed on
                heard = await told(b)
            assert heard == {"type": "OFFER", "src": "a", "dst": "b", "payload": name}
        await until(lambda: len(server) == 2)
        a.close()
        b.close()
        await until(lambda: server.held["streams"] == 0)
        assert set(server.held.values()) == {0}
    assert "sesame" not in caplog.text
    assert not [r for r in caplog.records if r.levelno >= logging.WARNING]


async def test_pieces_make_a_message() -> None:
    """PROTOCOL section 2: a message in fragments, with a ping between them, is a message."""
    async with nothing_left(), running() as server:
        b = await joined(server, "b")
        await told(b)
        pieces = [HELLO[i : i + 7] for i in range(0, len(HELLO), 7)]
        async with wire(server, handshake("a")) as a:
            a.writer.write(frame(TEXT, pieces[0], fin=False) + frame(PING, b"?"))
            for piece in pieces[1:]:
                a.writer.write(frame(0, piece, fin=False))
            a.writer.write(frame(0, b""))
            assert (await told(b) or {})["payload"] == "split"
        b.close()


@pytest.mark.parametrize(
    "first",
    [
        b"",
        b"\x16\x03\x01",
        b"GET /peerjs",
        handshake("a")[:-2],
        b"POST /api/turn HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nx",
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    ],
)
async def test_half_a_handshake_is_cut_off(first: bytes) -> None:
    """PROTOCOL section 2: a connection that says nothing, or half of something, is not kept."""
    async with nothing_left(), running(Limits(handshake_s=0.2)) as server, wire(server, first) as slow:
        await slow.ended()
        await until(lambda: server.held["streams"] == 0)


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"GET / HTTP/1.1\r\nHost: x\r\n" + b"X: " + b"y" * 40_000 + b"\r\n\r\n", 0),
        (b"GET / HTTP/1.1\r\nHost: x\r\n" + b"X: y\r\n" * 5_000 + b"\r\n", 0),
        (b"GET /" + b"a" * 40_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n", 0),
        (b"POST /api/turn HTTP/1.1\r\nHost: x\r\nContent-Length: 999999999\r\n\r\n", 0),
        (b"POST /peerjs HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n", 405),
        (b"GET /peerjs?token=sesame HTTP/1.1\r\nHost: x\r\n\r\n", 400),
        (b"GET /%ff/id?token=sesame HTTP/1.1\r\nHost: x\r\n\r\n", 400),
        (b"BREW / HTTP/1.1\r\nHost: x\r\n\r\n", 405),
        (handshake("a").replace(b"Version: 13", b"Version: 99"), 426),
        (handshake("a").replace(b"Sec-WebSocket-Key", b"X"), 400),
    ],
)
async def test_a_bad_request_is_answered_or_cut_off(
    request_: bytes, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    """PROTOCOL section 2: huge headers and bodies, wrong verbs and versions; no log has a token."""
    caplog.set_level(logging.INFO)
    async with nothing_left(), running() as server, wire(server, request_) as bad:
        assert await bad.status() in ({status} if status else {0, 400, 413, 431})
        if not status:
            await bad.ended()
    assert "sesame" not in caplog.text
    assert not [r for r in caplog.records if r.levelno >= logging.WARNING]


@pytest.mark.parametrize("opcode", [PING, PONG, BINARY])
async def test_frames_that_are_no_message_count(opcode: int) -> None:
    """PROTOCOL section 2: pings, pongs and binary frames are no way around the rate of their sender."""
    async with nothing_left(), running(Limits(burst=20)) as server, wire(server, handshake("a")) as a:
        assert await a.reader.readuntil(b'{"type":"OPEN"}')
        a.writer.write(frame(opcode, b"x") * 500)
        assert await asyncio.wait_for(a.reader.readuntil(b"Too many messages"), 20)
        assert len(server) == 0


async def test_compression_is_not_agreed() -> None:
    """PROTOCOL section 2: no message can be a bomb, since none is unpacked."""
    asks = "Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits"
    async with nothing_left(), running() as server, wire(server, handshake("a", asks)) as a:
        said = await a.reader.readuntil(b'{"type":"OPEN"}')
        assert b"deflate" not in said


async def test_a_slow_reader_is_cut_off() -> None:
    """PROTOCOL section 2: what waits for who does not read is bounded, and its sender notices nothing."""
    limits = Limits(unsent=300_000, rate=1e6, burst=10**6, rate_bytes=1e9, burst_bytes=10**9)
    async with nothing_left(), running(limits) as server:
        a = await joined(server, "a")
        await told(a)
        async with wire(server, handshake("slow")) as slow:
            assert await slow.reader.readuntil(b'{"type":"OPEN"}')
            slow.writer.transport.pause_reading()  # type: ignore[attr-defined]  # of a stream's transport
            most = 0
            text = offer("slow", "x" * 100_000)
            for _ in range(2_000):
                await a.write_message(text)
                most = max(most, server.held["unsent"])
                if len(server) == 1:
                    break
                await asyncio.sleep(0)
            await until(lambda: len(server) == 1)
            assert most < 300_000 + 2 * len(text)
        await a.write_message(offer("a", "still here"))
        heard = await told(a)
        while heard is not None and heard["type"] == "EXPIRE":
            heard = await told(a)
        assert heard is not None
        assert heard["payload"] == "still here"
        a.close()
        await until(lambda: server.held["unsent"] == 0)


async def test_many_slow_readers_share_one_bound() -> None:
    """PROTOCOL section 2: what waits for all is bounded, too; who reads keeps its place."""
    limits = Limits(unsent_all=600_000, rate=1e6, burst=10**6, rate_bytes=1e9, burst_bytes=10**9)
    async with nothing_left(), running(limits) as server, contextlib.AsyncExitStack() as stack:
        a = await joined(server, "a")
        await told(a)
        for n in range(3):
            slow = await stack.enter_async_context(wire(server, handshake(f"slow{n}")))
            assert await slow.reader.readuntil(b'{"type":"OPEN"}')
            slow.writer.transport.pause_reading()  # type: ignore[attr-defined]  # of a stream's transport
        most = 0
        for n in range(3_000):
            await a.write_message(offer(f"slow{n % 3}", "x" * 100_000))
            most = max(most, server.held["unsent"])
            if len(server) == 1:
                break
            await asyncio.sleep(0)
        await until(lambda: len(server) <= 2)
        assert most < 1_000_000
        assert server.held["members"] >= 1
        await a.write_message(offer("a", "still here"))
        while (heard := await told(a)) is not None and heard["type"] == "EXPIRE":
            pass
        assert heard is not None
        assert heard["payload"] == "still here"
        a.close()


EACH = AddressLimits(members=2, sockets=8, new_per_min=60, new_burst=100, messages=0.01, messages_burst=20)


async def test_an_address_behind_a_proxy() -> None:
    """PROTOCOL section 2: with a trusted proxy limits are of whom it saw last; the refused one hears why."""
    async with nothing_left(), running(Limits(each=EACH), trusts_proxy=True) as server:
        mine = [await joined(server, f"m{n}", "9.9.9.9, 203.0.113.9") for n in range(3)]
        assert [(await told(m) or {})["type"] for m in mine] == ["OPEN", "OPEN", "ERROR"]
        assert await told(mine[2]) is None
        other = await joined(server, "other", "203.0.113.9, 203.0.113.10")
        assert await told(other) == {"type": "OPEN"}
        mine[0].close()
        await until(lambda: len(server) == 2)
        again = await joined(server, "m9", "1.1.1.1,203.0.113.9")
        assert await told(again) == {"type": "OPEN"}
        for socket in (mine[1], other, again):
            socket.close()


async def test_nobody_says_who_he_is() -> None:
    """PROTOCOL section 2: X-Forwarded-For is not read unless asked: it would let a flood be anybody."""
    async with nothing_left(), running(Limits(each=EACH)) as server:
        mine = [await joined(server, f"m{n}", "203.0.113.9") for n in range(4)]
        assert [(await told(m) or {})["type"] for m in mine] == ["OPEN"] * 4
        assert server.held["addresses"] == 0  # all are this machine
        for socket in mine:
            socket.close()


async def test_too_many_connections() -> None:
    """PROTOCOL section 2: the server's own total; above it a connection is cut off, below it is taken."""
    async with nothing_left(), running(Limits(sockets=3)) as server:
        async with wire(server), wire(server), wire(server, handshake("a")):
            await until(lambda: server.held["streams"] == 3)
            async with wire(server, handshake("b")) as fourth:
                assert await fourth.ended() == b""
        await until(lambda: server.held["streams"] == 0)
        b = await joined(server, "b")
        assert await told(b) == {"type": "OPEN"}
        b.close()


async def test_requests_count_too() -> None:
    """PROTOCOL section 2: an address that asks for ids without end hears 429."""
    line = b"GET /peerjs/id HTTP/1.1\r\nHost: x\r\nX-Forwarded-For: 203.0.113.9\r\nConnection: close\r\n\r\n"
    async with nothing_left(), running(Limits(each=EACH), trusts_proxy=True) as server:
        said = []
        for _ in range(24):
            async with wire(server, line) as one:
                said.append(await one.status())
        assert said[:20] == [200] * 20
        assert said[-1] == 429
        async with wire(server, handshake("a", "X-Forwarded-For: 203.0.113.9")) as one:
            assert await one.status() == 429
        async with wire(server, line.replace(b"113.9", b"113.8")) as one:
            assert await one.status() == 200


async def test_a_flood_leaves_nothing_behind() -> None:
    """PROTOCOL section 2: hundreds of sockets that come, say nonsense and go: counts are back at nothing."""
    async with nothing_left(), running() as server:
        for round_ in range(10):
            async with contextlib.AsyncExitStack() as stack:
                for n in range(30):
                    await stack.enter_async_context(
                        wire(server, handshake(f"m{n}") + frame(TEXT, offer(f"x{round_}-{n}").encode()) * 3)
                    )
        await until(lambda: server.held["streams"] == 0)
        held = server.held
        assert held["members"] == held["sockets"] == held["unsent"] == 0
        assert held["waiting"] <= 30 * 128
