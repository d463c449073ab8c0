"""PROTOCOL section 5: which connections of a link carry nothing; times are handed in."""

from __future__ import annotations

import math

from pooled_nb.mesh.stuck import FLOWS_S, HEARD_S, STUCK_S, Stuck


def test_one_that_is_stuck_while_the_device_is_heard() -> None:
    """PROTOCOL section 5: a stripe that carries nothing is known after 3 s, and only that one."""
    it = Stuck(0.0)
    for now in (0.5, 1.0, 2.0, 2.9):
        assert it.tick(now, 0.1, {"link": 0.0, "a": now, "b": 0.2}) == frozenset()
    assert it.tick(STUCK_S, 0.1, {"link": 0.0, "a": STUCK_S, "b": 0.2}) == {"a"}
    assert it.tick(3.5, 0.1, {"link": 3.1, "a": 3.5, "b": 0.2}) == {"a", "link"}
    assert it.tick(4.0, 0.1, {"link": 0.0, "a": 0.1, "b": 0.2}) == frozenset()  # it came to life


def test_a_device_that_is_not_heard_is_the_affair_of_liveness() -> None:
    """PROTOCOL section 8: who froze for 10 s acknowledges nothing, and once it is back has 3 s to do so."""
    it = Stuck(0.0)
    for tick in range(1, 21):
        assert it.tick(tick / 2, tick / 2, {"link": 0.0, "a": tick / 2}) == frozenset()
    assert it.tick(10.5, 0.0, {"link": 0.0, "a": 10.5}) == frozenset()
    assert it.tick(10.0 + STUCK_S - 0.1, 0.0, {"link": 0.0, "a": 12.9}) == frozenset()
    assert it.tick(10.0 + STUCK_S, HEARD_S, {"link": 0.0, "a": 13.0}) == {"a"}


def test_a_device_that_slept_judges_nobody() -> None:
    """PROTOCOL section 8, late timers: what piled up while this end slept says nothing of the other."""
    it = Stuck(0.0)
    assert it.tick(5.0, math.inf, {"link": 0.0, "a": 60.0}) == frozenset()
    assert it.tick(5.5, 0.0, {"link": 0.0, "a": 60.5}) == frozenset()


def test_where_nothing_flows_at_all_no_stripe_is_worse_than_another() -> None:
    """PROTOCOL section 5: the whole path is cut one way: there is nothing to hand slices over to."""
    it = Stuck(0.0)
    assert it.tick(9.0, 0.1, {"link": FLOWS_S, "a": 4.0, "b": 5.0}) == frozenset()
    assert it.tick(9.0, 0.1, {"link": FLOWS_S - 0.1, "a": 4.0, "b": 5.0}) == {"a", "b"}
    assert it.tick(9.0, 0.1, {}) == frozenset()
