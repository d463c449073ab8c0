"""The simulator itself: what it claims about time and about the network (DESIGN section 9)."""

from __future__ import annotations

import asyncio
import time

import pytest

from tests.sim.clock import simulate
from tests.sim.network import SimConnection, SimNetwork


async def pair(net: SimNetwork) -> tuple[SimConnection, SimConnection, list[bytes]]:
    a, b = await net.register("a", ["s"]), await net.register("b", ["s"])
    taken: list[SimConnection] = []
    b.on_connection = taken.append
    near = await a.dial("b")
    got: list[bytes] = []
    taken[0].control.on_message = got.append
    await asyncio.sleep(1)
    return near, taken[0], got


def test_time_is_virtual_and_stands_still_for_real_work() -> None:
    """DESIGN section 9, simulator: an hour takes no time; a thread that computes lets none pass."""

    async def scenario() -> tuple[float, float]:
        loop = asyncio.get_running_loop()
        start = loop.time()
        await asyncio.sleep(3_000)
        slept, start = loop.time() - start, loop.time()
        ticker = loop.create_task(asyncio.sleep(50))
        await asyncio.to_thread(time.sleep, 0.05)
        worked = loop.time() - start
        await ticker
        return slept, worked

    slept, worked = simulate(scenario)
    assert slept == pytest.approx(3_000)
    assert worked == 0.0


def test_what_is_left_or_raised_fails_the_run() -> None:
    """DESIGN section 9, simulator: a task that is left and a callback that raises are failures."""

    async def leaks() -> None:
        leaks.task = asyncio.create_task(asyncio.sleep(9))  # type: ignore[attr-defined]

    async def raises() -> None:
        asyncio.get_running_loop().call_soon(lambda: 1 / 0)
        await asyncio.sleep(1)

    with pytest.raises(AssertionError, match="tasks are left"):
        simulate(leaks)
    with pytest.raises(AssertionError, match="a callback raised"):
        simulate(raises)


def test_order_loss_partition_and_close() -> None:
    """DESIGN section 9, simulator: reliable channels keep order through loss and partitions; a close comes
    last.
    """

    async def scenario() -> list[bytes]:
        net = SimNetwork(latency=0.02, loss=0.3, bandwidth=1e6, seed=7)
        near, far, got = await pair(net)
        sent = [bytes([i]) * 100 for i in range(50)]
        for data in sent[:25]:
            near.control.send(data)
        await asyncio.sleep(0.03)
        net.partition("a", "b")
        seen = len(got)
        for data in sent[25:]:
            near.control.send(data)
        await asyncio.sleep(5)
        assert len(got) == seen < 50
        await near.close()
        net.heal("a", "b")
        await asyncio.sleep(1)
        assert got == sent
        assert far.state == "closed"
        assert not far.control.is_open
        return got

    assert simulate(scenario) == simulate(scenario)


def test_a_killed_device_tells_nobody() -> None:
    """DESIGN section 4: a killed peer is reported after 32 s."""

    async def scenario() -> None:
        net = SimNetwork()
        near, far, got = await pair(net)
        net.kill("a")
        near.control.send(b"x")
        await asyncio.sleep(31)
        assert far.state == "connected"
        assert got == []
        await asyncio.sleep(2)
        assert far.state == "failed"

    simulate(scenario)
