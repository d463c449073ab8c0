"""The last flight of a DTLS handshake, said again soon (RFC 6347 section 4.2.4).

OpenSSL's own timer takes 1, 2, 4 and 8 s, of which a handshake at 20 % loss needs several; the flight that
ends the handshake it sends again only when the other end does. Here the same datagram is sent again after a
quarter of a second, and then less often. What comes of it twice the other end throws away as a replay
(section 4.1.2.6), and both ends say again what they said last: so an early one costs a datagram and no more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from pooled_nb.mesh.sctp.timer import Timer

WAITS_S = (0.25, 0.5, 1.0)
"""Before it is sent again; the last one again and again."""
MOST = 40
"""Times that one flight is sent again: a connection is given up after 40 s (PROTOCOL section 2)."""
MOST_LAST = 6
"""Of the one that ends the handshake, while the other end says nothing."""


class Flight:
    """See the module.

    Parameters
    ----------
    send
        Sends a datagram at once, or not at all.
    """

    def __init__(self, send: Callable[[bytes], None]) -> None:
        self._send = send
        self._loop = asyncio.get_running_loop()
        self._timer = Timer(self._loop, self._again)
        self._datagram = b""
        self._times = 0
        self._most = MOST

    @property
    def is_out(self) -> bool:
        """Whether it is sent again, until something comes."""
        return self._timer.due is not None

    def left(self, datagram: bytes) -> None:
        """A flight was sent: it takes the place of the one before."""
        self._datagram, self._times = datagram, 0
        self._wait()

    def is_last(self) -> None:
        """The handshake is over for this end, whose flight was the last one."""
        self._times, self._most = 0, MOST_LAST

    def arrived(self) -> None:
        """The other end has it, or nobody waits for it any more."""
        self._datagram = b""
        self._timer.stop()

    def _wait(self) -> None:
        self._timer.set(self._loop.time() + WAITS_S[min(self._times, len(WAITS_S) - 1)])

    def _again(self) -> None:
        if self._times >= self._most:
            return
        self._times += 1
        self._send(self._datagram)
        self._wait()
