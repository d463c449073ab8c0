"""DATA that leaves: cutting, the windows, and what an expiry or a loss changes (RFC 9260 section 6.1)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pooled_nb.mesh.sctp.abandoning import Abandoning
from pooled_nb.mesh.sctp.chunks import DATA_HEADER, FIRST, IMMEDIATE, LAST, Message, Outbound, written
from pooled_nb.mesh.sctp.policy import PACKET
from pooled_nb.mesh.sctp.received import WRAP
from pooled_nb.mesh.sctp.recovery import Recovery
from pooled_nb.mesh.sctp.timer import Timer
from pooled_nb.mesh.sctp.window import Window

PEER_WINDOW = 1024 * 1024
"""Until the peer has told its own."""
PROBE_S = 0.01
"""Beyond the smoothed round trip, at least, until the end of a burst is probed: a turn of a busy loop."""
MAX_SENT = 4_096
"""Chunks sent of which the first is not acknowledged: who withholds that makes nobody keep, or search, more.
An end like this one takes no more either (`receiving.MAX_AHEAD`)."""


class Sending(Abandoning):
    """A part of `association.Association`.

    Attributes
    ----------
    sent, resent
        DATA chunks sent for the first time, and again.
    doubled
        Those that the other end says came twice, as its SACKs tell (RFC 9260 section 3.3.4).
    """

    def __init__(self, *args: Any, window: Window | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._window = Window(self.policy) if window is None else window
        self._member = self._window.join(self._pump)
        if self._window.timeout is not None:
            self._rto = self._window.timeout  # of INIT and COOKIE ECHO, too
        self._recovery = Recovery(early=self.policy.early)
        self._t3 = Timer(self._loop, self._t3_expired)
        self._tail = Timer(self._loop, self._tail_due)
        self._reorder_at: float | None = None
        self._has_probed = False
        self._probe_after: float | None = None
        """Seconds after which the end of a burst is probed."""
        self._peer_window = PEER_WINDOW
        self._marked = 0
        self._backoff = 0
        self._progress_at = 0.0
        """When the peer last acknowledged anything, or what is in flight began to be."""
        self._is_pumping = self._pumps_again = False
        self.sent = self.resent = self.doubled = 0

    @property
    def unsent(self) -> int:
        """Bytes handed over and not sent yet."""
        cut = sum(len(chunk.data) for chunk in self._outbound_queue)
        return cut + sum(len(data) for _, _, data in self._data_channel_queue)

    def _pump(self) -> None:
        """Send all that may be sent. Handlers that run meanwhile may send, close and abort."""
        if self._is_pumping:
            self._pumps_again = True
            return
        self._is_pumping = True
        try:
            self._pumps_again = True
            while self._pumps_again and not self._is_over:
                self._pumps_again = False
                if self.policy.burst:  # stock's order: a SACK lets no more leave than one message
                    self._flush()
                    self._transmit_now()
                else:
                    if (
                        self._outbound_queue
                        or self._marked
                        or self._window.waiting
                        or self._forward_tsn_chunk is not None
                    ):
                        self._transmit_now()
                    if self._data_channel_queue or self._reconfig_queue:
                        self._flush()
        finally:
            self._is_pumping = False

    def _flush(self) -> None:
        """Cut messages while nothing that is cut waits: see `channels`."""
        raise NotImplementedError

    def _cut(
        self,
        stream_id: int,
        protocol: int,
        data: bytes,
        *,
        expiry: float | None = None,
        max_retransmits: int | None = None,
        ordered: bool = True,
        channel: Any = None,
    ) -> None:
        """Cut a message into chunks, which wait for the window."""
        stream_seq = 0
        if ordered:
            stream_seq = self._outbound_stream_seq.get(stream_id, 0)
            self._outbound_stream_seq[stream_id] = (stream_seq + 1) & 0xFFFF
        message = Message(
            stream_id,
            stream_seq,
            protocol,
            len(data),
            ordered=ordered,
            expiry=expiry,
            max_retransmits=max_retransmits,
            channel=channel,
        )
        tsn = self._local_tsn
        flags = message.flags | FIRST
        queue = self._outbound_queue
        size = len(data)
        if size > PACKET:
            # In equal parts: datagrams of one size leave in one call (`segments`).
            step = -(-size // -(-size // PACKET))
            for at in range(0, size - step, step):
                queue.append(Outbound(tsn, flags, message, data[at : at + step]))
                tsn = (tsn + 1) & WRAP
                flags = message.flags
            data = data[(size - 1) // step * step :]
        queue.append(Outbound(tsn, flags | LAST, message, data))
        self._local_tsn = (tsn + 1) & WRAP

    def _transmit_now(self) -> None:
        if self._is_over:
            return
        if self._forward_tsn_chunk is not None:
            self._put(self._forward_tsn_chunk)
            self._forward_tsn_chunk = None
            if self._t3.due is None:
                self._t3_start()
        member = self._member
        self._window.waiting.pop(member, None)
        most = self._burst() if self.policy.burst else WRAP
        if self._marked and not self._resend(most):
            return
        queue = self._outbound_queue
        if not queue:
            return
        now = self._time()
        sent_queue = self._sent_queue
        if not sent_queue:
            self._progress_at = now
        leaving: list[Outbound] = []
        given_up: list[Outbound] = []
        begun = flight = member.flight
        room = min(member.room(), self._peer_window - flight)
        free = MAX_SENT - len(sent_queue)
        while queue and free > 0:
            chunk = queue[0]
            size = len(chunk.data)
            if flight and (size > room or flight >= most):
                break
            queue.popleft()
            sent_queue.append(chunk)
            free -= 1
            if chunk.abandoned:
                given_up.append(chunk)
                continue
            chunk.in_flight = True
            flight += size
            room -= size
            leaving.append(chunk)
        if leaving:
            member.sent(flight - begun)
        if queue and free > 0:
            member.may_send(len(queue[0].data))  # who is refused has its turn
        for chunk in given_up:
            self._gone(chunk)
        if not leaving:
            return
        self._recovery.sent(leaving, now)
        if queue or member.is_full or not self.sent:  # the first asks so that the peer knows who asks
            leaving[-1].flags |= IMMEDIATE
        self.sent += len(leaving)
        self._put_data(leaving)
        for chunk in leaving:
            if chunk.flags & LAST:
                self._gone(chunk)
        if not self._is_over:
            if self._t3.due is None:
                self._t3_start()
            self._watch(now)

    def _put_data(self, leaving: Sequence[Outbound]) -> None:
        """Send chunks, each a packet; with the last goes the SACK that is due, or with one that has room."""
        bodies = written(leaving)
        if self._sack_needed:
            for at in range(-1, len(leaving) - 1):
                if len(leaving[at].data) <= PACKET - DATA_HEADER:
                    bodies[at] = self._sack_aboard() + bodies[at]
                    break
        self._leave(bodies)

    def _burst(self) -> int:
        packets = 2 if self._fast_recovery_exit is not None else self.policy.burst
        return min(self._member.flight + packets * PACKET, self._window.size)

    def _resend(self, most: int) -> bool:
        """Send again what is marked; False when the window is full first."""
        member = self._member
        now = self._time()
        is_earliest = True
        for chunk in self._sent_queue:
            if chunk.retransmit:
                size = len(chunk.data)
                if self._fast_recovery_transmit:
                    # RFC 9260 section 7.2.4 rule 3: the first packet goes whatever the window says.
                    self._fast_recovery_transmit = False
                elif not member.may_send(size) or (member.flight and member.flight >= most):
                    return False
                self._again(chunk, now)
                if is_earliest:
                    self._t3_restart()
                if not self._marked:
                    break
            is_earliest = False
        self._watch(now)
        return True

    def _again(self, chunk: Outbound, now: float) -> None:
        if chunk.retransmit:
            chunk.retransmit = False
            self._marked -= 1
        if not chunk.in_flight:
            chunk.in_flight = True
            self._member.sent(len(chunk.data))
        self._recovery.sent((chunk,), now)
        chunk.flags |= IMMEDIATE
        self.resent += 1
        self._put(chunk)

    def _mark(self, chunk: Outbound) -> None:
        """A chunk is lost: it is given up, or sent again."""
        if not self._give_up(chunk) and not chunk.retransmit:
            chunk.retransmit = True
            self._marked += 1
        chunk.misses = 0
        chunk.acked = False
        self._lands(chunk)

    # timers

    def _timeout(self) -> float:
        """Seconds of T3 now (RFC 9260 section 6.3.3 E2)."""
        if self._srtt is None and self._window.timeout is not None:
            self._rto = self._window.timeout
        return min(self._rto * 2.0**self._backoff, max(self._rto, self.policy.backoff_max))

    def _update_rto(self, R: float) -> None:
        super()._update_rto(R)
        assert self._srtt is not None
        assert self._rttvar is not None
        policy = self.policy
        beyond = 4 * self._rttvar
        self._rto = max(policy.rto_min, min(self._srtt + max(beyond, policy.rto_beyond), policy.rto_max))
        self._window.probe = self._srtt + max(beyond, PROBE_S)
        self._window.timeout = self._rto
        self._probe_after = self._window.probe

    def _t3_start(self) -> None:
        self._t3.set(self._time() + self._timeout())

    def _t3_restart(self) -> None:
        self._t3.set(self._time() + self._timeout())

    def _t3_cancel(self) -> None:
        self._t3.off()

    def _t3_expired(self) -> None:
        self._t3.off()
        self._tail.off()
        now = self._time()
        sent_at = max((c.sent_at for c in self._sent_queue if c.in_flight), default=now)
        recovery = self._recovery
        for index, chunk in enumerate(self._sent_queue):
            # What left a moment ago is not lost because the first one is (RFC 8985 section 6.3).
            if not index or (recovery.is_due(chunk, now) and (not chunk.acked or self.policy.resend_acked)):
                self._mark(chunk)
        self._update_advanced_peer_ack_point()
        self._fast_recovery_exit = None
        self._backoff = min(self._backoff + 1, 16)
        self._member.expired(sent_at, now)
        # Soon, not now: with nothing of it in flight, those who waited are first.
        self._loop.call_soon(self._revive)

    def _revive(self) -> None:
        self._pump()
        if self._sent_queue and self._t3.due is None:
            # No room beside what left a moment ago: if that is lost too, nothing else would wake it.
            self._t3_start()
        self._window.turn(self._member)

    def _watch(self, now: float) -> None:
        """Set when next to look for losses: what hangs in the balance, else a probe of the tail."""
        if not self.policy.early or self._is_over:
            return
        after = self._window.probe if self._probe_after is None else self._probe_after
        if self._reorder_at is not None:
            self._tail.set(max(self._reorder_at, now))
        elif after is not None and not self._has_probed and not self._backoff and self._member.flight:
            self._tail.set(now + after)
        else:
            self._tail.off()

    def _tail_due(self) -> None:
        now = self._time()
        if self._reorder_at is not None:
            self._judge(now)
        elif not self._has_probed:
            self._probe(now)
        self._pump()
        self._window.turn(self._member)

    def _probe(self, now: float) -> None:
        """Nothing came in time: the last one goes again, so that a SACK tells what is missing.

        Acknowledgements wait for no timer here, so there is no second round trip to wait (RFC 9002, 6.2.1).
        """
        for chunk in reversed(self._sent_queue):
            if chunk.in_flight:
                break
        else:
            return
        self._has_probed = True
        if self._give_up(chunk):
            self._update_advanced_peer_ack_point()
            return
        self._again(chunk, now)
        self._t3_restart()

    def _judge(self, now: float) -> bool:
        """Mark what is lost; whether anything is."""
        lost, self._reorder_at = self._recovery.judge(self._sent_queue, now)
        if not lost:
            return False
        sent_at = max(chunk.sent_at for chunk in lost)
        for chunk in lost:
            self._mark(chunk)
        if self._fast_recovery_exit is None:
            self._fast_recovery_exit = self._sent_queue[-1].tsn  # type: ignore[assignment]  # stock sets both
            self._fast_recovery_transmit = True
        self._window.lost(sent_at, now)
        self._update_advanced_peer_ack_point()
        return True

    # the names by which stock calls

    async def _transmit(self) -> None:
        self._transmit_now()

    async def _send(
        self,
        stream_id: int,
        pp_id: int,
        user_data: bytes,
        expiry: float | None = None,
        max_retransmits: int | None = None,
        ordered: bool = True,
    ) -> None:
        self._cut(
            stream_id, pp_id, user_data, expiry=expiry, max_retransmits=max_retransmits, ordered=ordered
        )
        self._transmit_now()
