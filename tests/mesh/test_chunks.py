"""PROTOCOL section 2: chunks of 16,300 bytes, their limits, and PeerJS's close."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pooled_nb.mesh.binarypack import PackError, pack, unpack
from pooled_nb.mesh.chunks import CHUNK, CLOSE, FEW_ITEMS, MAX_CHUNKS, MAX_OPEN, Assembler, Chunker


def chunk(mark: Any, n: Any, total: Any, data: Any) -> bytes:
    return pack({"__peerData": mark, "n": n, "data": data, "total": total})


def test_cut_as_peerjs_cuts() -> None:
    """PROTOCOL section 2: "chunked above 16,300 bytes", in PeerJS's own field order, numbered from 1."""
    chunker = Chunker()
    fits = pack({"t": "x", "data": b"\0" * (CHUNK - 20)})
    assert len(fits) <= CHUNK
    assert chunker.split(fits) == [fits]
    packed = bytes(range(256)) * 150
    for mark in (1, 2):
        pieces = chunker.split(packed)
        assert [list(unpack(p)) for p in pieces] == [["__peerData", "n", "data", "total"]] * 3
        assert [unpack(p)["__peerData"] for p in pieces] == [mark] * 3
        assert [unpack(p)["n"] for p in pieces] == [0, 1, 2]
        assert b"".join(unpack(p)["data"] for p in pieces) == packed
    assert len(chunker.split(b"\0" * CHUNK)) == 1
    assert len(chunker.split(b"\0" * (CHUNK + 1))) == 2


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 400_000), st.randoms(use_true_random=False), st.integers(1, 4))
def test_put_together_in_any_order(size: int, rng: random.Random, messages: int) -> None:
    """PROTOCOL section 2: several messages, chunks shuffled and sent again: each comes out once, whole."""
    chunker, assembler = Chunker(), Assembler()
    said = [{"t": "x", "i": i, "data": rng.randbytes(size)} for i in range(messages)]
    pieces = [p for value in said for p in chunker.split(pack(value))]
    first = list(pieces)
    rng.shuffle(pieces)
    if size > CHUNK:
        pieces.insert(1, pieces[0])
    got = [value for p in pieces if (value := assembler.feed(p)) is not None]
    assert sorted(got, key=lambda value: value["i"]) == said
    assert assembler.waiting == 0
    assert len(first) >= messages


def test_256_chunks_and_no_more() -> None:
    """PROTOCOL section 2: "256 chunks a message (4 MB packed)", on both sides."""
    value = {"d": b"\7" * (CHUNK * MAX_CHUNKS - 100)}
    pieces = Chunker().split(pack(value))
    assert len(pieces) == MAX_CHUNKS
    assembler = Assembler()
    assert [assembler.feed(p) for p in pieces[:-1]] == [None] * (MAX_CHUNKS - 1)
    assert assembler.feed(pieces[-1]) == value
    with pytest.raises(PackError):
        Chunker().split(b"\0" * (CHUNK * MAX_CHUNKS + 1))
    for n in range(MAX_CHUNKS + 1):
        assert assembler.feed(chunk(5, n, MAX_CHUNKS + 1, b"x")) is None
    assert assembler.waiting == 0


def test_the_new_ninth_is_dropped() -> None:
    """PROTOCOL section 2: "8 messages in reassembly … a new ninth is, not the oldest"."""
    assembler, value = Assembler(), pack("whole")
    for mark in range(1, MAX_OPEN + 1):
        assert assembler.feed(chunk(mark, 0, 2, value[:3])) is None
    assert assembler.waiting == MAX_OPEN
    assert assembler.feed(chunk(9, 0, 2, value[:3])) is None
    assert assembler.feed(chunk(9, 1, 2, value[3:])) is None
    assert assembler.feed(chunk(1, 1, 2, value[3:])) == "whole"
    # There is a place again, and the others were not disturbed.
    assert assembler.feed(chunk(10, 0, 1, value)) == "whole"
    assert assembler.feed(chunk(8, 1, 2, value[3:])) == "whole"
    # Unchunked messages pass at all times.
    assert assembler.feed(pack({"t": "ping"})) == {"t": "ping"}


def test_peerjs_close() -> None:
    """PROTOCOL section 2: PeerJS's own ``{__peerData: {type: "close"}}`` closes."""
    assert Assembler().feed(pack({"__peerData": {"type": "close"}})) is CLOSE
    assert Assembler().feed(pack({"__peerData": {"type": "close"}}), admitted=False) is CLOSE
    assert Assembler().feed(pack({"__peerData": {"type": "else"}})) is None


