"""Parts of one piece, in whatever order they come (PROTOCOL section 6)."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from pooled_nb.mesh.messages.weights import Wpart
from pooled_nb.room.weights.parts import Parts

SIZE, WIN = 1_000, 400
DATA = bytes(i % 251 for i in range(SIZE))


def part(off: int | None, n: int, **more: bool) -> Wpart:
    return Wpart(id=1, off=off, data=DATA[off or 0 : (off or 0) + n], **more)


def taken(parts: Parts, *messages: Wpart) -> bytes:
    """What is kept of them, each acknowledged at once."""
    out = b""
    for message in messages:
        out += parts.heard(message)
        parts.acknowledged(len(out))
    return out


def test_parts_in_order_are_the_piece() -> None:
    """PROTOCOL section 6: "in order", ``off`` counts from ``lo``; the end may be a message of its own."""
    parts = Parts(SIZE, WIN)
    assert taken(parts, *[part(off, 200) for off in range(0, SIZE, 200)]) == DATA
    assert not parts.over
    assert parts.heard(Wpart(id=1, done=True)) == b""
    assert parts.over == "done"
    whole = Parts(200, WIN)
    assert taken(whole, part(0, 200, done=True)) == DATA[:200]
    assert whole.over == "done"


def test_a_part_at_a_wrong_place_is_bad() -> None:
    """PROTOCOL section 6, ``ai-wpart``: shuffled, repeated and placeless parts."""
    for second in (part(200, 100), part(0, 100), part(None, 100)):
        parts = Parts(SIZE, WIN)
        assert taken(parts, part(0, 100), second) == DATA[:100]
        assert (parts.over, parts.got) == ("bad", 100)
        assert parts.why


def test_short_and_long_are_bad() -> None:
    """PROTOCOL section 6: neither more nor fewer bytes than were asked for."""
    short = Parts(SIZE, WIN)
    taken(short, part(0, 100), Wpart(id=1, done=True))
    assert (short.over, short.why) == ("bad", "it ended after 100 of 1,000 bytes")
    long = Parts(150, WIN)
    assert taken(long, part(0, 100), part(100, 100)) == DATA[:100]
    assert long.over == "bad"


def test_more_than_the_window_is_bad() -> None:
    """PROTOCOL section 6: "at most ``win`` unacknowledged": what comes is bounded in memory."""
    parts = Parts(SIZE, WIN)
    assert parts.heard(part(0, 400)) == DATA[:400]
    assert parts.heard(part(400, 1)) == b""
    assert parts.over == "bad"


def test_a_miss_is_no_fault() -> None:
    """PROTOCOL section 6, ``miss``: also after some of it."""
    parts = Parts(SIZE, WIN)
    assert taken(parts, part(0, 100), Wpart(id=1, miss=True)) == DATA[:100]
    assert parts.over == "miss"
    assert parts.heard(part(100, 100)) == b""


messages = st.lists(
    st.one_of(
        st.builds(
            lambda off, n, done: part(off, n, done=done),
            st.sampled_from([0, 1, 100, 200, 300, 400, 500, 900, 999, SIZE]),
            st.sampled_from([0, 1, 100, 200, 401]),
            st.booleans(),
        ),
        st.builds(lambda done, miss: Wpart(id=1, done=done, miss=miss), st.booleans(), st.booleans()),
    ),
    max_size=30,
)


@settings(deadline=None, max_examples=300)
@given(messages, st.booleans())
def test_whatever_comes_only_the_piece_is_done(messages: list[Wpart], acks: bool) -> None:
    """PROTOCOL section 6: any order, loss and duplicate: what is kept is a beginning, done is all of it."""
    parts = Parts(SIZE, WIN)
    kept = b""
    for message in messages:
        was = parts.over
        data = parts.heard(message)
        assert not (was and data), "it was over"
        kept += data
        assert len(kept) - parts._acknowledged <= WIN
        if acks:
            parts.acknowledged(len(kept))
    assert kept == DATA[: len(kept)]
    assert parts.got == len(kept)
    if parts.over == "done":
        assert kept == DATA
    assert bool(parts.why) == (parts.over == "bad")
