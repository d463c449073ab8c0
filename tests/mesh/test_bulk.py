"""Large messages behind everything else of a link: which piece goes when (DESIGN section 4)."""

from __future__ import annotations

import random
from collections import deque

from hypothesis import given, settings
from hypothesis import strategies as st

from pooled_nb.mesh.binarypack import pack
from pooled_nb.mesh.chunks import CHUNK, MAX_PIECE, Assembler, Chunker
from pooled_nb.mesh.pace import cost
from pooled_nb.mesh.wire import Priority
from pooled_nb.mesh.wire.bulk import BURST, PACE, QUEUE, BulkQueue
from pooled_nb.mesh.wire.priority import BULK


def message(tag: int, size: int) -> bytes:
    return pack({"t": "x", "tag": tag, "data": bytes(size)})


@settings(deadline=None, max_examples=80)
@given(
    st.lists(
        st.tuples(st.sampled_from(BULK), st.sampled_from([10, CHUNK, 3 * CHUNK, 65_536])),
        min_size=1,
        max_size=25,
    ),
    st.integers(0, 2**32),
)
def test_whole_and_in_order(sizes: list[tuple[Priority, int]], seed: int) -> None:
    """PROTOCOL section 2: messages arrive whole, in the order of their class; of each class one is begun at a
    time, so that with a control message between the pieces no more than three are in reassembly.
    """
    rng, chunker, assembler = random.Random(seed), Chunker(), Assembler()
    queue = BulkQueue(chunker, 0.0)
    sent: dict[Priority, list[int]] = {priority: [] for priority in BULK}
    got: list[int] = []
    to_push = deque(enumerate(sizes))
    now = 0.0
    while to_push or queue.waiting_bytes:
        now += 0.01
        if to_push and rng.random() < 0.4:
            tag, (priority, size) = to_push.popleft()
            queue.push(priority, message(tag, size), paced=rng.random() < 0.5)
            sent[priority].append(tag)
        if rng.random() < 0.2:  # a large control message between two pieces
            for piece in chunker.split(message(-1, 2 * CHUNK)):
                if (value := assembler.feed(piece)) is not None:
                    assert value["tag"] == -1
        piece = queue.next(rng.choice([0, 100, MAX_PIECE]), now)
        if piece is not None and (value := assembler.feed(piece)) is not None:
            got.append(value["tag"])
        assert assembler.waiting <= len(BULK)
    for tags in sent.values():
        assert [tag for tag in got if tag in tags] == tags
    assert sorted(got) == list(range(len(sizes)))
    assert set(queue.waiting.values()) == {0}


def test_captures_before_weights() -> None:
    """PROTOCOL section 11: captures are "below prefill in priority", and go between two pieces of weights."""
    queue, assembler = BulkQueue(Chunker(), 0.0), Assembler()
    queue.push(Priority.WEIGHTS, message(1, 65_536), paced=False)
    pieces = [queue.next(MAX_PIECE, 0.0)]
    queue.push(Priority.CAPTURES, message(2, 2 * CHUNK), paced=False)
    while (piece := queue.next(MAX_PIECE, 0.0)) is not None:
        pieces.append(piece)
    values = [assembler.feed(piece or b"") for piece in pieces]
    assert [value["tag"] for value in values if value] == [2, 1]
    assert values.index(next(filter(None, values))) == 3


def test_a_piece_waits_until_it_fits() -> None:
    """DESIGN section 4: an association is given what it has room for, and nothing less urgent meanwhile."""
    queue = BulkQueue(Chunker(), 0.0)
    queue.push(Priority.CAPTURES, message(1, 65_536), paced=False)
    queue.push(Priority.WEIGHTS, message(2, 10), paced=False)
    assert queue.next(CHUNK, 0.0) is None
    assert len(queue.next(MAX_PIECE, 0.0) or b"") <= MAX_PIECE


@settings(deadline=None, max_examples=40)
@given(st.lists(st.sampled_from([10, 5_000, 65_536]), min_size=1, max_size=60), st.floats(0.0005, 0.05))
def test_the_pace_of_what_nobody_acknowledges(sizes: list[int], every: float) -> None:
    """PROTOCOL section 3: an honest device makes the other end read no more than `PACE` in any time."""
    queue, assembler = BulkQueue(Chunker(), 0.0), Assembler()
    for tag, size in enumerate(sizes):
        queue.push(Priority.CAPTURES, message(tag, size), paced=True)
    now = spent = 0.0
    while queue.waiting_bytes:
        now += every
        while (piece := queue.next(MAX_PIECE, now)) is not None:
            assembler.feed(piece)
            spent += cost(assembler.values, len(piece))
            assert spent <= BURST + PACE * now + 200
    assert now < 1 + every + 2 * spent / PACE  # and it is not slower than that either


def test_what_is_acknowledged_goes_on_while_others_wait_for_the_pace() -> None:
    """PROTOCOL section 6: weights have their own window; captures that must wait hold them up in nothing."""
    queue = BulkQueue(Chunker(), 0.0)
    for tag in range(100):
        queue.push(Priority.CAPTURES, message(tag, 65_536), paced=True)
    while queue.next(MAX_PIECE, 0.0) is not None:
        pass
    assert queue.waiting[Priority.CAPTURES] > 0
    queue.push(Priority.WEIGHTS, message(0, 10), paced=False)
    assert queue.next(MAX_PIECE, 0.0) == message(0, 10)


def test_room_of_a_class() -> None:
    """DESIGN section 4: 256 KiB of a class wait, or one message that is larger; classes do not share it."""
    queue = BulkQueue(Chunker(), 0.0)
    assert queue.fits(Priority.WEIGHTS, 4 * QUEUE)
    queue.push(Priority.WEIGHTS, bytes(QUEUE - 10), paced=False)
    assert queue.fits(Priority.WEIGHTS, 10)
    assert not queue.fits(Priority.WEIGHTS, 11)
    assert queue.fits(Priority.CAPTURES, 4 * QUEUE)
    queue.clear()
    assert queue.waiting_bytes == 0
    assert queue.next(MAX_PIECE, 0.0) is None
