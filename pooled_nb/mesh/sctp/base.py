"""What all jobs of an association stand on: the way out, bounds, and stock's coroutines without a loop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

from aiortc.rtcsctptransport import AbortChunk, Chunk, InitChunk, RTCSctpTransport

from pooled_nb.mesh import together
from pooled_nb.mesh.sctp import chunks
from pooled_nb.mesh.sctp.policy import TUNED, Policy

log = logging.getLogger(__name__)

FIRST = 4
"""Packets after which the first of a moment leave: the other end reads them while the rest is made. On 16
idle cores a round trip of 10 KB takes 0.55 ms so, 0.84 where all nine leave at the end, for the same CPU."""
TOGETHER = 16
"""Packets of the rest that wait for each other at most."""

T = TypeVar("T")


def finish(job: Coroutine[Any, Any, T]) -> T | None:
    """Run a coroutine that waits for nothing. One that would wait is given up: None."""
    try:
        job.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    # Only a transport that makes its senders wait gets here, and no packet is worth that: it is lost.
    job.close()
    return None


class Base(RTCSctpTransport):
    """Stock, with a way out that never waits.

    Attributes
    ----------
    on_abort
        Called with the reason when this end aborts the association, for what the peer did.
    """

    _loop: asyncio.AbstractEventLoop

    def __init__(self, transport: Any, port: int = 5000, *, policy: Policy = TUNED) -> None:
        super().__init__(transport, port)
        self.policy = policy
        self.on_abort: Callable[[str], None] | None = None
        self._is_over = False
        self._rto = policy.rto_initial
        self._time = self._loop.time
        # Ours (`dtls`) sends at once; aiortc's has a coroutine, which waits for nothing over UDP.
        self._send_now: Callable[[Sequence[bytes]], None] | None = getattr(transport, "send_now", None)
        self._header = b""
        self._header_sum = 0
        self._header_of = (-1, -1)
        self._packets: list[bytes] = []
        """They leave when the batch that is read has ended, or the frame they are of (`together`)."""
        self._most = FIRST
        """So many leave at once, wherever this moment stands."""
        self._in_batch = 0
        """Packets of the batch that is read."""

    def setTransport(self, transport: Any) -> None:
        """See `RTCSctpTransport.setTransport`."""
        super().setTransport(transport)
        self._send_now = getattr(transport, "send_now", None)

    def _put(self, chunk: Any) -> None:
        """Send a chunk. Without a transport it is lost, as it would be on the way."""
        # INIT is for who knows no tag yet (RFC 9260 section 8.5.1), also when it is sent again: with the tag
        # of the other's INIT, which may have come, it would be dropped; and for good where both do so.
        self._leave((bytes(chunk),), 0 if isinstance(chunk, InitChunk) else None)

    def _leave(self, bodies: Sequence[bytes], tag: int | None = None) -> None:
        """Send packets, each of these bodies: now, or together with what else is sent in this moment."""
        header_of = (self._remote_verification_tag if tag is None else tag, self._remote_port or 0)
        if header_of != self._header_of:
            self._header = chunks.head.pack(self._local_port, header_of[1], header_of[0])
            self._header_sum = chunks.sum_of(self._header)
            self._header_of = header_of
        packets = self._packets
        packets += chunks.seal(self._header, self._header_sum, bodies)
        if not (self._in_batch or together.here.waits(self._moment_over)):
            self._moment_over()
        elif len(packets) >= self._most:
            self._let_go()
            self._most = TOGETHER

    def _moment_over(self) -> None:
        """The batch has been read, or the frame given: all of it leaves."""
        self._most = FIRST
        self._let_go()

    def _let_go(self) -> None:
        """Send what waits to leave."""
        packets = self._packets
        if not packets:
            return
        self._packets = []
        try:
            if self._send_now is not None:
                self._send_now(packets)
            else:
                for packet in packets:
                    finish(self.transport._send_data(packet))
        except ConnectionError:
            pass

    def _sack_aboard(self) -> bytes:
        """The SACK that is due, if it may leave in a packet with data: see `receiving`."""
        raise NotImplementedError

    async def _send_chunk(self, chunk: Chunk) -> None:
        self._put(chunk)

    def _abort_for(self, why: str) -> None:
        """End the association because of what the peer did (RFC 9260 section 9.1)."""
        if self._is_over:
            return
        log.debug("association aborted: %s", why)
        self._put(AbortChunk())
        self._set_state(self.State.CLOSED)
        if self.on_abort is not None:
            self._tell(self.on_abort, why)

    def _tell(self, call: Callable[..., object], *args: Any) -> None:
        """Call an application's handler, or what calls it: what escapes there is not the association's."""
        try:
            call(*args)
        except Exception:
            log.exception("a handler of an association failed")
