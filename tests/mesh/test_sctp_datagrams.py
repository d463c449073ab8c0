"""The short way of datagrams, between sockets and associations (DESIGN section 4)."""

from __future__ import annotations

import asyncio
import gc
import socket
import time
import weakref
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import aioice.ice
import pytest
from aiortc import RTCPeerConnection

from pooled_nb.mesh.sctp import datagrams, turns
from pooled_nb.mesh.sctp.dtls import MAX_QUEUED
from pooled_nb.mesh.sctp.reading import Reader
from tests.mesh.rtctools import until
from tests.mesh.sctppair import connected, echoed
from tests.mesh.sctpquick import DTLS, HOST, STUN, Quick, Sink, quickened


@pytest.fixture
async def quick() -> AsyncIterator[Quick]:
    async with quickened() as made:
        yield made


async def test_up_to_64_a_wake_up_and_one_end_for_all_of_them(quick: Quick) -> None:
    sent = [DTLS + n.to_bytes(2, "big") for n in range(100)]
    quick.send(*sent)
    await until(lambda: len(quick.taken) == len(sent))
    assert quick.taken == sent
    assert quick.batches[:2] == [64, 36]


@pytest.mark.parametrize("first", [0, 3, 4, 15, 19, 20, 63, 64, 79, 127, 128, 191, 192, 255])
async def test_told_apart_by_the_first_byte(quick: Quick, first: int) -> None:
    """RFC 7983 section 7: STUN and RTP to aioice, DTLS to us, the rest to nobody."""
    quick.send(bytes([first]) + b"x", b"", DTLS + b"end")
    await until(lambda: DTLS + b"end" in quick.taken)
    assert [bool(quick.sink.stock), len(quick.taken) == 2] == [
        first <= 3 or 128 <= first <= 191,
        20 <= first <= 63,
    ]


async def test_what_a_parser_stumbles_on_ends_nothing(quick: Quick) -> None:
    heard: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: heard.append(context))
    quick.send(STUN + b"!", DTLS)
    await until(lambda: quick.taken)
    assert (quick.sink.stock, heard) == ([STUN + b"!"], [])


async def test_a_busy_socket_lets_others_in(quick: Quick, monkeypatch: pytest.MonkeyPatch) -> None:
    """A turn of the loop is bounded in time: where datagrams take long, few of them are taken in it."""
    monkeypatch.setattr(turns, "TURN_S", 0.0)
    monkeypatch.setattr(turns, "LEAST_S", 0.0)
    quick.send(*[DTLS] * 20)
    seen: list[int] = []

    def look() -> None:
        seen.append(len(quick.taken))
        if len(quick.taken) < 20:
            asyncio.get_running_loop().call_soon(look)

    look()
    await until(lambda: len(quick.taken) == 20)
    assert set(quick.batches) <= {0, 1}
    assert set(range(1, 20)) <= set(seen)


async def test_a_socket_that_fails_is_read_again(quick: Quick) -> None:
    """An ICMP error comes back as an error of the next read, and says nothing about the path in use."""
    reader = Reader(quick.sink.transport, quick.begun, quick.ended)
    real = reader._read
    failed: list[bool] = []

    def read(by: Any) -> Any:
        if not failed:
            failed.append(True)
            raise ConnectionRefusedError
        return real(by)

    reader._read = read
    quick.send(DTLS)
    await until(lambda: quick.taken)
    assert [type(error) for error in quick.sink.errors] == [ConnectionRefusedError]


async def test_reading_ends_with_the_transport(quick: Quick) -> None:
    """Also in the middle of a batch."""
    quick.slow = quick.sink.transport.close
    quick.send(DTLS, DTLS, DTLS)
    await until(lambda: quick.taken)
    await asyncio.sleep(0.02)
    assert quick.taken == [DTLS]


def test_a_turn_is_shared() -> None:
    """Sockets that are ready in one turn share its time, by how many there were in the last one."""
    soon: list[Any] = []
    shared = turns.Turns(soon.append, lambda: 100.0)
    assert [shared.until() - 100.0 for _ in range(4)] == pytest.approx(
        [turns.TURN_S, turns.TURN_S / 2, turns.TURN_S / 3, turns.TURN_S / 4]
    )
    assert len(soon) == 1
    soon.pop()()
    assert shared.until() - 100.0 == pytest.approx(turns.TURN_S / 4)
    soon.pop()()
    assert shared.until() - 100.0 == pytest.approx(turns.TURN_S)
    for _ in range(1000):
        least = shared.until() - 100.0
    assert least == pytest.approx(turns.LEAST_S)


