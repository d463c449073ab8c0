"""DATA that comes: messages, and the SACK for it (RFC 9260 section 6.2, RFC 3758 section 3.6)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from aiortc.utils import uint16_add

from pooled_nb.mesh.sctp.base import Base
from pooled_nb.mesh.sctp.chunks import IMMEDIATE, UNORDERED, WHOLE, Piece, Sack
from pooled_nb.mesh.sctp.reassembly import Inbound
from pooled_nb.mesh.sctp.received import Received
from pooled_nb.mesh.sctp.timer import Timer

RECEIVE_WINDOW = 1024 * 1024
MAX_HELD = 4_096
"""Fragments that wait: a small one costs far more than its bytes."""
MAX_UNFINISHED = 65_536
"""Bytes in order that may be held above the window: of one message, no more can be unfinished."""
MAX_PIECES = 512
"""Of one unfinished message; of full packets it has 57."""
MAX_AHEAD = 4_096
"""TSNs beyond the cumulative one."""
MAX_STREAMS = 1_024
LOOSE = WHOLE | UNORDERED
APART = 65_536
"""Added to a stream's identifier: its fragments that are not ordered, which wait apart."""
MAX_GAPS = 200
MAX_DUPLICATES = 32
"""A SACK with all of these has 16 + 4 · 232 bytes: one packet."""
SACK_EVERY = 16
"""Packets of DATA for which a SACK leaves at once, of a peer that asks for one where it waits for it."""
SACK_EVERY_UNASKED = 4
"""The same of any other: stock sends no more at a time before it has one."""
SACK_S = 0.002
"""Seconds that a SACK for fewer waits, so that it leaves with an answer, or for all packets of a frame. No
more: a SACK that waits looks like a longer path (RFC 9260 section 6.2 would allow 0.2). Who does not ask is
told in the next turn of the loop."""
PROMPT = 4
"""SACKs that leave at once for a new gap; a peer resends after three (RFC 9260 section 7.2.4)."""


