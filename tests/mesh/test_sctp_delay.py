"""How large a window may be for the queue that stands on its path (RFC 6817, RFC 9406)."""

from __future__ import annotations

import asyncio
import math

from hypothesis import given, settings
from hypothesis import strategies as st

from pooled_nb.mesh.sctp.delay import LEAST_PACE, MEMORY_S, SAMPLES, Delay
from pooled_nb.mesh.sctp.policy import PACKET
from pooled_nb.mesh.sctp.window import Window
from tests.mesh.sctpnet import Road, channels, is_up, pair, start, until
from tests.sim.clock import simulate

FLOOR, SIZE = 32 * PACKET, 800 * PACKET


class _Path:
    """Rounds of eight acknowledgements, one after the other."""

    def __init__(self) -> None:
        self.delay = Delay(0.015)
        self.now = 0.0
        self.size = SIZE

    def round(self, *trips: float, full: bool = True) -> int:
        self.now += max(trips)
        for n in range(SAMPLES):
            trip = trips[n % len(trips)]
            self.size = self.delay.measured(trip, self.now + n * 1e-4, size=self.size, floor=FLOOR, full=full)
        self.now += 0.001
        return self.size


def test_a_queue_that_stands_shrinks_the_window_to_what_leaves_half_of_it() -> None:
    path = _Path()
    assert path.round(0.100) == SIZE
    assert path.delay.pace == 1.0
    size = path.round(0.140)
    assert size == int(SIZE * 0.1075 / 0.140)
    assert path.delay.pace == 0.0
    assert path.round(0.110) == size
    assert path.delay.pace == 0.0
    path.round(0.101)
    assert path.delay.pace == LEAST_PACE  # once seen, a round adds no more than half a queue or an eighth


def test_at_most_half_goes_in_a_round_and_never_what_the_floor_leaves() -> None:
    path = _Path()
    path.round(0.001)
    assert path.round(0.400) == SIZE // 2
    for _ in range(20):
        path.round(0.400)
    assert path.size == FLOOR


def test_a_window_that_is_not_full_is_not_blamed() -> None:
    path = _Path()
    path.round(0.040, full=False)
    assert path.round(0.300, full=False) == SIZE


def test_single_late_packets_say_nothing() -> None:
    """Wi-Fi: round trips of 20 ms more, and some of each round that are not."""
    path = _Path()
    for _ in range(50):
        assert path.round(0.040, 0.060, 0.055) == SIZE
        assert path.delay.pace == 1.0


def test_a_first_round_trip_during_a_stall_is_forgotten_with_the_next() -> None:
    path = _Path()
    path.round(0.500)
    assert path.delay.least == 0.500
    path.round(0.020)
    assert path.delay.least == 0.020
    assert path.round(0.060) < SIZE


def test_delay_that_the_floor_has_too_is_not_ours() -> None:
    """A busy processor at the other end: to shrink gains nothing, so the window may grow again."""
    path = _Path()
    path.round(0.001)
    for _ in range(12):
        path.round(0.050)
    assert path.size == FLOOR
    assert path.delay.pace > 0
    path.size = SIZE
    assert path.round(0.052) == SIZE
    assert path.round(0.200) < SIZE  # what it adds itself tells as before
    path.size = SIZE
    for _ in range(60):
        path.round(0.001)
    assert path.round(0.050) < SIZE  # and with the cause the allowance goes


def test_a_longer_path_is_told_from_a_queue_by_letting_it_run_empty_once() -> None:
    path = _Path()
    path.round(0.020)
    path.size = 200 * PACKET
    emptied = 0
    for _ in range(int(2 * MEMORY_S / 0.03)):
        size = path.round(0.030)
        emptied += size == FLOOR
        path.size = 200 * PACKET
    assert emptied == 1
    assert path.delay.least == 0.030


def test_without_a_limit_nothing_changes() -> None:
    delay = Delay(math.inf)
    for turn in range(100):
        for n in range(SAMPLES):
            now = turn * 10 + n * 0.1
            assert delay.measured(0.01 + turn % 7, now, size=SIZE, floor=FLOOR, full=True) in (SIZE, FLOOR)
        assert delay.pace == 1.0


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.tuples(st.floats(0.0, 5.0), st.floats(0.0, 40.0), st.booleans(), st.integers(2, 904)), max_size=200
    )
)
def test_it_never_grows_a_window_nor_shrinks_it_below_half_but_to_run_empty(
    steps: list[tuple[float, float, bool, int]],
) -> None:
    delay, now = Delay(0.015), 0.0
    for trip, passed, full, packets in steps:
        now += passed
        size = packets * PACKET
        got = delay.measured(trip, now, size=size, floor=FLOOR, full=full)
        assert got <= size
        assert got == size or (full and (got >= size // 2 or got == FLOOR))
        assert got >= min(size, FLOOR)
        assert delay.pace == 0.0 or LEAST_PACE <= delay.pace <= 1.0


def _pour(road: Road, megabytes: float) -> tuple[float, float]:
    """Seconds that weights take over a slow line, and the median queue before it in seconds."""
    said = []

    async def scenario() -> None:
        windows = Window(), Window()
        ends = [pair(road, seed=n, windows=windows) for n in range(2)]
        made = [channels(one, 77) for one in ends]
        for one in ends:
            await start(one)
        await until(lambda: all(is_up(one) for one in ends))
        loop = asyncio.get_running_loop()
        begun, left, (sender, _, _, got) = loop.time(), int(megabytes * 1e6 / 16_000), made[0]
        total, queues = left, []
        while len(got) < total:
            while left and sender.bufferedAmount < 18_000:
                sender.send(bytes(16_000))
                left -= 1
            await asyncio.sleep(0.002)
            if left and loop.time() > begun + 0.8:
                queues.append(max(0.0, ends[0].wires[0]._free_at - loop.time()))
        said.append((loop.time() - begun, sorted(queues)[len(queues) // 2]))
        for one in ends:
            await one.close()

    simulate(scenario)
    took: tuple[float, float] = said[0]
    return took


def test_weights_fill_a_slow_line_and_leave_no_queue_before_it() -> None:
    """20 Mbit/s, 20 ms one way: with the window alone 390 ms of weights stood before every token."""
    took, queue = _pour(Road(delay=0.02, rate=2.5e6, queue=1_000_000), 4)
    assert queue < 0.035
    assert 4e6 / took > 0.85 * 2.5e6


def test_weights_fill_a_long_fast_line() -> None:
    """50 ms one way, 100 Mbit/s: 1.25 MB fit it, more than the window."""
    took, queue = _pour(Road(delay=0.05, rate=12.5e6, queue=2_000_000), 8)
    assert 8e6 / took > 0.5 * 12.5e6
    assert queue < 0.02
