"""PROTOCOL section 5, receiving: a peer that keeps to no rule, over channels that come and go."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from pooled_nb.mesh.frame import Frame, Kind
from pooled_nb.mesh.wire import Receiver, Sender, encode
from pooled_nb.mesh.wire.receiver import MAX_BEHIND_GAP, MAX_HALF, MAX_HELD, most_held
from pooled_nb.mesh.wire.sender import AT_A_TIME, Load
from pooled_nb.mesh.wire.slices import MAX_PAYLOAD, ROOM, SLICE

SIZES = st.sampled_from([1, 8, ROOM, ROOM + 1, 3 * ROOM, 5 * ROOM])
CHANNEL = st.integers(0, 4)
MOST = most_held(5 * ROOM)
TORN = 2**32 - 1
"""Position of frames that are not what they say."""


def frame(tag: int, size: int) -> Frame:
    """A frame that says its own number everywhere."""
    payload = (tag.to_bytes(4, "big") * (size // 4 + 1))[:size]
    return Frame(Kind.HIDDEN_B, pos=tag, n=1 + tag % 5, payload=payload, epoch=tag % 256)


class Traffic(RuleBasedStateMachine):
    """An honest sender over channels that open, close, stall, lose what they hold, and carry nothing while
    both ends believe in them.
    """

    def __init__(self) -> None:
        super().__init__()
        self.sender, self.receiver = Sender(), Receiver()
        self.queues: dict[int, list[bytes]] = {}
        self.sent: list[Frame] = []
        self.got: list[int] = []
        self.ever = set[int]()
        self.now, self.lost = 0.0, False
        self.holed, self.unheard = set[int](), set[int]()
        """Channels that carry nothing; those that only the sender knows to be closed."""
        self.was_holed = self.went_again = False

    def take(self, frames: list[Frame]) -> None:
        for f in frames:
            assert f == self.sent[f.pos]
            assert not self.got or f.pos > self.got[-1]
            self.got.append(f.pos)

    @initialize()
    def two_channels(self) -> None:
        self.opens(0)
        self.opens(1)

    @rule(channel=CHANNEL)
    def opens(self, channel: int) -> None:
        if channel not in self.ever:
            self.ever.add(channel)
            self.queues[channel] = []
            self.sender.add_channel(channel)
            self.receiver.opened(channel)

    @rule(size=SIZES)
    def push(self, size: int) -> None:
        self.sent.append(frame(len(self.sent), size))
        self.sender.push(self.sent[-1])

    @rule(stuck=st.sets(CHANNEL), refuses=st.none() | CHANNEL)
    def pump(self, stuck: set[int], refuses: int | None) -> None:
        loads = {
            c: Load(10 * SLICE if c in stuck else 0 if c in self.holed else sum(map(len, queue)))
            for c, queue in self.queues.items()
        }
        for channel, data in self.sender.ready(loads):
            assert isinstance(channel, int)
            if channel == refuses and len(self.queues) > 1:
                self.sender.refused(channel, data)
                for held in self.queues.pop(channel):
                    self.take(self.receiver.slice(channel, held, self.now))
                self.take(self.receiver.closed(channel, self.now))
            else:
                self.queues[channel].append(data)

    @rule(channel=CHANNEL, many=st.integers(1, 5))
    def arrives(self, channel: int, many: int) -> None:
        for _ in range(many):
            if self.queues.get(channel) and channel not in self.holed:
                self.take(self.receiver.slice(channel, self.queues[channel].pop(0), self.now))

    @precondition(lambda self: len(self.queues) > 1)
    @rule(channel=CHANNEL, loses=st.booleans())
    def closes(self, channel: int, loses: bool) -> None:
        if channel in self.queues:
            queue = self.queues.pop(channel)
            self.lost |= loses and bool(queue)
            for data in () if loses else queue:
                self.take(self.receiver.slice(channel, data, self.now))
            self.take(self.receiver.closed(channel, self.now))
            self.sender.drop_channel(channel)

    @rule(nth=CHANNEL)
    def carries_nothing(self, nth: int) -> None:
        self.was_holed = True
        self.holed.add(sorted(self.queues)[nth % len(self.queues)])

    @rule(channel=CHANNEL)
    def carries_again(self, channel: int) -> None:
        self.holed.discard(channel)

    @rule(channel=CHANNEL)
    def counts(self, channel: int) -> None:
        self.sender.outstanding(channel, sum(map(len, self.queues.get(channel, ()))))

    @rule(nth=CHANNEL, stays=st.booleans())
    def found_dead(self, nth: int, stays: bool) -> None:
        """Its slices go again over the others: it is a link's own channel, or it is closed at this end."""
        dead = sorted(self.holed & self.queues.keys() or self.queues)
        channel = dead[nth % len(dead)]
        if len(self.queues) > 1:
            self.went_again = True
            self.sender.again(channel)
            if stays:
                self.sender.avoid(self.holed)
            else:
                self.sender.drop_channel(channel)
                del self.queues[channel]
                self.unheard.add(channel)

    @precondition(lambda self: not self.sender.waiting and not any(self.queues.values()))
    @rule()
    def heard_of_it(self) -> None:
        """The other end waits for them no more: what went again has come by then."""
        for channel in sorted(self.unheard):
            self.take(self.receiver.closed(channel, self.now))
        self.unheard.clear()

    @rule(seconds=st.sampled_from([0.1, 0.1, 0.1, 6.0]))
    def passes(self, seconds: float) -> None:
        self.now += seconds
        self.take(self.receiver.tick(self.now))

    @invariant()
    def right(self) -> None:
        assert self.receiver.failed is None
        if not self.was_holed:  # else a queue is what is in flight, too
            assert all(len(queue) <= AT_A_TIME for queue in self.queues.values())
        for queue in self.queues.values() if not self.went_again else ():
            ids = [int.from_bytes(data[4:8], "big") for data in queue]
            assert ids == sorted(ids)
        if not self.lost and self.now < 5.0:  # no patience has run out
            assert self.receiver.skipped == 0

    def teardown(self) -> None:
        while self.holed & self.queues.keys() and len(self.queues) > 1:
            self.found_dead(0, stays=False)
        self.holed.clear()  # the last one of a link does not lose what it has
        while self.sender.waiting or any(self.queues.values()):
            self.pump(set(), None)
            for channel in list(self.queues):
                self.arrives(channel, 5)
        for channel in (*self.unheard, *self.queues):
            self.take(self.receiver.closed(channel, self.now))
        assert self.receiver.waiting == 0
        if not self.lost and (self.receiver.skipped == 0 or self.now < 5.0):
            assert self.got == list(range(len(self.sent)))