class Receiving(Base):
    """A part of `association.Association`."""

    _inbound_streams: dict[int, Inbound]  # type: ignore[assignment]  # ours has the names that stock uses

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._received: Received | None = None
        super().__init__(*args, **kwargs)
        self._advertised_rwnd = RECEIVE_WINDOW
        self._held = 0
        self._prompt = 0
        self._unsacked = 0
        """Packets of DATA since the last SACK."""
        self._asked = self._asks = False
        """The peer set the I bit (RFC 9260 section 3.3.1): since the last SACK, and ever."""
        self._sack_timer = Timer(self._loop, self._sack_now)

    @property
    def _last_received_tsn(self) -> int | None:
        return None if self._received is None else self._received.cumulative

    @_last_received_tsn.setter
    def _last_received_tsn(self, tsn: int | None) -> None:
        # Stock's handshake sets it, from the INIT or INIT ACK.
        self._received = None if tsn is None else Received(tsn)

    @property
    def _has_gap(self) -> bool:
        return self._received is not None and self._received.runs > 0

    def _deliver(self, stream_id: int, protocol: int, data: bytes) -> None:
        """A message is complete: see `channels`."""
        raise NotImplementedError

    def _reset_due(self) -> None:
        """A reset of the peer's may be due: see `channels`."""
        raise NotImplementedError

    def _data(
        self, tsn: int, flags: int, stream_id: int, stream_seq: int, protocol: int, user_data: bytes
    ) -> None:
        """A DATA chunk came."""
        received = self._received
        if received is None or self._is_over:
            return
        self._sack_needed = True
        if flags & IMMEDIATE:
            self._asked = self._asks = True
        if not received.goes_on(tsn) and not self._beyond(received, tsn, len(user_data)):
            return
        if flags & LOOSE == LOOSE:
            if stream_id not in self._inbound_streams and self._stream(stream_id) is None:
                return
            self._deliver(stream_id, protocol, user_data)
            self._after_data()
            return
        key = stream_id + APART if flags & UNORDERED else stream_id
        stream = self._inbound_streams.get(key) or self._stream(key)
        if stream is None:
            return
        if flags & WHOLE == WHOLE and not stream.reassembly and stream_seq == stream.sequence_number:
            stream.sequence_number = (stream_seq + 1) & 0xFFFF
            self._deliver(stream_id, protocol, user_data)
            self._after_data()
            return
        stream.add_chunk(Piece(tsn, flags, stream_id, stream_seq, protocol, user_data))
        self._held += 1
        self._advertised_rwnd -= len(user_data)
        if not stream.is_stuck:
            self._pop(stream)
        if (
            stream.size > self.policy.max_message
            or stream.count > MAX_PIECES
            or self._advertised_rwnd < -MAX_UNFINISHED
            or self._held > 2 * MAX_HELD
        ):
            self._too_much(stream)
        if self._reconfig_deferred is not None:
            self._after_data()

    def _beyond(self, received: Received, tsn: int, size: int) -> bool:
        """A TSN that is not simply the next one: whether it counts as received."""
        ahead = received.ahead(tsn)
        if ahead > 1 and (ahead > MAX_AHEAD or self._advertised_rwnd < size or self._held >= MAX_HELD):
            return False  # the peer sends it again when there is room (RFC 9260 section 6.2)
        runs = received.runs
        if not received.add(tsn):
            if len(self._sack_duplicates) < MAX_DUPLICATES:
                self._sack_duplicates.append(tsn)
            return False
        if received.runs > runs:
            self._prompt = PROMPT
        return True

    def _too_much(self, stream: Inbound) -> None:
        """A bound is passed, perhaps: those of a message hold while it is not complete, and 0 is none."""
        most = self.policy.max_message
        is_open = most and stream.reassembly
        if is_open and stream.size > most:
            self._abort_for(f"it sent a message of more than {most} bytes")
        elif is_open and stream.count > MAX_PIECES:
            self._abort_for(f"it sent a message in more than {MAX_PIECES} pieces")
        elif self._advertised_rwnd < -MAX_UNFINISHED or self._held > 2 * MAX_HELD:
            self._abort_for("it sent fragments that become no message")

    def _pop(self, stream: Inbound, *, skips: bool = False) -> None:
        before = len(stream.reassembly)
        if not skips and (only := stream.pop_only()) is not None:
            self._held -= before
            self._advertised_rwnd += len(only[2])
            self._deliver(*only)
            return
        for stream_id, protocol, user_data in stream.pop_messages(skips=skips):
            after = len(stream.reassembly)
            self._held -= before - after
            before = after
            self._advertised_rwnd += len(user_data)
            self._deliver(stream_id, protocol, user_data)
            if self._is_over:
                return

    def _after_data(self) -> None:
        if self._reconfig_deferred is not None and not self._is_over:
            self._reset_due()

    def _forward(self, cumulative: int, streams: Iterable[tuple[int, int]]) -> None:
        """A FORWARD TSN came: what is up to it comes no more."""
        received = self._received
        if received is None:
            return
        self._sack_needed = True
        if received.ahead(cumulative) <= 0:
            return
        received.forward(cumulative)
        for stream_id, stream_seq in dict(streams).items():
            stream = self._stream(stream_id)
            if stream is None:
                return
            stream.forward(uint16_add(stream_seq, 1))
            self._pop(stream, skips=True)
            if self._is_over:
                return
        for stream in self._inbound_streams.values():
            if stream.reassembly:
                before = len(stream.reassembly)
                self._advertised_rwnd += stream.prune_chunks(received.cumulative)
                self._held -= before - len(stream.reassembly)
        self._after_data()

    def _stream(self, stream_id: int) -> Inbound | None:
        stream = self._inbound_streams.get(stream_id)
        if stream is None:
            if len(self._inbound_streams) >= MAX_STREAMS:
                self._abort_for(f"it uses more than {MAX_STREAMS} streams")
                return None
            stream = self._inbound_streams[stream_id] = Inbound()
            if self._association_state == self.State.COOKIE_ECHOED:
                self._loop.call_soon(self._told_by_data)
        return stream

    def _told_by_data(self) -> None:
        """Who sends data has what it needs of the handshake: the COOKIE ACK was lost (as usrsctp does)."""
        if self._association_state == self.State.COOKIE_ECHOED:
            self._t1_cancel()
            self._set_state(self.State.ESTABLISHED)

    def _forget_stream(self, stream_id: int) -> None:
        """The peer reset it: what waited there is given up, and its room is free again."""
        for key in (stream_id, stream_id + APART):
            stream = self._inbound_streams.pop(key, None)
            if stream is not None:
                self._held -= len(stream.reassembly)
                self._advertised_rwnd += sum(len(piece.user_data) for piece in stream.reassembly)

    def _sack_soon(self) -> None:
        """Acknowledge what came: at once where it is asked for or anything is missing, else soon."""
        every = SACK_EVERY if self._asks else SACK_EVERY_UNASKED
        if self._asked or self._unsacked >= every or self._has_gap or self._sack_duplicates:
            self._sack_now()
        elif self._sack_timer.due is None:
            self._sack_timer.set(self._time() + (SACK_S if self._asks else 0.0))

    def _sack_now(self) -> None:
        if self._sack_needed and (sack := self._sack_made()) is not None:
            self._put(sack)

    def _sack_aboard(self) -> bytes:
        if not self._sack_needed or self._has_gap or self._sack_duplicates:
            return b""
        sack = self._sack_made()
        return b"" if sack is None else bytes(sack)

    def _sack_made(self) -> Sack | None:
        """The SACK for all that came, which is to leave now."""
        received = self._received
        if received is None or self._is_over:
            return None
        sack = Sack()
        sack.cumulative_tsn = received.cumulative
        sack.advertised_rwnd = max(0, self._advertised_rwnd)
        if received.runs:
            sack.gaps = received.gaps(MAX_GAPS)
        if self._sack_duplicates:
            sack.duplicates = self._sack_duplicates
            self._sack_duplicates = []
        self._sack_needed = self._asked = False
        self._unsacked = 0
        self._sack_timer.off()
        return sack

    async def _send_sack(self) -> None:
        if (sack := self._sack_made()) is not None:
            self._put(sack)
