"""PROTOCOL section 5, sending: ids, priorities, channels, second copies, refusals."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Hashable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pooled_nb.mesh.frame import Frame, Kind
from pooled_nb.mesh.wire import Load, Priority, Receiver, Sender, decode
from pooled_nb.mesh.wire.sender import AT_A_TIME, MAX_COPIES
from pooled_nb.mesh.wire.slices import LAST_ID, ROOM, SLICE


def frame(tag: int, slices: int = 1) -> Frame:
    return Frame(Kind.HIDDEN_B, pos=tag, n=1, payload=bytes([tag % 256]) * (slices * ROOM))


def sender(*keys: str, twice: bool = True) -> Sender:
    s = Sender(twice=twice)
    for key in keys:
        s.add_channel(key)
    return s


def held(**channels: int) -> dict[Hashable, Load]:
    """Bytes that each channel still holds."""
    return {key: Load(size) for key, size in channels.items()}


def heads(steps: list[tuple[object, bytes]]) -> list[tuple[object, int, int]]:
    """``(channel, frame id, slice index)`` of each step."""
    out = []
    for key, data in steps:
        read = decode(data)
        assert read is not None
        out.append((key, read.id, read.index))
    return out


def test_id_when_the_first_slice_goes() -> None:
    """PROTOCOL section 5, sending: "A frame gets its id when its first slice is handed over"."""
    s = sender("a", twice=False)
    s.push(frame(1, 4), Priority.PREFILL)
    s.push(frame(2), Priority.DECODE, lane=1)
    # The later, more urgent frame went first, and has the lower id.
    assert heads(list(s.ready({}))) == [("a", 1, 0), ("a", 2, 0), ("a", 2, 1), ("a", 2, 2)]


def test_priorities_never_reorder_ids() -> None:
    """PROTOCOL section 5, sending: a frame that has begun is finished before a more urgent one begins."""
    s = sender("a", twice=False)
    s.push(frame(1, 6), Priority.PREFILL)
    assert heads(list(s.ready({}))) == [("a", 1, i) for i in range(4)]
    s.push(frame(2), Priority.DECODE)
    assert s.waiting == 2
    assert heads(list(s.ready(held(a=0)))) == [("a", 1, 4), ("a", 1, 5), ("a", 2, 0)]
    assert s.waiting == 0


def test_equal_priority_keeps_order() -> None:
    """PROTOCOL section 5, sending: what is pushed alike leaves in that order."""
    s = sender("a", twice=False)
    for tag in range(4):
        s.push(frame(tag))
    got = [data for _, data in s.ready({})]
    assert [data[-1] for data in got] == [0, 1, 2, 3]


def test_four_slices_at_a_time() -> None:
    """DESIGN section 4: an association gets "at most 4 slices at a time", large or small."""
    s = sender("a", twice=False)
    for _ in range(20):
        s.push(Frame(Kind.HIDDEN, 0, 1, b"x" * 8))
    assert len(list(s.ready({}))) == AT_A_TIME
    assert list(s.ready(held(a=160))) == []
    assert len(list(s.ready(held(a=81)))) == 1  # three of 40 bytes are still there, one of them in part
    assert len(list(s.ready(held(a=40)))) == 3
    assert list(s.ready(held(a=10 * SLICE))) == []


def test_least_queued_and_round_robin() -> None:
    """PROTOCOL section 5, sending: "the open channel with the least queued bytes, ties round-robin"."""
    s = sender("a", "b", "c", twice=False)
    s.push(frame(1, 6))
    assert [key for key, _ in s.ready({})] == ["a", "b", "c", "a", "b", "c"]
    s.push(frame(2, 4))
    steps = list(s.ready(held(a=2 * SLICE, b=0, c=SLICE)))
    assert steps[0][0] == "b"
    assert sorted(str(key) for key, _ in steps) == ["a", "b", "b", "c"]


def test_small_frames_go_twice() -> None:
    """PROTOCOL section 5, sending: "at most 3 slices go twice, on two connections, when there are two"."""
    s = sender("a", "b", "c")
    s.push(frame(1, 3))
    carried = defaultdict(set)
    for key, id, index in heads(list(s.ready({}))):
        assert key not in carried[index]
        carried[index].add(key)
        assert id == 1
    assert [len(carried[i]) for i in range(3)] == [2, 2, 2]
    s.push(frame(2, 4))
    assert len(list(s.ready({}))) == 4


def test_once_over_one_connection_or_when_switched_off() -> None:
    """PROTOCOL section 5, sending: once over one connection; "a setting turns it off"."""
    for s in (sender("a"), sender("a", "b", twice=False)):
        s.push(frame(1, 2))
        assert len(list(s.ready({}))) == 2


def test_a_copy_that_waits_goes_before_newer_frames() -> None:
    """PROTOCOL section 5, sending: each channel has rising ids, second copies too."""
    s = sender("a", "b")
    s.push(frame(1))
    s.push(frame(2))
    first = list(s.ready(held(b=10 * SLICE)))
    assert heads(first) == [("a", 1, 0), ("a", 2, 0)]
    assert s.waiting == 2  # the copies: who sends must ask again
    s.push(frame(3, 4))
    later = heads(list(s.ready(held(a=10 * SLICE, b=0))))
    assert later == [("b", 1, 0), ("b", 2, 0), ("b", 3, 0), ("b", 3, 1)]


def test_a_refused_slice_goes_elsewhere() -> None:
    """PROTOCOL section 5, sending: "A channel that refuses hands the slice to another", before
    anything newer.
    """
    s = sender("a", "b", twice=False)
    s.push(frame(1, 4))
    s.push(frame(2, 4))
    taken = []
    for key, data in s.ready({}):
        if key == "a":
            s.refused(key, data)
        else:
            taken.append((key, data))
    assert heads(taken) == [("b", 1, i) for i in range(4)]
    assert heads(list(s.ready(held(b=0)))) == [("b", 2, i) for i in range(4)]


def test_a_refused_copy_is_no_error() -> None:
    """PROTOCOL section 5, sending: "a second copy that nobody takes is no error"."""
    s = sender("a", "b")
    s.push(frame(1))
    taken = []
    for key, data in s.ready({}):
        if taken:
            s.refused(key, data)
        else:
            taken.append((key, data))
    assert len(taken) == 1
    assert list(s.ready({})) == []
    assert s.waiting == 0
    assert s.drain() == []


def test_a_refused_first_copy_goes_once_over_the_other() -> None:
    """PROTOCOL section 5, sending: of two connections one refuses: the frame goes over the other, once."""
    s = sender("a", "b")
    s.push(frame(1))
    taken = []
    for key, data in s.ready({}):
        if key == "a":
            s.refused(key, data)
        else:
            taken.append((key, data))
    assert heads(taken) == [("b", 1, 0)]


def test_a_late_refusal_loses_nothing() -> None:
    """PROTOCOL section 5, sending: a refusal told after more was given still finds another channel."""
    s = sender("a", "b", twice=False)
    s.push(frame(1))
    s.push(frame(2))
    (key, data), _other = list(s.ready({}))
    s.refused(key, data)
    assert heads(list(s.ready({}))) == [("b", 1, 0)]


def test_all_closed() -> None:
    """PROTOCOL section 5: when all channels are closed, frames not wholly handed over are taken back,
    in order.
    """
    s = sender("a", twice=False)
    frames = [frame(1, 6), frame(2), frame(3)]
    for f in frames:
        s.push(f)
    assert len(list(s.ready({}))) == 4
    s.drop_channel("a")
    assert s.channels == 0
    assert list(s.ready({})) == []
    assert s.waiting_bytes == 2 * ROOM + 2 * SLICE
    assert s.drain() == frames
    assert (s.waiting, s.waiting_bytes, s.drain()) == (0, 0, [])


def test_ids_run_out() -> None:
    """PROTOCOL section 5: the id is a u32: at its end the link has to be redialed, never wrapped."""
    s = sender("a", twice=False)
    s._next_id = LAST_ID
    s.push(frame(1))
    s.push(frame(2))
    assert heads(list(s.ready({}))) == [("a", LAST_ID, 0)]
    assert s.exhausted
    assert s.drain() == [frame(2)]


def test_a_frame_that_cannot_be_sent_is_refused_at_once() -> None:
    """PROTOCOL section 5: the caller's mistake surfaces where it was made."""
    s = sender("a")
    with pytest.raises(ValueError, match="payload"):
        s.push(Frame(Kind.HIDDEN, 0, 1, b""))
    assert s.waiting == 0


