"""Stripes over real WebRTC: they come by themselves, are killed and come again (PROTOCOL section 5)."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncIterator

import pytest

from pooled_nb.mesh.clock import LoopClock
from pooled_nb.mesh.frame import Encoding, Frame, Kind
from pooled_nb.mesh.gatekeeper import GateSettings
from pooled_nb.mesh.ice import IcePolicy
from pooled_nb.mesh.mesh import Mesh
from pooled_nb.mesh.messages.link import DeviceMeta
from pooled_nb.mesh.newcomer import Credentials
from pooled_nb.mesh.rtcnetwork import RtcNetwork
from pooled_nb.mesh.sctp.datagrams import below
from pooled_nb.mesh.signalserver import SignalServer
from pooled_nb.mesh.stripe import Stripe
from pooled_nb.mesh.wire.slices import ROOM as ROOM_OF_A_SLICE
from pooled_nb.mesh.wiresettings import DEFAULT
from tests.mesh.recorder import CODE, ROOM, BothGates, Recorder
from tests.mesh.rtctools import nothing_left, until


def device(name: str, transport: str) -> Recorder:
    """One with the wiring of any room that is not on one machine."""
    recorder, clock = Recorder(), LoopClock()
    recorder.gates = BothGates(GateSettings(ask=False), Credentials())
    recorder.mesh = Mesh(
        network=RtcNetwork(clock, IcePolicy.local(), transport=transport),
        clock=clock,
        name=name,
        meta=DeviceMeta(),
        listener=recorder,
        gates=recorder.gates,
        wiring=DEFAULT,
    )
    return recorder


@contextlib.asynccontextmanager
async def room(transport: str, *names: str) -> AsyncIterator[list[Recorder]]:
    """The first creates it."""
    async with nothing_left():
        server = await SignalServer.start(host="127.0.0.1", port=0)
        devices = [device(name, transport) for name in names]
        await devices[0].mesh.create(CODE, [server.url])
        for other in devices[1:]:
            await other.mesh.join(CODE, [server.url])
        try:
            yield devices
        finally:
            await asyncio.gather(*(one.mesh.leave() for one in devices[1:]))
            await devices[0].mesh.leave()
            await server.close()


def stripes(one: Recorder, to: str) -> list[Stripe]:
    """Those that carry its link's slices."""
    links = one.mesh._links
    return [] if links is None else [s for s in links.stripes.of(to) if s.is_proved and s.home is not None]


def frame(pos: int, size: int) -> Frame:
    return Frame(kind=Kind.HIDDEN_B, pos=pos, n=4, payload=bytes([pos % 251]) * size, enc=Encoding.BF16)


async def test_a_chain_link_gets_its_stripes_and_a_killed_one_again(transport: str) -> None:
    """PROTOCOL section 5: opened by the link's dialer as the link becomes part of a chain, dead ones are
    redialed, and frames keep their order meanwhile, both ways; between two devices, and to the creator.
    """
    async with room(transport, "host", "one", "two") as (host, one, two):
        host.mesh.chain([one.mesh.id, two.mesh.id])
        one.mesh.chain([ROOM, two.mesh.id])
        two.mesh.chain([one.mesh.id, ROOM])
        await until(lambda: any(member.id == two.mesh.id for member in one.mesh.roster))
        await one.mesh.connect(two.mesh.id)
        ring = [(one, two.mesh.id), (two, one.mesh.id), (one, ROOM), (two, ROOM)]
        ring += [(host, one.mesh.id), (host, two.mesh.id)]
        await until(lambda: all(len(stripes(a, b)) == 3 for a, b in ring), 30)
        sent, over = 0, asyncio.Event()

        async def talk() -> None:
            nonlocal sent
            while not over.is_set():  # two slices go twice, and outlive any one connection
                for a, b in ((one, two.mesh.id), (two, one.mesh.id)):
                    assert a.mesh.send_frame(b, frame(sent, 9_000))
                sent += 1
                await asyncio.sleep(0.01)

        talks = asyncio.create_task(talk())
        await until(lambda: len(two.frames) > 20)
        killed = stripes(one, two.mesh.id)[1]
        await killed.connection.close()
        await until(lambda: len(stripes(one, two.mesh.id)) == 2)
        await until(lambda: len(stripes(one, two.mesh.id)) == len(stripes(two, one.mesh.id)) == 3, 30)
        assert killed not in stripes(one, two.mesh.id)
        over.set()
        await talks
        await until(lambda: len(one.frames) == len(two.frames) == sent)
        assert [f.pos for _, f in two.frames] == [f.pos for _, f in one.frames] == list(range(sent))
        # And long ones, over all that there is.
        for i in range(3):
            assert one.mesh.send_frame(two.mesh.id, frame(sent + i, 300_000))
        await until(lambda: len(two.frames) == sent + 3)
        assert [f.pos for _, f in two.frames[-3:]] == [sent, sent + 1, sent + 2]
        assert one.gone == two.gone == host.gone == []


async def test_ten_devices_open_their_stripes_at_once(transport: str) -> None:
    """PROTOCOL section 5: 10 workers hear of the deal together, and the host answers 30 OFFERs: all come to
    be, and frames of all of them arrive.
    """
    names = [f"w{number}" for number in range(10)]
    async with room(transport, "host", *names) as (host, *workers):
        host.mesh.chain([one.mesh.id for one in workers])
        for one in workers:
            one.mesh.chain([ROOM])
        await until(lambda: all(len(stripes(one, ROOM)) == 3 for one in workers), 60)
        await until(lambda: all(len(stripes(host, one.mesh.id)) == 3 for one in workers), 20)
        for one in workers:
            assert one.mesh.send_frame(ROOM, frame(1, 100_000))
        await until(lambda: len(host.frames) == 10)
        assert {sender for sender, _ in host.frames} == {one.mesh.id for one in workers}
        assert host.gone == []


async def test_a_black_hole_costs_a_stripe_and_no_frame(transport: str) -> None:
    """PROTOCOL section 5: one stripe's datagrams go nowhere, for good, and both ends believe in it: frames
    that go once go on after about 3 s, all of them, in order, and another stripe is dialed in its place.
    """
    if transport != "aiortc":
        pytest.skip("it does not tell what is in flight")
    async with room(transport, "host", "one") as (host, one):
        host.mesh.chain([one.mesh.id])
        one.mesh.chain([ROOM])
        await until(lambda: len(stripes(one, ROOM)) == len(stripes(host, one.mesh.id)) == 3, 30)
        sent, size = 0, 40 * ROOM_OF_A_SLICE
        for _ in range(3):
            assert one.mesh.send_frame(ROOM, frame(sent, size))
            sent += 1
        await until(lambda: len(host.frames) == sent)
        hit = stripes(one, ROOM)[0]
        pair = hit.connection._peer.gathering.ice._nominated[1]  # type: ignore[attr-defined]
        carrier = below(pair.protocol.transport)
        # In the place of its socket one of another family: it knows no way to any address, and gets nothing.
        with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as nowhere:
            nowhere.setblocking(False)
            os.dup2(nowhere.fileno(), carrier._sock.fileno())
            while sent < 40:
                assert one.mesh.send_frame(ROOM, frame(sent, size))
                sent += 1
                await asyncio.sleep(0.02)
            await until(lambda: len(host.frames) == sent, 8)
        assert [f.pos for _, f in host.frames] == list(range(sent))
        assert hit.is_closed
        await until(lambda: len(stripes(one, ROOM)) == 3, 10)
        assert one.gone == host.gone == []
