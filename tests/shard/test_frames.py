"""Where frames may run: no tensors."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pooled_nb.errors import FrameRefused
from pooled_nb.shard.door import Columns, Control
from pooled_nb.shard.frames import Lane, Placed, Rules

RULES = Rules(ctx=600, width=16, cols=32, exact=True)


def lane(length: int = 0, rules: Rules = RULES) -> Lane:
    made = Lane(rules)
    made.length = length
    return made


def go(where: Lane, pos: int, n: int, *, wide: bool = False, **control: object) -> Placed:
    return where.accept(Columns(pos=pos, n=n, wide=wide), Control(**control))  # type: ignore[arg-type]


def test_narrow_and_wide_frames_are_padded_to_their_class() -> None:
    """DESIGN section 5, rules 1 to 3: width, cols, and the end of the position's bucket."""
    assert go(lane(), 0, 1) == Placed(0, 1, 16, 256)
    assert go(lane(), 0, 16) == Placed(0, 16, 16, 256)
    assert go(lane(32), 32, 32, wide=True) == Placed(32, 32, 32, 256)
    assert go(lane(256), 256, 3, wide=True) == Placed(256, 3, 32, 512)
    assert RULES.capacity == 768


def test_fast_mode_runs_frames_as_they_are() -> None:
    """DESIGN section 5, rule 5: a fast mode exists, and is not exact."""
    fast = Rules(ctx=600, width=16, cols=32, exact=False)
    assert go(lane(250, fast), 250, 70) == Placed(250, 70, 70, 320)
    stepped = Rules(ctx=600, width=16, cols=32, exact=False, step=256)
    assert go(lane(250, stepped), 250, 70) == Placed(250, 70, 70, 512)
    assert go(lane(599, stepped), 599, 1) == Placed(599, 1, 1, 768)


@pytest.mark.parametrize(
    ("length", "pos", "n", "wide", "words"),
    [
        (0, 1, 1, False, "starts at position 1, and the caches hold 0"),
        (5, 4, 1, False, "starts at position 4, and the caches hold 5"),
        (0, 0, 17, False, "has 17 columns, and its class has 16"),
        (0, 0, 33, True, "has 33 columns, and its class has 32"),
        (250, 250, 10, False, "crosses a multiple of 256"),
        (20, 20, 13, True, "crosses a multiple of 32"),
        (0, 0, 0, False, "0 columns"),
        (0, 0, -3, False, "-3 columns"),
        (592, 592, 9, False, "the context is 600 tokens"),
    ],
)
def test_what_may_not_run_is_refused_in_words(length: int, pos: int, n: int, wide: bool, words: str) -> None:
    """PROTOCOL section 5: a frame whose position is not the cache's length after control is refused."""
    where = lane(length)
    with pytest.raises(FrameRefused, match=words):
        go(where, pos, n, wide=wide)
    assert where.length == length


def test_slots_are_refused() -> None:
    """PROTOCOL section 5: ``ld`` of a slot it lacks is an error; dropping what was never kept is not."""
    with pytest.raises(FrameRefused, match="slot 3, which this device does not hold"):
        go(lane(), 0, 1, reset=True, ld=3)
    with pytest.raises(FrameRefused, match="saves slot 2"):
        go(lane(), 0, 1, sv=2)
    assert go(lane(), 0, 1, reset=True, dp=(0xFFFF,)).n == 1
    with pytest.raises(FrameRefused, match="lane 1"):
        lane().accept(Columns(pos=0, n=1, wide=False, lane=1), Control())


def test_rollback_keeps_column_k() -> None:
    """PROTOCOL section 5: ``rb = k`` keeps columns up to ``k`` of the last ``spec`` frame."""
    where = lane(10)
    go(where, 10, 6, spec=True)
    go(where, 13, 1, rb=2)
    assert where.length == 14
    # Columns 3 to 5 of the draft are overwritten: only 0 to 2 can still be kept.
    with pytest.raises(FrameRefused, match="rolls back to column 3, and the last draft kept 3"):
        go(where, 14, 1, rb=3)
    go(where, 11, 1, rb=0)
    assert where.length == 12


def test_a_frame_after_a_draft_without_rollback_keeps_it_all() -> None:
    """PROTOCOL section 5: snapshots live until the next ``spec`` frame or reset."""
    where = lane(10)
    go(where, 10, 4, spec=True)
    go(where, 14, 2)
    go(where, 14, 1, rb=3)
    go(where, 0, 1, reset=True)
    with pytest.raises(FrameRefused, match="rolls back"):
        go(where, 1, 1, rb=0)


def test_control_runs_in_its_order() -> None:
    """PROTOCOL section 5: rollback before reset, so that a frame may carry both."""
    where = lane(10)
    go(where, 10, 4, spec=True)
    go(where, 0, 2, rb=1, reset=True)
    assert where.length == 2


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_the_lane_agrees_with_a_list_of_columns(data: st.DataObject) -> None:
    """PROTOCOL section 5: whatever frames and control come, the length is that of the columns really kept."""
    where, kept = Lane(RULES), list[int]()
    stamp, draft = 0, None  # the draft: its base and its columns' stamps
    for _ in range(data.draw(st.integers(1, 25))):
        control = Control(
            reset=data.draw(st.integers(0, 9)) == 0,
            spec=data.draw(st.booleans()),
            rb=data.draw(st.none() | st.integers(0, 5)),
        )
        after = list(kept)
        possible = True
        if control.rb is not None:
            base, stamps = draft or (0, [])
            # It can be kept if the caches still hold those very columns, or hold them beyond their length.
            possible = control.rb < len(stamps)
            after = after[:base] + stamps[: control.rb + 1]
        if control.reset:
            after = []
        pos = data.draw(st.sampled_from([len(after), len(after), len(after) + 1]))
        n = data.draw(st.integers(1, 6))
        fits = pos == len(after) and pos // 256 == (pos + n - 1) // 256
        if not possible or not fits:
            with pytest.raises(FrameRefused):
                where.accept(Columns(pos=pos, n=n, wide=False), control)
            assert where.length == len(kept)
            continue
        where.accept(Columns(pos=pos, n=n, wide=False), control)
        new = list(range(stamp, stamp + n))
        stamp += n
        kept = after + new
        if control.reset:
            draft = None
        if control.spec:
            draft = (pos, new)
        elif draft is not None:
            draft = (draft[0], draft[1][: max(0, pos - draft[0])])
        assert where.length == len(kept)


@pytest.mark.parametrize(("ctx", "width", "cols"), [(0, 16, 32), (512, 0, 32), (512, 16, 0), (512, 16, 24)])
def test_impossible_rules_are_refused(ctx: int, width: int, cols: int) -> None:
    """PROTOCOL section 5: ``cols`` is a divisor of 256."""
    with pytest.raises(FrameRefused, match="impossible"):
        Rules(ctx=ctx, width=width, cols=cols, exact=True)
