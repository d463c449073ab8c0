"""What is said of a link's last minute (PROTOCOL section 8): for people, not for laps."""

from __future__ import annotations

import statistics

from hypothesis import given
from hypothesis import strategies as st

from pooled_nb.mesh.network import ConnectionStats
from pooled_nb.mesh.telemetry import KEEP, NOTHING, PACKETS, TRIPS, WINDOW_S, Telemetry


def counts(sent: int, resent: int = 0) -> ConnectionStats:
    return ConnectionStats(sent=sent, resent=resent)


def test_nothing_was_seen() -> None:
    assert Telemetry().numbers(0.0) == NOTHING


def test_round_trips_of_a_minute() -> None:
    """Median and 95th percentile; what is older than a minute counts no more."""
    telemetry = Telemetry()
    for i in range(20):
        telemetry.trip(0.5, i * 2.5)  # all of them older than a minute at 120 s
    for i in range(20):
        telemetry.trip((i + 1) / 100, 70.0 + i * 2.5)
    numbers = telemetry.numbers(120.0)
    assert numbers.rtt_s == statistics.median([(i + 1) / 100 for i in range(20)])
    assert numbers.rtt_p95_s == 0.19  # the 19th of 20: one outlier alone says nothing
    assert telemetry.numbers(70.0 + 19 * 2.5 + WINDOW_S) == NOTHING


def test_a_percentile_of_few_round_trips_is_none() -> None:
    telemetry = Telemetry()
    for i in range(TRIPS - 1):
        telemetry.trip(0.02, float(i))
    assert (telemetry.numbers(9.0).rtt_s, telemetry.numbers(9.0).rtt_p95_s) == (0.02, None)
    telemetry.trip(0.3, 9.0)
    assert telemetry.numbers(9.0).rtt_p95_s == 0.3


def test_loss_is_the_share_sent_again_over_all_connections() -> None:
    """Of the link and its stripes together; what was counted before it was looked at is nobody's minute."""
    telemetry = Telemetry()
    telemetry.counted({"link": counts(10_000, 5_000), "stripe": counts(7)}, 0.0)
    assert telemetry.numbers(0.0).loss is None
    telemetry.counted({"link": counts(10_150, 5_000), "stripe": counts(37, 20)}, 0.5)
    assert telemetry.numbers(0.5).loss == 20 / 200
    telemetry.counted({"link": counts(10_350, 5_000), "stripe": counts(37, 20)}, 30.0)
    assert telemetry.numbers(30.0).loss == 20 / 400
    assert telemetry.numbers(0.5 + WINDOW_S).loss == 0.0
    assert telemetry.numbers(30.0 + WINDOW_S).loss is None


def test_what_came_twice_was_not_lost() -> None:
    """RFC 9260 section 3.3.4: a device that was slow to answer lost nothing, and no cable helps it."""
    telemetry = Telemetry()
    telemetry.counted({"a": ConnectionStats()}, 0.0)
    telemetry.counted({"a": ConnectionStats(sent=400, resent=40)}, 0.5)
    telemetry.counted({"a": ConnectionStats(sent=800, resent=40, doubled=40)}, 1.0)  # told a tick later
    assert telemetry.numbers(1.0).loss == 0.0
    telemetry.counted({"a": ConnectionStats(sent=800, resent=60, doubled=50)}, 1.5)
    assert telemetry.numbers(1.5).loss == 10 / 810
    telemetry.counted({"a": ConnectionStats(sent=900, resent=60, doubled=10_000)}, 2.0)  # a lie
    assert telemetry.numbers(2.0).loss == 0.0


def test_few_packets_are_no_share() -> None:
    telemetry = Telemetry()
    telemetry.counted({"a": counts(0)}, 0.0)
    telemetry.counted({"a": counts(PACKETS - 2, 1)}, 0.5)
    assert telemetry.numbers(0.5).loss is None
    telemetry.counted({"a": counts(PACKETS - 1, 1)}, 1.0)
    assert telemetry.numbers(1.0).loss == 1 / PACKETS


def test_a_stack_that_does_not_say() -> None:
    """`Connection.stats` of None: no loss, and no mistake when another connection says it."""
    telemetry = Telemetry()
    for i in range(5):
        telemetry.counted({"silent": None, "a": counts(100 * i, 10 * i)}, i / 2)
    assert telemetry.numbers(2.0).loss == 40 / 440


def test_a_stripe_that_went_and_one_that_came() -> None:
    """A dead stripe is redialed (section 5): counters of the new one begin anew, and are no negative loss."""
    telemetry = Telemetry()
    telemetry.counted({"link": counts(0), "old": counts(0)}, 0.0)
    telemetry.counted({"link": counts(100), "old": counts(100, 50)}, 0.5)
    telemetry.counted({"link": counts(200), "new": counts(3, 1)}, 1.0)
    telemetry.counted({"link": counts(150), "new": counts(103, 1)}, 1.5)  # even one that counts backwards
    assert telemetry.numbers(1.5).loss == 50 / 450


@given(
    trips=st.lists(st.tuples(st.floats(0, 200), st.floats(0, 100)), max_size=400),
    packets=st.lists(
        st.tuples(st.floats(0, 200), st.integers(0, 10**9), st.integers(0, 10**9)), max_size=400
    ),
    at=st.floats(0, 300),
)
def test_any_samples(
    trips: list[tuple[float, float]], packets: list[tuple[float, int, int]], at: float
) -> None:
    """Bounded in memory, whatever comes; a share is one, and the percentile is not below the median."""
    telemetry = Telemetry()
    for now, seconds in sorted(trips):
        telemetry.trip(seconds, now)
    for now, sent, resent in sorted(packets):
        telemetry.counted({"a": counts(sent, resent)}, now)
    assert len(telemetry._trips) <= KEEP
    assert len(telemetry._packets) <= KEEP
    assert len(telemetry._counted) <= 1
    numbers = telemetry.numbers(at)
    if numbers.rtt_p95_s is not None and numbers.rtt_s is not None:
        assert numbers.rtt_p95_s >= numbers.rtt_s
    assert numbers.loss is None or 0 <= numbers.loss <= 1
