"""What carries frames, small messages and weights between the two processes of `benchmarks.wire`.

Each carrier has a near end and a far end. The near one `listen`s and tells how it is reached, the far one
`meet`s it with that, and the near one hears the answer (`met`). Then both send and hear the same things, so
that what is measured above is one piece of code.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Callable
from typing import Any

from aiortc import RTCConfiguration, RTCSessionDescription

from pooled_nb.mesh import sctp
from pooled_nb.mesh.gathering import Gathering
from pooled_nb.mesh.ice import GATHER_S, IcePolicy
from pooled_nb.mesh.wire.slices import HEADER, ROOM, count_of

BULK = 1 << 16
"""Bytes of one piece of weights (PROTOCOL section 6: parts of 65,536 bytes)."""
BEHIND = 4 * BULK
"""Bytes of weights that a plain channel or socket is given ahead of what has left."""
PIECE = 1 << 14
"""Bytes of one message on a plain channel: libraries take larger ones, and get slow."""

Told = dict[str, Any]


def nobody(_number: int, _data: bytes) -> None:
    """Nobody listens yet."""


class Carrier:
    """One of them, one end; see the module.

    Attributes
    ----------
    on_frame, on_small, on_byte
        Called with a number and, of a frame, its payload.
    on_weights
        Called with nothing and each piece.
    opened
        Seconds that parts of its opening took, by name (far end).
    """

    def __init__(self) -> None:
        self.on_frame: Callable[[int, bytes], None] = nobody
        self.on_small: Callable[[int, bytes], None] = nobody
        self.on_byte: Callable[[int, bytes], None] = nobody
        self.on_weights: Callable[[int, bytes], None] = nobody
        self.opened: dict[str, float] = {}

    async def listen(self) -> Told:
        """Near: be there, and say how the far end gets here."""
        raise NotImplementedError

    async def meet(self, told: Told) -> Told:
        """Far: go there; what the near end has to know."""
        raise NotImplementedError

    async def met(self, told: Told) -> None:
        """Near: the far end has answered. Returns once everything is open."""
        raise NotImplementedError

    def frame(self, number: int, payload: bytes, *, back: bool) -> None:
        """Send a frame."""
        raise NotImplementedError

    def small(self, number: int) -> None:
        """Send a small control message."""
        raise NotImplementedError

    def byte(self, number: int) -> None:
        """Send on the keep-alive's channel; 0 to 255."""
        raise NotImplementedError

    async def weights(self, data: bytes) -> None:
        """Send a piece of weights, once there is room for it."""
        raise NotImplementedError

    async def close(self) -> None:
        """Be gone."""
        raise NotImplementedError


_NUMBER = struct.Struct(">I")
_SLICE = struct.Struct(f">II{HEADER - 8}x")


class Bare(Carrier):
    """An `RTCPeerConnection`: a link's channels and slices, and nothing else of ours.

    Tuned where this process tunes its associations (``POOLED_SCTP``); else as aiortc gives it.
    """

    def __init__(self) -> None:
        super().__init__()
        self._got = 0
        self._pc = sctp.peer_connection(RTCConfiguration(iceServers=[]))
        self._channels = {
            name: self._pc.createDataChannel(name, negotiated=True, id=id, **options)
            for name, id, options in (
                ("control", 76, {"ordered": True}),
                ("swarm-wire", 77, {"ordered": True}),
                ("swarm-ka", 78, {"ordered": False, "maxRetransmits": 0}),
            )
        }
        Gathering(IcePolicy.local(), self._pc, limit=GATHER_S)  # on loopback, as ours
        self._wire, self._control, self._ka = (
            self._channels[name] for name in ("swarm-wire", "control", "swarm-ka")
        )
        self._parts: list[bytes] = []
        self._wire.on("message", self._slice)
        self._ka.on("message", lambda data: self.on_byte(data[0], b""))
        self._control.on("message", self._heard)
        self._open = [asyncio.Event() for _ in self._channels]
        for event, channel in zip(self._open, self._channels.values(), strict=True):
            channel.on("open", event.set)
            if channel.readyState == "open":
                event.set()

    def _heard(self, data: bytes) -> None:
        if len(data) == 4:
            self.on_small(_NUMBER.unpack(data)[0], b"")
            return
        self._got += len(data)
        while self._got >= BULK:
            self._got -= BULK
            self.on_weights(0, b"")

    def _slice(self, data: bytes) -> None:
        number, left = _SLICE.unpack_from(data)
        self._parts.append(data[HEADER:])
        if not left:
            frame, self._parts = b"".join(self._parts), []
            self.on_frame(number, frame)

    async def listen(self) -> Told:
        """See `Carrier`."""
        await self._pc.setLocalDescription(await self._pc.createOffer())
        return {"sdp": self._pc.localDescription.sdp}

    async def meet(self, told: Told) -> Told:
        """See `Carrier`."""
        await self._pc.setRemoteDescription(RTCSessionDescription(sdp=told["sdp"], type="offer"))
        await self._pc.setLocalDescription(await self._pc.createAnswer())
        return {"sdp": self._pc.localDescription.sdp}

    async def met(self, told: Told) -> None:
        """See `Carrier`."""
        await self._pc.setRemoteDescription(RTCSessionDescription(sdp=told["sdp"], type="answer"))
        async with asyncio.timeout(20):
            for event in self._open:
                await event.wait()

    def frame(self, number: int, payload: bytes, *, back: bool) -> None:
        """See `Carrier`."""
        count = count_of(len(payload))
        for index in range(count):
            head = _SLICE.pack(number, count - 1 - index)
            self._wire.send(head + payload[index * ROOM : (index + 1) * ROOM])

    def small(self, number: int) -> None:
        """See `Carrier`."""
        self._control.send(_NUMBER.pack(number))

    def byte(self, number: int) -> None:
        """See `Carrier`."""
        self._ka.send(bytes([number]))

    async def weights(self, data: bytes) -> None:
        """See `Carrier`."""
        while self._control.bufferedAmount > BEHIND:  # noqa: ASYNC110  # it falls in no task of ours
            await asyncio.sleep(0.001)
        for at in range(0, len(data), PIECE):
            self._control.send(data[at : at + PIECE])
        await asyncio.sleep(0)

    async def close(self) -> None:
        """See `Carrier`."""
        await self._pc.close()


