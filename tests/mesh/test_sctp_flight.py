"""Handshakes that lose a packet: of DTLS (RFC 6347 section 4.2.4) and of SCTP (RFC 9260 section 5.1)."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import pytest
from aiortc import RTCPeerConnection
from aiortc.rtcdatachannel import RTCDataChannel, RTCDataChannelParameters
from OpenSSL import SSL

from pooled_nb.mesh.sctp import chunks
from pooled_nb.mesh.sctp import flight as flights
from pooled_nb.mesh.sctp.dtls import Dtls
from pooled_nb.mesh.sctp.flight import Flight
from pooled_nb.mesh.sctp.peer import Peer
from tests.mesh.sctpnet import Road, is_up, pair, start, until
from tests.mesh.sctppair import Make, connected, echoed
from tests.sim.clock import simulate

COOKIE_ACK, INIT_ACK = 11, 2


@pytest.mark.parametrize("is_stock", [False, True])
@pytest.mark.parametrize(("role", "lost"), [("client", 0), ("client", 1), ("server", 0), ("server", 1)])
async def test_a_flight_that_is_lost_is_said_again(
    role: str, lost: int, is_stock: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of the four once, while OpenSSL's own timer takes a minute; the other end ours or stock."""
    said: list[bytes] = []
    begin, timeout = Dtls.start, SSL.Connection.DTLSv1_get_timeout

    async def started(self: Dtls, parameters: Any) -> None:
        if self._role == role:
            send = self.transport._send

            async def sent(data: bytes) -> None:
                said.append(data)
                if len(said) != lost + 1:
                    await send(data)

            self.transport._send = sent
        await begin(self, parameters)

    monkeypatch.setattr(Dtls, "start", started)
    monkeypatch.setattr(
        SSL.Connection, "DTLSv1_get_timeout", lambda self: None if timeout(self) is None else 60
    )
    # Who offers is the server.
    other: Make = RTCPeerConnection if is_stock else Peer
    async with connected(*((Peer, other) if role == "server" else (other, Peer))) as (near, far):
        await echoed(near, far, b"x" * 9_000)
    assert len(said) > lost


def test_said_again_less_and_less_often_until_something_comes() -> None:
    """RFC 6347 section 4.2.4.1: 40 times a flight, and 6 times the last one."""

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        at: list[float] = []
        begun = loop.time()
        flight = Flight(lambda datagram: at.append(loop.time() - begun))
        flight.left(b"hello")
        await asyncio.sleep(3)
        assert at == pytest.approx([0.25, 0.75, 1.75, 2.75])
        flight.left(b"finished")
        assert flight.is_out
        await asyncio.sleep(0.3)
        assert at[4:] == pytest.approx([3.25])
        flight.is_last()
        await asyncio.sleep(60)
        assert len(at) == 5 + flights.MOST_LAST
        assert not flight.is_out
        flight.left(b"more")
        flight.arrived()
        await asyncio.sleep(60)
        assert len(at) == 5 + flights.MOST_LAST

    simulate(scenario)


def test_inits_cross_and_both_answers_are_lost() -> None:
    """RFC 9260 section 8.5.1: an INIT that is sent again has tag 0, also where the other's INIT has come."""

    async def scenario() -> float:
        ends = pair(Road(delay=0.025))
        tags: list[tuple[int, bytes]] = []

        def seen(packet: bytes) -> bool:
            tags.append((packet[12], packet[4:8]))
            return packet[12] != INIT_ACK or tags.count((INIT_ACK, packet[4:8])) > 1

        for wire in ends.wires:
            wire.seen = seen
        loop = asyncio.get_running_loop()
        begun = loop.time()
        await start(ends)
        await until(lambda: is_up(ends), 60)
        took = loop.time() - begun
        inits = [tag for kind, tag in tags if kind == chunks.INIT]
        assert len(inits) > 2
        assert set(inits) == {bytes(4)}
        await ends.close()
        return took

    assert simulate(scenario) < 1.0


def test_data_tells_that_the_cookie_ack_was_lost() -> None:
    """One end is up, and each COOKIE ACK to the other is lost: its data opens the channel there, too."""

    async def scenario() -> None:
        ends = pair(Road(delay=0.025))
        ends.wires[0].seen = lambda packet: packet[12] != COOKIE_ACK
        # The other's INIT and cookie never come: it learns of the association by its own alone.
        ends.wires[1].seen = lambda packet: packet[12] not in (INIT_ACK, 10)
        opened: list[Any] = []
        ends.b.on("datachannel", opened.append)
        channel = RTCDataChannel(ends.a, RTCDataChannelParameters(label="x"))
        await start(ends)
        await asyncio.sleep(2)
        assert not is_up(ends)
        ends.wires[1].seen = lambda packet: packet[12] != INIT_ACK
        await until(lambda: is_up(ends) and channel.readyState == "open" and bool(opened), 10)
        await ends.close()

    simulate(scenario)


def test_at_twenty_percent_loss_all_come_up() -> None:
    """RFC 9260 section 5.2.1: both begin, at once or one later."""

    async def scenario(seed: int) -> float:
        ends = pair(Road(delay=0.025, loss=0.2), seed=seed)
        loop = asyncio.get_running_loop()
        begun = loop.time()
        await start(ends)
        await until(lambda: is_up(ends), 15)
        await ends.close()
        return loop.time() - begun

    took = sorted(simulate(partial(scenario, seed)) for seed in range(0, 300, 2))
    assert took[len(took) // 2] < 0.7