@settings(deadline=None, max_examples=120)
@given(
    st.randoms(use_true_random=False),
    st.integers(1, 4),
    st.lists(st.integers(1, 7), min_size=1, max_size=20),
    st.booleans(),
    st.floats(0, 0.2),
)
def test_sender_to_receiver(
    rng: random.Random, channels: int, sizes: list[int], twice: bool, refusing: float
) -> None:
    """PROTOCOL section 5: over channels that queue, refuse and close, every frame arrives, in order
    of its id.
    """
    s, r = Sender(twice=twice), Receiver()
    frames = [frame(i, size) for i, size in enumerate(sizes)]
    queues: dict[int, list[bytes]] = {}
    newest: dict[int, int] = {}
    for c in range(channels):
        s.add_channel(c)
        r.opened(c)
        queues[c], newest[c] = [], 0
    to_push, got = list(frames), []
    while to_push or s.waiting or any(queues.values()):
        if to_push and rng.random() < 0.5:
            s.push(to_push.pop(0), Priority.DECODE)
        for c, data in s.ready({c: Load(sum(map(len, q))) for c, q in queues.items()}):
            assert isinstance(c, int)
            if len(queues) > 1 and rng.random() < refusing:
                # It closes here and there, once what it had taken has arrived.
                for held in queues.pop(c):
                    got += r.slice(c, held, 0.0)
                got += r.closed(c, 0.0)
                s.refused(c, data)
                continue
            id = int.from_bytes(data[4:8], "big")
            assert id >= newest[c]
            newest[c] = id
            queues[c].append(data)
            assert len(queues[c]) <= AT_A_TIME
        if arriving := [c for c, queue in queues.items() if queue]:
            c = rng.choice(arriving)
            got += r.slice(c, queues[c].pop(0), 0.0)
    for c in queues:
        got += r.closed(c, 0.0)
    assert got == frames
    assert r.skipped == 0