async def test_a_loop_that_is_over_is_forgotten() -> None:
    own: list[weakref.ref[asyncio.AbstractEventLoop]] = []

    def other() -> None:
        async def ask() -> None:
            turns.here().until()
            own.append(weakref.ref(asyncio.get_running_loop()))

        asyncio.run(ask())

    await asyncio.to_thread(other)
    gc.collect()
    assert own[0]() is None, "the table holds its key"


async def test_what_does_not_fit_is_lost(quick: Quick) -> None:
    """As in the network: SCTP sends it again. No buffer grows, nothing raises, nothing waits."""
    transport = quick.sink.transport
    real = transport._sock
    sent: list[bytes] = []
    answers: list[BaseException | None] = [BlockingIOError(), InterruptedError(), OSError(90, "long"), None]

    def sendto(data: bytes, address: Any) -> None:
        sent.append(data)
        if (error := answers.pop(0)) is not None:
            raise error

    transport._sock = SimpleNamespace(sendto=sendto, sendmsg=None)
    try:
        put = datagrams.way(SimpleNamespace(protocol=quick.sink, remote_addr=(HOST, 9)))
        for n in range(4):
            put(bytes([n]), 1)
    finally:
        transport._sock = real
    assert len(sent) == 4
    assert [error.errno for error in quick.sink.errors if isinstance(error, OSError)] == [90]
    assert transport.get_write_buffer_size() == 0


class Relay:
    """aioice's client of a relay, as far as datagrams know it."""

    def __init__(self, sink: Sink) -> None:
        self.peer_to_channel: dict[Any, int] = {}
        self.peer_connect_waiters: dict[Any, list[Any]] = {}
        self.channel_refresh_at: dict[int, float] = {}
        self.transport = sink.transport
        self.direct: list[bytes] = []
        self.slowly: list[bytes] = []
        self._send = self.direct.append
        outer = SimpleNamespace(
            _TurnTransport__inner_protocol=self,
            _TurnTransport__close_task=None,
            sendto=lambda data, address: self.slowly.append(data),
        )
        self.outer: Any = outer
        protocol = SimpleNamespace(transport=outer)
        self._put = datagrams.way(SimpleNamespace(protocol=protocol, remote_addr=("192.0.2.1", 5)))

    def put(self, *data: bytes) -> None:
        self._put(b"".join(data), len(data[0]))


async def test_by_a_relay_through_its_channel(quick: Quick, monkeypatch: pytest.MonkeyPatch) -> None:
    """RFC 8656 section 12: bound first, by aioice; then at once; refreshed by one datagram, not by each."""
    relay, to = Relay(quick.sink), ("192.0.2.1", 5)
    relay.put(b"a")
    relay.peer_connect_waiters[to] = []
    relay.peer_to_channel[to] = 0x4000
    relay.put(b"b")
    assert (relay.slowly, relay.direct) == ([b"a", b"b"], [])
    del relay.peer_connect_waiters[to]
    relay.channel_refresh_at[0x4000] = time.time() + 500
    relay.put(b"cd", b"ef", b"g")
    assert relay.direct == [b"\x40\x00\x00\x02cd", b"\x40\x00\x00\x02ef", b"\x40\x00\x00\x01g"]
    relay.channel_refresh_at[0x4000] = 0.0
    relay.put(b"e")
    relay.put(b"f")
    assert relay.slowly == [b"a", b"b", b"e"]
    assert relay.direct[3:] == [b"\x40\x00\x00\x01f"]
    relay.outer._TurnTransport__close_task = object()
    relay.put(b"g")
    assert (len(relay.slowly), len(relay.direct)) == (3, 4)


async def test_larger_buffers_where_the_system_allows() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16_384)
        before = sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
        datagrams.widen(SimpleNamespace(get_extra_info=lambda name: sock))
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) > before


async def test_a_system_that_allows_no_larger_buffers() -> None:
    asked: list[int] = []

    def no(level: int, option: int, size: int) -> None:
        asked.append(size)
        raise OSError(105, "No buffer space available")

    sock = SimpleNamespace(type=socket.SOCK_DGRAM, getsockopt=lambda *a: 9_000, setsockopt=no)
    datagrams.widen(SimpleNamespace(get_extra_info=lambda name: sock))
    datagrams.widen(SimpleNamespace(get_extra_info=lambda name: None))
    assert asked == [*datagrams.BUFFERS, *datagrams.BUFFERS]


# whole connections


async def test_with_each_kind_of_the_other_end() -> None:
    """Tuned or stock, each end for itself: on the wire they are the same."""
    async with connected(other=RTCPeerConnection) as (near, far):
        await echoed(near, far, b"x" * 60_000)


