"""A WebSocket by hand: what no client would send."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import os
import ssl
import struct
from collections.abc import AsyncIterator

from pooled_nb.mesh.signalserver import SignalServer

TEXT, BINARY, CLOSE, PING, PONG = 0x1, 0x2, 0x8, 0x9, 0xA


def frame(opcode: int, data: bytes = b"", *, fin: bool = True, rsv: int = 0, mask: bool = True) -> bytes:
    """One frame as a client sends it."""
    head = bytes([(0x80 if fin else 0) | rsv << 4 | opcode])
    bit = 0x80 if mask else 0
    size = len(data)
    if size < 126:
        head += bytes([bit | size])
    elif size < 1 << 16:
        head += bytes([bit | 126]) + struct.pack("!H", size)
    else:
        head += bytes([bit | 127]) + struct.pack("!Q", size)
    key = os.urandom(4) if mask else b""
    return head + key + (bytes(b ^ key[i % 4] for i, b in enumerate(data)) if mask else data)


class Wire:
    """A TCP connection to a server."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def ended(self) -> bytes:
        """All that came, once the other side has closed."""
        try:
            return await asyncio.wait_for(self.reader.read(-1), 20)
        except ConnectionError:
            return b""

    async def status(self) -> int:
        """Of the answer to a request."""
        line = await asyncio.wait_for(self.reader.readline(), 20)
        return int(line.split()[1]) if line else 0


@contextlib.asynccontextmanager
async def wire(
    server: SignalServer, first: bytes = b"", tls: ssl.SSLContext | None = None
) -> AsyncIterator[Wire]:
    """A connection that has sent ``first``."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port, ssl=tls, limit=1 << 24)
    try:
        writer.write(first)
        yield Wire(reader, writer)
    finally:
        writer.close()
        with contextlib.suppress(OSError, ssl.SSLError):
            await writer.wait_closed()


def handshake(id: str, *more: str, token: str = "sesame") -> bytes:
    """The request of a member, with more header lines."""
    lines = [
        f"GET /peerjs?key=peerjs&id={id}&token={token} HTTP/1.1",
        "Host: x",
        "Upgrade: websocket",
        "Connection: Upgrade",
        "Sec-WebSocket-Version: 13",
        f"Sec-WebSocket-Key: {base64.b64encode(bytes(16)).decode()}",
        *more,
    ]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()
