"""Where frames may run: no tensors."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pooled_nb.errors import FrameRefused
from pooled_nb.shard.door import Columns, Control
from pooled_nb.shard.frames import SLOTS, Act, Drop, Lane, Load, Placed, Restart, Rollback, Rules, Save

RULES = Rules(ctx=600, width=16, cols=32, exact=True)


def lane(length: int = 0, rules: Rules = RULES) -> Lane:
    """A lane that holds this many columns."""
    made = Lane(rules)
    made._now.length = length
    return made


def go(where: Lane, pos: int, n: int, *, wide: bool = False, **control: Any) -> Placed:
    return where.accept(Columns(pos=pos, n=n, wide=wide), Control(**control))[0]


def acts(where: Lane, pos: int, n: int = 1, **control: Any) -> tuple[Act, ...]:
    return where.accept(Columns(pos=pos, n=n, wide=False), Control(**control))[1]


def snapshot(where: Lane) -> object:
    return copy.deepcopy((where._now, where._old))


def refused(where: Lane, pos: int, words: str, n: int = 1, **control: Any) -> None:
    """The frame is refused in these words, says what to do, and leaves the lane as it was."""
    before = snapshot(where)
    with pytest.raises(FrameRefused, match=words) as caught:
        acts(where, pos, n, **control)
    assert caught.value.next_step
    assert snapshot(where) == before


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


def test_a_draft_is_placed_as_one() -> None:
    """PROTOCOL section 5: ``spec`` snapshots the state after every column; ``rb`` names columns 0 to 62."""
    assert go(lane(), 0, 4, spec=True) == Placed(0, 4, 16, 256, spec=True)
    fast = Rules(ctx=600, width=16, cols=32, exact=False)
    assert go(lane(0, fast), 0, 63, spec=True).spec
    refused(lane(0, fast), 0, "has 64 columns, and 63", n=64, spec=True)


def test_only_lane_0_is_in_use() -> None:
    """DESIGN section 5: columns are (lane, position) pairs, with one lane in use."""
    with pytest.raises(FrameRefused, match="lane 1"):
        lane().accept(Columns(pos=0, n=1, wide=False, lane=1), Control())


def test_a_slot_keeps_the_state_before_the_frame_after_its_rollback() -> None:
    """PROTOCOL section 5: ``sv``: the state before this frame, after its rollback."""
    where = lane(10)
    go(where, 10, 6, spec=True)
    assert acts(where, 13, rb=2, sv=7) == (Rollback(2), Save(7, 13))
    assert where.slots == {7: 13}
    assert acts(where, 14, sv=65534) == (Save(65534, 14),)


def test_loading_goes_back_to_the_slot() -> None:
    """PROTOCOL section 5: ``ld`` puts a slot's state back: the frame starts at its length."""
    where = lane(10)
    go(where, 10, 5, sv=7)
    assert acts(where, 10, 3, ld=7) == (Load(7, 10),)
    assert where.length == 13
    assert where.slots == {7: 10}
    refused(where, 13, "starts at position 13, and the caches hold 10", ld=7)


@pytest.mark.parametrize("how", [{"ld": 7}, {"ld": 8}, {"reset": True}, {"reset": True, "ld": 7}])
def test_after_another_text_nothing_can_be_rolled_back(how: dict[str, Any]) -> None:
    """PROTOCOL section 5: snapshots live until the next ``spec`` frame or reset; they belong to one text."""
    where = lane(10)
    go(where, 10, 6, sv=7, spec=True)
    go(where, 16, 6, sv=8)
    go(where, 10, 6, ld=7, spec=True)
    go(where, {7: 10, 8: 16}[how["ld"]] if "ld" in how else 0, 2, **how)
    refused(where, where.length, "rolls back to column 0, and the last draft kept 0", rb=0)


def test_slots_stay_on_reset() -> None:
    """PROTOCOL section 5: ``reset`` clears the state and starts from position 0. Slots stay."""
    where = lane(10)
    go(where, 10, 1, sv=7)
    assert acts(where, 0, reset=True) == (Restart(),)
    assert where.slots == {7: 10}
    assert acts(where, 10, reset=True, ld=7) == (Restart(), Load(7, 10))


