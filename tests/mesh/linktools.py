"""A creator and a device played by hand, for tests of one link."""

from __future__ import annotations

import asyncio

from pooled_nb.mesh.frame import Encoding, Frame, Kind
from tests.mesh.rawpeer import RawPeer
from tests.mesh.recorder import CODE, ROOM, Recorder, device
from tests.sim.network import SimNetwork


def frame(pos: int, size: int = 100) -> Frame:
    return Frame(kind=Kind.HIDDEN_B, pos=pos, n=4, payload=bytes([pos % 251]) * size, enc=Encoding.BF16)


async def host_and_peer(net: SimNetwork, *, admitted: bool = True) -> tuple[Recorder, RawPeer]:
    """A room of one, and a device that is in it (or has only opened its link)."""
    host = device(net, "host")
    await host.mesh.create(CODE, ["local"])
    peer = await RawPeer.dial(net, ROOM)
    host.mesh.chain([id_of(peer)])
    if admitted:
        peer.say("hello", name="raw", v=4, meta={"webgpu": 1})
        await asyncio.sleep(0.1)
        assert host.names == ["host", "raw"]
    return host, peer


def id_of(peer: RawPeer) -> str:
    return peer.connection.own
