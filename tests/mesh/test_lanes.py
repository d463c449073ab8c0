"""PROTOCOL section 5, sending: "priorities choose which frame comes next", and never reorder a lane."""

from __future__ import annotations

from collections import defaultdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pooled_nb.mesh.frame import Frame, Kind
from pooled_nb.mesh.wire import Priority, priority_of
from pooled_nb.mesh.wire.lanes import MAX_BYTES, MAX_FRAMES, OF_THE_LARGEST, Lanes


def frame(tag: int, size: int = 8) -> Frame:
    return Frame(Kind.HIDDEN_B, pos=tag, n=1, payload=bytes(size))


@settings(deadline=None, max_examples=100)
@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.sampled_from(Priority)) | st.none(),
        max_size=30,
    )
)
def test_no_frame_overtakes_one_of_its_lane(steps: list[tuple[int, Priority] | None]) -> None:
    """PROTOCOL section 5, sending: whatever is pushed when, a lane's frames leave in order; of the lanes the
    one goes whose most urgent frame is the most urgent of all, the oldest first where several are.
    """
    lanes, waiting = Lanes(), defaultdict[int, list[tuple[int, Priority]]](list)
    pushed = 0
    for step in [*steps, *[None] * len(steps)]:
        if step is not None:
            lane, priority = step
            lanes.push(frame(pushed), priority, lane)
            waiting[lane].append((pushed, priority))
            pushed += 1
            continue
        rank = {
            lane: (min(priority for _, priority in frames), frames[0][0])
            for lane, frames in waiting.items()
            if frames
        }
        popped = lanes.pop()
        if not rank:
            assert popped is None
            continue
        assert popped is not None
        expected = waiting[min(rank, key=lambda lane: rank[lane])].pop(0)
        assert (popped[0].pos, popped[1]) == expected
        assert lanes.frames == sum(map(len, waiting.values()))
        assert lanes.bytes == 8 * lanes.frames
        assert sum(lanes.waiting().values()) == lanes.bytes
    assert lanes.pop() is None


def test_what_an_urgent_frame_waits_for_is_as_urgent() -> None:
    """PROTOCOL section 5, sending: a token behind a prompt of its lane draws that before another lane's."""
    lanes = Lanes()
    lanes.push(frame(1), Priority.PREFILL, 1)
    lanes.push(frame(2), Priority.PREFILL, 2)
    lanes.push(frame(3), Priority.DECODE, 2)
    assert [f.pos for f in lanes.drain()] == [2, 3, 1]


def test_what_waits_is_bounded() -> None:
    """PROTOCOL section 5: everything is bounded: 256 frames and 64 MiB, or 12 frames of the largest."""
    lanes = Lanes()
    for tag in range(MAX_FRAMES):
        lanes.push(frame(tag), Priority.DECODE, 0)
    assert not lanes.is_over
    lanes.push(frame(0), Priority.DECODE, 0)
    assert lanes.is_over
    small, large = Lanes(), Lanes()
    for tag in range(4):
        small.push(frame(tag, MAX_BYTES // 4), Priority.PREFILL, 0)
    assert not small.is_over
    small.push(frame(9), Priority.PREFILL, 0)
    assert not small.is_over  # 12 of this size may wait
    for tag in range(OF_THE_LARGEST):
        large.push(frame(tag, MAX_BYTES // 8), Priority.PREFILL, 0)
    assert not large.is_over
    large.push(frame(9), Priority.PREFILL, 0)
    assert large.is_over


@pytest.mark.parametrize(
    ("kind", "n", "spec", "priority"),
    [
        (Kind.HIDDEN, 1, False, Priority.DECODE),
        (Kind.HIDDEN_B, 5, True, Priority.DECODE),
        (Kind.HIDDEN_B, 16, False, Priority.PREFILL),
        (Kind.HIDDEN_B, 1, False, Priority.PREFILL),
        (Kind.RET, 1, False, Priority.DECODE),
        (Kind.RET_B, 5, False, Priority.DECODE),
        (Kind.RET_B, 1, False, Priority.PREFILL),
    ],
)
def test_priority_of_a_frame(kind: Kind, n: int, spec: bool, priority: Priority) -> None:
    """DESIGN section 4: "keep-alive and control, decode, prefill, weights"; returns as what they answer."""
    assert priority_of(Frame(kind, 0, n, b"x" * n, spec=spec)) is priority