def test_control_runs_in_its_order() -> None:
    """PROTOCOL section 5: rollback, save, drop, reset, load."""
    where = lane(10)
    go(where, 10, 4, sv=1, spec=True)
    go(where, 12, 3, rb=1, sv=2, spec=True)
    done = acts(where, 12, rb=0, sv=3, dp=(1, 9), reset=True, ld=2)
    assert done == (Rollback(0), Save(3, 13), Drop((1,)), Restart(), Load(2, 12))
    # A slot that this very frame saves may be loaded, and dropped.
    assert acts(where, 13, sv=4, ld=4) == (Save(4, 13), Load(4, 13))
    assert acts(where, 14, sv=5, dp=(5,)) == (Save(5, 14), Drop((5,)))
    refused(where, 13, "slot 4, which this device does not hold", dp=(4,), ld=4)


def test_dropping() -> None:
    """PROTOCOL section 5: ``dp`` drops slots, 0xffff first all; what was never kept is no error."""
    where = lane(10)
    for slot in (1, 2, 3):
        go(where, where.length, 1, sv=slot)
    assert acts(where, 13, dp=(2, 9)) == (Drop((2,)),)
    assert acts(where, 14, dp=(2, 0)) == ()
    assert acts(where, 15, dp=(0xFFFF,)) == (Drop((1, 3)),)
    assert not where.slots
    assert acts(where, 16, dp=(0xFFFF, 0)) == ()


def test_a_slot_is_not_saved_over_while_it_is_kept() -> None:
    """PROTOCOL section 5: slots are never reused while kept; dropped, their numbers are free."""
    where = lane(10)
    go(where, 10, 1, sv=7)
    refused(where, 11, "saves slot 7, which is kept already", sv=7)
    refused(where, 11, "saves slot 7, which is kept already", sv=7, dp=(7,))
    go(where, 11, 1, dp=(7,))
    assert acts(where, 12, sv=7) == (Save(7, 12),)


def test_slots_that_a_disk_kept() -> None:
    """PROTOCOL section 7: they can be loaded; a host that does not know of them may use their numbers."""
    where = lane()
    where.found({3: 40, 4: 50})
    assert acts(where, 40, ld=3) == (Load(3, 40),)
    assert acts(where, 41, sv=4) == (Drop((4,)), Save(4, 41))
    refused(where, 42, "saves slot 4, which is kept already", sv=4)
    assert where.slots == {3: 40, 4: 41}


def test_a_slot_that_was_lost_is_not_loaded() -> None:
    """PROTOCOL section 7: a failed write leaves a slot missing."""
    where = lane(10)
    go(where, 10, 1, sv=7)
    where.lost(7)
    refused(where, 10, "slot 7, which this device does not hold", ld=7)


@pytest.mark.parametrize(
    ("control", "words"),
    [
        ({"ld": 3}, "loads slot 3, which this device does not hold"),
        ({"reset": True, "ld": 3}, "loads slot 3, which this device does not hold"),
        ({"rb": 0}, "rolls back to column 0, and the last draft kept 0"),
        ({"rb": -1}, "rolls back to column -1"),
        ({"sv": 2, "dp": (0xFFFF,)}, "saves slot 2 and drops all slots"),
        ({"sv": 0xFFFF}, "names slot 65535, and slots are 1 to 65534"),
        ({"sv": -1}, "names slot -1"),
        ({"ld": 0xFFFF}, "names slot 65535"),
        ({"ld": 1 << 40}, "names slot"),
        ({"dp": (5, 0xFFFF)}, "names slot 65535"),
        ({"dp": (-5,)}, "names slot -5"),
    ],
)
def test_control_that_cannot_be_is_refused(control: dict[str, Any], words: str) -> None:
    """PROTOCOL section 5: slots are 1..65534; ``ld`` of a slot it lacks, ``rb`` past the snapshots: refused.

    The next frame with reset runs.
    """
    where = lane(10)
    refused(where, 10, words, **control)
    assert go(where, 0, 3, reset=True).pos == 0


