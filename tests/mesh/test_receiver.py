"""PROTOCOL section 5, receiving: any order, loss, duplicate and close over any number of channels."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pooled_nb.mesh.frame import Encoding, Frame, Kind
from pooled_nb.mesh.wire import Receiver, encode
from pooled_nb.mesh.wire.receiver import HALF_KEPT, MAX_BEHIND_GAP, MAX_HALF, MAX_HELD
from pooled_nb.mesh.wire.slices import ROOM

BIG = 3 * ROOM


def frame(id: int, size: int = 40) -> Frame:
    """A frame that says its own number everywhere."""
    payload = (id.to_bytes(4, "big") * (size // 4 + 1))[:size]
    return Frame(Kind.HIDDEN_B, pos=id, n=1 + id % 5, payload=payload, epoch=id % 256)


def opened(*keys: str) -> Receiver:
    receiver = Receiver()
    for key in keys:
        receiver.opened(key)
    return receiver


def ids(frames: list[Frame]) -> list[int]:
    return [f.pos for f in frames]


@st.composite
def traffic(draw: st.DrawFn) -> tuple[list[Frame], dict[int, list[bytes]], random.Random]:
    """Frames cut into slices and dealt to channels, ids rising on each."""
    rng = draw(st.randoms(use_true_random=False))
    channels = draw(st.integers(1, 4))
    sizes = draw(st.lists(st.sampled_from([8, ROOM, ROOM + 1, BIG]), min_size=1, max_size=25))
    frames = [frame(i + 1, size) for i, size in enumerate(sizes)]
    queues: dict[int, list[bytes]] = {c: [] for c in range(channels)}
    for i, f in enumerate(frames):
        for data in encode(f, i + 1):
            for c in rng.sample(range(channels), k=rng.choice((1, min(2, channels)))):
                queues[c].append(data)
    return frames, queues, rng


@settings(deadline=None, max_examples=120)
@given(traffic())
def test_nothing_lost_all_delivered(case: tuple[list[Frame], dict[int, list[bytes]], random.Random]) -> None:
    """PROTOCOL section 5, receiving: "strictly in id order": all frames, once, right, whatever
    interleaves.
    """
    frames, queues, rng = case
    receiver = opened()
    for c in queues:
        receiver.opened(c)
    got: list[Frame] = []
    while live := [c for c, queue in queues.items() if queue]:
        c = rng.choice(live)
        data = queues[c].pop(0)
        got += receiver.slice(c, data, 0.0)
        if rng.random() < 0.1:
            got += receiver.slice(rng.choice(list(queues)), data, 0.0) if len(queues) == 1 else []
    for c in queues:
        got += receiver.closed(c, 0.0)
    assert got == frames
    assert receiver.skipped == 0
    assert receiver.waiting == 0


@settings(deadline=None, max_examples=150)
@given(traffic(), st.data())
def test_any_loss_order_duplicate_close(
    case: tuple[list[Frame], dict[int, list[bytes]], random.Random], data: st.DataObject
) -> None:
    """PROTOCOL section 5, receiving: ids strictly rise, nothing twice, no wrong payload, whole frames
    not lost for ever.
    """
    frames, queues, rng = case
    by_id = {f.pos: f for f in frames}
    receiver = opened()
    for c in queues:
        receiver.opened(c)
    slices = [(c, s) for c, queue in queues.items() for s in queue if rng.random() < 0.9]
    slices += rng.sample(slices, k=len(slices) // 4)
    rng.shuffle(slices)
    now, got, open_channels = 0.0, list[Frame](), set(queues)
    for c, s in slices:
        now += data.draw(st.sampled_from([0.0, 0.001, 1.0, 7.0]), label="pause")
        got += receiver.slice(c, s, now)
        if rng.random() < 0.05 and c in open_channels:
            open_channels.discard(c)
            got += receiver.closed(c, now)
        if rng.random() < 0.3:
            got += receiver.tick(now)
    waiting = receiver.waiting
    for _ in range(waiting + 1):
        now += 61.0
        got += receiver.tick(now)
    assert receiver.waiting == 0
    assert ids(got) == sorted(set(ids(got)))
    assert all(f == by_id[f.pos] for f in got)
    assert receiver.failed is None


def test_in_order_only() -> None:
    """PROTOCOL section 5, receiving: "A missing frame is late, not lost"."""
    receiver = opened("a", "b")
    (one,), (two,), (three,) = (encode(frame(i), i) for i in (1, 2, 3))
    assert receiver.slice("a", three, 0.0) == []
    assert receiver.slice("a", two, 0.0) == []
    assert receiver.waiting == 2
    assert ids(receiver.slice("b", one, 0.0)) == [1, 2, 3]
    assert receiver.due == 4


def test_skipped_at_once_when_every_channel_is_past() -> None:
    """PROTOCOL section 5, receiving: "skipped at once when every open channel has already shown an id
    not below".
    """
    receiver = opened("a", "b")
    (three,), (four,) = encode(frame(3), 3), encode(frame(4), 4)
    assert receiver.slice("a", three, 0.0) == []
    assert ids(receiver.slice("b", four, 0.0)) == [3, 4]
    assert receiver.skipped == 2
    # "A frame that arrives after it was skipped is dropped."
    (two,) = encode(frame(2), 2)
    assert receiver.slice("a", two, 0.0) == []
    assert receiver.due == 5


def test_one_channel_has_no_gaps_to_wait_for() -> None:
    """PROTOCOL section 5, receiving: over one channel, in rising order, what is missing cannot come
    any more.
    """
    receiver = opened("a")
    assert ids(receiver.slice("a", encode(frame(5), 5)[0], 0.0)) == [5]


def test_half_a_frame_shows_its_id() -> None:
    """PROTOCOL section 5, receiving: any slice of a later frame on the other channel is enough."""
    receiver = opened("a", "b")
    assert receiver.slice("a", encode(frame(2), 2)[0], 0.0) == []
    assert ids(receiver.slice("b", encode(frame(9, BIG), 9)[0], 0.0)) == [2]


def test_all_missing_below_the_oldest_go_together() -> None:
    """PROTOCOL section 5, receiving: half frames below the oldest complete one go with the missing ids."""
    receiver = opened("a", "b")
    half = encode(frame(1, BIG), 1)
    receiver.slice("a", half[0], 0.0)
    receiver.slice("a", encode(frame(3), 3)[0], 0.0)
    assert ids(receiver.slice("b", encode(frame(4), 4)[0], 0.0)) == [3, 4]
    for data in half:
        assert receiver.slice("a", data, 0.0) == []


def test_60_seconds() -> None:
    """PROTOCOL section 5, receiving: "else after 60 s", counted from the last progress."""
    receiver = opened("a", "b")
    receiver.slice("a", encode(frame(1), 1)[0], 1000.0)  # long ago: a gap's time starts with the gap
    assert ids(receiver.slice("b", encode(frame(1), 1)[0], 1000.0)) == []
    assert receiver.slice("a", encode(frame(3), 3)[0], 2000.0) == []
    assert receiver.tick(2059.9) == []
    assert ids(receiver.tick(2060.0)) == [3]


def test_a_slice_of_the_due_frame_is_progress() -> None:
    """PROTOCOL section 5, receiving: "progress: … a new slice of the one that is due"; of another, or
    a copy, is none.
    """
    receiver = opened("a", "b")
    due, other = encode(frame(1, BIG), 1), encode(frame(2, BIG), 2)
    receiver.slice("a", encode(frame(3), 3)[0], 0.0)
    receiver.slice("b", due[0], 50.0)
    receiver.slice("b", due[0], 80.0)
    receiver.slice("b", other[0], 90.0)
    assert receiver.tick(109.0) == []
    assert ids(receiver.tick(110.0)) == [3]


def test_5_seconds_after_a_close() -> None:
    """PROTOCOL section 5, receiving: "after 5 s without progress when a channel closed in the last 15 s"."""
    receiver = opened("a", "b", "c")
    receiver.slice("a", encode(frame(2), 2)[0], 100.0)
    assert receiver.closed("b", 101.0) == []
    assert receiver.tick(104.9) == []
    assert ids(receiver.tick(105.0)) == [2]
    # Stuck for longer already: the close decides at once.
    receiver.slice("a", encode(frame(4), 4)[0], 200.0)
    assert receiver.tick(229.9) == []
    assert ids(receiver.closed("a", 230.0)) == [4]


def test_a_close_counts_for_15_seconds() -> None:
    """PROTOCOL section 5, receiving: a close longer ago than 15 s shortens nothing."""
    receiver = opened("a", "b", "c")
    receiver.closed("b", 100.0)
    receiver.slice("a", encode(frame(2), 2)[0], 111.0)
    assert receiver.tick(116.1) == []
    assert ids(receiver.tick(171.0)) == [2]


def test_a_closed_channel_is_not_waited_for() -> None:
    """PROTOCOL section 5, receiving: only open channels hold a gap open; all closed hands over what
    is held.
    """
    receiver = opened("a", "b")
    receiver.slice("a", encode(frame(2), 2)[0], 0.0)
    assert ids(receiver.closed("b", 0.0)) == [2]
    receiver.slice("b", encode(frame(3), 3)[0], 0.0)
    receiver.opened("b")
    receiver.slice("a", encode(frame(7), 7)[0], 0.0)
    receiver.slice("a", encode(frame(9), 9)[0], 0.0)
    assert receiver.closed("b", 0.0) != []
    assert receiver.closed("a", 0.0) == []
    assert receiver.closed("never", 0.0) == []


def test_257_complete_frames_fail_the_link() -> None:
    """PROTOCOL section 5, receiving: "At most 256 complete frames wait behind a gap; at the next, the
    link fails".
    """
    receiver = opened("a", "b")
    for id in range(2, 2 + MAX_BEHIND_GAP):
        assert receiver.slice("a", encode(frame(id), id)[0], 0.0) == []
    assert receiver.failed is None
    assert receiver.waiting == 256
    receiver.slice("a", encode(frame(400), 400)[0], 0.0)
    assert receiver.failed
    assert receiver.slice("a", encode(frame(1), 1)[0], 0.0) == []
    assert receiver.tick(1e6) == []


def test_256_waiting_are_released_by_the_missing_one() -> None:
    """PROTOCOL section 5, receiving: the one that was missing may be the 257th."""
    receiver = opened("a", "b")
    for id in range(2, 2 + MAX_BEHIND_GAP):
        receiver.slice("a", encode(frame(id), id)[0], 0.0)
    assert ids(receiver.slice("b", encode(frame(1), 1)[0], 0.0)) == list(range(1, 258))
    assert receiver.failed is None


def test_old_half_frames_are_forgotten() -> None:
    """PROTOCOL section 5, receiving: "Half frames older than 30 s are forgotten once 64 are held"."""
    receiver = opened("a", "b")
    halves = {id: encode(frame(id, BIG), id) for id in range(2, 2 + HALF_KEPT + 1)}
    for id in range(2, 2 + HALF_KEPT):
        receiver.slice("a", halves[id][0], 0.0)
    # One that is held may still be finished, however old, while no 65th comes.
    for data in halves[2][1:]:
        receiver.slice("a", data, 31.0)
    assert receiver.waiting == 1
    receiver.slice("a", encode(frame(200, BIG), 200)[0], 31.0)
    receiver.slice("a", halves[2 + HALF_KEPT][0], 31.0)
    for data in halves[3][1:]:
        receiver.slice("a", data, 31.0)
    assert receiver.waiting == 1  # its first slice was forgotten
    receiver.slice("a", halves[3][0], 31.0)
    assert receiver.waiting == 2


def test_slices_that_disagree() -> None:
    """PROTOCOL section 5, receiving: a slice "that disagrees with its frame's earlier slices, is ignored"."""
    receiver = opened("a", "b")
    right, wrong = encode(frame(1, BIG), 1), encode(frame(2, BIG), 1)
    receiver.slice("a", right[0], 0.0)
    # It says nothing of its channel either.
    assert receiver.slice("b", wrong[1], 0.0) == []
    assert receiver.slice("a", wrong[2], 0.0) == []
    receiver.slice("a", right[1], 0.0)
    assert receiver.slice("a", right[2], 0.0) == [frame(1, BIG)]


def test_too_much_that_never_becomes_whole() -> None:
    """PROTOCOL section 5: everything from the network is bounded: half frames without end fail the link."""
    receiver = opened("a", "b")
    template = bytearray(encode(Frame(Kind.HIDDEN_B, 0, 2, b"x" * (2 * ROOM), enc=Encoding.BF16), 1)[0])
    for id in range(2, 2 + MAX_HELD // ROOM):
        template[4:8] = id.to_bytes(4, "big")
        receiver.slice("a", template, 0.0)
        if receiver.failed:
            break
    assert receiver.failed


@pytest.mark.parametrize("junk", [b"", b"\0", b"SW" + b"\0" * 40, b"\xff" * 5000])
def test_junk_says_nothing(junk: bytes) -> None:
    """PROTOCOL section 5, receiving: junk is ignored and shows no id."""
    receiver = opened("a")
    assert receiver.slice("a", junk, 0.0) == []
    assert ids(receiver.slice("a", encode(frame(1), 1)[0], 0.0)) == [1]


def test_late_slices_do_not_reopen_a_channel() -> None:
    """PROTOCOL section 5, receiving: what a closed channel still hands in counts; the channel does not."""
    receiver = opened("a", "b")
    receiver.closed("b", 0.0)
    assert ids(receiver.slice("b", encode(frame(1), 1)[0], 0.0)) == [1]
    assert ids(receiver.slice("a", encode(frame(9), 9)[0], 0.0)) == [9]


def test_few_half_frames_are_kept_however_old() -> None:
    """PROTOCOL section 5, receiving: age alone forgets nothing while fewer than 64 are held."""
    receiver = opened("a", "b")
    old = encode(frame(1, BIG), 1)
    receiver.slice("a", old[0], 0.0)
    receiver.slice("a", encode(frame(2, BIG), 2)[0], 40.0)
    assert [ids(receiver.slice("a", data, 41.0)) for data in old[1:]] == [[], [1]]


def test_a_complete_frame_is_not_replaced() -> None:
    """PROTOCOL section 5, receiving: "ignored; so are slices of frames handed over, skipped or complete"."""
    receiver = opened("a", "b")
    receiver.slice("a", encode(frame(2), 2)[0], 0.0)
    receiver.slice("a", encode(frame(7), 2)[0], 0.0)
    assert receiver.slice("b", encode(frame(1), 1)[0], 0.0) == [frame(1), frame(2)]


def test_each_gap_has_its_own_patience() -> None:
    """PROTOCOL section 5, receiving: "progress: a frame handed over": the next gap's minute begins there."""
    receiver = opened("a", "b")
    for id in (3, 6):
        receiver.slice("a", encode(frame(id), id)[0], 0.0)
    assert ids(receiver.tick(60.0)) == [3]
    assert receiver.tick(119.0) == []
    assert ids(receiver.tick(120.0)) == [6]


