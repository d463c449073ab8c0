"""Datagrams under a connection, without a task or a queue for each (DESIGN section 4).

aioice's sockets are asyncio's: one datagram a wake-up, into a buffer of 256 KiB, through a STUN parser, a
queue and a task. Here one connection's sockets are read up to 64 datagrams at a time and told apart by their
first byte, and written to directly, several in one call where the system has one (`segments`). Where a loop's
transport is of another kind (uvloop, Windows), or a relay stands between, they come and go one at a time.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import time
from asyncio import selector_events
from collections.abc import Callable
from struct import pack
from typing import Any

from pooled_nb.mesh.sctp import segments
from pooled_nb.mesh.sctp.reading import MAX_DATAGRAM, Reader

log = logging.getLogger(__name__)

BUFFERS = (4_194_304, 1_048_576)
"""Bytes that a socket may hold while the loop is busy, the first that the system allows; it may cap them."""
REFRESH_S = 5.0
"""Between two tries to refresh a relay's channel, which holds for 100 s more (RFC 8656 section 12)."""

Received = Callable[[bytes, Any], None]
Put = Callable[[bytes, int], None]
"""Sends a datagram, or several in one piece: of so many bytes each, the last perhaps of fewer."""


def quicken(
    protocol: Any, take: Callable[[bytes], None], begun: Callable[[], None], ended: Callable[[], None]
) -> None:
    """Let the datagrams of one of aioice's protocols come the short way.

    Parameters
    ----------
    take
        Called with each datagram that DTLS is in.
    begun, ended
        Called around several of them, where they come so.
    """
    stock: Received = protocol.datagram_received

    def received(data: bytes, address: Any) -> None:
        first = data[0] if data else 255
        if 19 < first < 64:  # DTLS (RFC 7983)
            take(data)
        elif first < 4 or 127 < first < 192:  # STUN; RTP, which aiortc takes from here
            try:
                stock(data, address)
            except Exception as error:  # aioice's parser raises whatever it stumbles on
                log.debug("a datagram was dropped: %s", error)

    protocol.datagram_received = received
    transport = below(protocol.transport)
    widen(transport)
    if is_selected(transport):
        transport.max_size = MAX_DATAGRAM
        Reader(transport, begun, ended)


def way(pair: Any) -> Put:
    """How datagrams leave by a nominated pair: at once. What does not fit is lost, as in the network."""
    protocol, address = pair.protocol, pair.remote_addr
    transport = protocol.transport
    if below(transport) is not transport:
        return _cut(_relayed(transport, address))
    if not is_selected(transport):
        return _cut(_by(transport, address))
    return _by_socket(protocol, transport._sock, address)


def _cut(put: Callable[[bytes], None]) -> Put:
    def put_each(data: bytes, size: int) -> None:
        for at in range(0, len(data), size):
            put(data[at : at + size])

    return put_each


def _by_socket(protocol: Any, sock: Any, address: Any) -> Put:
    sendto, sendmsg = sock.sendto, sock.sendmsg if segments.works() else None

    def put_one(data: bytes) -> None:
        try:
            sendto(data, address)
        except (BlockingIOError, InterruptedError):
            pass
        except OSError as error:
            protocol.error_received(error)

    put_each = _cut(put_one)

    def put(data: bytes, size: int) -> None:
        nonlocal sendmsg
        if len(data) <= size:
            put_one(data)
            return
        if sendmsg is None:
            put_each(data, size)
            return
        try:
            sendmsg((data,), segments.beside(size), 0, address)
        except (BlockingIOError, InterruptedError):
            pass
        except OSError as error:
            if error.errno not in segments.REFUSED:
                protocol.error_received(error)
                return
            sendmsg = None  # by this path no more
            put_each(data, size)

    return put


def below(transport: Any) -> Any:
    """The transport that has a socket: of a relay's, the one to the relay."""
    inner = getattr(transport, "_TurnTransport__inner_protocol", None)
    return transport if inner is None else inner.transport


def is_selected(transport: Any) -> bool:
    """Whether it is asyncio's own over a selector, whose socket can be read and written here."""
    # All that is private of asyncio's stands here and in `Reader`.
    kind = getattr(selector_events, "_SelectorDatagramTransport", ())
    parts = ("_sock", "_sock_fd", "_protocol")
    return (
        isinstance(transport, kind)
        and all(hasattr(transport, part) for part in parts)
        and hasattr(asyncio.get_running_loop(), "_add_reader")
    )


def widen(transport: Any) -> None:
    """Give its socket larger buffers, where the system allows any; never fails."""
    sock = transport.get_extra_info("socket")
    if sock is None or sock.type != socket.SOCK_DGRAM:
        return  # of a stream, the system chooses them better
    for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
        for size in BUFFERS:
            with contextlib.suppress(OSError):
                if sock.getsockopt(socket.SOL_SOCKET, option) < size:
                    sock.setsockopt(socket.SOL_SOCKET, option, size)
                break


def _by(transport: Any, address: Any) -> Callable[[bytes], None]:
    def put(data: bytes) -> None:
        # A closed one raises what its kind raises.
        with contextlib.suppress(OSError, RuntimeError):
            transport.sendto(data, address)

    return put


def _relayed(transport: Any, address: Any) -> Callable[[bytes], None]:
    """By a relay: through the channel that is bound there, where it is; else aioice binds one first."""
    inner = transport._TurnTransport__inner_protocol
    asked = 0.0

    def put(data: bytes) -> None:
        nonlocal asked
        if transport._TurnTransport__close_task is not None or inner.transport.is_closing():
            return
        channel = inner.peer_to_channel.get(address)
        if channel is None or address in inner.peer_connect_waiters:
            transport.sendto(data, address)
            return
        # aioice's own clock, that of the wall, and what it does about it: `relay.allocate`.
        if time.time() > inner.channel_refresh_at[channel] and time.monotonic() > asked:
            asked = time.monotonic() + REFRESH_S
            transport.sendto(data, address)
            return
        inner._send(pack("!HH", channel, len(data)) + data)

    return put
