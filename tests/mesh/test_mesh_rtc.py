"""The same meshes over each WebRTC stack and our signaling server, on loopback (DESIGN section 4)."""

from __future__ import annotations

import asyncio

from pooled_nb.mesh.clock import LoopClock
from pooled_nb.mesh.frame import Encoding, Frame, Kind
from pooled_nb.mesh.gatekeeper import Gatekeeper, GateSettings
from pooled_nb.mesh.ice import IcePolicy
from pooled_nb.mesh.mesh import Mesh
from pooled_nb.mesh.messages import chat
from pooled_nb.mesh.messages.link import DeviceMeta
from pooled_nb.mesh.network import Channel
from pooled_nb.mesh.newcomer import Credentials
from pooled_nb.mesh.rtcnetwork import RtcNetwork
from pooled_nb.mesh.signalserver import SignalServer
from pooled_nb.mesh.wiresettings import WireSettings
from tests.mesh.recorder import CODE, ROOM, BothGates, Recorder


async def until(done: object, seconds: float = 30.0) -> None:
    async with asyncio.timeout(seconds):
        while not done():  # type: ignore[operator]  # noqa: ASYNC110  # many things, no one event
            await asyncio.sleep(0.02)


async def until_known(*recorders: Recorder) -> None:
    """Until the roster of each names all of them: who joined later is told of by the host."""
    ids = {recorder.mesh.id for recorder in recorders}
    for recorder in recorders:
        await until(lambda links=recorder.mesh._links: ids <= {member.id for member in links.roster})


def device(clock: LoopClock, name: str, transport: str) -> Recorder:
    """One that is in no room yet; a room that it creates asks nobody."""
    recorder = Recorder()
    recorder.gates = BothGates(GateSettings(ask=False), Credentials())
    recorder.mesh = Mesh(
        network=RtcNetwork(clock, IcePolicy(local_only=True), transport=transport),
        clock=clock,
        name=name,
        meta=DeviceMeta(),
        listener=recorder,
        gates=recorder.gates,
        wiring=WireSettings(stripes=0),  # those that there are, a test opens itself
    )
    return recorder


async def test_three_meshes_over_real_webrtc(transport: str) -> None:
    """PROTOCOL sections 2, 3 and 5: a room, a link on demand, frames around the chain in order, and a clean
    end.
    """
    before = asyncio.all_tasks()
    server = await SignalServer.start(host="127.0.0.1", port=0)
    clock = LoopClock()

    host, one, two = (
        device(clock, "host", transport),
        device(clock, "one", transport),
        device(clock, "two", transport),
    )
    await host.mesh.create(CODE, [server.url])
    await asyncio.gather(one.mesh.join(CODE, [server.url]), two.mesh.join(CODE, [server.url]))
    await until_known(one, two)
    await asyncio.gather(one.mesh.connect(two.mesh.id), two.mesh.connect(one.mesh.id))
    host.mesh.chain([two.mesh.id])
    one.mesh.chain([ROOM])
    two.mesh.chain([one.mesh.id])

    one.on_frame = lambda sender, frame: one.mesh.send_frame(two.mesh.id, frame)  # type: ignore[method-assign]
    two.on_frame = lambda sender, frame: two.mesh.send_frame(ROOM, frame)  # type: ignore[method-assign]
    frames = [
        Frame(kind=Kind.HIDDEN_B, pos=i, n=16, payload=bytes([i]) * 18_432, enc=Encoding.BF16)
        for i in range(40)
    ]
    for frame in frames:
        assert host.mesh.send_frame(one.mesh.id, frame)
        assert host.mesh.send(two.mesh.id, chat.Token(text=f"{frame.pos}"))
    await until(lambda: len(host.frames) == 40 and len(two.messages) == 40)
    assert host.frames == [(two.mesh.id, frame) for frame in frames]
    assert [m.text for _, m in two.messages] == [f"{i}" for i in range(40)]  # type: ignore[attr-defined]

    await until(lambda: (facts := host.mesh.facts(one.mesh.id)) and facts.rtt_s is not None)
    assert (facts := host.mesh.facts(one.mesh.id))
    assert facts.path == "direct"
    assert not facts.fallback
    await two.mesh.leave()
    await until(lambda: host.names == one.names and len(host.names) == 2)
    assert [(name, left) for name, _, left in host.gone] == [(two.mesh.name, True)]
    await host.mesh.leave()
    await until(lambda: one.closed == ["The room is over."])
    await one.mesh.leave()
    await server.close()
    await asyncio.sleep(0.1)
    assert asyncio.all_tasks() == before