@pytest.mark.parametrize("size", [100, BIG])
def test_frames_that_nobody_wants(size: int) -> None:
    """PROTOCOL section 5: frames count only from the chain; those of others count as handed over, cost
    nothing, and the first one that is wanted waits for none of them.
    """
    receiver = opened("a", "b")
    for id in range(1, 50):
        for data in encode(frame(id, size), id)[: 1 if id % 2 else None]:
            receiver.pass_over("a", data)
    assert (receiver.due, receiver.waiting, receiver._held, receiver._half) == (50, 0, 0, {})
    assert [f for data in encode(frame(50, size), 50) for f in receiver.slice("b", data, 0.0)] == [
        frame(50, size)
    ]
    for data in encode(frame(7, size), 7):  # late: a frame of then
        assert receiver.slice("b", data, 0.0) == []
    assert receiver.skipped == 0


def test_what_is_held_and_nobody_wants_any_more() -> None:
    """PROTOCOL section 5: what waited when a device left the chain goes, and with it the gap."""
    receiver = opened("a", "b")
    receiver.slice("a", encode(frame(3), 3)[0], 0.0)
    receiver.slice("a", encode(frame(9, BIG), 9)[0], 0.0)
    assert receiver._held > 0
    receiver.clear()
    assert (receiver.due, receiver.waiting, receiver._held) == (10, 0, 0)
    receiver.clear()
    assert receiver.due == 10
    assert ids(receiver.slice("b", encode(frame(10), 10)[0], 0.0)) == [10]