def test_ties_go_round() -> None:
    """PROTOCOL section 5, sending: "ties round-robin", also when all channels are empty each time."""
    s = sender("a", "b", "c", twice=False)
    order = []
    for tag in range(6):
        s.push(frame(tag))
        order += [key for key, _ in s.ready({})]
    assert order == ["a", "b", "c"] * 2


def test_a_copy_outlives_its_channel() -> None:
    """PROTOCOL section 5, sending: a second copy that waits for a channel that closes goes over a third."""
    s = sender("a", "b", "c")
    full = held(b=10 * SLICE, c=10 * SLICE)
    s.push(frame(1))
    assert heads(list(s.ready(full))) == [("a", 1, 0)]
    s.drop_channel("b")
    assert heads(list(s.ready({}))) == [("c", 1, 0)]
    assert list(s.ready({})) == []


def test_what_waits_beside_counts() -> None:
    """DESIGN section 4: "at most 4 slices at a time", whatever else its connection carries: slices wait while
    large messages fill the association, and go elsewhere where they can.
    """
    s = sender("a", "b", twice=False)
    s.push(frame(1, 9))
    assert [key for key, _ in s.ready({"a": Load(0, 3 * SLICE + 1)})] == ["b"] * 4
    assert [key for key, _ in s.ready({"a": Load(0, 3 * SLICE), "b": Load(4 * SLICE)})] == ["a"]
    assert [key for key, _ in s.ready({"a": Load(SLICE, SLICE), "b": Load(4 * SLICE)})] == ["a", "a"]


def test_copies_for_a_channel_that_is_stuck_are_few() -> None:
    """PROTOCOL section 5, sending: "a second copy that nobody takes is no error": it is not kept for ever."""
    s = sender("a", "b")
    for tag in range(50):
        s.push(frame(tag))
        list(s.ready(held(b=10 * SLICE)))
    assert s.waiting == MAX_COPIES
    assert s.waiting_bytes == MAX_COPIES * SLICE
    assert not s.waits_for("a")  # nothing less urgent is held up by them
    assert s.waits_for("b")
    ids = [id for key, id, _ in heads(list(s.ready(held(a=10 * SLICE))))]
    assert ids == list(range(51 - MAX_COPIES, 51 - MAX_COPIES + AT_A_TIME))


@settings(deadline=None, max_examples=60)
@given(
    st.lists(
        st.tuples(st.sampled_from(Priority), st.integers(0, 2), st.integers(1, 6)), min_size=1, max_size=20
    ),
    st.integers(0, 2**32),
)
def test_lanes_and_priorities_on_the_wire(pushes: list[tuple[Priority, int, int]], seed: int) -> None:
    """PROTOCOL section 5, sending: "each channel gets its slices in rising id order", whatever the
    priorities; frames of one lane arrive in the order they were pushed in, and none is lost.
    """
    rng, s, r = random.Random(seed), sender("a", "b", "c"), Receiver()
    for key in "abc":
        r.opened(key)
    newest = dict.fromkeys("abc", 0)
    got: list[int] = []
    lanes: list[list[int]] = [[], [], []]
    rest = list(enumerate(pushes))
    while rest or s.waiting:
        if rest and rng.random() < 0.5:
            tag, (priority, lane, size) = rest.pop(0)
            lanes[lane].append(tag)
            s.push(frame(tag, size), priority, lane)
        for key, data in s.ready({key: Load(rng.choice([0, 2 * SLICE, 4 * SLICE])) for key in "abc"}):
            id = int.from_bytes(data[4:8], "big")
            assert id >= newest[str(key)]
            newest[str(key)] = id
            got += [f.pos for f in r.slice(key, data, 0.0)]
    assert [[tag for tag in got if tag in lane] for lane in lanes] == lanes
    assert sorted(got) == list(range(len(pushes)))


def test_what_waits_by_priority() -> None:
    """DESIGN section 4, one queue of a link: what is behind, for status: copies are not counted."""
    s = sender("a", "b")
    s.push(frame(1, 6), Priority.PREFILL)
    s.push(frame(2), Priority.DECODE)
    assert s.waiting_of() == {Priority.PREFILL: 6 * ROOM, Priority.DECODE: ROOM}
    list(s.ready(held(b=10 * SLICE)))
    assert s.waiting_of() == {Priority.PREFILL: 2 * SLICE, Priority.DECODE: ROOM}
    list(s.ready(held(b=10 * SLICE)))
    assert s.waiting_of() == {}
