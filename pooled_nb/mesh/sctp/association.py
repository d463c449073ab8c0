"""aiortc's SCTP association, made cheap, quick to recover and bounded (RFC 9260, DESIGN section 4).

Handshake, stream resets and shutdown are stock, run without a task; DATA and SACK, which nearly all packets
are, have short ways of their own (`receiving`, `sending`, `acking`, `channels`). What may leave has left when
the call returns, and what came was handed over when its datagram was.

What a hostile peer can make one association hold: 1 MB of fragments (the window), the next 65,536 bytes in
order above it, at most 8,192 fragments (about 2 MB of objects), 4,096 TSNs behind gaps, 1,024 streams, 64
channels, 32 duplicates, 200 gap blocks in a SACK: under 4 MB; a link with 8 stripes, 9 associations, under
36 MB. A message of more than 65,536 bytes or 512 pieces, and each of the counts, ends the association with a
reason. Data beyond the window is dropped as if it had been lost on the way. A packet makes at most 8 packets,
and none costs a search of all that waits. Who acknowledges all but the first keeps here what was sent to it:
4,096 chunks, under 6 MB, and nothing more is sent.
"""

from __future__ import annotations

from typing import Any

from aiortc.rtcsctptransport import (
    SCTP_MAX_ASSOCIATION_RETRANS,
    Chunk,
    CookieAckChunk,
    CookieEchoChunk,
    DataChunk,
    ForwardTsnChunk,
    InitAckChunk,
    InitChunk,
    ReconfigChunk,
    RTCSctpCapabilities,
    RTCSctpTransport,
    SackChunk,
    StreamAddOutgoingParam,
    StreamResetOutgoingParam,
)
from google_crc32c import extend

from pooled_nb.mesh.network import ConnectionStats
from pooled_nb.mesh.sctp import chunks
from pooled_nb.mesh.sctp.base import finish, log
from pooled_nb.mesh.sctp.channels import Channels
from pooled_nb.mesh.sctp.chunks import DATA, DATA_HEADER, read_data, read_head
from pooled_nb.mesh.sctp.policy import TUNED, Policy
from pooled_nb.mesh.sctp.received import WRAP
from pooled_nb.mesh.sctp.window import Window

MAX_CONTROL = 8
"""Chunks of one packet, other than DATA, that are looked at."""
MAX_PARAMETERS = 2
"""Of one RE-CONFIG (RFC 6525 section 3.1)."""
BATCH = 16
"""Packets that are read before what they make this end send leaves."""


