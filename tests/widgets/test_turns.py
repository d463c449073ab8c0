"""Who is painted when, and how much all panels together may send."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pooled_nb.widgets.budget import BURST, PER_S, Budget
from pooled_nb.widgets.turns import GAP_S, Turns


def test_one_panel_has_twenty_turns_a_second() -> None:
    """DESIGN section 7: at most 20 updates a second, however often it is woken."""
    turns: Turns[str] = Turns()
    painted = []
    for ms in range(3_000):
        now = ms / 1000
        turns.wake("a", now)
        if turns.next(now) is not None:
            painted.append(now)
            turns.painted("a", 1, None, now)
    assert 55 <= len(painted) <= 61
    assert min(b - a for a, b in itertools.pairwise(painted)) >= GAP_S - 1e-9


def test_a_paint_of_several_messages_counts_as_several() -> None:
    """Twenty a second are twenty messages, not twenty paints."""
    turns: Turns[str] = Turns()
    turns.wake("a", 0.0)
    assert turns.next(0.0) == "a"
    turns.painted("a", 3, None, 0.0)
    assert turns.wake("a", 0.01) == 3 * GAP_S
    assert turns.next(0.149) is None
    assert turns.next(0.151) == "a"


def test_it_comes_again_by_itself_and_is_heard_meanwhile() -> None:
    """A paint may ask for another; who is woken while it is painted has another turn."""
    turns: Turns[str] = Turns()
    turns.wake("a", 0.0)
    turns.next(0.0)
    turns.painted("a", 1, 2.0, 0.0)
    assert turns.wait(0.5) == 1.5
    turns.wake("a", 0.5)
    assert turns.next(0.5) == "a"
    turns.wake("a", 0.5)
    turns.painted("a", 1, None, 0.5)
    assert turns.wait(0.5) == pytest.approx(GAP_S)
    turns.drop("a")
    assert turns.wait(9.0) is None


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 4), st.floats(0, 0.1)), min_size=1, max_size=200))
def test_nobody_waits_forever(wakes: list[tuple[int, float]]) -> None:
    """Whoever waits longest is next, so that a busy panel keeps no other one from its turn."""
    turns: Turns[int] = Turns()
    now = 0.0
    waiting: dict[int, int] = {}
    for who, after in wakes:
        now += after
        turns.wake(who, now)
        waiting.setdefault(who, 0)
        chosen = turns.next(now)
        if chosen is not None:
            waiting.pop(chosen, None)
            turns.painted(chosen, 1, None, now)
            for other in waiting:
                waiting[other] += 1
        assert all(n <= 5 for n in waiting.values())


@settings(deadline=None)
@given(st.lists(st.tuples(st.floats(0, 0.05), st.integers(1, 3)), max_size=400), st.booleans())
def test_never_near_a_thousand_a_second(tries: list[tuple[float, int]], eager: bool) -> None:
    """DESIGN section 7: the server drops all output above 1,000 messages a second."""
    budget, now = Budget(0.0), 0.0
    sent: list[tuple[float, int]] = []
    for after, messages in tries:
        now += 0.0 if eager else after
        if budget.wait(now) > 0:
            now += budget.wait(now) if after > 0.025 else 0.0
        if budget.wait(now) <= 1e-9:
            budget.spend(messages, now)
            sent.append((now, messages))
    for at, _ in sent:
        second = sum(n for when, n in sent if at <= when < at + 1)
        assert second <= PER_S + BURST + 3


def test_after_a_quiet_time_everyone_may_speak_at_once() -> None:
    """The budget fills up to one message of each of sixty panels, and no further."""
    budget = Budget(0.0)
    for _ in range(int(BURST)):
        assert budget.wait(0.0) == 0.0
        budget.spend(1, 0.0)
    assert 0 < budget.wait(0.0) <= 1 / PER_S
    assert budget.wait(3_600.0) == 0.0
    budget.spend(int(BURST), 3_600.0)
    assert budget.wait(3_600.0) > 0
