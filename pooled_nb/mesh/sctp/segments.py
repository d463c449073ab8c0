"""Several datagrams in one call of the system: Linux's UDP_SEGMENT and UDP_GRO, where they work.

A run is several datagrams of one size, the last perhaps shorter, in one piece. On the wire they are what they
would be one by one: the kernel cuts them, or the network card. Between ends on one machine nobody does, and
who reads wakes up once for all of them.
"""

from __future__ import annotations

import errno
import functools
import socket
import sys
import threading
from collections.abc import Callable, Sequence
from struct import Struct
from typing import Any

SEGMENT, GRO = 103, 104
"""Of ``linux/udp.h``; Python does not name them."""
MOST = 64
"""Datagrams of a run."""
MOST_BYTES = 65_000
"""Of a run: it is one packet to the kernel until it is cut."""
REFUSED = frozenset((errno.EINVAL, errno.EIO, errno.EMSGSIZE, errno.ENOPROTOOPT, errno.EOPNOTSUPP))
"""What a system says that sends no runs by a path: EIO where its checksums are not the card's to make, EINVAL
or EMSGSIZE where a datagram is larger than the path's MTU. One by one they pass, in fragments perhaps."""
TRY_S = 0.05
"""Longest wait of `works`; on loopback a datagram is there when the call that sends it returns."""
SPACE = 64
"""Bytes for what the system says beside the data: a header of 16 and an ``int``."""

_sent_size = Struct("=H")
_got_size = Struct("=i")

Ancillary = Sequence[tuple[int, int, bytes]]


@functools.cache
def works() -> bool:
    """Whether this system sends runs. Tried, once: what only looks like Linux may take one for a datagram."""
    if sys.platform != "linux":
        return False
    try:
        with _socket() as to, _socket() as by:
            to.bind(("127.0.0.1", 0))
            to.settimeout(TRY_S)
            by.sendmsg((b"aab",), beside(2), 0, to.getsockname())
            return [to.recv(4), to.recv(4)] == [b"aa", b"b"]
    except OSError:
        return False


@functools.lru_cache(64)
def beside(size: int) -> Ancillary:
    """What is said beside a run: the bytes of each datagram but the last."""
    return ((socket.IPPROTO_UDP, SEGMENT, _sent_size.pack(size)),)


def join(sock: Any) -> bool:
    """Let datagrams of one sender come in one piece, as far as they are a run; False where none will.

    Who reads the socket from now on must do so by a `Buffer`.
    """
    if sys.platform != "linux":
        return False
    try:
        sock.setsockopt(socket.IPPROTO_UDP, GRO, 1)
    except OSError:
        return False
    return True


class Buffer(threading.local):
    """What all sockets of a thread are read into. Nothing stays in it.

    Parameters
    ----------
    most
        Bytes of a datagram; what is longer is cut off there, as by ``recvfrom``.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        space = bytearray(1 << 16)  # no piece is larger: what did not fit would be lost
        self._into, self._view = (space,), memoryview(space)

    def read(self, recvmsg_into: Callable[..., Any]) -> tuple[list[bytes], Any]:
        """What comes next from a socket: a datagram, or several in one piece; and from where."""
        size, said, _, address = recvmsg_into(self._into, SPACE)
        step = size
        for level, kind, data in said:
            if level == socket.IPPROTO_UDP and kind == GRO and len(data) >= _got_size.size:
                step = _got_size.unpack_from(data)[0]
        if not 0 < step < size:
            return [bytes(self._view[: min(size, self._most)])], address
        piece, most = bytes(self._view[:size]), min(step, self._most)
        return [piece[at : at + most] for at in range(0, size, step)], address


def _socket() -> socket.socket:
    return socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
