"""The same meshes over aiortc and our signaling server, on loopback (DESIGN section 4)."""

from __future__ import annotations

import asyncio

from pooled_nb.mesh.clock import LoopClock
from pooled_nb.mesh.frame import Encoding, Frame, Kind
from pooled_nb.mesh.ice import IcePolicy
from pooled_nb.mesh.mesh import Mesh
from pooled_nb.mesh.messages import chat
from pooled_nb.mesh.messages.link import DeviceMeta
from pooled_nb.mesh.rtcnetwork import RtcNetwork
from pooled_nb.mesh.signalserver import SignalServer
from tests.mesh.recorder import CODE, ROOM, Recorder


async def until(done: object, seconds: float = 30.0) -> None:
    async with asyncio.timeout(seconds):
        while not done():  # type: ignore[operator]  # noqa: ASYNC110  # many things, no one event
            await asyncio.sleep(0.02)


async def test_three_meshes_over_real_webrtc() -> None:
    """PROTOCOL sections 2, 3 and 5: a room, a link on demand, frames around the chain in order, and a clean
    end.
    """
    before = asyncio.all_tasks()
    server = await SignalServer.start(host="127.0.0.1", port=0)
    clock = LoopClock()

    def device(name: str) -> Recorder:
        recorder = Recorder()
        network = RtcNetwork(clock, IcePolicy(local_only=True))
        recorder.mesh = Mesh(network=network, clock=clock, name=name, meta=DeviceMeta(), listener=recorder)
        return recorder

    host, one, two = device("host"), device("one"), device("two")
    await host.mesh.create(CODE, [server.url])
    await asyncio.gather(one.mesh.join(CODE, [server.url]), two.mesh.join(CODE, [server.url]))
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
