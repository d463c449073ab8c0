"""In which order a host goes on that took its room back (PROTOCOL sections 7 and 8, host resume)."""

from __future__ import annotations

import asyncio

import pytest

from pooled_nb.left import its_turn
from pooled_nb.room.core import AskOptions, Done, Piece
from pooled_nb.room.deviceroom import DeviceRoom
from pooled_nb.room.hostroom import HostRoom
from pooled_nb.room.memory import SavedQuestion
from pooled_nb.room.remembering import ASKER_S, ASKS_S, BACK_S
from tests.room.rooms import Rooms, alone, ask, open_rooms
from tests.room.test_comes_back_host import restarted
from tests.sim.clock import simulate

RUNS, WAIT = "runs", ("mira waits", "leo waits", "mira waits more", "leo waits more")


class Reader:
    """Reads one answer, and keeps all that its screen shows."""

    def __init__(self, room: HostRoom | DeviceRoom, text: str) -> None:
        self.shown = ""
        self.done: Done | None = None
        self._events = room.ask(text, AskOptions())
        self.task = asyncio.create_task(self._read())

    async def _read(self) -> None:
        async for event in self._events:
            if isinstance(event, Piece):
                self.shown += event.text
            if isinstance(event, Done):
                self.done = event


async def busy() -> tuple[Rooms, dict[str, Reader]]:
    """A room in which mira is being answered, and she and leo wait with two questions each."""
    rooms = await open_rooms(workers=(1.0,), delay=0.05)
    mira, leo = await rooms.add(gb=0.0, name="mira"), await rooms.add(gb=0.0, name="leo")
    await rooms.host.start()
    readers = {RUNS: Reader(mira, RUNS)}
    await asyncio.sleep(2)
    for text in WAIT:
        readers[text] = Reader(mira if text.startswith("mira") else leo, text)
        await asyncio.sleep(0.1)
    assert readers[RUNS].shown
    assert not readers[RUNS].done
    return rooms, readers


@pytest.mark.parametrize("late", [0.0, 12.0, 27.0])
def test_who_was_being_answered_goes_first_however_late(late: float) -> None:
    """What is shown goes on, since nothing else is answered before it; and none of five questions is lost,
    though a device may wait with two only. A guest may hear of its host's death as late as after 30 s.
    """
    expected = simulate(lambda: alone([RUNS]))[0].text

    async def scenario() -> None:
        rooms, readers = await busy()
        before = readers[RUNS].shown
        _, mira, _ = rooms.devices
        rooms.net.partition(rooms.host.mesh.id, mira.mesh.id)
        host = await restarted(rooms, rooms.host.memory())
        going = asyncio.create_task(host.resume())
        await asyncio.sleep(late)
        if late > BACK_S:
            assert (
                host.status().sentence == "Going on: waiting up to 35 s for mira, whose answer was under way."
            )
        rooms.net.heal(host.mesh.id, mira.mesh.id)
        await asyncio.gather(going, *(reader.task for reader in readers.values()))
        assert readers[RUNS].shown == expected
        assert expected.startswith(before)
        assert [reader.done.reason for reader in readers.values() if reader.done] == ["stop"] * 5
        shown = host.answering.conversation.exchanges
        assert shown[0].text == RUNS
        assert sorted(one.text for one in shown) == sorted([RUNS, *WAIT])
        assert [one.reply for one in shown] == [h.text for h in await alone([one.text for one in shown])]
        await rooms.close()

    simulate(scenario, limit=600)


@pytest.mark.parametrize("ends", ["is gone", "took it back"])
def test_who_does_not_ask_again_is_not_waited_for_long(ends: str) -> None:
    """A device that was being answered and never comes, or comes and has no question any more: the others are
    answered then.
    """

    async def scenario() -> None:
        rooms, readers = await busy()
        _, mira, _ = rooms.devices
        loop = asyncio.get_running_loop()
        memory = rooms.host.memory()
        if ends == "is gone":
            rooms.net.kill(mira.mesh.id)
        host = await restarted(rooms, memory)
        began = loop.time()
        if ends == "took it back":
            for text, reader in readers.items():
                if text == RUNS or text.startswith("mira"):
                    reader.task.cancel()
        await host.resume()
        took = loop.time() - began
        least = ASKER_S if ends == "is gone" else ASKS_S
        assert least <= took < least + 7, "with knocking and loading"
        await asyncio.gather(*(reader.task for text, reader in readers.items() if text.startswith("leo")))
        assert [one.text for one in host.answering.conversation.exchanges] == ["leo waits", "leo waits more"]
        for reader in readers.values():
            reader.task.cancel()
        await rooms.close()

    simulate(scenario, limit=600)


def test_ones_own_question_that_waited_lets_the_answer_before_it_go_on() -> None:
    """The host's own waiting question is asked again when the room is online: see `left`."""
    texts = simulate(lambda: alone([RUNS, "mine"]))

    async def scenario() -> None:
        rooms = await open_rooms(workers=(1.0,), delay=0.05)
        mira = await rooms.add(gb=0.0, name="mira")
        await rooms.host.start()
        running = Reader(mira, RUNS)
        await asyncio.sleep(2)
        mine = Reader(rooms.host, "mine")
        await asyncio.sleep(0.5)
        memory = rooms.host.memory()
        assert memory is not None
        assert [(q.text, q.begun) for q in memory.asked] == [("mine", False)]
        host = await restarted(rooms, memory)
        await asyncio.gather(mine.task, return_exceptions=True)
        going = asyncio.create_task(host.resume())
        await asyncio.sleep(0)
        assert host.resuming
        [left] = list(host.asked)

        async def again() -> str:
            await its_turn(host, left)
            return (await ask(host, left.text)).text

        own = asyncio.create_task(again())
        await asyncio.gather(going, running.task)
        assert [running.shown, await own] == [heard.text for heard in texts]
        assert host.asked == []
        await rooms.close()

    simulate(scenario, limit=600)


def test_a_question_that_ran_is_ones_own_to_ask_first() -> None:
    """A host's own running question waits for nobody: nothing else is in the queue yet."""

    class Core:
        resuming = True

        def __init__(self) -> None:
            self.asked = [SavedQuestion(text="ran", options=AskOptions(), begun=True)]

        async def abandon(self) -> None: ...

    async def scenario() -> None:
        core = Core()
        await asyncio.wait_for(its_turn(core, core.asked[0]), 0.01)
        assert core.asked == []

    asyncio.run(scenario())
