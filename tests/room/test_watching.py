"""Who stopped responding while an answer runs, at the exact times of PROTOCOL section 8."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pooled_nb.mesh.timing import stopped_responding
from pooled_nb.room.watching import Back, Heard, Stopped, Watching


def run(
    watching: Watching, *, start: float, end: float, silent_since: float, rtt: float = 0.0
) -> list[float]:
    """Ticks every 0.5 s; when it was told that the device stopped."""
    now, told = start, list[float]()
    while now < end:
        now += 0.5
        heard = Heard(max(0.0, now - silent_since), rtt)
        told += [now for action in watching.tick(now, {"a": heard}) if isinstance(action, Stopped)]
    return told


@pytest.mark.parametrize(("rtt", "limit"), [(0.0, 3.5), (0.1, 3.5), (0.3, 3.9), (0.5, 4.5), (5.0, 5.0)])
def test_the_limit_follows_the_round_trip(rtt: float, limit: float) -> None:
    """PROTOCOL section 8: silent for ``clamp(3 s + 3 × RTT, 3.5 s, 5 s)`` while answering; told once."""
    watching = Watching()
    watching.begin(100.0)
    (at,) = run(watching, start=100.0, end=120.0, silent_since=102.0, rtt=rtt)
    assert limit <= at - 102.0 < limit + 0.5
    assert watching.silent_s("a", 120.0) == pytest.approx(18.0)


def test_silence_before_the_answer_does_not_count() -> None:
    """PROTOCOL section 8: silence before the answer does not count."""
    watching = Watching()
    watching.begin(100.0)
    assert run(watching, start=100.0, end=110.0, silent_since=50.0) == [103.5]


def test_it_is_back_once_it_answers_a_ping_sent_meanwhile() -> None:
    """PROTOCOL section 8, back: a ping that was sent before it went silent proves nothing."""
    watching = Watching()
    watching.begin(0.0)
    assert run(watching, start=0.0, end=10.0, silent_since=2.0) == [5.5]
    assert watching.tick(10.5, {"a": Heard(0.0, 0.0, answered_s=1.9)}) == []
    assert watching.tick(11.0, {"a": Heard(0.0, 0.0, answered_s=4.0)}) == [Back("a")]
    assert watching.silent == {}


def test_on_a_late_tick_nobody_is_judged() -> None:
    """PROTOCOL section 8: a timer that fired late means that this device stalled."""
    watching = Watching()
    watching.begin(0.0)
    watching.tick(0.5, {"a": Heard(0.5)})
    assert watching.tick(20.0, {"a": Heard(20.0)}) == []
    assert watching.tick(20.5, {"a": Heard(0.5)}) == [], "the mesh takes what was slept from the silence"


def test_who_loads_is_not_watched_and_nobody_is_between_answers() -> None:
    """PROTOCOL section 8: never while it loads; while answering alone."""
    watching = Watching()
    assert run(watching, start=0.0, end=30.0, silent_since=0.0) == []
    watching.begin(30.0)
    assert run(watching, start=30.0, end=40.0, silent_since=30.0) == [33.5]
    assert watching.tick(40.5, {}) == []
    assert watching.silent == {}, "it loads"
    run(watching, start=41.0, end=50.0, silent_since=41.0)
    watching.end()
    assert (watching.on, watching.silent) == (False, {})


@given(
    st.floats(0.0, 10.0),
    st.lists(st.tuples(st.floats(0.1, 3.0), st.booleans()), max_size=60),
)
def test_nobody_is_named_who_was_heard_in_time(rtt: float, ticks: list[tuple[float, bool]]) -> None:
    """PROTOCOL section 8: whatever the ticks are like, a silence below the limit is none."""
    watching, now, heard_at = Watching(), 0.0, 0.0
    watching.begin(now)
    for gap, heard in ticks:
        now += gap
        heard_at = now if heard else heard_at
        for action in watching.tick(now, {"a": Heard(now - heard_at, rtt, answered_s=heard_at)}):
            if isinstance(action, Stopped):
                assert now - heard_at >= stopped_responding(rtt)
                assert gap <= 1.2
