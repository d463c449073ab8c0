"""PROTOCOL section 5, sending: slices that one channel was given, and that another carries once more."""

from __future__ import annotations

import itertools
import random

from hypothesis import given, settings
from hypothesis import strategies as st

from pooled_nb.mesh.wire import Load, Receiver, Sender
from pooled_nb.mesh.wire.sender import GIVEN_UNTOLD, MAX_COPIES, MAX_GIVEN
from pooled_nb.mesh.wire.slices import SLICE
from tests.mesh.test_sender import frame, heads, held, sender

OTHERS_FULL = held(b=10 * SLICE, c=10 * SLICE)


def test_they_go_before_anything_newer_and_once() -> None:
    """PROTOCOL section 5: what went over a channel that nothing comes through goes to the others, ids rising,
    before what waits; a second time it does not.
    """
    s = sender("a", "b", "c", twice=False)
    s.push(frame(1, 2))
    s.push(frame(2, 5))
    assert heads(list(s.ready(OTHERS_FULL))) == [("a", 1, 0), ("a", 1, 1), ("a", 2, 0), ("a", 2, 1)]
    s.avoid({"a"})
    s.again("a")
    assert s.waiting == 5
    assert s.waits_for("b")
    steps = heads(list(s.ready(held(c=3 * SLICE + 1))))
    assert steps == [("b", 1, 0), ("b", 1, 1), ("b", 2, 0), ("b", 2, 1)]
    assert heads(list(s.ready({}))) == [("c", 2, 2), ("b", 2, 3), ("c", 2, 4)]
    s.again("a")
    assert list(s.ready({})) == []
    assert s.waiting == s.waiting_bytes == 0


def test_a_channel_that_closes_after_another_hands_on_what_it_got_of_that_one() -> None:
    """PROTOCOL section 5: connections die one after the other, and the frame is whole over the last."""
    s = sender("a", "b", "c", twice=False)
    s.push(frame(1, 3))
    assert heads(list(s.ready(OTHERS_FULL))) == [("a", 1, 0), ("a", 1, 1), ("a", 1, 2)]
    for dead, left in (("a", held(c=10 * SLICE)), ("b", {})):
        s.again(dead)
        s.drop_channel(dead)
        steps = list(s.ready(left))
        assert [step[1:] for step in heads(steps)] == [(1, 0), (1, 1), (1, 2)]
    s.again("c")  # the last one of a link: there is no other
    assert s.waiting == 0


def test_what_arrived_is_not_sent_again() -> None:
    """DESIGN section 4: an association has what it did not send, and what is not acknowledged: no more goes
    again than that.
    """
    s = sender("a", "b", twice=False)
    s.push(frame(1, 4))
    list(s.ready(held(b=10 * SLICE)))
    s.outstanding("a", 2 * SLICE - 1)
    s.again("a")
    assert [step[1:] for step in heads(list(s.ready({})))] == [(1, 2), (1, 3)]
    s.push(frame(2, 4))
    list(s.ready(held(b=10 * SLICE)))
    s.outstanding("a", 0)
    s.again("a")
    assert list(s.ready({})) == []
    s.outstanding("gone", 0)
    s.again("gone")


def test_what_is_remembered_is_bounded() -> None:
    """DESIGN section 4: 256 KiB of a channel, and 1.25 MB where the stack tells what is in flight."""
    for told, bound in ((None, GIVEN_UNTOLD), (10**9, MAX_GIVEN)):
        s = sender("a", "b", twice=False)
        s.outstanding("a", told)
        for tag in range(20):
            s.push(frame(tag, 20))
        while list(s.ready(held(b=10 * SLICE))):
            pass
        assert bound - SLICE < s._channels["a"].given_bytes <= bound
        assert s._channels["a"].given_bytes == sum(map(len, s._channels["a"].given))
        s.again("a")
        assert s.waiting_bytes <= bound
        assert s._channels["a"].given_bytes == 0


def test_a_channel_that_nothing_comes_through_gets_nothing_new() -> None:
    """PROTOCOL section 5: slices go to the others meanwhile, copies too; where all are so, they go all the
    same; and where it carries again, it has its part.
    """
    s = sender("a", "b", "c")
    s.avoid({"a"})
    s.push(frame(1))
    s.push(frame(2, 5))
    assert {key for key, _ in s.ready({})} == {"b", "c"}
    s.avoid({"a", "b", "c"})
    s.push(frame(3, 8))
    assert {key for key, _ in s.ready({})} == {"a", "b", "c"}
    s.avoid(())
    s.push(frame(4, 8))
    assert {key for key, _ in s.ready({})} == {"a", "b", "c"}