_HEAD = struct.Struct(">BII")
_FRAME, _SMALL, _BYTE, _WEIGHTS = range(4)


class Stream(Carrier, asyncio.Protocol):
    """A plain TCP socket: a head of nine bytes before each thing, all in one line.

    `start` and `connect` are where another kind of stream differs.
    """

    def __init__(self) -> None:
        super().__init__()
        self._transport: asyncio.Transport | None = None
        self._server: asyncio.AbstractServer | None = None
        self._come = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        self._got = bytearray()

    async def start(self) -> tuple[asyncio.AbstractServer, Told]:
        """Listen."""
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: self, "127.0.0.1", 0)
        return server, {"port": server.sockets[0].getsockname()[1]}

    async def connect(self, told: Told) -> None:
        """Connect."""
        await asyncio.get_running_loop().create_connection(lambda: self, "127.0.0.1", told["port"])

    async def listen(self) -> Told:
        """See `Carrier`."""
        self._server, told = await self.start()
        return told

    async def meet(self, told: Told) -> Told:
        """See `Carrier`."""
        await self.connect(told)
        return {}

    async def met(self, told: Told) -> None:
        """See `Carrier`."""
        await asyncio.wait_for(self._come.wait(), 20)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See `asyncio.Protocol`."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        sock = transport.get_extra_info("socket")
        if sock is not None and sock.family == socket.AF_INET:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        transport.set_write_buffer_limits(high=BEHIND)
        self._come.set()

    def pause_writing(self) -> None:
        """See `asyncio.Protocol`."""
        self._room.clear()

    def resume_writing(self) -> None:
        """See `asyncio.Protocol`."""
        self._room.set()

    def data_received(self, data: bytes) -> None:
        """See `asyncio.Protocol`."""
        got = self._got
        got += data
        at = 0
        while len(got) - at >= _HEAD.size:
            kind, number, size = _HEAD.unpack_from(got, at)
            end = at + _HEAD.size + size
            if len(got) < end:
                break
            call = (self.on_frame, self.on_small, self.on_byte, self.on_weights)[kind]
            call(number, bytes(got[at + _HEAD.size : end]))
            at = end
        del got[:at]

    def _send(self, kind: int, number: int, data: bytes = b"") -> None:
        assert self._transport is not None
        self._transport.write(_HEAD.pack(kind, number, len(data)) + data)

    def frame(self, number: int, payload: bytes, *, back: bool) -> None:
        """See `Carrier`."""
        self._send(_FRAME, number, payload)

    def small(self, number: int) -> None:
        """See `Carrier`."""
        self._send(_SMALL, number)

    def byte(self, number: int) -> None:
        """See `Carrier`."""
        self._send(_BYTE, number)

    async def weights(self, data: bytes) -> None:
        """See `Carrier`."""
        await self._room.wait()
        self._send(_WEIGHTS, 0, data)
        await asyncio.sleep(0)

    async def close(self) -> None:
        """See `Carrier`."""
        if self._transport is not None:
            self._transport.close()
        if self._server is not None:
            self._server.close()
