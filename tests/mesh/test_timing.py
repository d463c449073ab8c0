"""PROTOCOL section 8: how long to wait."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pooled_nb.mesh.timing import DECAY, LapTimes, lap_timeout, stopped_responding

seconds = st.floats(0, 1e4)


@settings(deadline=None, max_examples=200)
@given(st.integers(0, 1000), seconds, seconds, st.sampled_from([30.0, 90.0]))
def test_within_its_bounds(laps: int, slowest: float, rtt: float, fallback: float) -> None:
    """PROTOCOL section 8: never above what held before, never under 25 s."""
    assert 25 <= lap_timeout(laps, slowest, rtt, fallback) <= fallback


@settings(deadline=None, max_examples=100)
@given(seconds)
def test_silence(rtt: float) -> None:
    """PROTOCOL section 8: "clamp(3 s + 3 × RTT, 3.5 s, 5 s)"."""
    assert 3.5 <= stopped_responding(rtt) <= 5


def test_four_laps_and_then() -> None:
    """PROTOCOL section 8: "until four decode laps were measured"; token, verify and prefill laps."""
    times = LapTimes()
    for _ in range(3):
        times.add(4.2)
    assert (times.token(0.3), times.verify(0.3), times.prefill()) == (30, 90, 90)
    times.add(4.2)
    assert times.token(0.3) == pytest.approx(27.8)
    assert times.verify(0.3) == pytest.approx(27.8)
    assert times.prefill() == 90


def test_the_slowest_fades() -> None:
    """PROTOCOL section 8: "slowest decays by 0.98 a lap"; a slowest of 0 is unmeasured."""
    times = LapTimes()
    times.add(10.0)
    times.add(1.0)
    assert times.slowest_s == pytest.approx(10 * DECAY)
    for _ in range(500):
        times.add(1.0)
    assert times.slowest_s == pytest.approx(1.0)
    assert lap_timeout(100, 0.0, 0.0, 30.0) == 30.0