def test_a_slice_that_goes_again_and_is_refused_goes_to_the_next() -> None:
    """PROTOCOL section 5: "A channel that refuses hands the slice to another", also one that goes again, and
    no second copy is made of it.
    """
    s = sender("a", "b", "c")
    s.push(frame(1, 4))
    list(s.ready(OTHERS_FULL))
    s.push(frame(2))
    s.again("a")
    s.drop_channel("a")
    taken = []
    for key, data in s.ready({}):
        if key == "b":
            s.again(key, but=data)
            s.refused(key, data)
        else:
            taken.append((key, data))
    while steps := list(s.ready({})):
        taken += steps
    assert heads(taken) == [*(("c", 1, index) for index in range(4)), ("c", 2, 0)]


def test_many_that_go_again_push_no_copies_out() -> None:
    """PROTOCOL section 5: what goes again is not bounded as second copies are."""
    s = sender("a", "b")
    s.outstanding("a", 0)
    for tag in range(5):
        s.push(frame(tag, 8))
    while list(s.ready(held(b=10 * SLICE))):
        pass
    s.again("a")
    assert s.waiting == 40 > MAX_COPIES
    s.drop_channel("a")
    receiver, got = Receiver(), []
    receiver.opened("b")
    while steps := list(s.ready({"b": Load()})):
        got += [f.pos for _, data in steps for f in receiver.slice("b", data, 0.0)]
    assert got == list(range(5))


@settings(deadline=None, max_examples=80)
@given(st.integers(0, 1 << 32), st.integers(2, 4), st.booleans())
def test_no_hole_while_channels_die_in_silence(seed: int, channels: int, twice: bool) -> None:
    """PROTOCOL section 5: channels carry nothing while both ends believe in them, and are found to; others
    close at one end and are heard of at the other only later. Every frame comes once, in order, and nothing
    is given up.
    """
    rng = random.Random(seed)
    s, r, got, fresh = Sender(twice=twice), Receiver(), list[int](), itertools.count()
    queues, holed, unheard = dict[int, list[bytes]](), set[int](), set[int]()

    def opens() -> None:
        key = next(fresh)
        queues[key] = []
        s.add_channel(key)
        r.opened(key)

    def dead(key: int) -> None:
        s.again(key)
        if rng.random() < 0.2:  # the link's own
            s.avoid({key})
            return
        s.drop_channel(key)
        del queues[key]
        holed.discard(key)
        unheard.add(key)

    def pump(room: float = 0.8) -> None:
        loads = {c: Load(0 if rng.random() < room else 9 * SLICE) for c in queues}
        for key, data in s.ready(loads):
            assert isinstance(key, int)
            queues[key].append(data)

    def arrives(most: int) -> None:
        for key in rng.sample(list(queues), len(queues)):
            for _ in range(0 if key in holed else rng.randint(0, most)):
                if queues[key]:
                    got.extend(f.pos for f in r.slice(key, queues[key].pop(0), 0.0))
            if rng.random() < 0.5:
                s.outstanding(key, sum(map(len, queues[key])))

    for _ in range(channels):
        opens()
    for tag in range(rng.randint(5, 40)):
        s.push(frame(tag, rng.randint(1, 7)))
        pump()
        arrives(4)
        what = rng.random()
        if what < 0.1 and len(queues) > len(holed) + 1:
            holed.add(rng.choice(sorted(queues.keys() - holed)))
        elif what < 0.2 and len(queues) > len(holed) + 1:
            dead(rng.choice(sorted(holed or queues)))
        elif what < 0.3 and len(queues) < channels:
            opens()
        elif what < 0.35 and holed:
            holed.discard(rng.choice(sorted(holed)))
    for key in list(holed):
        s.again(key)
        s.drop_channel(key)
        del queues[key]
    while s.waiting or any(queues.values()):
        pump(1.0)
        holed.clear()
        arrives(9)
    for key in unheard:
        r.closed(key, 0.0)
    assert got == list(range(len(got)))
    assert len(got) == tag + 1
    assert (r.skipped, r.waiting) == (0, 0)