class Association(Channels):
    """See the module, and `RTCSctpTransport`.

    Parameters
    ----------
    window
        The congestion window that it shares with the other connections of its link; None: its own.
    """

    def __init__(
        self, transport: Any, port: int = 5000, *, window: Window | None = None, policy: Policy = TUNED
    ) -> None:
        super().__init__(transport, port, window=window, policy=policy)
        self._their_head, self._their_sum = b"", 0
        """Ports and tag of the peer's packets, once one was taken, and what their checksum begins with."""

    @classmethod
    def getCapabilities(cls) -> RTCSctpCapabilities:
        """What is said in the description (RFC 8841 section 6)."""
        return RTCSctpCapabilities(maxMessageSize=TUNED.max_message)

    def stats(self) -> ConnectionStats:
        """See `network.ConnectionStats`."""
        return ConnectionStats(
            sent=self.sent,
            resent=self.resent,
            doubled=self.doubled,
            unsent=self.unsent,
            in_flight=sum(len(chunk.data) for chunk in self._sent_queue),
            window=self._window.size,
            rtt_s=self._srtt,
            stuck_s=self._time() - self._progress_at if self._sent_queue else 0.0,
        )

    # packets

    def receive_now(self, packet: bytes) -> None:
        """Take one packet, whatever is in it. Never raises; `batch_ended` is to follow, with no turn between.

        What is sent meanwhile leaves then, with the SACK: or before, where the batch is a large one.
        """
        self._in_batch += 1
        try:
            end = len(packet)
            if self._is_over or end < 16:
                return
            head, checksum = read_head(packet)
            is_theirs = head == self._their_head
            begun = self._their_sum if is_theirs else chunks.sum_of(head)
            if extend(begun, packet[12:]) != checksum:
                return
            if end > 28 and is_theirs:
                kind, flags, length, tsn, stream_id, seq, protocol = read_data(packet, 12)
                if kind == DATA and length > DATA_HEADER and end - 4 < 12 + length <= end:
                    # Alone, as nearly always.
                    self._data(tsn, flags, stream_id, seq, protocol, packet[28 : 12 + length])
                    if self._prompt:
                        self._count_data()
                    elif self._sack_needed:
                        self._unsacked += 1
                    return
            self._packet(packet, head, begun)
        except Exception:
            log.exception("a packet of the peer was not understood")
        finally:
            if self._in_batch >= BATCH:
                self.batch_ended()

    def batch_ended(self) -> None:
        """Acknowledge what came since the last time: one SACK for all of it, now or soon. Never raises."""
        if self._sack_needed:
            self._sack_soon()
        self._in_batch = 0
        self._moment_over()

    async def _handle_data(self, data: bytes) -> None:
        self.receive_now(data)
        self._sack_now()
        self.batch_ended()

    def _packet(self, packet: bytes, head: bytes, begun: int) -> None:
        """A packet whose checksum holds; ``begun``: what that begins with, of its first 8 bytes."""
        kind, flags, length = chunks.read_chunk(packet, 12)
        tag = int.from_bytes(head[4:], "big")
        if kind == chunks.INIT:
            if tag or length + (-length & 3) < len(packet) - 12:  # alone, with tag 0 (RFC 9260, 8.5.1)
                return
        elif tag != self._local_verification_tag:
            return
        else:
            self._their_head, self._their_sum = head, begun
        self._chunks(packet, 12, kind, flags, length)
        self._count_data()

    def _count_data(self) -> None:
        if not self._sack_needed:
            return
        self._unsacked += 1
        if self._prompt and self._has_gap:
            # At once, so that a peer that counts SACKs has its three soon, however large the batch is.
            self._prompt -= 1
            self._sack_now()

    def _chunks(self, packet: bytes, at: int, kind: int, flags: int, length: int) -> None:
        end = len(packet)
        control = 0
        while True:
            if length < 4 or at + length > end:
                return
            if kind == DATA:
                if length > DATA_HEADER:
                    _, flags, _, tsn, stream_id, seq, protocol = read_data(packet, at)
                    self._data(tsn, flags, stream_id, seq, protocol, packet[at + 16 : at + length])
            elif control == MAX_CONTROL:
                return
            elif kind == chunks.SACK:
                control += 1
                sack = chunks.read_sack(packet, at, length)
                if sack is not None:
                    self._sack(*sack)
            else:
                control += 1
                chunk = chunks.read_other(kind, flags, packet[at + 4 : at + length])
                if chunk is not None:
                    self._control(chunk)
            at += length + (-length & 3)
            if at > end - 4 or self._is_over:
                return
            kind, flags, length = chunks.read_chunk(packet, at)

    async def _receive_chunk(self, chunk: Chunk) -> None:
        if isinstance(chunk, DataChunk):
            self._data(
                chunk.tsn, chunk.flags, chunk.stream_id, chunk.stream_seq, chunk.protocol, chunk.user_data
            )
        elif isinstance(chunk, SackChunk):
            self._sack(chunk.cumulative_tsn, chunk.advertised_rwnd, chunk.gaps, chunk.duplicates)
        else:
            self._control(chunk)

    def _control(self, chunk: Chunk) -> None:
        """All chunks but DATA and SACK."""
        if isinstance(chunk, ForwardTsnChunk):
            self._forward(chunk.cumulative_tsn, chunk.streams)
        elif isinstance(chunk, InitChunk):
            self._init_came(chunk)
        elif isinstance(chunk, CookieEchoChunk) and self._association_state == self.State.ESTABLISHED:
            self._put(CookieAckChunk())  # ours was lost; nothing is to be opened again
        else:
            if isinstance(chunk, InitAckChunk) and self._association_state == self.State.COOKIE_WAIT:
                self._peer_window = chunk.advertised_rwnd
            elif isinstance(chunk, ReconfigChunk):
                chunk.params = chunk.params[:MAX_PARAMETERS]
            finish(super()._receive_chunk(chunk))

    def _init_came(self, chunk: InitChunk) -> None:
        if chunk.initiate_tag == 0:
            return
        if self._remote_verification_tag == 0 or self._association_state == self.State.CLOSED:
            self._peer_window = chunk.advertised_rwnd
            finish(super()._receive_chunk(chunk))
            return
        if chunk.initiate_tag != self._remote_verification_tag:
            return  # a restart (RFC 9260 section 5.2.4.1) would come with a DTLS connection of its own
        # Once more the one that was answered, late or doubled by the network: the answer was lost perhaps,
        # and what has come since is not undone.
        received, response_seq = self._received, self._reconfig_response_seq
        counts = self._inbound_streams_count, self._outbound_streams_count
        finish(super()._receive_chunk(chunk))
        self._received, self._reconfig_response_seq = received, response_seq
        self._inbound_streams_count, self._outbound_streams_count = counts

    async def _receive_reconfig_param(self, param: Any) -> None:
        if isinstance(param, StreamResetOutgoingParam | StreamAddOutgoingParam):
            # One that was answered long ago comes again late, and must not reset a stream that is in use
            # again (RFC 6525 section 5.2.1).
            ahead = (param.request_sequence - self._reconfig_response_seq) & WRAP
            if ahead > 1 or (ahead == 0 and isinstance(param, StreamAddOutgoingParam)):
                return
        await super()._receive_reconfig_param(param)

    # the life of it

    def _get_timestamp(self) -> int:
        return int(self._time())  # of cookies, which only this end reads: a clock set back is none of theirs

    def _set_state(self, state: RTCSctpTransport.State) -> None:
        if self._is_over:
            return
        if state != self.State.CLOSED:
            self._tell(super()._set_state, state)
            return
        self._let_go()  # the last word, ABORT or SHUTDOWN COMPLETE
        self._is_over = True
        self._t3.stop()
        self._tail.stop()
        self._sack_timer.stop()
        self._member.leave()
        self._clear()
        self._tell(super()._set_state, state)
        self._window.turn(self._member)

    def _t1_expired(self) -> None:
        self._t1_failures += 1
        self._t1_handle = None
        policy = self.policy
        if self._t1_failures > policy.t1_retries:
            self._set_state(self.State.CLOSED)
            return
        self._put(self._t1_chunk)
        wait = self._rto
        if policy.t1_backs_off:
            wait = min(wait * 2.0**self._t1_failures, policy.backoff_max)
        self._t1_handle = self._loop.call_later(wait, self._t1_expired)

    def _t2_expired(self) -> None:
        self._t2_failures += 1
        self._t2_handle = None
        if self._t2_failures > SCTP_MAX_ASSOCIATION_RETRANS:
            self._set_state(self.State.CLOSED)
            return
        self._put(self._t2_chunk)
        self._t2_handle = self._loop.call_later(self._rto, self._t2_expired)
