"""Rooms that lose a device of the chain in the middle of an answer, and get it back, in virtual time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from pooled_nb.mesh.newcomer import Newcomer
from pooled_nb.room.core import ChatSettings, Notice
from tests.room.rooms import Heard, Rooms, alone, ask, open_rooms
from tests.sim.clock import simulate

QUESTION = "Why is the sky blue?"


def snap(rooms: Rooms, a: str, b: str) -> None:
    """Their connections fail, at both ends, at once."""
    for one, other in ((a, b), (b, a)):
        for c in rooms.net.connections(one, other):
            c.become("failed")


def cut(rooms: Rooms, id: str, others: list[str]) -> None:
    for other in others:
        rooms.net.partition(id, other)


def mend(rooms: Rooms, id: str, others: list[str]) -> None:
    for other in others:
        rooms.net.heal(id, other)


def told(rooms: Rooms) -> list[tuple[float, str]]:
    """What the host's person hears from now on, and when, counted from now."""
    loop, heard = asyncio.get_running_loop(), list[tuple[float, str]]()
    began = loop.time()
    rooms.host.on_notice = lambda text: heard.append((loop.time() - began, text))
    return heard


async def begun(rooms: Rooms, seconds: float = 1.0) -> asyncio.Task[Heard]:
    """A question whose answer is under way."""
    task = asyncio.create_task(ask(rooms.host, QUESTION))
    await asyncio.sleep(seconds)
    assert rooms.host.status().state == "answering"
    return task


async def same_text(task: asyncio.Task[Heard]) -> Heard:
    heard = await task
    assert heard.done.reason == "stop", heard.done.why
    assert heard.text == (await alone([QUESTION]))[0].text
    return heard


@pytest.mark.parametrize("which", [0, 1])
def test_a_link_that_breaks_costs_nothing_but_time(which: int) -> None:
    """PROTOCOL section 3, dead links: it knocks, keeps its layers, and the answer goes on."""

    async def scenario() -> None:
        rooms = await open_rooms(workers=(1.0, 1.0), delay=0.05)
        guest = await rooms.add(gb=0.0, name="guest")
        await rooms.host.start()
        loads = [s.loads for s in rooms.shards]
        task = await begun(rooms)
        worker = rooms.devices[which]
        snap(rooms, rooms.host.mesh.id, worker.mesh.id)
        await asyncio.sleep(0.005)
        status = rooms.host.status()
        assert (status.state, status.waits_for) == ("waiting", [worker.mesh.name])
        heard = await same_text(task)
        assert [s.loads for s in rooms.shards] == loads, "nobody loaded anything again"
        assert any(isinstance(e, Notice) and "broke" in e.text for e in heard.events)
        await asyncio.sleep(1)
        assert [r.status().state for r in (rooms.host, *rooms.devices)] == ["online"] * 4
        assert worker.role == "worker"
        assert guest.transcript.items[-1].reply == heard.text
        await rooms.close()

    simulate(scenario)


def test_a_device_that_is_silent_is_named_waited_for_and_dropped_on_time() -> None:
    """PROTOCOL section 8: notice at 3.5 s, dropped at 15 s, dealt again 60 s after that; the text goes on."""

    async def scenario() -> None:
        rooms = await open_rooms(workers=(1.0, 1.0), delay=0.05)
        await rooms.host.start()
        task = await begun(rooms)
        heard = told(rooms)
        rooms.net.kill(rooms.devices[1].mesh.id)
        await asyncio.sleep(8)
        status = rooms.host.status()
        line = next(d for d in status.devices if d.name == "worker 2")
        assert (status.state, status.waits_for) == ("waiting", ["worker 2"])
        assert (line.silent_s, line.patience_s, line.gone) == (7, 15, False)
        assert "stop" in status.can
        assert rooms.host.status().sentence.endswith("7 of 15 s (Stop gives up).")
        await asyncio.sleep(12)
        status = rooms.host.status()
        line = next(d for d in status.devices if d.name == "worker 2")
        assert (status.state, line.gone, line.layers) == ("degraded", True, (4, 6))
        assert status.redeal_in in (54, 55, 56)
        assert {"redeal", "stop"} <= set(status.can)
        await same_text(task)
        at = {text.split()[0] + " " + text.split()[2]: when for when, text in heard}
        stopped, dropped = [when for when, text in heard if text.startswith("worker 2")]
        assert 3.0 <= stopped <= 4.6, at
        assert 14.4 <= dropped <= 16.1, at
        assert rooms.host.status().state == "online"
        took = asyncio.get_running_loop().time()
        assert took
        await rooms.close()

    simulate(scenario)


