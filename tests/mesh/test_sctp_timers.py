"""When an association takes silence for loss (RFC 9260 6.3, RFC 8985 7, RFC 9002 6.2)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from pooled_nb.mesh.sctp.policy import PACKET
from pooled_nb.mesh.sctp.window import Window
from tests.mesh.sctpnet import Pair, Road, channels, is_up, pair, start, until
from tests.sim.clock import simulate

LONG = Road(delay=0.05)


def _drops_next(ends: Pair) -> Callable[[], bool]:
    """The next packet of the first end is lost; whether it was."""
    lost: list[bytes] = []

    def seen(packet: bytes) -> bool:
        if len(packet) > 500 and not lost:
            lost.append(packet)
            return False
        return True

    ends.wires[0].seen = seen
    return lambda: bool(lost)


def test_a_round_trip_a_little_longer_than_all_before_is_no_loss() -> None:
    """T3 keeps 100 ms beyond the smoothed round trip, also where round trips did not vary at all."""

    async def scenario() -> None:
        ends = pair(LONG)
        one, _, _, got = channels(ends, 77)
        await start(ends)
        await until(lambda: is_up(ends))
        for n in range(30):
            one.send(bytes(1_000))
            await until(lambda n=n: len(got) == n + 1)  # type: ignore[misc]
            await asyncio.sleep(0.12)
        size = ends.a._window.size = 400 * PACKET
        ends.wires[1].road = Road(delay=0.09)
        one.send(bytes(1_000))
        await asyncio.sleep(1.0)
        assert len(got) == 31
        assert ends.a._window.size == size
        assert ends.a._rto >= 0.199
        await ends.close()

    simulate(scenario)


def test_the_end_of_a_burst_is_probed_after_a_round_trip_not_two() -> None:
    async def scenario() -> None:
        ends = pair(LONG)
        one, _, _, got = channels(ends, 77)
        await start(ends)
        await until(lambda: is_up(ends))
        for n in range(30):
            one.send(bytes(1_000))
            await until(lambda n=n: len(got) == n + 1)  # type: ignore[misc]
            await asyncio.sleep(0.12)
        was_lost = _drops_next(ends)
        begun = asyncio.get_running_loop().time()
        one.send(bytes(1_000))
        await until(lambda: len(got) == 31)
        assert was_lost()
        assert asyncio.get_running_loop().time() - begun < 0.18
        await ends.close()

    simulate(scenario)


def test_a_new_connection_of_a_link_knows_how_long_its_path_is() -> None:
    """Its first packet is lost: it is missed as soon as one of an older connection is, not after 500 ms."""

    async def scenario() -> None:
        windows = Window(), Window()
        old, new = (pair(LONG, seed=n, windows=windows) for n in range(2))
        first, _, _, got = channels(old, 77)
        fresh, _, _, came = channels(new, 77)
        await start(old)
        await until(lambda: is_up(old))
        for n in range(20):
            first.send(bytes(1_000))
            await until(lambda n=n: len(got) == n + 1)  # type: ignore[misc]
            await asyncio.sleep(0.12)
        await start(new)
        await until(lambda: is_up(new))
        was_lost = _drops_next(new)
        begun = asyncio.get_running_loop().time()
        fresh.send(bytes(1_000))
        await until(lambda: len(came) == 1)
        assert was_lost()
        assert asyncio.get_running_loop().time() - begun < 0.2
        await old.close()
        await new.close()

    simulate(scenario)