async def test_a_stripe_over_real_webrtc(transport: str) -> None:
    """PROTOCOL sections 4 and 5: a stripe between two devices and one to the creator, each with a certificate
    and proofs of its own; slices of one frame go over it, both ways, and a proof of one is worth nothing on
    the other.
    """
    before = asyncio.all_tasks()
    server = await SignalServer.start(host="127.0.0.1", port=0)
    clock = LoopClock()
    host, one, two = (
        device(clock, "host", transport),
        device(clock, "one", transport),
        device(clock, "two", transport),
    )
    await host.mesh.create(CODE, [server.url])
    await asyncio.gather(one.mesh.join(CODE, [server.url]), two.mesh.join(CODE, [server.url]))
    await until_known(one, two)
    for other in (host, two):
        await one.mesh.connect(other.mesh.id)
        one.mesh.chain([other.mesh.id])
        other.mesh.chain([one.mesh.id])
        await one.mesh._dialing.stripe(other.mesh.id)
        await until(lambda other=other: (f := other.mesh.facts(one.mesh.id)) and f.stripes == 1)
        links = one.mesh._links, other.mesh._links
        ends = [links[0].stripes.of(other.mesh.id)[0], links[1].stripes.of(one.mesh.id)[0]]  # type: ignore[union-attr]
        ours = [
            links[0].book.used(other.mesh.id).connection,  # type: ignore[union-attr]
            links[1].book.used(one.mesh.id).connection,  # type: ignore[union-attr]
        ]
        assert ends[0]._connection.fingerprints() == (ends[1]._connection.fingerprints() or ())[::-1]
        assert not {*(ends[0]._connection.fingerprints() or ())} & {*(ours[0].fingerprints() or ())}
        took = [
            counting(channel)
            for pair in zip(ends, ours, strict=True)
            for channel in (pair[0]._connection.wire, pair[1].wire)
        ]
        one.frames.clear()
        big = Frame(kind=Kind.HIDDEN_B, pos=1, n=16, payload=b"\5" * 400_000, enc=Encoding.BF16)
        for _ in range(2):
            assert one.mesh.send_frame(other.mesh.id, big)
            assert other.mesh.send_frame(one.mesh.id, big)
        await until(lambda other=other: len(other.frames) == 2 and len(one.frames) == 2)
        assert [f for _, f in other.frames] == [f for _, f in one.frames] == [big, big]
        assert all(n[0] > 0 for n in took), took
    for left in (two, one, host):
        await left.mesh.leave()
    await server.close()
    await asyncio.sleep(0.1)
    assert asyncio.all_tasks() == before


async def test_a_host_that_comes_back_over_real_webrtc(transport: str) -> None:
    """PROTOCOL sections 3 and 8: a link that breaks, a neighbour's link that is wanted anew, and then a host
    that is started again together with the signaling server in its process: everybody is in again under its
    id and name, without a person.
    """
    before = asyncio.all_tasks()
    server = await SignalServer.start(host="127.0.0.1", port=0)
    clock = LoopClock()
    host, one, two = (
        device(clock, "host", transport),
        device(clock, "one", transport),
        device(clock, "two", transport),
    )
    await host.mesh.create(CODE, [server.url])
    await one.mesh.join(CODE, [server.url])
    await two.mesh.join(CODE, [server.url])
    await until_known(one, two)
    ids = [one.mesh.id, two.mesh.id]
    one.mesh.chain([ROOM, two.mesh.id])
    two.mesh.chain([ROOM, one.mesh.id])
    await one.mesh.connect(two.mesh.id)

    await host.mesh._links.book.used(one.mesh.id).connection.close()  # type: ignore[union-attr]
    await until(lambda: "back" in one.diary and host.was[-1] == one.mesh.id)
    assert host.gone == []
    await one.mesh.relink(two.mesh.id)
    await until(lambda: len(one.mesh._links.book.of(two.mesh.id)) == 1)  # type: ignore[union-attr]
    assert one.gone == two.gone == []

    token, secrets, port = host.mesh.token, host.gates.keeper.secrets, server.port
    await host.mesh.abandon()
    await server.close()
    await until(lambda: two.mesh.knocking and not two.mesh.signaling_up)
    server = await SignalServer.start(host="127.0.0.1", port=port)
    again = device(clock, "host", transport)
    again.gates.keeper = Gatekeeper(GateSettings(ask=False), saved=secrets)
    await again.mesh.create(CODE, [server.url], token=token)
    await until(lambda: one.diary.count("back") == 2 and two.diary.count("back") == 1)
    assert sorted(again.names) == ["host", "one", "two"]
    assert {member.id for member in again.mesh.roster[1:]} == set(ids)
    assert one.gone == two.gone == one.closed == two.closed == []
    assert one.mesh.send(two.mesh.id, chat.Queue(n=1))
    again.mesh.broadcast(chat.Queue(n=2))
    await until(lambda: len(two.messages) == 2 and len(one.messages) == 1)
    for left in (two, one, again):
        await left.mesh.leave()
    await server.close()
    await asyncio.sleep(0.1)
    assert asyncio.all_tasks() == before


def counting(channel: Channel) -> list[int]:
    """How many slices this end hands to a channel."""
    sent = [0]
    send = channel.send

    def counted(data: bytes) -> None:
        send(data)
        sent[0] += 1

    channel.send = counted  # type: ignore[method-assign]
    return sent
