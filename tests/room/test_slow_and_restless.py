"""Devices that are slow, or come and go, in whole rooms (CASES, Answers and Devices)."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import msgspec
import pytest

from pooled_nb.room.core import Notice
from tests.room.rooms import alone, ask, meta_of, open_rooms
from tests.room.test_comes_back import QUESTION, begun, same_text, told
from tests.room.toy import ToyShard
from tests.sim.clock import simulate


def slow_once(shard: ToyShard, seconds: float, after: int) -> list[int]:
    """One frame of these takes so long; which it was is told once it is through."""
    plain, count, slow = shard.forward, 0, list[int]()

    async def forward(*args: Any, **more: Any) -> Any:
        nonlocal count
        count += 1
        if count == after:
            await asyncio.sleep(seconds)
            slow.append(count)
        return await plain(*args, **more)

    shard.forward = forward  # type: ignore[method-assign]  # watched, and passed on
    return slow


@pytest.mark.parametrize("after", [1, 3, 12], ids=["the first", "not measured yet", "measured"])
@pytest.mark.parametrize("who", ["the host", "a worker", "the last"])
def test_a_lap_of_12_s_is_held_then_finished(who: str, after: int) -> None:
    """CASES, Answers: a worker that needs 12 s for one lap: held, then finished; not dropped, not failed.
    PROTOCOL section 8, lap timeout: 30 s, or 90 s; then never below 25 s.
    """

    async def scenario() -> None:
        rooms = await open_rooms(workers=(1.0, 1.0), delay=0.05)
        await rooms.host.start()
        shard = rooms.host_shard if who == "the host" else rooms.shards[who == "the last"]
        loads = [s.loads for s in rooms.shards]
        slow = slow_once(shard, 12.0, after)
        heard = told(rooms)
        states: set[str] = set()
        rooms.host.on_change = lambda: states.add(rooms.host.status().state)
        answer = await same_text(asyncio.create_task(ask(rooms.host, QUESTION)))
        assert slow == [after]
        assert states <= {"answering", "online"}, "nobody is said not to respond: it answers pings"
        assert heard == []
        assert not any(isinstance(event, Notice) for event in answer.events)
        assert [s.loads for s in rooms.shards] == loads
        assert sum(control.reset for _, control in shard.frames) == 1, "no lap was given up"
        await rooms.close()

    simulate(scenario)


@pytest.mark.parametrize("answering", [False, True], ids=["at rest", "amid an answer"])
def test_leaving_and_joining_five_times_in_five_seconds(answering: bool) -> None:
    """CASES, Devices: two devices in the roster, layers only on living ones. PROTOCOL section 3, ``leaving``:
    who left is not waited for; the answer fails over.
    """

    async def scenario() -> None:
        rooms = await open_rooms(delay=0.05)
        worker = await rooms.add(name="laptop")
        await rooms.host.start()
        task = await begun(rooms) if answering else None
        gone: list[str] = []
        for _ in range(5):
            gone.append(worker.mesh.id)
            await worker.leave()
            worker = await rooms.add(name="laptop")
            assert worker.mesh.name == "laptop"
            await asyncio.sleep(0.6)
        assert [m.name for m in rooms.host.mesh.roster] == ["host", "laptop"]
        assert rooms.host.mesh.roster == worker.mesh.roster
        if task is not None:
            await same_text(task)
        await asyncio.sleep(30)
        status = rooms.host.status()
        assert (status.state, worker.status().state) == ("online", "online")
        assert [(d.name, d.gone) for d in status.devices] == [("host", False), ("laptop", False)]
        deal = rooms.host._dealer.deal
        assert deal is not None
        assert {seat.id for seat in deal.seats} <= {rooms.host.mesh.id, worker.mesh.id}
        assert not {seat.id for seat in deal.seats} & set(gone)
        await rooms.host.start()
        assert {d.name for d in rooms.host.status().devices if d.layers} == {"host", "laptop"}
        wanted = (await alone([QUESTION] * (2 if answering else 1)))[-1].text
        assert (await ask(worker, QUESTION)).text == wanted
        await rooms.close()

    simulate(scenario)


@pytest.mark.parametrize("hours", [-1, 1])
def test_a_clock_that_is_set_moves_no_timer(hours: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """CASES, Network: the clock set an hour back or forth: no timer moves. PROTOCOL section 8, dropped: 15 s;
    auto re-deal: 60 s after the drop.
    """

    async def scenario() -> None:
        rooms = await open_rooms(workers=(1.0, 1.0), delay=0.05)
        guest = await rooms.add(gb=0.0, name="guest")
        await rooms.host.start()
        task = await begun(rooms)
        loop = asyncio.get_running_loop()
        began = loop.time()
        rooms.net.kill(rooms.devices[1].mesh.id)
        await asyncio.sleep(5)
        shift(3600 * hours)  # while it is waited for
        while rooms.host.status().state != "degraded":  # noqa: ASYNC110 - each moment is looked at
            await asyncio.sleep(0.05)
        assert 14.5 <= loop.time() - began <= 16.5
        dropped = loop.time()
        shift(-3600 * hours)  # and back, while it counts down
        await asyncio.sleep(20)
        assert rooms.host.status().redeal_in in (40, 41)
        assert guest.status().state == "degraded"
        while rooms.host.status().state == "degraded":  # noqa: ASYNC110 - each moment is looked at
            await asyncio.sleep(0.05)
        assert loop.time() - dropped == pytest.approx(60, abs=0.2)
        await same_text(task)
        assert len(rooms.host.mesh.roster) == 3
        shift(3600 * hours)  # at rest
        await asyncio.sleep(30)
        states = {device.status().state for device in (rooms.host, rooms.devices[0], guest)}
        assert states == {"online"}
        await rooms.close()

    def shift(seconds: float) -> None:
        nonlocal off
        off += seconds

    off, wall = 0.0, time.time
    monkeypatch.setattr(time, "time", lambda: wall() + off)
    monkeypatch.setattr(time, "time_ns", lambda: int((wall() + off) * 1e9))
    simulate(scenario)


def test_a_phone_of_the_chain_is_waited_for_60_s() -> None:
    """PROTOCOL section 8, dropped: "silent 15 s (computer), 60 s (phone)"; named after 3.5 s as all are."""

    async def scenario() -> None:
        rooms = await open_rooms(host_gb=0.05, delay=0.05)
        phone = await rooms.add(name="phone", meta=msgspec.structs.replace(meta_of(1.0), phone=True))
        await rooms.host.start()
        assert phone.role == "worker"
        task = await begun(rooms)
        loop = asyncio.get_running_loop()
        began = loop.time()
        rooms.net.kill(phone.mesh.id)
        await asyncio.sleep(5)
        line = rooms.host.status().devices[1]
        assert (rooms.host.status().state, line.silent_s, line.patience_s) == ("waiting", 5, 60)
        await asyncio.sleep(50)
        assert rooms.host.status().state == "waiting"
        while rooms.host.status().state == "waiting":  # noqa: ASYNC110 - each moment is looked at
            await asyncio.sleep(0.05)
        assert rooms.host.status().state == "degraded"
        assert 59.0 <= loop.time() - began <= 61.5
        await rooms.add(name="laptop")  # the host alone cannot hold the model
        await same_text(task)
        assert [d.name for d in rooms.host.status().devices if d.layers] == ["host", "laptop"]
        await rooms.close()

    simulate(scenario)
