"""DATA that is sent no more: partial reliability (RFC 3758), and what leaves the queues with it."""

from __future__ import annotations

from collections import deque
from typing import Any

from aiortc.rtcsctptransport import ForwardTsnChunk

from pooled_nb.mesh.sctp.base import Base
from pooled_nb.mesh.sctp.chunks import LAST, Outbound
from pooled_nb.mesh.sctp.received import HALF, WRAP
from pooled_nb.mesh.sctp.window import Member

MAX_FORWARDED = 256
"""Streams in one FORWARD TSN, which is one packet: more than a connection has."""


class Abandoning(Base):
    """A part of `association.Association`."""

    _outbound_queue: deque[Outbound]  # type: ignore[assignment]  # ours, as all of this job
    _sent_queue: deque[Outbound]  # type: ignore[assignment]
    _member: Member
    _marked: int

    def _gone(self, chunk: Outbound) -> None:
        """The last fragment left, or never will: the message is buffered no more (W3C ``bufferedAmount``)."""
        message = chunk.message
        channel, message.channel = message.channel, None
        if channel is not None:
            self._tell(channel._addBufferedAmount, -message.size)

    def _lands(self, chunk: Outbound) -> None:
        """It is no longer in flight."""
        if chunk.in_flight:
            chunk.in_flight = False
            self._member.left(len(chunk.data))

    def _give_up(self, chunk: Outbound) -> bool:
        """Whether a chunk is sent no more (RFC 3758 section 3.5); with it goes the whole of its message."""
        if chunk.abandoned:
            return True
        message = chunk.message
        spent = message.max_retransmits is not None and chunk.sent_count > message.max_retransmits
        if not spent and (message.expiry is None or message.expiry >= self._time()):
            return False
        sent_queue = self._sent_queue
        at = (chunk.tsn - sent_queue[0].tsn) & WRAP
        first = last = at
        while first and sent_queue[first - 1].message is message:
            first -= 1
        while last + 1 < len(sent_queue) and sent_queue[last + 1].message is message:
            last += 1
        for index in range(first, last + 1):
            self._abandon(sent_queue[index])
        for unsent in self._outbound_queue:
            if unsent.message is not message:
                break
            self._abandon(unsent)
        return True

    def _abandon(self, chunk: Outbound) -> None:
        chunk.abandoned = True
        if chunk.retransmit:
            chunk.retransmit = False
            self._marked -= 1
        self._lands(chunk)

    def _maybe_abandon(self, chunk: Any) -> bool:
        return self._give_up(chunk)

    def _update_advanced_peer_ack_point(self) -> None:
        """RFC 3758 section 3.5. Most calls find nothing given up, and end here."""
        sent_queue, queue = self._sent_queue, self._outbound_queue
        if not (
            self._forward_tsn_streams
            or (sent_queue and sent_queue[0].abandoned)
            or (queue and queue[0].abandoned)
            or self._advanced_peer_ack_tsn != self._last_sacked_tsn
        ):
            return
        if (self._last_sacked_tsn - self._advanced_peer_ack_tsn) & WRAP < HALF:
            self._advanced_peer_ack_tsn = self._last_sacked_tsn
        # What was given up before it was sent never is, and its TSNs are skipped as those of the others.
        while queue and queue[0].abandoned:
            chunk = queue.popleft()
            sent_queue.append(chunk)
            if chunk.flags & LAST:
                self._gone(chunk)
        while sent_queue and sent_queue[0].abandoned:
            chunk = sent_queue.popleft()
            self._advanced_peer_ack_tsn = chunk.tsn
            message = chunk.message
            if not message.flags:
                self._forward_tsn_streams[message.stream_id] = (message.stream_seq, chunk.tsn)
        # Streams are told until the peer has acknowledged what was given up of them.
        self._forward_tsn_streams = {
            stream_id: told
            for stream_id, told in self._forward_tsn_streams.items()
            if 0 < (told[1] - self._last_sacked_tsn) & WRAP < HALF
        }
        if 0 < (self._advanced_peer_ack_tsn - self._last_sacked_tsn) & WRAP < HALF:
            # Also again: the last one may have been lost (RFC 3758 section 3.5 C3 and A5).
            forward = self._forward_tsn_chunk = ForwardTsnChunk()
            forward.cumulative_tsn = self._advanced_peer_ack_tsn
            told = [(stream_id, seq) for stream_id, (seq, _) in self._forward_tsn_streams.items()]
            forward.streams = told[:MAX_FORWARDED]