async def test_one_at_a_time_where_the_loop_is_of_another_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    """uvloop's and Windows' transports have no socket that can be read here."""
    monkeypatch.setattr(datagrams, "is_selected", lambda transport: False)
    async with connected() as (near, far):
        await echoed(near, far, b"x" * 60_000)
        assert far.dtls._is_quick


async def test_noise_ends_no_connection() -> None:
    """Anybody can send to the port: nothing, garbage, records of another connection, half of one."""
    async with connected() as (near, far):
        record = b"\x17\xfe\xfd\x00\x01\x00\x00\x00\x00\x00\x01\x00\x20"
        noise = [b"", b"\x17", record, record + b"x" * 32, record + b"x" * 300, b"\x3f" * 40, b"\x15" * 50]
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.bind((HOST, 0))
            for _ in range(3):
                for one in noise:
                    sock.sendto(one, far.address)
                await echoed(near, far, b"still there")
        assert far.pc.connectionState == "connected"


async def test_what_comes_before_the_handshake_is_bounded() -> None:
    """aioice keeps it without an end; an empty datagram would even end aiortc's handshake."""
    async with connected() as (near, _):
        near.dtls._is_quick = False
        near.ice._queue.put_nowait((STUN, 1))
        for _ in range(MAX_QUEUED * 2):
            near.ice.data_received(DTLS, 1)
            near.ice.data_received(b"", 1)
        assert near.ice._queue.qsize() == MAX_QUEUED
        assert all(data for data, _ in near.ice._queue._queue)


async def test_several_records_in_one_datagram() -> None:
    """RFC 6347 section 4.1.1 allows it."""
    async with connected() as (near, far):
        together: list[bytes] = []
        near.dtls._pair, near.dtls._put = near.pair, lambda data, size: together.append(data)
        for n in range(5):
            near.channel.send(bytes([n]) * 100)
        near.dtls._pair = None
        far.dtls._take(b"".join(together))
        assert far.got == [bytes([n]) * 100 for n in range(5)]


async def test_sent_by_the_pair_that_is_nominated_now() -> None:
    """Nomination may change under a connection (RFC 8445 section 8.1.1)."""
    async with connected() as (near, far):
        await echoed(near, far, b"before")
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.bind((HOST, 0))
            sock.settimeout(5)
            real = near.pair
            near.ice._nominated[1] = SimpleNamespace(
                protocol=real.protocol, remote_addr=sock.getsockname(), component=1
            )
            near.channel.send(b"to another place")
            assert len(sock.recv(2048)) > 16
            near.ice._nominated[1] = real
        near.channel.send(b"and back")
        await until(lambda: b"and back" in far.got)


async def test_a_close_is_heard() -> None:
    """close_notify, through the short way; and no packet is sent afterwards."""
    async with connected() as (near, far):
        await echoed(near, far, b"x")
        await near.pc.close()
        await until(lambda: far.pc.connectionState == "closed")
        assert far.channel.readyState == "closed"
        for side in (near, far):
            with pytest.raises(ConnectionError):
                side.dtls.send_now([b"x"])


async def test_consent_that_expires(monkeypatch: pytest.MonkeyPatch) -> None:
    """RFC 7675: who does not answer is sent nothing more."""
    monkeypatch.setattr(aioice.ice, "CONSENT_INTERVAL", 0.01)
    monkeypatch.setattr(aioice.ice, "CONSENT_FAILURES", 1)
    monkeypatch.setattr(aioice.stun, "RETRY_RTO", 0.01)
    async with connected() as (near, far):
        far.ice.request_received = lambda *a: None
        await until(lambda: near.pc.connectionState in ("closed", "failed"))
        with pytest.raises(ConnectionError):
            near.dtls.send_now([b"x"])


async def test_what_an_association_raises_ends_the_connection(caplog: pytest.LogCaptureFixture) -> None:
    """As in aiortc, and not the loop's callback with the rest of the batch."""
    async with connected() as (near, far):

        def broken(packet: bytes) -> None:
            raise ValueError("broken")

        far.association.receive_now = broken
        near.channel.send(b"x")
        await until(lambda: far.pc.connectionState == "closed")
    assert "a connection ended" in caplog.text


async def test_sockets_are_given_back() -> None:
    """Also those whose reader was replaced."""

    def sockets() -> int:
        return sum(isinstance(one, socket.socket) and one.fileno() != -1 for one in gc.get_objects())

    gc.collect()
    before = sockets()
    async with connected() as (near, far):
        await echoed(near, far, b"x" * 50_000)
        assert sockets() > before
    await until(lambda: sockets() <= before)