@pytest.mark.parametrize("seconds", [1.0, 8.0], ids=["before it is noticed", "after"])
def test_stop_gives_up_a_device_that_is_silent(seconds: float) -> None:
    """PROTOCOL section 8: "waiting for it (Stop gives up)": not after 15 s, when it is dropped."""

    async def scenario() -> None:
        rooms = await open_rooms(workers=(1.0, 1.0), delay=0.05)
        await rooms.host.start()
        task = await begun(rooms)
        rooms.net.kill(rooms.devices[1].mesh.id)
        await asyncio.sleep(seconds)
        assert not task.done()
        await rooms.host.stop()
        await asyncio.sleep(max(0.6, 4.6 - seconds))
        heard = task.result()
        assert (heard.done.reason, bool(heard.text)) == ("abort", True)
        assert len([d for d in rooms.host.status().devices if not d.gone]) == 3, "nobody is dropped for it"
        await rooms.close()

    simulate(scenario)


@pytest.mark.parametrize("mode", ["all", "asker"])
def test_a_new_chat_that_began_while_a_guest_was_away_clears_its_screen(mode: Any) -> None:
    """PROTOCOL section 7, `ai-reset`: "screens clear", also that of who did not hear of it."""

    async def scenario() -> None:
        rooms = await open_rooms(workers=(1.0,))
        guest = await rooms.add(gb=0.0, name="guest")
        await rooms.host.configure(ChatSettings(visibility=mode))
        await rooms.host.start()
        await ask(guest, QUESTION)
        assert [i.text for i in guest.transcript.items] == [QUESTION]
        host = rooms.host.mesh.id
        snap(rooms, host, guest.mesh.id)
        await asyncio.sleep(0.001)
        assert guest.status().state == "away"
        await rooms.host.reset()
        assert guest.transcript.items, "it did not hear of it"
        await asyncio.sleep(10)
        assert (guest.status().state, guest.transcript.items) == ("online", [])
        await rooms.close()

    simulate(scenario)


def test_the_deal_by_itself_comes_60_s_after_the_drop() -> None:
    """PROTOCOL section 8, auto re-deal, also where nothing is asked."""

    async def scenario() -> None:
        rooms = await open_rooms(workers=(1.0, 1.0))
        await rooms.host.start()
        loop = asyncio.get_running_loop()
        states: list[tuple[float, str]] = []

        def seen() -> None:
            state = rooms.host.status().state
            if not states or states[-1][1] != state:
                states.append((loop.time(), state))

        rooms.host.on_change = seen
        rooms.net.kill(rooms.devices[1].mesh.id)
        await asyncio.sleep(90)
        assert [s for _, s in states] == ["online", "degraded", "loading", "online"]
        degraded, loading = states[1][0], states[2][0]
        assert loading - degraded == pytest.approx(60, abs=0.02)
        assert [d.name for d in rooms.host.status().devices if d.layers] == ["host", "worker"]
        await rooms.close()

    simulate(scenario)


def test_a_blackhole_of_20_s_ends_with_the_same_text() -> None:
    """The whole room survives a freeze of 20 s: dropped at 15 s, back with its pass, nothing dealt anew."""

    async def scenario() -> None:
        rooms = await open_rooms(workers=(1.0, 1.0), delay=0.05)
        await rooms.host.start()
        loads = [s.loads for s in rooms.shards]
        task = await begun(rooms)
        heard = told(rooms)
        worker, other = rooms.devices[1], rooms.devices[0]
        ids = [rooms.host.mesh.id, other.mesh.id]
        cut(rooms, worker.mesh.id, ids)
        await asyncio.sleep(20)
        assert rooms.host.status().state == "degraded"
        assert other.status().state == "degraded"
        mend(rooms, worker.mesh.id, ids)
        await same_text(task)
        assert [s.loads for s in rooms.shards] == loads, "nobody loaded anything again"
        assert not any("deals again" in text and "loading" in text for _, text in heard)
        assert heard[-1][1] == "The room is whole again."
        await asyncio.sleep(1)
        assert [r.status().state for r in (rooms.host, *rooms.devices)] == ["online"] * 3
        await rooms.close()

    simulate(scenario)


def test_a_device_that_was_only_slow_is_told_as_back() -> None:
    """PROTOCOL section 8: silent for 8 s, then it answers a ping sent meanwhile; nothing was lost."""

    async def scenario() -> None:
        rooms = await open_rooms(workers=(1.0,), delay=0.05)
        await rooms.host.start()
        task = await begun(rooms)
        host, worker = rooms.host.mesh.id, rooms.devices[0].mesh.id
        rooms.net.partition(host, worker)
        await asyncio.sleep(8)
        assert rooms.host.status().state == "waiting"
        rooms.net.heal(host, worker)
        await asyncio.sleep(0.7)
        status = rooms.host.status()
        assert (status.state, status.waits_for) == ("answering", [])
        await same_text(task)
        await rooms.close()

    simulate(scenario)


