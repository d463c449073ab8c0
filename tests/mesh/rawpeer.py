"""The other end of a link, by hand: sends any map or bytes, remembers what it is told."""

from __future__ import annotations

import asyncio
from typing import Any

from pooled_nb.mesh.binarypack import pack
from pooled_nb.mesh.chunks import Assembler, Chunker
from tests.sim.network import SimConnection, SimEndpoint, SimNetwork


class RawPeer:
    """Made by `dial` or `listen`."""

    def __init__(self, connection: SimConnection) -> None:
        self.connection = connection
        self.told: list[dict[str, Any]] = []
        self.slices: list[bytes] = []
        self._chunker, self._assembler = Chunker(), Assembler()
        connection.control.on_message = self._message
        connection.wire.on_message = self.slices.append

    @classmethod
    async def dial(cls, net: SimNetwork, remote: str, *, id: str | None = None, label: str = "") -> RawPeer:
        endpoint = await net.register(id, ["local"], token=id)
        return await cls.over(endpoint, remote, label=label)

    @classmethod
    async def over(cls, endpoint: SimEndpoint, remote: str, *, label: str = "") -> RawPeer:
        peer = cls(await endpoint.dial(remote, label=label))
        opened = asyncio.Event()
        peer.connection.on_state = lambda _state: opened.set()
        if peer.connection.state == "connecting":
            await opened.wait()
        return peer

    @classmethod
    async def listen(cls, net: SimNetwork, id: str) -> list[RawPeer]:
        """The peers that will have dialed ``id``."""
        peers: list[RawPeer] = []
        endpoint = await net.register(id, ["local"], token=id)
        endpoint.on_connection = lambda connection: peers.append(cls(connection))
        return peers

    def say(self, t: str, **fields: Any) -> None:
        self.raw({"t": t, **fields})

    def raw(self, value: object) -> None:
        if self.connection.control.is_open:
            for piece in self._chunker.split(pack(value)):
                self.connection.control.send(piece)

    def told_of(self, t: str) -> list[dict[str, Any]]:
        return [m for m in self.told if m["t"] == t]

    def _message(self, data: bytes) -> None:
        value = self._assembler.feed(data)
        if isinstance(value, dict):
            self.told.append(value)