def test_slots_are_bounded() -> None:
    """PROTOCOL section 6: ``ai-ready`` names at most 64 slots; a device keeps no more."""
    where = lane()
    for slot in range(1, SLOTS + 1):
        go(where, where.length, 1, sv=slot)
    refused(where, SLOTS, "64 slots are the most", sv=SLOTS + 1)
    go(where, SLOTS, 1, dp=(1,))
    go(where, SLOTS + 1, 1, sv=SLOTS + 1)


def test_any_refusal_leaves_everything_as_it_was() -> None:
    """PROTOCOL section 5: a frame is refused whole, with whatever control it carries."""
    where = lane(20)
    go(where, 20, 6, sv=7, spec=True)
    everything: dict[str, Any] = {"rb": 2, "sv": 8, "dp": (7,), "reset": True}
    refused(where, 1, "starts at position 1, and the caches hold 0", **everything)
    refused(where, 0, "has 17 columns", n=17, **everything)
    refused(where, 0, "slot 7, which", ld=7, **everything)
    assert acts(where, 23, rb=2) == (Rollback(2),)


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


@settings(max_examples=120, deadline=None)
@given(st.data())
def test_the_lane_agrees_with_a_list_of_columns(data: st.DataObject) -> None:
    """PROTOCOL section 5: whatever frames and control come, the length is that of the columns really kept."""
    where, kept = Lane(RULES), list[int]()
    stamp = 0
    draft: tuple[int, list[int]] | None = None  # its base and its columns' stamps
    slots: dict[int, list[int]] = {}
    for _ in range(data.draw(st.integers(1, 25))):
        control = Control(
            reset=data.draw(st.integers(0, 9)) == 0,
            spec=data.draw(st.booleans()),
            rb=data.draw(st.none() | st.integers(0, 5)),
            sv=data.draw(st.sampled_from([0, 0, 1, 2, 3])),
            ld=data.draw(st.sampled_from([0, 0, 0, 1, 2])),
            dp=data.draw(st.sampled_from([(), (), (1,), (2, 3), (0xFFFF,)])),
        )
        after, keeps, possible = list(kept), dict(slots), True
        if control.rb is not None:
            base, stamps = draft or (0, [])
            # It can be kept if the caches still hold those very columns, or hold them beyond their length.
            possible = control.rb < len(stamps)
            after = after[:base] + stamps[: control.rb + 1]
        if control.sv:
            possible = possible and control.sv not in keeps and control.dp != (0xFFFF,)
            keeps[control.sv] = after
        keeps = {k: v for k, v in keeps.items() if k not in control.dp and control.dp != (0xFFFF,)}
        if control.reset:
            after = []
        if control.ld:
            possible = possible and control.ld in keeps
            after = list(keeps.get(control.ld, []))
        pos = data.draw(st.sampled_from([len(after), len(after), len(after) + 1]))
        n = data.draw(st.integers(1, 6))
        fits = pos == len(after) and pos // 256 == (pos + n - 1) // 256
        if not possible or not fits:
            with pytest.raises(FrameRefused):
                where.accept(Columns(pos=pos, n=n, wide=False), control)
        else:
            where.accept(Columns(pos=pos, n=n, wide=False), control)
            new = list(range(stamp, stamp + n))
            stamp += n
            kept, slots = after + new, keeps
            if control.reset or control.ld:
                draft = None
            if control.spec:
                draft = (pos, new)
            elif draft is not None:
                draft = (draft[0], draft[1][: max(0, pos - draft[0])])
        assert where.length == len(kept)
        assert where.slots == {k: len(v) for k, v in slots.items()}


@pytest.mark.parametrize(("ctx", "width", "cols"), [(0, 16, 32), (512, 0, 32), (512, 16, 0), (512, 16, 24)])
def test_impossible_rules_are_refused(ctx: int, width: int, cols: int) -> None:
    """PROTOCOL section 5: ``cols`` is a divisor of 256."""
    with pytest.raises(FrameRefused, match="impossible"):
        Rules(ctx=ctx, width=width, cols=cols, exact=True)
