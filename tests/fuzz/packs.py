"""BinaryPack bytes that nobody wrote: cut, spliced, nested, with lengths that lie (PROTOCOL section 2)."""

from __future__ import annotations

import struct
from random import Random
from typing import Any

from pooled_nb.mesh.binarypack import MAX_ITEMS, PackError, pack, unpack
from pooled_nb.mesh.chunks import CHUNK, FEW_ITEMS, MAX_CHUNKS, MAX_OPEN, Assembler, Chunker
from pooled_nb.mesh.messages import read
from tests.fuzz import values

LENGTHS = (0xD8, 0xD9, 0xDA, 0xDB, 0xDC, 0xDD, 0xDE, 0xDF)


def valid(rng: Random) -> bytes:
    try:
        return pack(values.message(rng) if rng.random() < 0.5 else values.any_value(rng, 4))
    except PackError:
        return b"\xc0"


def mutated(rng: Random, data: bytes) -> bytes:
    raw = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 5))):
        at = rng.randrange(len(raw) + 1)
        match rng.randrange(7):
            case 0 if raw:
                raw[at % len(raw)] = rng.randrange(256)
            case 1:
                del raw[at:]
            case 2:
                raw[at:at] = rng.randbytes(rng.choice((1, 2, 8)))
            case 3:
                wide = struct.pack(">BI", rng.choice(LENGTHS), rng.choice((1, 2**16, 2**31, 2**32 - 1)))
                raw[at:at] = wide
            case 4:
                raw[at:at] = bytes([rng.choice((0x91, 0x81))]) * rng.choice((1, 30, 100, 2_000))
            case 5:
                raw[at:at] = raw[: rng.choice((1, 5, 50))]
            case 6:
                raw += valid(rng)
    return bytes(raw)


def count(value: Any) -> int:
    """Values in it, keys counted; a key that came twice or was no text counts once at most."""
    if isinstance(value, list):
        return 1 + sum(map(count, value))
    if isinstance(value, dict):
        return 1 + sum(1 + count(item) for item in value.values())
    return 1


def run(seed: str) -> None:
    """One link's control channel: some messages, most of them broken."""
    rng = Random(seed)
    assembler, chunker = Assembler(), Chunker()
    for _ in range(rng.randint(1, 8)):
        data = valid(rng)
        if rng.random() < 0.8:
            data = mutated(rng, data)
        limit = rng.choice((FEW_ITEMS, MAX_ITEMS))
        try:
            value = unpack(data, max_items=limit)
        except PackError:
            pass
        else:
            assert count(value) <= limit
            read(value)
            _again(value)
        _chunks(rng, assembler, chunker, data)


def _again(value: Any) -> None:
    """What was read can be written, but what only a peer may say: not finite, or deeper than a message is."""
    try:
        packed = pack(value)
    except PackError:
        return
    assert repr(unpack(packed)) == repr(_whole(value))


def _whole(value: Any) -> Any:
    """As it is written: a whole double as an integer, a lone surrogate cannot have been read."""
    if isinstance(value, float) and value.is_integer() and -(2.0**63) <= value < 2.0**64:
        return int(value)
    if isinstance(value, list):
        return [_whole(item) for item in value]
    if isinstance(value, dict):
        return {key: _whole(item) for key, item in value.items()}
    return value


def _chunks(rng: Random, assembler: Assembler, chunker: Chunker, data: bytes) -> None:
    admitted = rng.random() < 0.7
    pieces = chunker.split(data + bytes(CHUNK)) if rng.random() < 0.1 else [data]
    rng.shuffle(pieces)
    for piece in pieces:
        told = _lie(rng, piece) if rng.random() < 0.3 else piece
        value = assembler.feed(told, admitted=admitted)
        assert admitted or not isinstance(value, dict) or count(value) <= FEW_ITEMS
        assert assembler.waiting <= MAX_OPEN
        held = [one for open in assembler._open.values() for one in open.pieces.values()]
        assert len(held) <= MAX_OPEN * MAX_CHUNKS
        assert all(len(one) <= CHUNK for one in held)


def _lie(rng: Random, piece: bytes) -> bytes:
    """A chunk whose numbers are wrong."""
    made = {
        "__peerData": rng.choice((1, 2, 3, rng.randrange(40), True, -1, 2**40, None)),
        "n": rng.choice((0, 1, -1, 300, values.scalar(rng))),
        "total": rng.choice((1, 2, 3, 256, 257, 0, values.scalar(rng))),
        "data": rng.choice((piece[:CHUNK], b"", 5, None)),
    }
    try:
        return pack(made)
    except PackError:
        return piece