@pytest.mark.parametrize(
    "bad",
    [
        chunk(1, 0, 0, b"x"),
        chunk(1, -1, 2, b"x"),
        chunk(1, 2, 2, b"x"),
        chunk(1, 0.5, 2, b"x"),
        chunk(1, True, 2, b"x"),
        chunk("1", 0, 1, b"x"),
        chunk([1], 0, 1, b"x"),
        chunk(1, 0, 1, "text"),
        chunk(1, 0, 1, b""),
        chunk(1, 0, 1, b"x" * (CHUNK + 1)),
        pack({"__peerData": 1}),
        chunk(1, 0, 1, chunk(2, 0, 1, pack("inner"))),
        chunk(1, 0, 1, b"\xd9\xff\xff\xff\xff"),
        b"",
        b"\xff" * 100_000,
    ],
    ids=range(15),
)
def test_malformed_chunks(bad: bytes) -> None:
    """PROTOCOL section 2: what no PeerJS sends is dropped, and the channel goes on."""
    assembler = Assembler()
    assert assembler.feed(bad) is None
    assert assembler.waiting == 0
    assert assembler.feed(pack("next")) == "next"


def test_a_changed_total_is_dropped() -> None:
    """PROTOCOL section 2: a chunk that contradicts its message changes nothing."""
    assembler, value = Assembler(), pack("whole")
    assembler.feed(chunk(3, 0, 2, value[:2]))
    assert assembler.feed(chunk(3, 1, 3, b"other")) is None
    assert assembler.feed(chunk(3, 0, 2, b"zz")) is None
    assert assembler.feed(chunk(3, 1, 2, value[2:])) == "whole"


@settings(deadline=None, max_examples=200)
@given(st.lists(st.binary(max_size=60), max_size=12))
def test_random_bytes_never_raise(messages: list[bytes]) -> None:
    """PROTOCOL section 2: nothing that comes over a channel raises out of reassembly."""
    assembler = Assembler()
    for data in messages:
        assembler.feed(data)
    assert assembler.waiting <= MAX_OPEN


def test_nothing_is_put_together_before_admission() -> None:
    """PROTOCOL section 3, before admission: a stranger sends single, small messages; of chunks nothing is
    kept, and their rest counts no more afterwards.
    """
    assembler, chunker = Assembler(), Chunker()
    early = [chunker.split(pack({"d": b"\7" * (3 * CHUNK)})) for _ in range(MAX_OPEN + 1)]
    for pieces in early:
        for piece in pieces[:-1]:
            assert assembler.feed(piece, admitted=False) is None
    assert assembler.waiting == 0
    assert assembler.feed(pack({"t": "ping"}), admitted=False) == {"t": "ping"}
    # A single chunk is a chunk.
    assert assembler.feed(chunk(40, 0, 1, pack("whole")), admitted=False) is None
    for pieces in early:
        assert assembler.feed(pieces[-1]) is None
    assert assembler.waiting == 0
    value = {"d": b"\7" * (3 * CHUNK)}
    later = [chunk(41, n, 4, pack(value)[n * CHUNK : (n + 1) * CHUNK]) for n in range(4)]
    assert [assembler.feed(piece) for piece in later] == [None, None, None, value]


def test_how_large_a_message_is_before_admission() -> None:
    """PROTOCOL section 3, before admission: at most 16,300 bytes, and few values; afterwards more."""
    assembler = Assembler()
    sizes = {size: pack({"d": b"\7" * (size - 6)}) for size in (CHUNK, CHUNK + 1)}
    assert [len(packed) for packed in sizes.values()] == list(sizes)
    assert assembler.feed(sizes[CHUNK], admitted=False) is not None
    assert assembler.feed(sizes[CHUNK + 1], admitted=False) is None
    assert assembler.feed(sizes[CHUNK + 1]) is not None
    few, many = pack([0] * (FEW_ITEMS - 1)), pack([0] * FEW_ITEMS)
    assert assembler.feed(few, admitted=False) is not None
    assert assembler.feed(many, admitted=False) is None
    assert assembler.feed(many) is not None


def test_what_was_read_is_counted() -> None:
    """PROTOCOL section 3, before admission: a message costs what was read of it (`pace`), also where it turns
    out to be nothing, and one that came in chunks costs these and itself.
    """
    assembler = Assembler()
    assert assembler.values == 0
    assert assembler.feed(pack([1] * 99)) is not None
    assert assembler.values == 100
    assert assembler.feed(pack([1] * 98 + ["x"])[:-1]) is None
    assert assembler.values == 100
    assert assembler.feed(b"") is None
    assert assembler.values == 1
    first, last = Chunker().split(pack(["y" * 10] * 2_000))
    assert assembler.feed(first) is None
    assert assembler.values == 9  # the map, four keys, four fields
    assert assembler.feed(last) is not None
    assert assembler.values == 9 + 2_001
    assert assembler.feed(b"\0" * (CHUNK + 300)) is None
    assert assembler.values == 0
