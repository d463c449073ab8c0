"""A link of our own as a carrier of `benchmarks.wire`: two meshes, one room, frames over its wire.

It is what a room has, whole: signaling, both proofs, pings, and stripes where they are wanted. Nothing is
computed.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

from benchmarks.arrivals import Silent
from benchmarks.wire_carriers import Carrier, Told
from pooled_nb.mesh import codes
from pooled_nb.mesh.clock import LoopClock
from pooled_nb.mesh.credit import Credit
from pooled_nb.mesh.frame import Frame, Kind
from pooled_nb.mesh.gatekeeper import Gatekeeper
from pooled_nb.mesh.ice import IcePolicy
from pooled_nb.mesh.mesh import Mesh
from pooled_nb.mesh.messages import Message
from pooled_nb.mesh.messages.link import DeviceMeta
from pooled_nb.mesh.messages.weights import Wack, Wpart
from pooled_nb.mesh.network import Channel
from pooled_nb.mesh.newcomer import Credentials, Newcomer
from pooled_nb.mesh.rtcnetwork import RtcNetwork
from pooled_nb.mesh.signalserver import SignalServer
from pooled_nb.mesh.wire import Priority
from pooled_nb.mesh.wiresettings import WireSettings


class LinkCarrier(Carrier):
    """See the module.

    Parameters
    ----------
    settings
        Of its wire; so many stripes are open before it is used.
    url
        Of a signaling server; empty: one of its own.
    transport
        Which WebRTC stack it runs on.
    """

    def __init__(self, settings: WireSettings, url: str = "", transport: str = "aiortc") -> None:
        super().__init__()
        self._settings, self._url, self._transport = settings, url, transport
        self._server: SignalServer | None = None
        self._mesh: Mesh
        self._other = ""
        self._credit: Credit | None = None
        self._got = 0

    def _make(self, name: str, gates: Any) -> Mesh:
        clock = LoopClock()
        return Mesh(
            network=RtcNetwork(clock, IcePolicy.local(), transport=self._transport),
            clock=clock,
            name=name,
            meta=DeviceMeta(ua="Jupyter", contrib_gb=0.0),
            listener=_Ear(self),
            gates=gates,
            wiring=self._settings,
        )

    async def listen(self) -> Told:
        """See `Carrier`."""
        if not self._url:
            self._server = await SignalServer.start()
            self._url = self._server.url
        gates = Gatekeeper()
        self._mesh = self._make("near", gates)
        code = codes.draw()
        await self._mesh.create(code, [self._url])
        return {"url": self._url, "code": code, "key": gates.key}

    async def meet(self, told: Told) -> Told:
        """See `Carrier`."""
        self._mesh = self._make("far", Newcomer(Credentials(key=told["key"])))
        began = time.perf_counter()
        await self._mesh.join(told["code"], [told["url"]])
        self.opened["link"] = time.perf_counter() - began
        self._chain(codes.room_id(told["code"]))
        await self._striped()
        self.opened["stripes"] = time.perf_counter() - began
        return {"id": self._mesh.id}

    async def met(self, told: Told) -> None:
        """See `Carrier`."""
        self._chain(told["id"])
        await self._striped()

    def _chain(self, other: str) -> None:
        self._other = other
        self._mesh.chain([other])
        self.keepalive.on_message = self._heard_byte(self.keepalive.on_message)

    async def _striped(self) -> None:
        async with asyncio.timeout(30):
            while True:
                facts = self._mesh.facts(self._other)
                if facts is not None and facts.stripes >= self._settings.stripes:
                    return
                await asyncio.sleep(0.002)

    @property
    def keepalive(self) -> Channel:
        """Channel 78 of the link's own connection."""
        link = self._mesh._book().used(self._other)
        assert link is not None
        return link.connection.keepalive

    def _heard_byte(self, before: Any) -> Any:
        def heard(data: bytes) -> None:
            if before is not None:
                before(data)
            if len(data) == 2:  # one of ours: the link's own is one byte
                self.on_byte(data[1], b"")

        return heard

    def frame(self, number: int, payload: bytes, *, back: bool) -> None:
        """See `Carrier`."""
        kind = Kind.RET_B if back else Kind.HIDDEN_B
        assert self._mesh.send_frame(self._other, Frame(kind=kind, pos=number, n=1, payload=payload))

    def small(self, number: int) -> None:
        """See `Carrier`."""
        self._mesh.send(self._other, Wack(id=f"small {number}"))

    def byte(self, number: int) -> None:
        """See `Carrier`."""
        self.keepalive.send(bytes([0, number]))

    async def weights(self, data: bytes) -> None:
        """See `Carrier`."""
        if self._credit is None:
            self._credit = self._mesh.credit(self._other, None)
        part = Wpart(id="weights", data=data)
        assert await self._mesh.send_bulk(self._other, part, Priority.WEIGHTS, credit=self._credit)

    def heard(self, message: Message) -> None:
        """A message of the other end."""
        match message:
            case Wpart(data=bytes() as data):
                self._got += len(data)
                self._mesh.send(self._other, Wack(id="weights", got=self._got))
                self.on_weights(0, data)
            case Wack(id="weights", got=int() as got):
                assert self._credit is not None
                self._credit.acknowledged(got)
            case Wack(id=str() as id):
                self.on_small(int(id.split()[1]), b"")

    async def close(self) -> None:
        """See `Carrier`."""
        await self._mesh.leave()
        if self._server is not None:
            await self._server.close()


class _Ear(Silent):
    """`MeshListener` of one end."""

    def __init__(self, carrier: LinkCarrier) -> None:
        self._carrier = carrier

    def on_message(self, sender: str, message: Message) -> None:
        """See `MeshListener`."""
        self._carrier.heard(message)

    def on_frame(self, sender: str, frame: Frame) -> None:
        """See `MeshListener`."""
        self._carrier.on_frame(frame.pos, frame.payload)
