"""DTLS records of a connection that is up: packets sealed, opened, and found among others (RFC 6347).

pyOpenSSL's methods take 7 µs a packet, there and back, of which OpenSSL's share is less than 3; the rest is
what they allocate, and looks at helpers of a handshake that is over. Where its version is one that was read,
OpenSSL is called without them (18 packets of a 10 KB round trip: 80 µs of about 1,500); else by them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import OpenSSL
from OpenSSL import SSL

from pooled_nb.mesh.sctp import segments
from pooled_nb.mesh.sctp.reading import MAX_DATAGRAM

KNOWN = ("25", "26")
"""Years of pyOpenSSL that were read."""
HEADER = 13
"""Bytes of a record's header (section 4.1); the last two are the length of what follows. With the shorter one
of DTLS 1.3 (RFC 9147 section 4) the self-test fails, and connections are stock."""
MORE = 128
"""Bytes of a record beyond its packet, at most: header, nonce, tag; with CBC an IV, padding and a hash."""
MAX_OWN = 4_096
"""Bytes of what DTLS itself has to say at a time: alerts, the last flight of the handshake again."""


MOST_SEALED = 32_768
"""Bytes of records that leave together, nearly always; for more, pyOpenSSL makes room."""


class Ways(NamedTuple):
    """How a connection seals and opens.

    All raise `SSL.Error`, as pyOpenSSL does.

    Attributes
    ----------
    seal
        Packets to records, in one piece, behind what DTLS itself has to say.
    open
        A datagram to the packet of its first record. `SSL.WantReadError` where there is none, or no record of
        this connection.
    open_next
        The packet of its next record.
    """

    seal: Callable[[Sequence[bytes]], bytes]
    open: Callable[[bytes], bytes]
    open_next: Callable[[], bytes]


def ways(ssl: SSL.Connection, version: str = OpenSSL.__version__) -> Ways:
    """The shortest ways of a connection whose handshake is over."""
    if version.partition(".")[0] in KNOWN:
        return _direct(ssl)
    return _public(ssl)


def length(records: bytes, at: int) -> int:
    """Bytes of the record that begins there."""
    return HEADER + (records[at + 11] << 8 | records[at + 12])


def runs(records: bytes) -> Iterator[tuple[bytes, int]]:
    """Records in one piece as runs (`segments`), each with the bytes of its first record."""
    at, size = 0, len(records)
    while at < size:
        step = length(records, at)
        end = at + step
        last = min(size, at + segments.MOST * step, at + segments.MOST_BYTES)
        while end < last:
            more = HEADER + (records[end + 11] << 8 | records[end + 12])  # `length`
            if more > step or end + more > last:
                break
            end += more
            if more < step:
                break
        yield records[at:end], step
        at = end


def _room(packets: Sequence[bytes]) -> int:
    return sum(map(len, packets)) + MORE * len(packets) + MAX_OWN


def _public(ssl: SSL.Connection) -> Ways:
    def seal(packets: Sequence[bytes]) -> bytes:
        for packet in packets:
            ssl.send(packet)
        return ssl.bio_read(_room(packets))

    def open(data: bytes) -> bytes:
        ssl.bio_write(data)
        return ssl.recv(MAX_DATAGRAM)

    return Ways(seal, open, lambda: ssl.recv(MAX_DATAGRAM))


def _direct(ssl: Any) -> Ways:
    # What is private of pyOpenSSL stands here.
    lib: Any = SSL._lib  # type: ignore[attr-defined]
    ffi: Any = SSL._ffi  # type: ignore[attr-defined]
    handle, into, out, check = ssl._ssl, ssl._into_ssl, ssl._from_ssl, ssl._raise_ssl_error
    write, read, feed, drain = lib.SSL_write, lib.SSL_read, lib.BIO_write, lib.BIO_read
    sealed = ffi.new("char[]", MOST_SEALED)
    records = ffi.buffer(sealed)
    space = ffi.new("char[]", MAX_DATAGRAM)
    opened = ffi.buffer(space)

    def seal(packets: Sequence[bytes]) -> bytes:
        for packet in packets:
            done = write(handle, packet, len(packet))
            if done <= 0:
                check(handle, done)
        room = _room(packets)
        made: bytes
        if room <= MOST_SEALED and (size := drain(out, sealed, room)) > 0:
            made = records[:size]
        else:
            made = ssl.bio_read(room)
        return made

    def open_next() -> bytes:
        size = read(handle, space, MAX_DATAGRAM)
        if size <= 0:
            check(handle, size)
            raise SSL.WantReadError
        packet: bytes = opened[:size]
        return packet

    def open(data: bytes) -> bytes:
        feed(into, data, len(data))
        size = read(handle, space, MAX_DATAGRAM)  # as `open_next`, which is a call more
        if size <= 0:
            check(handle, size)
            raise SSL.WantReadError
        packet: bytes = opened[:size]
        return packet

    return Ways(seal, open, open_next)
