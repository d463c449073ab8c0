"""SACKs that come: what arrived, what is missing, what that says of the path (RFC 9260 section 6.2.1)."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter

from pooled_nb.mesh.sctp.chunks import Outbound
from pooled_nb.mesh.sctp.received import HALF, WRAP
from pooled_nb.mesh.sctp.sending import Sending

_ORDER = attrgetter("order")


class Acking(Sending):
    """A part of `association.Association`."""

    def _sack(
        self, cumulative: int, window: int, gaps: Sequence[tuple[int, int]], duplicates: Sequence[int]
    ) -> None:
        """A SACK came. What it says may be late, and may be a lie."""
        advance = (cumulative - self._last_sacked_tsn) & WRAP
        never_sent = (self._local_tsn - len(self._outbound_queue)) & WRAP
        if advance >= HALF or advance >= (never_sent - self._last_sacked_tsn) & WRAP:
            return
        now = self._time()
        member, recovery, sent_queue = self._member, self._recovery, self._sent_queue
        was_full = member.is_full
        self._last_sacked_tsn = cumulative
        self._peer_window = window
        arrived: list[Outbound] = []
        done = False
        freed = 0
        while sent_queue and (cumulative - sent_queue[0].tsn) & WRAP < HALF:
            chunk = sent_queue.popleft()
            done = True
            if chunk.in_flight:
                chunk.in_flight = False
                freed += len(chunk.data)
            if chunk.retransmit:
                chunk.retransmit = False
                self._marked -= 1
            if not chunk.acked:
                arrived.append(chunk)
        if freed:
            member.left(freed)
        if sent_queue and (gaps or sent_queue[0].acked):
            self._gap_blocks(cumulative, sorted(gaps), arrived)
        again = bool(self.resent) and any(chunk.sent_count > 1 for chunk in arrived)
        if again:
            arrived.sort(key=_ORDER)  # as they left, so that what one SACK tells at once is no reordering
        size = self._learn(arrived, now, full=was_full)
        self.doubled += len(duplicates)
        if duplicates and self.resent:
            recovery.spurious(duplicates, now)
        was_recovering = self._fast_recovery_exit is not None
        if arrived or done:
            self._backoff = 0
            self._has_probed = False
            self._progress_at = now
            member.acked(size, grow=done and was_full and not was_recovering)
        if gaps or self._reorder_at is not None or again:
            self._judge(now)
        else:
            recovery.settle()
        if was_recovering and (cumulative - (self._fast_recovery_exit or 0)) & WRAP < HALF:
            self._fast_recovery_exit = None
        if not sent_queue:
            self._t3_cancel()
            self._tail.off()
            self._reorder_at = None
        elif done:
            self._t3_restart()
        self._update_advanced_peer_ack_point()
        self._pump()
        if sent_queue and not self._is_over:
            self._watch(now)
        if self._window.waiting:
            self._window.turn(member)

    def _gap_blocks(self, cumulative: int, gaps: list[tuple[int, int]], arrived: list[Outbound]) -> None:
        """Mark what gap blocks cover. Our own queue bounds the walk, whatever ranges they claim."""
        block = 0
        at = (self._sent_queue[0].tsn - cumulative) & WRAP
        took_back = at == 1 and self._sent_queue[0].acked  # else the cumulative TSN had passed it
        for chunk in self._sent_queue:
            while block < len(gaps) and gaps[block][1] < at:
                block += 1
            if block == len(gaps) and not took_back:
                return
            if block < len(gaps) and gaps[block][0] <= at:
                if not chunk.acked and not chunk.abandoned:
                    chunk.acked = True
                    arrived.append(chunk)
                    if chunk.retransmit:
                        chunk.retransmit = False
                        self._marked -= 1
                self._lands(chunk)
            elif took_back:
                # The peer gave up what it had (RFC 9260 section 6.2.1 D iii): that is missing again. Without
                # this proof it still has what this SACK does not name: a later SACK came before it.
                chunk.acked = False
            at += 1

    def _learn(self, arrived: list[Outbound], now: float, *, full: bool) -> int:
        """Bytes that arrived; and the round trip, from the newest that was sent once."""
        size = 0
        for chunk in arrived:
            size += len(chunk.data)
        round_trip = self._recovery.acked(arrived, now)
        if round_trip is not None:
            self._update_rto(round_trip)
            self._member.measured(round_trip, now, full=full)
        return size
