"""TSNs and fragments that come in any order (RFC 9260 sections 6.2 and 6.9)."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from pooled_nb.mesh.sctp.chunks import FIRST, LAST, UNORDERED, Piece
from pooled_nb.mesh.sctp.reassembly import Inbound
from pooled_nb.mesh.sctp.received import WRAP, Received


@settings(max_examples=200, deadline=None)
@given(
    st.sampled_from([0, 5, WRAP, WRAP - 7, 0x7FFFFFFF]),
    st.lists(st.tuples(st.booleans(), st.integers(-5, 60)), max_size=120),
)
def test_runs_are_what_a_set_says(start: int, steps: list[tuple[bool, int]]) -> None:
    received = Received(start)
    model: set[int] = set()
    cumulative = 0
    for is_forward, offset in steps:
        tsn = (start + offset) & WRAP
        if is_forward and offset % 7 == 0:
            received.forward(tsn)
            cumulative = max(cumulative, offset)
        else:
            assert received.ahead(tsn) == offset - cumulative
            assert received.add(tsn) == (offset > cumulative and offset not in model)
            model.add(offset)
        while cumulative + 1 in model:
            cumulative += 1
        beyond = sorted(x for x in model if x > cumulative)
        assert received.cumulative == (start + cumulative) & WRAP
        assert list(received.beyond()) == [(start + x) & WRAP for x in beyond]
        covered = [x for a, b in received.gaps(999) for x in range(a, b + 1)]
        assert covered == [x - cumulative for x in beyond]
        assert received.runs == len(received.gaps(999))
        assert received.gaps(1) == received.gaps(999)[:1]


def _cut(messages: list[tuple[int, bool]], start: int) -> tuple[list[Piece], list[tuple[bool, bytes]]]:
    pieces, whole, tsn, seq = [], [], start, 0
    for number, (count, ordered) in enumerate(messages):
        parts = [bytes([number, part]) for part in range(count)]
        whole.append((ordered, b"".join(parts)))
        for part, data in enumerate(parts):
            flags = 0 if ordered else UNORDERED
            flags |= (FIRST if part == 0 else 0) | (LAST if part == count - 1 else 0)
            pieces.append(Piece(tsn & WRAP, flags, 1, seq & 0xFFFF if ordered else 0, 53, data))
            tsn += 1
        seq += ordered
    return pieces, whole


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 6), st.booleans()), max_size=12),
    st.integers(0, 2**32),
    st.sampled_from([3, WRAP - 4]),
)
def test_every_message_comes_once_and_ordered_ones_in_order(
    messages: list[tuple[int, bool]], seed: int, start: int
) -> None:
    pieces, whole = _cut(messages, start)
    random.Random(seed).shuffle(pieces)
    stream = Inbound()
    got: list[bytes] = []
    for piece in pieces:
        stream.add_chunk(piece)
        got += [data for _, _, data in stream.pop_messages()]
    assert sorted(got) == sorted(data for _, data in whole)
    ordered = [data for is_ordered, data in whole if is_ordered]
    assert [data for data in got if data in ordered] == ordered
    assert not stream.reassembly


def test_the_size_of_an_unfinished_message_is_known_whatever_fills_a_hole_elsewhere() -> None:
    pieces, _ = _cut([(8, True), (8, True)], 100)
    stream = Inbound()
    for index in (0, 1, 3, 4, 5, 6, 7, 8, 9, 10):
        stream.add_chunk(pieces[index])
    assert stream.size == 6
    stream.add_chunk(pieces[2])  # of the first message
    assert stream.size == 16
    assert len(list(stream.pop_messages())) == 1
    stream.add_chunk(pieces[11])
    assert stream.size == 8
