"""Two connections of this process over loopback, without signaling."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

from aiortc import RTCConfiguration, RTCDataChannel, RTCPeerConnection

from pooled_nb.mesh.gathering import Gathering
from pooled_nb.mesh.ice import IcePolicy
from pooled_nb.mesh.sctp.peer import Peer
from tests.mesh.rtctools import nothing_left, until

Make = Callable[[RTCConfiguration], RTCPeerConnection]


class Side:
    """One connection with a reliable channel, and what came there."""

    def __init__(self, make: Make) -> None:
        self.pc: Any = make(RTCConfiguration(iceServers=[]))
        self.channel: RTCDataChannel = self.pc.createDataChannel("wire", negotiated=True, id=1)
        self.got: list[Any] = []
        self.channel.on("message", self.got.append)
        self.association: Any = self.pc.sctp
        self.dtls: Any = self.association.transport
        self.ice: Any = Gathering(IcePolicy.local(), self.pc, limit=3).ice

    @property
    def pair(self) -> Any:
        return self.ice._nominated[1]

    @property
    def address(self) -> tuple[str, int]:
        """Where its socket is."""
        local: tuple[str, int] = self.pair.local_addr
        return local


@contextlib.asynccontextmanager
async def connected(make: Make = Peer, other: Make | None = None) -> AsyncIterator[tuple[Side, Side]]:
    """Two sides, open; afterwards nothing of them is left."""
    async with nothing_left():
        near, far = Side(make), Side(other or make)
        try:
            await near.pc.setLocalDescription(await near.pc.createOffer())
            await far.pc.setRemoteDescription(near.pc.localDescription)
            await far.pc.setLocalDescription(await far.pc.createAnswer())
            await near.pc.setRemoteDescription(far.pc.localDescription)
            await until(lambda: near.channel.readyState == far.channel.readyState == "open")
            yield near, far
        finally:
            await near.pc.close()
            await far.pc.close()


async def echoed(near: Side, far: Side, data: bytes) -> None:
    """Sent both ways, and there."""
    near.got.clear()
    far.got.clear()
    near.channel.send(data)
    far.channel.send(data)
    await until(lambda: near.got and far.got)
    assert near.got == far.got == [data]