class Hostile(RuleBasedStateMachine):
    """A peer that sends any slice at any time."""

    def __init__(self) -> None:
        super().__init__()
        self.receiver = Receiver()
        self.receiver.most = MOST
        self.now, self.last = 0.0, 0

    def hands_in(self, channel: int, data: bytes) -> None:
        due, held = self.receiver.due, self.receiver._held
        frames = self.receiver.slice(channel, data, self.now)
        assert self.receiver.due >= due + len(frames)
        assert self.receiver._held <= held + SLICE + 1_300
        self.take(frames)

    def take(self, frames: list[Frame]) -> None:
        for f in frames:
            if f.pos != TORN:
                assert f.pos > self.last
                assert f == frame(f.pos, len(f.payload))  # nothing mixed, and no hole
                self.last = f.pos

    @rule(channel=CHANNEL)
    def opens(self, channel: int) -> None:
        self.receiver.opened(channel)

    @rule(channel=CHANNEL)
    def closes(self, channel: int) -> None:
        self.take(self.receiver.closed(channel, self.now))

    @rule(channel=CHANNEL, id=st.integers(1, 40), size=SIZES, index=st.integers(0, 4))
    def right(self, channel: int, id: int, size: int, index: int) -> None:
        pieces = encode(frame(id, size), id)
        self.hands_in(channel, pieces[index % len(pieces)])

    @rule(channel=CHANNEL, first=st.integers(2, 4_000), many=st.sampled_from([20, 300]), size=SIZES)
    def many(self, channel: int, first: int, many: int, size: int) -> None:
        last = encode(frame(0, size), 1)[-1]
        for id in range(first, first + many):
            name = id.to_bytes(4, "big")
            self.hands_in(channel, last[:4] + name + TORN.to_bytes(4, "big") + last[12:])

    @rule(
        channel=CHANNEL,
        id=st.integers(1, 40) | st.integers(2**32 - 3, 2**32 - 1),
        size=SIZES,
        at=st.integers(0, 31).filter(lambda at: not 8 <= at < 12),
        noise=st.binary(min_size=1, max_size=4),
        cut=st.integers(-3, 3),
    )
    def torn(self, channel: int, id: int, size: int, at: int, noise: bytes, cut: int) -> None:
        (data, *_) = encode(replace(frame(0, size), pos=TORN), id)
        data = data[:at] + noise[: 8 - at if at < 8 else None] + data[at + len(noise) :]
        self.hands_in(channel, data[:cut] if cut < 0 else data + bytes(cut))

    @rule(seconds=st.sampled_from([0.1, 6.0, 61.0]))
    def passes(self, seconds: float) -> None:
        self.now += seconds
        self.take(self.receiver.tick(self.now))

    @invariant()
    def bounded(self) -> None:
        receiver = self.receiver
        held = sum(half.held for half in receiver._half.values())
        held += sum(size for _, size in receiver._whole.values())
        assert receiver._held == held <= MOST
        assert len(receiver._half) <= MAX_HALF
        assert len(receiver._whole) <= MAX_BEHIND_GAP
        if receiver.failed is not None:
            assert held == 0


