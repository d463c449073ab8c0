"""Panels of real rooms in virtual time: what they show is painted on change alone, by no timer of theirs."""

from __future__ import annotations

import asyncio
import re
from itertools import groupby
from typing import Any

from pooled_nb.counted import still
from pooled_nb.room.core import AskOptions, Done, unheard
from pooled_nb.room.deviceroom import DeviceRoom
from pooled_nb.room.hostroom import HostRoom
from pooled_nb.widgets.state import room_state
from tests.room.rooms import Rooms, open_rooms
from tests.sim.clock import simulate


class Panel:
    """What the panel of one device shows after each change of its room."""

    def __init__(self, core: HostRoom | DeviceRoom) -> None:
        self._core = core
        self.shown: list[dict[str, Any]] = []
        core.on_change = self.look
        self.look()

    def close(self) -> None:
        """Nobody looks any more."""
        self._core.on_change = unheard

    def look(self) -> None:
        """The room has changed."""
        self.shown.append(room_state(self._core.status(), self._core.role))

    def heads(self) -> list[str]:
        """Its headlines, as a screen reader hears them: each once."""
        return [what for what, _ in groupby(still(room["say"]["what"]) for room in self.shown)]

    def counted(self, pattern: str) -> list[int]:
        """The numbers that it showed in turn, in its line or below a device."""
        found: list[int] = []
        for room in self.shown:
            words = " ".join([room["say"]["about"], *(row["more"] for row in room["chain"])])
            if (number := re.search(pattern, words)) and int(number[1]) not in found[-1:]:
                found.append(int(number[1]))
        return found


async def asking(rooms: Rooms) -> Done:
    async for event in rooms.devices[-1].ask("how long?", AskOptions(max_tokens=200)):
        last = event
    assert isinstance(last, Done)
    return last


async def room_of_four() -> Rooms:
    rooms = await open_rooms(workers=(1.0, 1.0), delay=0.05, end_after=400)
    await rooms.add(gb=0.0, name="ana")
    await rooms.host.start()
    return rooms


def test_a_device_that_drops_and_comes_back() -> None:
    """PROTOCOL section 8: 15 s second by second, then 60 s down to the next deal, until it is healed."""

    async def scenario() -> tuple[Panel, Panel, Panel, Done]:
        rooms = await room_of_four()
        lost = rooms.devices[1]
        panels = Panel(rooms.host), Panel(lost), Panel(rooms.devices[-1])
        answer = asyncio.create_task(asking(rooms))
        await asyncio.sleep(2.0)
        rooms.net.partition(lost.mesh.id, rooms.host.mesh.id)
        await asyncio.sleep(45.0)
        rooms.net.heal(lost.mesh.id, rooms.host.mesh.id)
        done = await answer
        await asyncio.sleep(1.0)
        for panel in panels:
            panel.close()
        await rooms.close()
        return *panels, done

    host, lost, guest, done = simulate(scenario, limit=1_000)
    assert done.reason == "max"
    told = host.heads()
    assert told[:4] == ["Online", "Answering ana", "Waiting for worker 2", "worker 2 dropped"]
    assert told[-2:] == ["Answering ana", "Online"]
    assert told.count("worker 2 dropped") == 1
    silent = host.counted(r"waiting, (\d+) of 15 s")
    assert silent == list(range(silent[0], silent[-1] + 1))
    assert (silent[0] in (3, 4, 5), silent[-1] in (14, 15)) == (True, True)
    deals = host.counted(r"again in (\d+) s")
    assert deals == list(range(60, deals[-1] - 1, -1))
    assert len(deals) > 20
    assert "host does not answer" in lost.heads()
    knocks = lost.counted(r"knocks \((\d+) of 60 s\)")
    assert knocks == list(range(1, len(knocks) + 1))
    assert len(knocks) > 20
    heard = [head for head in guest.heads() if "worker 2" in head]
    assert heard[0] == "worker 2 dropped"
    assert len(set(heard)) == len(heard)  # each once
    assert guest.heads()[-1] == "Online"
    # Painted when something changed, which is about once a second and not with every token of a wait.
    waits = [room for room in host.shown if room["state"] in ("waiting", "degraded")]
    assert len(waits) < 200


def test_a_host_that_is_gone() -> None:
    """PROTOCOL section 3, dead links: the others knock, and say for how long; later in minutes."""

    async def scenario() -> tuple[Panel, Panel]:
        rooms = await room_of_four()
        worker, guest = rooms.devices[0], rooms.devices[-1]
        panels = Panel(worker), Panel(guest)
        answer = asyncio.create_task(asking(rooms))
        await asyncio.sleep(2.0)
        await rooms.host.abandon()
        await asyncio.sleep(130.0)
        answer.cancel()
        await asyncio.gather(answer, return_exceptions=True)
        for device in rooms.devices:
            await device.leave()
        return panels

    for panel in simulate(scenario, limit=1_000):
        assert "host does not answer" in panel.heads()
        assert panel.counted(r"knocks \((\d+) of 60 s\)")[:30] == list(range(1, 31))
        assert 2 in panel.counted(r"knocks \((\d+) of 15 min\)")
        away = [room for room in panel.shown if room["state"] == "away"]
        assert {button["cmd"] for room in away for button in room["actions"]} == {"leave"}
        assert panel.shown[-1]["state"] == "closed"
        assert panel.shown[-1]["actions"] == []


def test_a_device_that_leaves_politely() -> None:
    """The layers are dealt without it between two answers; its panel says that it leaves, and may hurry."""

    async def scenario() -> tuple[Panel, Panel, Done]:
        rooms = await room_of_four()
        worker = rooms.devices[1]
        panels = Panel(worker), Panel(rooms.host)
        answer = asyncio.create_task(asking(rooms))
        await asyncio.sleep(2.0)
        await worker.leave(after_answer=True)
        done = await answer
        await asyncio.sleep(1.0)
        panels[1].close()
        await rooms.close()
        return *panels, done

    worker, host, done = simulate(scenario, limit=1_000)
    assert done.reason == "max"
    leaving = [room for room in worker.shown if room["say"]["what"] == "Leaving"]
    assert {button["label"] for room in leaving for button in room["actions"]} == {"Leave now"}
    assert leaving
    assert worker.shown[-1]["state"] == "closed"
    assert not [head for head in host.heads() if "dropped" in head or "gone" in head]
    assert [row["name"] for row in host.shown[-1]["chain"]] == ["host", "worker"]


def test_a_host_that_closes_politely() -> None:
    """`RoomCore.leave`, ``after_answer``: its panel says so, and may hurry; the answer is whole."""

    async def scenario() -> tuple[Panel, Done]:
        rooms = await room_of_four()
        panel = Panel(rooms.host)
        answer = asyncio.create_task(asking(rooms))
        await asyncio.sleep(2.0)
        await rooms.host.leave(after_answer=True)
        done = await answer
        await asyncio.sleep(1.0)
        await rooms.close()
        return panel, done

    host, done = simulate(scenario, limit=1_000)
    assert done.reason == "max"
    assert host.heads()[:3] == ["Online", "Answering ana", "Closing"]
    closing = [room for room in host.shown if room["say"]["what"] == "Closing"]
    assert {room["say"]["about"] for room in closing} == {"Once the running answer has ended."}
    assert [button["cmd"] for button in closing[0]["actions"]] == ["close", "stop"]
    assert host.shown[-1]["state"] == "closed"
