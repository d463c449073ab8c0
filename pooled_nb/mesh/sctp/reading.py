"""The reader of a connection's socket, in place of asyncio's (DESIGN section 4)."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from pooled_nb.mesh.sctp import segments, turns

BATCH = 64
"""Datagrams that a socket is read in one go."""
MAX_DATAGRAM = 2_048
"""Bytes; WebRTC's are at most 1,280, so that they pass everywhere (RFC 8831 section 5)."""

_buffer = segments.Buffer(MAX_DATAGRAM)


class Reader:
    """Reads a socket of the loop's, in place of its transport; ends with it."""

    def __init__(self, transport: Any, begun: Callable[[], None], ended: Callable[[], None]) -> None:
        self._transport = transport
        self._protocol = transport._protocol
        self._loop = asyncio.get_running_loop()
        self._turns = turns.here()
        self._begun, self._ended = begun, ended
        self._left: deque[bytes] = deque()
        """What was read and is not handed over; nothing more is read before."""
        self._address: Any = None
        """Where that came from."""
        sock = transport._sock
        self._read: Callable[[Any], tuple[list[bytes], Any]]
        if segments.join(sock):
            self._read, self._by = _buffer.read, sock.recvmsg_into
        else:
            self._read, self._by = _one, sock.recvfrom
        # In place of the reader that is there; the transport, which takes it away when it closes, stays.
        self._loop._add_reader(transport._sock_fd, self._ready)  # type: ignore[attr-defined]

    def _ready(self) -> None:
        if not self._left:  # else `_rest` has this turn, and the socket the next
            self._turn(self._batch)

    def _rest(self) -> None:
        self._turn(self._hand_over)

    def _turn(self, do: Callable[[float], object]) -> None:
        if self._transport.is_closing():
            self._left.clear()
            return
        until = self._turns.until()
        self._begun()
        try:
            do(until)
        finally:
            self._ended()
            if self._left:
                self._loop.call_soon(self._rest)

    def _batch(self, until: float) -> None:
        read, by, left = self._read, self._by, self._left
        count = 0
        while count < BATCH:
            try:
                datagrams, self._address = read(by)
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                self._protocol.error_received(error)
                return
            count += len(datagrams)
            left.extend(datagrams)
            if not self._hand_over(until):
                return

    def _hand_over(self, until: float) -> bool:
        """Hand over what was read; False where the turn is over first."""
        received, left, now = self._protocol.datagram_received, self._left, time.monotonic
        is_closing, address = self._transport.is_closing, self._address
        while left:
            received(left.popleft(), address)
            if now() >= until or is_closing():
                return False
        return True


def _one(recvfrom: Callable[[int], tuple[bytes, Any]]) -> tuple[list[bytes], Any]:
    data, address = recvfrom(MAX_DATAGRAM)
    return [data], address
