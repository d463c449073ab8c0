"""What rides on the next frame: no network, no time."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from pooled_nb.room.control import ALL, DROPS, Riding
from pooled_nb.shard import Control


def test_what_waits_goes_with_the_next_frame_once() -> None:
    """PROTOCOL section 5: "The host queues it and attaches it to the next frame"."""
    riding = Riding()
    riding.roll_back(3)
    riding.save = 7
    riding.drop(5)
    assert riding.take(spec=True) == Control(spec=True, rb=3, sv=7, dp=(5,))
    assert riding.take() == Control()


def test_a_rollback_that_nothing_sees_is_left_out() -> None:
    """PROTOCOL section 5: rollback comes first, then reset or load: only a save between them sees it."""
    riding = Riding()
    for save, rb in ((0, None), (9, 2)):
        for what in ({"reset": True}, {"ld": 4}):
            riding.roll_back(2)
            riding.save = save
            assert riding.take(**what) == Control(rb=rb, sv=save, **what)
    assert riding.take() == Control()


@settings(deadline=None)
@given(st.lists(st.integers(1, 65534), unique=True, max_size=9))
def test_more_than_two_drops_wait(slots: list[int]) -> None:
    """PROTOCOL section 5: "More than two drops wait for the next frame", and none is forgotten."""
    riding = Riding()
    for slot in slots:
        riding.drop(slot)
    gone: list[int] = []
    while riding.dropping:
        assert riding.dropping == set(slots) - set(gone)
        dp = riding.take().dp
        assert 1 <= len(dp) <= DROPS
        gone += dp
    assert gone == slots


def test_all_are_dropped_alone() -> None:
    """PROTOCOL section 5: "`0xffff` first: all", and "With `dp 0xffff` no `sv`"."""
    riding = Riding()
    riding.roll_back(2)
    riding.save = 3
    riding.drop(8)
    riding.drop_all()
    riding.drop(9)
    riding.save = 4
    assert riding.take(reset=True) == Control(reset=True, dp=(ALL,))
    assert riding.take() == Control()
