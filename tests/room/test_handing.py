"""A device that leaves once it is not needed any more (`RoomCore.leave`, ``after_answer``)."""

from __future__ import annotations

import asyncio

import pytest

from pooled_nb.errors import NotReady
from pooled_nb.room.core import AskOptions
from pooled_nb.room.deviceroom import DeviceRoom
from pooled_nb.room.handing import ENOUGH_S, Handing, Now
from tests.room.rooms import Rooms, alone, ask, open_rooms
from tests.room.test_share import lends
from tests.sim.clock import simulate

HOLDS = Now(holds=True, answer=0, mine=False, here=True)
RUNS = Now(holds=True, answer=4, mine=False, here=True)
NEXT = Now(holds=True, answer=5, mine=False, here=True)
MINE = Now(holds=False, answer=4, mine=True, here=True)
FREE = Now(holds=False, answer=4, mine=False, here=True)
OUT = Now(holds=True, answer=4, mine=True, here=False)


@pytest.mark.parametrize(
    ("began", "at", "now", "may"),
    [
        (FREE, 0, FREE, True),
        (RUNS, 1, FREE, True),
        (MINE, 300, MINE, False),
        (MINE, 1, FREE, True),
        (MINE, 1, OUT, True),
        (HOLDS, ENOUGH_S - 1, HOLDS, False),
        (HOLDS, ENOUGH_S, HOLDS, True),
        (RUNS, 300, RUNS, False),
        (RUNS, ENOUGH_S - 1, NEXT, False),
        (RUNS, ENOUGH_S, NEXT, True),
        (RUNS, ENOUGH_S, HOLDS, True),
    ],
)
def test_when_it_may_go(began: Now, at: float, now: Now, may: bool) -> None:
    """PROTOCOL section 3, ``leaving``: said after its own answer; with layers, after they are dealt anew, or
    after the answer that ran and a minute.
    """
    assert Handing(1_000.0, began).may_go(1_000.0 + at, now) == may


async def slow_room(*, workers: tuple[float, ...] = (1.0,)) -> tuple[Rooms, DeviceRoom]:
    """Online, with laps that take a moment, and a guest."""
    rooms = await open_rooms(workers=workers, delay=0.02)
    guest = await rooms.add(gb=0.0, name="guest")
    await rooms.host.start()
    return rooms, guest


def test_a_guest_reads_its_answer_to_the_end() -> None:
    """PROTOCOL section 7: who says ``leaving`` takes its questions along, so it says so afterwards."""

    async def scenario() -> None:
        rooms, guest = await slow_room()
        reading = asyncio.create_task(ask(guest, "q"))
        await asyncio.sleep(0.3)
        leaving = asyncio.create_task(guest.leave(after_answer=True))
        await asyncio.sleep(0.1)
        assert not leaving.done()
        assert guest.status().sentence.startswith("Leaving once your answer has ended.")
        with pytest.raises(NotReady, match="is leaving"):
            await ask(guest, "more")
        assert (await reading).text == (await alone(["q"]))[0].text
        await leaving
        assert guest.status().state == "closed"
        assert len(rooms.host.mesh.roster) == 2
        await rooms.close()

    simulate(scenario)


def test_who_is_not_needed_goes_at_once() -> None:
    """PROTOCOL section 3, ``leaving``: others' answers go on without a guest."""

    async def scenario() -> None:
        rooms, guest = await slow_room()
        reading = asyncio.create_task(ask(rooms.host, "q"))
        await asyncio.sleep(0.3)
        await asyncio.wait_for(guest.leave(after_answer=True), 1.0)
        assert (await reading).done.reason == "stop"
        await rooms.close()

    simulate(scenario)


