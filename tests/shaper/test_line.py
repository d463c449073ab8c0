"""What befalls datagrams on a line, by the hands of a clock of our own."""

from __future__ import annotations

from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.shaper.line import OVERHEAD, Counts, Fates, Line, LineSettings

MANY = 20_000
SETTINGS = st.builds(
    LineSettings,
    delay_ms=st.floats(0, 300),
    jitter_ms=st.floats(0, 300),
    in_order=st.booleans(),
    loss=st.floats(0, 1),
    burst=st.floats(0, 20),
    duplicate=st.floats(0, 1),
    reorder=st.floats(0, 1),
    reorder_ms=st.floats(0, 100),
    rate_kbit=st.sampled_from([0.0, 64.0, 1_000.0, 100_000.0]),
    queue_bytes=st.integers(0, 100_000).map(float),
)
TRAFFIC = st.lists(st.tuples(st.integers(0, 1_500), st.floats(0, 0.2)), max_size=60)
"""(bytes, seconds since the one before)"""


def fates(settings: LineSettings, n: int = MANY, *, seed: int = 1, size: int = 1_200) -> list[list[float]]:
    """What becomes of a datagram each millisecond: how long each copy was under way, in ms."""
    line = Fates(seed, settings)
    return [[1e3 * at - i for at in line.departures(size, i / 1e3)] for i in range(n)]


def share(settings: LineSettings, what: str) -> float:
    line = Fates(1, settings)
    for i in range(MANY):
        line.departures(1_200, i / 1e3)
    return float(getattr(line.counts, what)) / MANY


def test_as_it_stands_it_does_nothing() -> None:
    assert all(copies == [pytest.approx(0.0)] for copies in fates(LineSettings(), 100))


def test_a_delay_is_what_it_says_and_keeps_the_order() -> None:
    line: Line[int] = Line(1, LineSettings(delay_ms=25.0))
    for i in range(100):
        line.put(i, 1_200, i / 1e3)
    assert line.next == pytest.approx(0.025)
    assert line.take(0.0249) == []
    assert line.take(0.0251) == [0]
    assert line.take(1.0) == list(range(1, 100))
    assert line.next is None


def test_jitter_is_within_its_bounds_both_ways_and_overtakes_unless_it_may_not() -> None:
    ways = [way for (way,) in fates(LineSettings(delay_ms=20.0, jitter_ms=5.0))]
    assert 15.0 <= min(ways) < 15.1
    assert 24.9 < max(ways) <= 25.0
    assert sum(ways) / MANY == pytest.approx(20.0, abs=0.1)
    times = [i + way for i, way in enumerate(ways)]
    assert any(b < a for a, b in pairwise(times))
    kept = [way for (way,) in fates(LineSettings(delay_ms=20.0, jitter_ms=5.0, in_order=True))]
    times = [i + way for i, way in enumerate(kept)]
    assert all(b >= a - 1e-9 for a, b in pairwise(times))
    assert min(way for (way,) in fates(LineSettings(delay_ms=1.0, jitter_ms=5.0))) >= -1e-6


@pytest.mark.parametrize("rate", [0.0, 0.01, 0.05, 0.15, 1.0])
@pytest.mark.parametrize(
    ("field", "count"), [("loss", "lost"), ("duplicate", "doubled"), ("reorder", "held_back")]
)
def test_shares_are_what_they_say(field: str, count: str, rate: float) -> None:
    got = share(msgspec.structs.replace(LineSettings(), **{field: rate}), count)
    assert got == pytest.approx(rate, abs=4 * (rate * (1 - rate) / MANY) ** 0.5)


@pytest.mark.parametrize("burst", [1.0, 4.0])
def test_losses_come_in_rows_as_long_as_they_are_to_be_and_are_as_many(burst: float) -> None:
    """Gilbert's model: the share is that of single losses."""
    gone = [not copies for copies in fates(LineSettings(loss=0.05, burst=burst))]
    rows = sum(b and not a for a, b in pairwise([False, *gone]))
    assert sum(gone) / MANY == pytest.approx(0.05, abs=0.01)
    assert sum(gone) / rows == pytest.approx(burst if burst > 1 else 1 / 0.95, rel=0.15)


def test_a_datagram_that_is_held_back_is_overtaken() -> None:
    late = fates(LineSettings(delay_ms=10.0, reorder=0.1, reorder_ms=15.0), 2_000)
    assert {round(way) for (way,) in late} == {10, 25}


