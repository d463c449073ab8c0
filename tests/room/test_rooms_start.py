"""How rooms of several devices start, in virtual time."""

from __future__ import annotations

import asyncio

import pytest

from pooled_nb.errors import ModelTooBig, NotReady
from tests.room.rooms import alone, ask, open_rooms
from tests.room.toy import ToyShard
from tests.sim.clock import simulate


def test_the_first_question_of_a_device_starts_the_room() -> None:
    """PROTOCOL section 7: any device asks; a newcomer types a question first, and must be answered."""

    async def scenario() -> None:
        rooms = await open_rooms(workers=(1.0,), delay=0.2)
        guest = await rooms.add(gb=0.0, name="mira")
        asked = asyncio.create_task(ask(guest, "q", max_tokens=5))
        await asyncio.sleep(0.02)
        heard = [await ask(rooms.devices[0], "w", max_tokens=5)]
        heard.insert(0, await asked)
        assert rooms.notices == ["mira asks: the room starts."]
        want = await alone(["q", "w"], max_tokens=5)
        assert [h.text for h in heard] == [w.text for w in want]
        with pytest.raises(NotReady, match="Only the host"):
            await rooms.devices[0].start()
        await rooms.close()

    simulate(scenario)


def test_a_question_to_a_room_that_cannot_start_hears_why() -> None:
    """PROTOCOL section 6: what does not fit is refused in words, to who asked; the room stays open."""

    async def scenario() -> None:
        rooms = await open_rooms(host_gb=0.022)
        guest = await rooms.add(gb=0.0)
        with pytest.raises(NotReady, match="short by"):
            await ask(guest, "q")
        rooms.host_shard.fail_load = "no licence."
        await rooms.add(gb=1.0)
        with pytest.raises(NotReady, match="no licence"):
            await ask(guest, "q")
        assert rooms.host.status().state == "open"
        with pytest.raises(NotReady, match="did not start"):
            await ask(rooms.host, "q")
        rooms.host_shard.fail_load = ""
        assert (await ask(guest, "q", max_tokens=3)).done.reason == "max"
        await rooms.close()

    simulate(scenario)


def test_a_model_that_does_not_fit_is_refused_with_the_gigabytes() -> None:
    """PROTOCOL section 6: refused with how many GB are short, before anything is loaded."""

    async def scenario() -> None:
        rooms = await open_rooms(workers=(0.012,), host_gb=0.022)
        with pytest.raises(ModelTooBig, match=r"short by .* GB for Toy"):
            await rooms.host.start()
        status = rooms.host.status()
        assert status.state == "open"
        assert "short by" in status.sentence
        assert rooms.shards[0].spec is None
        await rooms.add(gb=1.0)
        await rooms.host.start()
        assert rooms.host.status().state == "online"
        await rooms.close()

    simulate(scenario)


def test_a_device_that_cannot_load_is_left_out() -> None:
    """CASES: its card says why, the room deals without it."""

    async def scenario() -> None:
        rooms = await open_rooms(workers=(1.0,))
        broken = await rooms.add(shard=ToyShard(fail_load="no licence for this model."), name="basement")
        await rooms.host.start()
        status = rooms.host.status()
        assert status.state == "online"
        line = next(d for d in status.devices if d.name == "basement")
        assert line.layers is None
        assert line.out.startswith("no licence"), "its card says why"
        assert any("basement cannot hold its layers: no licence" in n for n in rooms.notices)
        assert "no licence" in broken.status().sentence
        assert (await ask(rooms.host, "q")).text == (await alone(["q"]))[0].text
        await rooms.close()

    simulate(scenario)


def test_a_worker_that_dies_while_loading_is_left_out() -> None:
    """A worker that dies while loading: one sentence, and the room deals without it."""

    async def scenario() -> None:
        rooms = await open_rooms(workers=(1.0,))
        await rooms.add(shard=ToyShard(delay=10_000.0), name="slow")
        starting = asyncio.create_task(rooms.host.start())
        await asyncio.sleep(1)
        assert rooms.host.status().state == "loading"
        rooms.net.kill(rooms.devices[1].mesh.id)
        await starting
        assert rooms.host.status().state == "online"
        assert any("slow cannot hold its layers" in n for n in rooms.notices)
        await rooms.close()

    simulate(scenario)


def test_a_stop_of_the_start_leaves_the_room_open() -> None:
    """Every wait can be interrupted: the room is as it was, and starts again."""

    async def scenario() -> None:
        rooms = await open_rooms(workers=(1.0,))
        rooms.shards[0].delay = 50.0
        starting = asyncio.create_task(rooms.host.start())
        await asyncio.sleep(1)
        second = asyncio.create_task(rooms.host.start())
        await asyncio.sleep(1)
        second.cancel()
        with pytest.raises(asyncio.CancelledError):
            await second
        assert rooms.host.status().state == "loading", "who waits for the same start does not stop it"
        third = asyncio.create_task(rooms.host.start())
        await asyncio.sleep(1)
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
        with pytest.raises(NotReady, match="start was stopped"):
            await third
        assert rooms.host.status().state == "open"
        rooms.shards[0].delay = 0.0
        await asyncio.sleep(1)
        assert rooms.devices[0].status().state == "open"
        await rooms.host.start()
        assert rooms.host.status().state == "online"
        await rooms.close()

    simulate(scenario)
