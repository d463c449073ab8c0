"""DATA chunks on their way out and in, and what of a packet can be read without trust (RFC 9260 section 3).

The two kinds that nearly all packets are, DATA and SACK, are read and written here; the others by aiortc's
classes, after their lengths were looked at: aiortc's reader of parameters never ends on a length of 0.
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct, pack
from typing import Any

from aiortc.rtcsctptransport import (
    CHUNK_TYPES,
    SCTP_DATA_FIRST_FRAG,
    SCTP_DATA_LAST_FRAG,
    SCTP_DATA_UNORDERED,
    Chunk,
    SackChunk,
)
from google_crc32c import extend, value

FIRST = SCTP_DATA_FIRST_FRAG
LAST = SCTP_DATA_LAST_FRAG
WHOLE = FIRST | LAST
UNORDERED = SCTP_DATA_UNORDERED
IMMEDIATE = 8
"""The I bit (RFC 9260 section 3.3.1): who sent it waits for the SACK."""

DATA = 0
INIT = 1
SACK = 3
DATA_HEADER = 16
MOST_PARAMETERS = 32
"""Of one chunk; an INIT of a browser has about 6."""

_chunk = Struct("!BBH")
_data = Struct("!BBHLHHL")
_sack = Struct("!BBHLLHH")
_pair = Struct("!HH")
_tsn = Struct("!L")
_padding = (b"", b"\0\0\0", b"\0\0", b"\0")
_with_parameters = {1: 16, 2: 16, 4: 0, 5: 0, 6: 0, 9: 0, 130: 0}
"""Types whose bodies end with parameters, and where these begin."""
_at_least = {1: 16, 2: 16, 7: 4, 192: 4}

head = Struct("!HHL")
read_head = Struct("<8sL").unpack_from
"""Ports and tag of a packet in one piece, and its checksum."""
read_chunk = _chunk.unpack_from
read_data = _data.unpack_from


class Message:
    """What all fragments of one message share."""

    __slots__ = (
        "channel",
        "expiry",
        "flags",
        "max_retransmits",
        "protocol",
        "size",
        "stream_id",
        "stream_seq",
    )

    def __init__(
        self,
        stream_id: int,
        stream_seq: int,
        protocol: int,
        size: int,
        *,
        ordered: bool,
        expiry: float | None,
        max_retransmits: int | None,
        channel: Any,
    ) -> None:
        self.stream_id = stream_id
        self.stream_seq = stream_seq
        self.protocol = protocol
        self.size = size
        self.flags = 0 if ordered else UNORDERED
        self.expiry = expiry
        self.max_retransmits = max_retransmits
        self.channel = channel


class Outbound:
    """One DATA chunk to send, and what became of it.

    Attributes
    ----------
    sent_count, sent_at, order
        How often it was sent; the loop time of the last time, and its number among all that were sent.
    misses
        Later ones that came, since it was last sent.
    """

    __slots__ = (
        "abandoned",
        "acked",
        "data",
        "flags",
        "in_flight",
        "message",
        "misses",
        "order",
        "retransmit",
        "sent_at",
        "sent_count",
        "tsn",
    )

    def __init__(self, tsn: int, flags: int, message: Message, data: bytes) -> None:
        self.tsn = tsn
        self.flags = flags
        self.message = message
        self.data = data
        self.sent_count = 0
        self.sent_at = 0.0
        self.order = 0
        self.misses = 0
        self.acked = self.abandoned = self.retransmit = self.in_flight = False

    def __bytes__(self) -> bytes:
        return written((self,))[0]


def written(leaving: Iterable[Outbound]) -> list[bytes]:
    """Chunks as they are on the wire; in one call for all that leave at a time."""
    out = []
    message: Message | None = None
    stream_id = stream_seq = protocol = 0
    write = _data.pack
    for chunk in leaving:
        if chunk.message is not message:
            message = chunk.message
            stream_id, stream_seq, protocol = message.stream_id, message.stream_seq, message.protocol
        data = chunk.data
        length = DATA_HEADER + len(data)
        body = write(DATA, chunk.flags, length, chunk.tsn, stream_id, stream_seq, protocol) + data
        out.append(body + _padding[length & 3] if length & 3 else body)
    return out


class Piece:
    """One DATA chunk that came; its names are those of aiortc's ``DataChunk``."""

    __slots__ = ("flags", "protocol", "stream_id", "stream_seq", "tsn", "user_data")

    def __init__(
        self, tsn: int, flags: int, stream_id: int, stream_seq: int, protocol: int, user_data: bytes
    ) -> None:
        self.tsn = tsn
        self.flags = flags
        self.stream_id = stream_id
        self.stream_seq = stream_seq
        self.protocol = protocol
        self.user_data = user_data


class Sack(SackChunk):
    """aiortc's, written in one go."""

    def __bytes__(self) -> bytes:
        gaps, duplicates = self.gaps, self.duplicates
        length = DATA_HEADER + 4 * (len(gaps) + len(duplicates))
        head = _sack.pack(
            SACK, 0, length, self.cumulative_tsn, self.advertised_rwnd, len(gaps), len(duplicates)
        )
        if length == DATA_HEADER:
            return head
        blocks = [edge for block in gaps for edge in block]
        return head + pack(f"!{len(blocks)}H{len(duplicates)}L", *blocks, *duplicates)


def sum_of(header: bytes) -> int:
    """The checksum (RFC 9260 section 6.8) of ports, tag and an empty checksum: that of a packet goes on."""
    return int(value(header + b"\0\0\0\0"))


def seal(header: bytes, begun: int, bodies: Iterable[bytes]) -> list[bytes]:
    """Packets: ports and tag, checksum, chunks. ``begun``: `sum_of` the header."""
    return [header + extend(begun, body).to_bytes(4, "little") + body for body in bodies]


def read_sack(
    packet: bytes, at: int, length: int
) -> tuple[int, int, list[tuple[int, int]], list[int]] | None:
    """The chunk at ``at``: cumulative TSN, window, gap blocks, duplicates; None if it is not one."""
    if length < DATA_HEADER:
        return None
    _, _, _, cumulative, window, gaps, duplicates = _sack.unpack_from(packet, at)
    if not gaps and not duplicates:
        return cumulative, window, [], []
    if length < DATA_HEADER + 4 * (gaps + duplicates):
        return None
    middle = at + DATA_HEADER + 4 * gaps
    return (
        cumulative,
        window,
        list(_pair.iter_unpack(packet[at + DATA_HEADER : middle])),
        [tsn for (tsn,) in _tsn.iter_unpack(packet[middle : middle + 4 * duplicates])],
    )


def read_other(kind: int, flags: int, body: bytes) -> Chunk | None:
    """A chunk by aiortc's class of its type; None if it knows none or the lengths inside are wrong."""
    made = CHUNK_TYPES.get(kind)
    if made is None or len(body) < _at_least.get(kind, 0):
        return None
    if kind in _with_parameters and not _has_parameters(body, _with_parameters[kind]):
        return None
    if kind == 192 and len(body) % 4:
        return None
    return made(flags=flags, body=body)


def _has_parameters(body: bytes, at: int) -> bool:
    for _ in range(MOST_PARAMETERS):
        if at > len(body) - 4:
            return True
        length = int.from_bytes(body[at + 2 : at + 4], "big")
        if length < 4 or at + length > len(body):
            return False
        at += length + (-length & 3)
    return False
