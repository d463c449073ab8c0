"""How much may be on its way to a device that acknowledges (PROTOCOL section 6, ``ai-wack``)."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pooled_nb.mesh.credit import PART, WINDOW, Credit

STEP = st.one_of(
    st.tuples(st.just("send"), st.integers(0, 3), st.integers(1, PART)),
    st.tuples(st.just("ack"), st.integers(0, 3), st.integers(-5, 1 << 22)),
    st.tuples(st.just("close"), st.integers(0, 3), st.just(0)),
)


@settings(deadline=None, max_examples=100)
@given(st.lists(st.none() | st.integers(-1, 1 << 25), min_size=4, max_size=4), st.lists(STEP, max_size=40))
def test_never_more_than_the_window(wins: list[int | None], steps: list[tuple[str, int, int]]) -> None:
    """PROTOCOL section 6: "at most `win` = 8 MiB unacknowledged (a smaller `win` is obeyed)", of one range
    and of all of a link, whatever the other end claims to have got.
    """
    link = Credit(1 << 18)
    ranges = [Credit(win, of=link) for win in wins]
    sent, got, closed = [0] * 4, [0] * 4, [False] * 4
    for what, at, value in steps:
        credit = ranges[at]
        if what == "send":
            size = min(value, credit.part)
            flying = sent[at] - got[at]
            others = sum(s - g for s, g, over in zip(sent, got, closed, strict=True) if not over)
            fits = not closed[at] and flying + size <= credit.win and others + size <= link.win
            assert credit.may(size) is fits
            if fits:
                credit.sent(size)
                sent[at] += size
        elif what == "ack":
            credit.acknowledged(value)
            if not closed[at] and got[at] < value <= sent[at]:
                got[at] = value
        else:
            credit.close()
            closed[at] = True
        win = wins[at]
        assert credit.unacknowledged <= credit.win <= (WINDOW if win is None else max(1, min(win, WINDOW)))
        assert link.unacknowledged == sum(
            s - g for s, g, over in zip(sent, got, closed, strict=True) if not over
        )


def test_who_waits_hears_of_it() -> None:
    """PROTOCOL section 6: an acknowledgement, and the end of another range, let the next part go."""
    link = Credit()
    one, two = Credit(PART, of=link), Credit(of=link)
    heard: list[str] = []
    one.on_free = lambda: heard.append("one")
    link.on_free = lambda: heard.append("link")
    one.sent(PART)
    assert not one.may(1)
    one.acknowledged(PART + 1)
    assert heard == []
    one.acknowledged(10)
    assert heard == ["link", "one"]
    two.sent(5)
    two.close()
    assert heard == ["link", "one", "link"]
    assert not two.may(1)


def test_a_part_that_never_fits() -> None:
    """PROTOCOL section 6: parts are cut to the window: one that is larger would wait for ever."""
    credit = Credit(1_000, of=Credit())
    assert credit.part == 1_000
    assert Credit(of=Credit()).part == PART
    with pytest.raises(ValueError, match="window of 1000"):
        credit.may(1_001)
