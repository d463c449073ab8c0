"""When stripes are dialed, and when they are given up (PROTOCOL section 5, stripes)."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from pooled_nb.mesh.striping import BACK_OFF_S, KEPT_S, STEADY_S, Orders, Striping


def chained(*keys: int) -> dict[int, str]:
    return {key: f"d{key}" for key in keys}


def test_all_are_dialed_at_once() -> None:
    """PROTOCOL section 5: "3 more connections … opened by the link's dialer when the link becomes part of a
    chain", all at the same time, and no more while these come to be or live.
    """
    striping = Striping(3)
    assert striping.tick(0.0, {}, up=True) == Orders()
    assert striping.tick(1.0, chained(1, 2), up=True) == Orders(dial=(1, 1, 1, 2, 2, 2))
    assert striping.tick(1.5, chained(1, 2), up=True) == Orders()
    assert striping.tick(900.0, chained(1, 2), up=True) == Orders()
    assert Striping(0).tick(1.0, chained(1), up=True) == Orders()


def test_a_dead_one_is_dialed_again() -> None:
    """PROTOCOL section 5: "A dead stripe is redialed": at once where it had worked for a while."""
    striping = Striping(3)
    striping.tick(0.0, chained(1), up=True)
    striping.ended(1, 100.0, STEADY_S)
    assert striping.tick(100.0, chained(1), up=True) == Orders(dial=(1,))
    striping.ended(1, 101.0, 0.9)
    striping.ended(1, 101.0, 100.0)  # the other two had worked, so they are dialed at once all the same
    striping.ended(1, 101.0, 100.0)
    assert striping.tick(101.0, chained(1), up=True) == Orders(dial=(1, 1, 1))


def test_who_refuses_them_is_asked_less_and_less() -> None:
    """PROTOCOL section 5: "Nobody waits for them": a page that has 8, or takes none, is not hammered; rounds
    of three that fail together count once.
    """
    striping, now, rounds = Striping(3), 0.0, []
    for _ in range(9):
        while not (orders := striping.tick(now, chained(1), up=True)).dial:
            now += 0.5
        assert orders.dial == (1, 1, 1)
        rounds.append(now)
        for _ in range(3):
            striping.ended(1, now, 0.0)
    waits = [b - a for a, b in pairwise(rounds)]
    assert waits == [*BACK_OFF_S, 30.0, 30.0]
    # One that lives for a while ends that.
    now += 30.0
    assert striping.tick(now, chained(1), up=True).dial == (1, 1, 1)
    striping.ended(1, now + STEADY_S, STEADY_S)
    striping.ended(1, now + STEADY_S, 0.0)
    assert striping.tick(now + STEADY_S + BACK_OFF_S[0], chained(1), up=True).dial == (1, 1)


def test_one_that_takes_fewer_keeps_those_it_takes() -> None:
    """PROTOCOL section 5: "at most 8 are taken per link": the rest is asked for seldom, and for ever."""
    striping, dialed = Striping(3), 0
    assert striping.tick(0.0, chained(1), up=True).dial == (1, 1, 1)
    striping.ended(1, 0.1, 0.0)
    for half in range(1, 2_400):
        now = half / 2
        for _ in striping.tick(now, chained(1), up=True).dial:
            dialed += 1
            striping.ended(1, now + 0.1, 0.0)
    assert 1_200 / 31 < dialed < 1_200 / 30 + len(BACK_OFF_S)


def test_nothing_is_dialed_while_signaling_is_down() -> None:
    """PROTOCOL section 2: "Once links are open … the room goes on when it is down": dials wait for it, and
    one that met the outage says nothing about the other end.
    """
    striping = Striping(2)
    assert striping.tick(0.0, chained(1), up=False) == Orders()
    assert striping.tick(5.0, chained(1), up=True).dial == (1, 1)
    striping.ended(1, 6.0, None)
    striping.ended(1, 6.0, None)
    assert striping.tick(6.0, chained(1), up=False) == Orders()
    assert striping.tick(6.5, chained(1), up=True).dial == (1, 1)


def test_a_link_that_is_dialed_anew_gets_its_stripes_anew() -> None:
    """PROTOCOL section 3, dead links: "stripes are opened anew", at once, whatever failed on the old link."""
    striping = Striping(3)
    striping.tick(0.0, chained(1), up=True)
    for _ in range(3):
        striping.ended(1, 0.1, 0.0)
    assert striping.tick(0.5, chained(2), up=True).dial == (2, 2, 2)
    assert striping.tick(KEPT_S + 1, chained(2), up=True) == Orders()
    assert list(striping._lines) == [2], "nothing is kept of a link that is gone"


def test_a_link_that_left_the_chain_keeps_nothing_open_for_long() -> None:
    """PROTOCOL section 5: "Guests have none"; but a deal that follows another finds the stripes there."""
    striping = Striping(3)
    striping.tick(0.0, chained(1), up=True)
    striping.tick(10.0, {}, up=True)
    assert striping.tick(10.0 + KEPT_S - 0.1, {}, up=True) == Orders()
    assert striping.tick(39.95, chained(1), up=True) == Orders(), "they live"
    assert striping.tick(50.0, {}, up=True) == Orders()
    assert striping.tick(50.0 + KEPT_S, {}, up=True) == Orders(close=(1,))
    striping.ended(1, 80.5, 80.0)
    striping.ended(1, 80.5, 80.0)
    assert striping.tick(81.0, {}, up=True) == Orders(close=(1,)), "one was still coming to be"
    striping.ended(1, 81.5, None)
    assert striping.tick(82.0, {}, up=True) == Orders()
    assert striping.tick(83.0, chained(1), up=True).dial == (1, 1, 1)


@given(
    st.lists(st.tuples(st.integers(0, 6), st.floats(0, 20), st.integers(0, 2), st.booleans()), max_size=200)
)
def test_never_more_than_wanted(events: list[tuple[int, float, int, bool]]) -> None:
    """PROTOCOL section 5: however links and stripes come and go, none has more than it may, and none is
    dialed while signaling is down.
    """
    striping, now, living = Striping(3), 0.0, Counter[int]()
    for what, step, key, up in events:
        now += step
        if what < 4:
            for one in striping.tick(now, chained(*range(what)), up=up).dial:
                assert up
                living[one] += 1
        elif living[key]:
            living[key] -= 1
            striping.ended(key, now, 0.0)
        assert max(living.values(), default=0) <= 3
