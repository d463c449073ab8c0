"""Fragments to messages, of one stream (RFC 9260 section 6.9).

A message that comes in one run is joined once, and nothing is searched until its last fragment is there.
Else only the message around the new fragment is looked at, however much waits: a peer may send what waits.
"""

from __future__ import annotations

from collections.abc import Iterator

from aiortc.utils import uint16_gt

from pooled_nb.mesh.sctp.chunks import FIRST, LAST, UNORDERED, Piece
from pooled_nb.mesh.sctp.received import HALF, WRAP


class Inbound:
    """A decider, of what is ordered in a stream or of what is not: one that waits is no search for the other.

    Attributes
    ----------
    reassembly
        Fragments that wait, by TSN.
    sequence_number
        Of the next ordered message.
    is_stuck
        What was added last completes nothing: `pop_messages` has none.
    size, count
        Bytes and fragments of the unfinished message that the last fragment added belongs to.
    """

    __slots__ = ("_next_tsn", "_start", "count", "is_stuck", "reassembly", "sequence_number", "size")

    def __init__(self) -> None:
        self.reassembly: list[Piece] = []
        self.sequence_number = 0
        self.size = self.count = 0
        self.is_stuck = False
        self._start = 0
        self._next_tsn = -1
        """What goes on with the run that `size` and `count` are of, where that is the last of all; or -1."""

    def add_chunk(self, piece: Piece) -> None:
        """Take a fragment whose TSN has not come before."""
        pieces = self.reassembly
        tsn, flags = piece.tsn, piece.flags
        if tsn == self._next_tsn and not flags & FIRST:  # nearly always
            pieces.append(piece)
            self.size += len(piece.user_data)
            self.count += 1
            if flags & LAST:
                self._run(len(pieces) - self.count, len(pieces) - 1)
            else:
                self._next_tsn = (tsn + 1) & WRAP
                self.is_stuck = True
        elif not pieces:
            pieces.append(piece)
            self.size, self.count = len(piece.user_data), 1
            self._run(0, 0)
        elif 0 < (tsn - pieces[-1].tsn) & WRAP < HALF:
            pieces.append(piece)
            self._measure(len(pieces) - 1)
        else:
            self._insert(piece)

    def _insert(self, piece: Piece) -> None:
        pieces = self.reassembly
        tsn = piece.tsn
        low, high = 0, len(pieces)
        while low < high:
            middle = (low + high) // 2
            if (pieces[middle].tsn - tsn) & WRAP < HALF:
                high = middle
            else:
                low = middle + 1
        assert pieces[low].tsn != tsn, "duplicate chunk in reassembly"
        pieces.insert(low, piece)
        self._measure(low)

    def _measure(self, at: int) -> None:
        start, end = self._around(at)
        self.size = sum(len(piece.user_data) for piece in self.reassembly[start : end + 1])
        self.count = end + 1 - start
        self._run(start, end)

    def _run(self, start: int, end: int) -> None:
        """What was added last belongs to this run."""
        pieces = self.reassembly
        first, last = pieces[start], pieces[end]
        goes_on = end + 1 == len(pieces) and not last.flags & LAST
        self._next_tsn = (last.tsn + 1) & WRAP if goes_on else -1
        self.is_stuck = not (first.flags & FIRST and last.flags & LAST)
        # What is not ordered is due when it is complete, so that nothing before it is.
        self._start = start if first.flags & UNORDERED else 0

    def pop_only(self) -> tuple[int, int, bytes] | None:
        """As `pop_messages`, where all that waits is one message, which is due: most often, and for less."""
        pieces = self.reassembly
        if self.is_stuck or self.count != len(pieces):
            return None
        first = pieces[0]
        if not first.flags & UNORDERED:
            if first.stream_seq != self.sequence_number:
                return None
            self.sequence_number = (self.sequence_number + 1) & 0xFFFF
        data = b"".join([piece.user_data for piece in pieces])
        pieces.clear()
        return first.stream_id, first.protocol, data

    def pop_messages(self, *, skips: bool = False) -> Iterator[tuple[int, int, bytes]]:
        """The messages that are complete and due: stream, protocol and bytes of each.

        Parameters
        ----------
        skips
            What is incomplete and was given up holds nothing up; `prune_chunks` is to follow.
        """
        if self.is_stuck:
            return
        pieces = self.reassembly
        at = self._start
        while at < len(pieces):
            first = pieces[at]
            ordered = not first.flags & UNORDERED
            if ordered and uint16_gt(first.stream_seq, self.sequence_number):
                return
            start, end = self._around(at)
            if start != at or not first.flags & FIRST or not pieces[end].flags & LAST:
                if ordered and not (skips and uint16_gt(self.sequence_number, first.stream_seq)):
                    return
                at = max(end, at) + 1
                continue
            data = first.user_data if start == end else b"".join(p.user_data for p in pieces[start : end + 1])
            del pieces[start : end + 1]
            self._next_tsn = -1
            if ordered and first.stream_seq == self.sequence_number:
                self.sequence_number = (self.sequence_number + 1) & 0xFFFF
            yield first.stream_id, first.protocol, data
            if not ordered:
                return

    def forward(self, sequence_number: int) -> None:
        """Messages before this one are given up (RFC 3758 section 3.6)."""
        if uint16_gt(sequence_number, self.sequence_number):
            self.sequence_number = sequence_number
        self.is_stuck = False
        self._start = 0

    def prune_chunks(self, tsn: int) -> int:
        """Drop what is incomplete up to a TSN, and return its bytes.

        A message of which all fragments up to it are here, and which goes on after it, is kept.
        """
        pieces = self.reassembly
        keep = 0
        while keep < len(pieces) and (tsn - pieces[keep].tsn) & WRAP < HALF:
            keep += 1
        if keep and pieces[keep - 1].tsn == tsn and not pieces[keep - 1].flags & LAST:
            start, _ = self._around(keep - 1)
            if pieces[start].flags & FIRST:
                keep = start
        size = sum(len(p.user_data) for p in pieces[:keep])
        del pieces[:keep]
        self.is_stuck = False
        self._start = 0
        self._next_tsn = -1
        return size

    def _around(self, at: int) -> tuple[int, int]:
        """Bounds of the run of fragments that may be one message with this one."""
        pieces = self.reassembly
        start = end = at
        while (
            not pieces[start].flags & FIRST
            and start
            and (pieces[start].tsn - pieces[start - 1].tsn) & WRAP == 1
            and not pieces[start - 1].flags & LAST
        ):
            start -= 1
        while (
            not pieces[end].flags & LAST
            and end + 1 < len(pieces)
            and (pieces[end + 1].tsn - pieces[end].tsn) & WRAP == 1
            and not pieces[end + 1].flags & FIRST
        ):
            end += 1
        return start, end