def test_a_copy_is_one_more_of_the_same() -> None:
    line: Line[str] = Line(1, LineSettings(duplicate=1.0))
    line.put("x", 100, 0.0)
    assert line.take(0.0) == ["x", "x"]
    assert line.counts == Counts(came=1, came_bytes=100, went=2, doubled=1)


def test_the_bandwidth_is_kept_and_its_queue_is_as_long_as_it_may_be() -> None:
    """A burst: what fits waits its turn, the rest is dropped from the tail."""
    line = Fates(1, LineSettings(rate_kbit=1_000.0, queue_bytes=30_100.0))
    size = 1_250 - OVERHEAD  # 10 ms each
    out = [at for _ in range(50) for at in line.departures(size, 0.0)]
    assert out == pytest.approx([0.01 * (i + 1) for i in range(24)])
    assert line.counts.dropped == 26
    assert line.departures(size, 0.24) == [pytest.approx(0.25)]  # it ran empty: nothing is owed


def test_one_datagram_passes_however_short_the_queue_is() -> None:
    line = Fates(1, LineSettings(rate_kbit=64.0, queue_bytes=0.0))
    assert line.departures(1_200, 0.0) == [pytest.approx((1_200 + OVERHEAD) / 8_000)]
    assert line.departures(10, 0.0) == []


def test_frozen_it_holds_all_and_then_lets_all_out_in_order() -> None:
    line: Line[int] = Line(1, LineSettings(delay_ms=10.0))
    line.put(1, 10, 0.0)
    line.freeze(2.0)
    line.put(2, 10, 0.5)
    assert line.next == 2.0
    assert line.take(1.99) == []
    assert line.take(2.0) == [1, 2]
    line.put(3, 10, 2.0)
    assert line.take(2.01) == [3]


def test_a_black_hole_takes_what_comes_and_not_what_is_under_way() -> None:
    line: Line[int] = Line(1, LineSettings(delay_ms=10.0))
    line.put(1, 10, 0.0)
    line.swallow(2.0)
    line.put(2, 10, 0.005)
    line.put(3, 10, 1.999)
    line.put(4, 10, 2.0)
    assert line.take(3.0) == [1, 4]
    assert line.counts == Counts(came=4, came_bytes=40, went=2, swallowed=2)


@given(settings=SETTINGS, traffic=TRAFFIC, seed=st.integers(0, 9))
def test_every_datagram_is_accounted_for(
    settings: LineSettings, traffic: list[tuple[int, float]], seed: int
) -> None:
    """Whatever is set: none leaves before it came, none is in two counts or in none, and the same seed does
    the same.
    """
    now, came, again = 0.0, Fates(seed, settings), Fates(seed, settings)
    out: list[list[float]] = []
    for size, pause in traffic:
        now += pause
        leaves = came.departures(size, now)
        assert leaves == again.departures(size, now)
        assert all(at >= now for at in leaves)
        out.append(leaves)
    counts = came.counts
    assert counts.came == len(traffic)
    assert sum(map(len, out)) == counts.came - counts.lost - counts.dropped + counts.doubled
    if not (settings.loss or settings.duplicate or settings.reorder or settings.rate_kbit):
        assert all(len(leaves) == 1 for leaves in out)
        if settings.in_order or not settings.jitter_ms:
            flat = [at for leaves in out for at in leaves]
            assert flat == sorted(flat)


@given(traffic=TRAFFIC, one=SETTINGS, loss=st.floats(0, 1))
def test_one_setting_moves_no_other_chance(
    traffic: list[tuple[int, float]], one: LineSettings, loss: float
) -> None:
    """Who is lost is the same with and without a delay, copies or a black hole before."""
    plain = Fates(3, LineSettings(loss=loss))
    other = Fates(3, msgspec.structs.replace(one, loss=loss, burst=1.0, rate_kbit=0.0))
    plain.departures(9, 0.0)
    other.departures(9, 0.0, swallowed=True)
    for size, _ in traffic:
        assert bool(plain.departures(size, 1.0)) == bool(other.departures(size, 1.0))


def test_another_seed_is_another_network() -> None:
    settings = LineSettings(loss=0.5)
    assert fates(settings, 100, seed=1) == fates(settings, 100, seed=1)
    assert fates(settings, 100, seed=1) != fates(settings, 100, seed=2)


@pytest.mark.parametrize("wrong", [{"loss": 1.5}, {"loss": -0.1}, {"delay_ms": -1}, {"speed": 3}])
def test_settings_that_cannot_be_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(wrong, LineSettings)