@pytest.mark.parametrize("how", ["again", "cancelled"])
def test_leaving_politely_may_be_cut_short(how: str) -> None:
    """`RoomCore.leave`: calling again leaves at once; who thinks better of it lends and asks as before."""

    async def scenario() -> None:
        rooms, guest = await slow_room()
        worker = rooms.devices[0]
        leaving = asyncio.create_task(worker.leave(after_answer=True))
        await asyncio.sleep(1)
        assert lends(rooms, worker) == 0.0
        assert worker.status().sentence.startswith(
            "Leaving once the host has dealt this device's layers anew."
        )
        if how == "again":
            await asyncio.wait_for(worker.leave(), 2.0)
            await asyncio.wait_for(leaving, 1.0)
            assert worker.status().state == "closed"
        else:
            leaving.cancel()
            await asyncio.gather(leaving, return_exceptions=True)
            await asyncio.sleep(1)
            assert lends(rooms, worker) == 1.0
            assert worker.status().state != "closed"
            assert not worker.status().sentence.startswith("Leaving")
        await guest.leave()
        await rooms.close()

    simulate(scenario)


def test_a_room_that_ends_meanwhile_ends_the_wait() -> None:
    """PROTOCOL section 3, ``bye {closed}``: nothing is handed over in a room that is over."""

    async def scenario() -> None:
        rooms, guest = await slow_room()
        reading = asyncio.create_task(ask(guest, "q"))
        await asyncio.sleep(0.3)
        leaving = asyncio.create_task(guest.leave(after_answer=True))
        await rooms.host.leave()
        await asyncio.wait_for(leaving, 5.0)
        await asyncio.gather(reading, return_exceptions=True)
        await rooms.close()

    simulate(scenario)


def test_an_unread_question_of_its_own_does_not_keep_it() -> None:
    """PROTOCOL section 7, ``ai-stop``: whose reader went away is stopped, and then it may go."""

    async def scenario() -> None:
        rooms, guest = await slow_room()
        reading = guest.ask("q", AskOptions())
        await anext(reading)
        leaving = asyncio.create_task(guest.leave(after_answer=True))
        await asyncio.sleep(0.1)
        await reading.aclose()  # type: ignore[attr-defined]  # it is a generator
        await asyncio.wait_for(leaving, 1.0)
        await rooms.close()

    simulate(scenario)


@pytest.mark.parametrize("asks", ["guest", "worker"])
def test_a_worker_hands_its_layers_over_between_two_answers(asks: str) -> None:
    """`RoomCore.leave`, ``after_answer``: the running answer ends first, then the room deals without it.

    PROTOCOL section 6: a device never holds more than it lends; section 8: the text is that of one device.
    """

    async def scenario() -> None:
        rooms, guest = await slow_room(workers=(1.0, 1.0))
        worker = rooms.devices[0]
        states: list[str] = []
        rooms.host.on_change = lambda: states.append(rooms.host.status().state)
        reading = asyncio.create_task(ask(guest if asks == "guest" else worker, "q"))
        await asyncio.sleep(0.3)
        await asyncio.wait_for(worker.leave(after_answer=True), ENOUGH_S - 10)
        assert (await reading).text == (await alone(["q"]))[0].text
        assert worker.status().state == "closed"
        assert rooms.shards[0].closed
        await asyncio.sleep(1)
        assert "degraded" not in states
        assert rooms.host.status().state == "online"
        assert [d.name for d in rooms.host.status().devices if d.layers] == ["host", "worker 2"]
        assert (await ask(guest, "more")).text == (await alone(["q", "more"]))[1].text
        await rooms.close()

    simulate(scenario)


def test_a_worker_that_cannot_be_spared_goes_after_the_answer_and_a_minute() -> None:
    """`RoomCore.leave`, ``after_answer``: where nothing else could hold its layers, it waits no longer."""

    async def scenario() -> None:
        rooms = await open_rooms(workers=(1.0,), host_gb=0.065, delay=0.02)
        worker = rooms.devices[0]
        await rooms.host.start()
        assert rooms.shards[0].spec is not None
        reading = asyncio.create_task(ask(rooms.host, "q"))
        await asyncio.sleep(0.3)
        loop = asyncio.get_running_loop()
        began = loop.time()
        await asyncio.wait_for(worker.leave(after_answer=True), 120)
        assert ENOUGH_S <= loop.time() - began < ENOUGH_S + 10
        assert (await reading).text == (await alone(["q"]))[0].text
        await asyncio.sleep(1)
        assert rooms.host.status().state == "degraded"
        await rooms.close()

    simulate(scenario)
