"""A socket that is read the short way, and who sends to it."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import AsyncIterator, Callable
from typing import Any

from pooled_nb.mesh.sctp import datagrams, segments

HOST = "127.0.0.2"
DTLS, STUN, RTP = b"\x17", b"\x00", b"\x80"


class Sink(asyncio.DatagramProtocol):
    """Stands for aioice's protocol."""

    def __init__(self) -> None:
        self.stock: list[bytes] = []
        self.senders: list[Any] = []
        self.errors: list[Exception] = []
        self.transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def datagram_received(self, data: bytes, addr: Any) -> None:
        self.stock.append(data)
        self.senders.append(addr)
        if data.endswith(b"!"):
            raise struct.error("no such attribute")

    def error_received(self, exc: Exception) -> None:
        self.errors.append(exc)


class Quick:
    """A quickened socket, and who sends to it."""

    def __init__(self, sink: Sink) -> None:
        self.sink = sink
        self.taken: list[bytes] = []
        self.batches: list[int] = []
        self.slow: Callable[[], object] = lambda: None
        self._before = 0
        datagrams.quicken(sink, self.take, self.begun, self.ended)
        self.address = sink.transport.get_extra_info("sockname")
        self.sender = socket.socket(sink.transport.get_extra_info("socket").family, socket.SOCK_DGRAM)
        self.sender.bind((self.address[0], 0))
        self.sender.settimeout(5)

    def send(self, *data: bytes) -> None:
        for one in data:
            self.sender.sendto(one, self.address)

    def send_run(self, *data: bytes) -> None:
        """All in one call; all but the last of one size."""
        self.sender.sendmsg([b"".join(data)], segments.beside(len(data[0])), 0, self.address)

    def take(self, data: bytes) -> None:
        self.taken.append(data)
        self.slow()

    def begun(self) -> None:
        self._before = len(self.taken)

    def ended(self) -> None:
        self.batches.append(len(self.taken) - self._before)


@contextlib.asynccontextmanager
async def quickened(host: str = HOST) -> AsyncIterator[Quick]:
    """One of them, on this address."""
    loop = asyncio.get_running_loop()
    transport, sink = await loop.create_datagram_endpoint(Sink, local_addr=(host, 0))
    made = Quick(sink)
    yield made
    made.sender.close()
    transport.close()
