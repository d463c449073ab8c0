"""Links that break again and again: what people hear of it, and what becomes of the room."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pooled_nb.room.core import Notice
from pooled_nb.room.flapping import Flapping
from tests.room.rooms import Heard, alone, ask, open_rooms
from tests.room.test_comes_back import QUESTION, begun, same_text, snap
from tests.sim.clock import simulate


def test_twenty_reconnects_are_one_notice() -> None:
    """PROTOCOL section 2: "the same notice to the user at most once in 30 s"; CASES, Devices: not twenty."""
    flaps, said = Flapping(), list[tuple[float, str]]()
    for n in range(20):
        if flaps.broken(1.5 * n):
            said.append((1.5 * n, "broken"))
        if flaps.back():
            said.append((1.5 * n, "back"))
    assert said == [(0.0, "broken"), (0.0, "back")]
    assert not flaps.broken(29.9)
    assert flaps.broken(30.0), "it lasts, and is said as soon as it may"
    assert not flaps.broken(31.0), "once"
    assert flaps.back()
    assert not flaps.back()


@given(st.lists(st.tuples(st.sampled_from(["broken", "back"]), st.integers(0, 20)), max_size=60))
def test_what_was_said_last_is_true_in_the_end(events: list[tuple[str, int]]) -> None:
    """PROTOCOL section 2: at most once in 30 s, and whoever heard of a break hears that it is over."""
    flaps, now = Flapping(), 0
    broken: list[int] = []
    told = False
    for what, later in events:
        now += later
        if what == "broken":
            if flaps.broken(now):
                assert not told
                broken.append(now)
                told = True
        else:
            assert flaps.back() == told
            told = False
    assert all(b - a >= 30 for a, b in pairwise(broken))
    assert flaps.broken(now + 30) != told


@pytest.mark.parametrize("asks", [False, True], ids=["a guest that watches", "a guest that asks"])
def test_a_guest_whose_link_breaks_twenty_times(asks: bool) -> None:
    """CASES, Devices: twenty reconnects in 30 s are one notice, not twenty; the answer is whole, and once."""

    async def scenario() -> None:
        rooms = await open_rooms(workers=(1.0,), delay=0.4)
        guest = await rooms.add(gb=0.0, name="guest")
        await rooms.host.start()
        task: asyncio.Task[Heard]
        if asks:
            task = asyncio.create_task(ask(guest, QUESTION))
            await asyncio.sleep(1)
        else:
            task = await begun(rooms)
        heard = rooms.heard["guest"]
        heard.clear()
        rooms.notices.clear()
        for _ in range(20):
            snap(rooms, rooms.host.mesh.id, guest.mesh.id)
            await asyncio.sleep(0.01)
            assert guest.status().state == "away"
            await asyncio.sleep(1.49)
            assert guest.status().state != "away"
        assert [("knocks" in text, "Back" in text) for text in heard] == [(True, False), (False, True)]
        assert rooms.notices == [], "who holds no layers is no affair of the host's person"
        answer = await task
        assert answer.done.reason == "stop"
        assert answer.text == (await alone([QUESTION]))[0].text
        if not asks:
            assert not any(isinstance(event, Notice) for event in answer.events)
        assert guest.transcript.items[-1].reply == answer.text
        assert len(rooms.host.status().devices) == 3
        rooms.net.partition(rooms.host.mesh.id, guest.mesh.id)
        snap(rooms, rooms.host.mesh.id, guest.mesh.id)
        await asyncio.sleep(40)
        assert "knocks" in heard[-1], "one that lasts is told of again"
        await rooms.close()

    simulate(scenario)


def test_a_worker_whose_link_breaks_twenty_times() -> None:
    """CASES, Devices: the host's person hears of it once; the worker keeps its layers, the text is right."""

    async def scenario() -> None:
        rooms = await open_rooms(workers=(1.0, 1.0), delay=0.15)
        await rooms.host.start()
        loads = [shard.loads for shard in rooms.shards]
        task = await begun(rooms)
        rooms.notices.clear()
        worker = rooms.devices[0]
        for _ in range(20):
            snap(rooms, rooms.host.mesh.id, worker.mesh.id)
            await asyncio.sleep(1.5)
        assert len(rooms.notices) == 2, rooms.notices
        await same_text(task)
        assert [shard.loads for shard in rooms.shards] == loads
        await rooms.close()

    simulate(scenario)


def test_a_link_that_breaks_after_a_new_deal_is_told_of_again() -> None:
    """PROTOCOL section 8: what ended with another deal is over; the next break is news."""

    async def scenario() -> None:
        rooms = await open_rooms(workers=(1.0, 1.0), delay=0.4)
        await rooms.host.start()
        task = await begun(rooms)
        host, (gone, stays) = rooms.host.mesh.id, rooms.devices
        snap(rooms, host, gone.mesh.id)
        rooms.net.kill(gone.mesh.id)
        await asyncio.sleep(40)
        assert any(" broke" in text for text in rooms.notices)
        await rooms.host.start()
        rooms.notices.clear()
        assert not task.done()
        snap(rooms, host, stays.mesh.id)
        await asyncio.sleep(5)
        assert [" broke" in text for text in rooms.notices] == [True, False], rooms.notices
        await same_text(task)
        await rooms.close()

    simulate(scenario)