def test_a_link_between_workers_is_made_again() -> None:
    """PROTOCOL section 6, ``ai-linklost``, ``ai-next {relink}``, ``ai-linked``: held, not degraded."""

    async def scenario() -> None:
        rooms = await open_rooms(workers=(1.0, 1.0), delay=0.05)
        await rooms.host.start()
        task = await begun(rooms)
        heard = told(rooms)
        snap(rooms, rooms.devices[0].mesh.id, rooms.devices[1].mesh.id)
        await asyncio.sleep(0.05)
        assert rooms.host.status().state == "waiting"
        assert rooms.host.status().waits_for == ["worker", "worker 2"]
        await same_text(task)
        assert not any("again over" in text for _, text in heard)
        assert rooms.host.status().state == "online"
        await rooms.close()

    simulate(scenario)


def test_a_guest_that_drops_changes_nothing() -> None:
    """PROTOCOL section 7: its waiting questions go; who answers goes on."""

    async def scenario() -> None:
        rooms = await open_rooms(workers=(1.0,), delay=0.05)
        guest = await rooms.add(gb=0.0, name="guest")
        await rooms.host.start()
        task = await begun(rooms)
        snap(rooms, rooms.host.mesh.id, guest.mesh.id)
        await asyncio.sleep(0.2)
        assert rooms.host.status().state == "answering"
        heard = await same_text(task)
        assert not any(isinstance(e, Notice) for e in heard.events)
        await rooms.close()

    simulate(scenario)


def test_a_link_that_breaks_while_nothing_is_asked() -> None:
    """A room at rest stays online, says what it waits for, and a question that comes waits with it."""

    async def scenario() -> None:
        rooms = await open_rooms(workers=(1.0, 1.0))
        await rooms.host.start()
        worker = rooms.devices[0]
        ids = [rooms.host.mesh.id, rooms.devices[1].mesh.id]
        cut(rooms, worker.mesh.id, ids)
        snap(rooms, rooms.host.mesh.id, worker.mesh.id)
        await asyncio.sleep(1)
        status = rooms.host.status()
        assert (status.state, status.waits_for) == ("online", ["worker"])
        assert status.sentence.startswith("The link to worker broke")
        task = asyncio.create_task(ask(rooms.host, QUESTION))
        await asyncio.sleep(1)
        assert rooms.host.status().state == "waiting"
        mend(rooms, worker.mesh.id, ids)
        await same_text(task)
        await rooms.close()

    simulate(scenario)


def test_two_that_drop_at_once_come_back_one_after_the_other() -> None:
    """PROTOCOL section 3: each keeps its layers; the answer goes on once both are back."""

    async def scenario() -> None:
        rooms = await open_rooms(workers=(1.0, 1.0), delay=0.05)
        await rooms.host.start()
        task = await begun(rooms)
        host, (a, b) = rooms.host.mesh.id, (d.mesh.id for d in rooms.devices)
        for id in (a, b):
            rooms.net.partition(host, id)
            snap(rooms, host, id)
        await asyncio.sleep(4)
        assert rooms.host.status().waits_for == ["worker", "worker 2"]
        rooms.net.heal(host, a)
        await asyncio.sleep(4)
        rooms.net.heal(host, b)
        await same_text(task)
        await rooms.close()

    simulate(scenario)


@pytest.mark.parametrize("after", [3, 25])
@pytest.mark.parametrize("which", [0, 1, 2])
def test_a_process_that_was_killed_comes_back_with_its_pass(which: int, after: float) -> None:
    """PROTOCOL section 3: another id, the same seat: it loads again, its neighbours link anew."""

    async def scenario() -> None:
        rooms = await open_rooms(workers=(1.0, 1.0, 1.0), delay=0.05)
        await rooms.host.start()
        await asyncio.sleep(1)
        task = await begun(rooms)
        worker = rooms.devices[which]
        held = next(d.layers for d in rooms.host.status().devices if d.id == worker.mesh.id)
        loads = [s.loads for i, s in enumerate(rooms.shards) if i != which]
        credentials = worker._admission.newcomer.credentials
        assert credentials.pass_
        rooms.net.kill(worker.mesh.id)
        await asyncio.sleep(after)
        again = await rooms.add(name=worker.mesh.name, newcomer=Newcomer(credentials))
        assert again.mesh.id != worker.mesh.id
        await same_text(task)
        lines = rooms.host.status().devices
        assert [d.layers for d in lines if d.id == again.mesh.id] == [held]
        assert not [d for d in lines if d.gone or d.id == worker.mesh.id]
        assert [s.loads for i, s in enumerate(rooms.shards[:3]) if i != which] == loads
        await asyncio.sleep(1)
        here = [rooms.host, *(d for i, d in enumerate(rooms.devices) if i != which)]
        assert [r.status().state for r in here] == ["online"] * 4
        await rooms.close()

    simulate(scenario)