def test_tiny_half_frames_are_counted() -> None:
    """PROTOCOL section 5: everything from the network is bounded: also half frames of one byte each."""
    receiver = opened("a", "b")
    template = bytearray(encode(Frame(Kind.HIDDEN_B, 0, 2, b"x" * (ROOM + 1), enc=Encoding.BF16), 1)[1])
    for id in range(2, 2 + MAX_HALF):
        template[4:8] = id.to_bytes(4, "big")
        receiver.slice("a", template, 0.0)
    assert receiver.failed is None
    template[4:8] = (2 + MAX_HALF).to_bytes(4, "big")
    receiver.slice("a", template, 0.0)
    assert receiver.failed


def test_a_channel_that_is_only_expected_delays_for_a_second() -> None:
    """PROTOCOL sections 4, 5: a stripe whose proof is on its way may have brought the missing frame; one that
    never proves itself holds it up for a second, and does not make the other patiences shorter.
    """
    receiver = opened("a")
    receiver.expected("stripe")
    assert receiver.slice("a", encode(frame(2), 2)[0], 1.0) == []
    receiver.opened("stripe")
    assert ids(receiver.slice("stripe", encode(frame(1), 1)[0], 9.0)) == [1, 2]
    receiver.expected("never")
    receiver.expected("nor this")
    for data in encode(frame(4), 4):  # both channels are past 3
        receiver.slice("stripe", data, 10.0)
        receiver.slice("a", data, 10.0)
    assert receiver.tick(10.9) == []
    assert receiver.closed("nor this", 10.9) == []
    assert ids(receiver.tick(11.1)) == [4]
    assert receiver.slice("a", encode(frame(6), 6)[0], 12.0) == []
    assert ids(receiver.closed("never", 12.1)) == []
    assert receiver.tick(60.0) == []  # nothing closed that was open
    assert ids(receiver.tick(73.0)) == [6]


def test_all_is_handed_over_when_the_wire_is_over() -> None:
    """PROTOCOL section 5, fallback: "the receiver first hands over what it holds", expected or not."""
    receiver = opened("a", "b")
    receiver.expected("stripe")
    receiver.slice("a", encode(frame(3), 3)[0], 0.0)
    receiver.slice("a", encode(frame(5), 5)[0], 0.0)
    assert ids(receiver.over(0.1)) == [3, 5]