TestTraffic = Traffic.TestCase
TestTraffic.settings = settings(deadline=None, max_examples=40, stateful_step_count=40)
TestHostile = Hostile.TestCase
TestHostile.settings = settings(deadline=None, max_examples=40, stateful_step_count=25)


def test_the_bound_is_that_of_the_rooms_largest_frame() -> None:
    """PROTOCOL section 5: what a link may hold follows from its model: 12 of the largest frames and 1 MiB."""
    largest = 256 * 4_096 * 2
    assert 12 * largest < most_held(largest) < 13 * largest + (1 << 20)
    assert most_held(None) == MAX_HELD == 64 << 20
    receiver = Receiver()
    receiver.most = most_held(largest)
    receiver.opened("a"), receiver.opened("b")
    pieces = encode(Frame(Kind.HIDDEN_B, 0, 256, bytes(largest)), 1)
    for id in range(2, 14):  # an honest peer's: two answers' prompts behind one frame that is late
        for piece in pieces:
            receiver.slice("a", piece[:4] + id.to_bytes(4, "big") + piece[8:], 0.0)
    assert receiver.failed is None
    assert receiver.waiting == 12
    for piece in pieces:
        receiver.slice("a", piece[:4] + (14).to_bytes(4, "big") + piece[8:], 0.0)
    assert receiver.failed is not None


def test_a_frame_announced_as_4_gb_allocates_nothing() -> None:
    """PROTOCOL section 5: what a header claims is not believed: memory follows what came."""
    receiver = Receiver()
    receiver.opened("a")
    (first, *_) = encode(Frame(Kind.HIDDEN_B, 0, 256, bytes(MAX_PAYLOAD)), 1)
    tracemalloc.start()
    try:
        for total in (2**32 - 1, MAX_PAYLOAD + 1):
            count = min(0xFFFF, -(-total // ROOM))
            claims = (
                first[:16] + count.to_bytes(2, "big") + first[18:20] + total.to_bytes(4, "big") + first[24:]
            )
            assert receiver.slice("a", claims, 0.0) == []
        assert receiver._held == 0
        receiver.slice("a", first, 0.0)  # the largest that may be: 64 MiB
        assert receiver._held < SLICE + 1_300
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("size", [1, ROOM + 1])
def test_no_slice_costs_more_than_the_frames_that_may_wait(size: int) -> None:
    """PROTOCOL section 5: with everything held that may be, a slice that gives up a gap looks at each of it
    once, and that is at most 512 frames, however many slices a peer sends.
    """
    receiver = Receiver()
    receiver.opened("a"), receiver.opened("b")
    half = encode(frame(0, ROOM + 1), 1)[1]
    for id in range(10_000, 10_000 + MAX_HALF - 1):
        receiver.slice("a", half[:4] + id.to_bytes(4, "big") + half[8:], 0.0)
    receiver.slice("b", half[:4] + (10_000).to_bytes(4, "big") + half[8:], 0.0)
    looked = 0

    class Counted(dict[int, Any]):
        def __iter__(self) -> Iterator[int]:
            nonlocal looked
            looked += len(self)
            return super().__iter__()

    receiver._half = Counted(receiver._half)
    receiver._whole = Counted(receiver._whole)
    for id in range(2, 2_000, 2):  # each leaves a gap that is given up at once
        for piece in encode(frame(0, size), id):
            receiver.slice("a", piece, 0.0)
    assert receiver.failed is None
    assert receiver.due == 1_999
    assert 0 < looked / 999 <= 2 * (MAX_HALF + MAX_BEHIND_GAP)
