"""Rooms that deal again: by themselves, by a person, without success, and while an answer waits for it."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from pooled_nb.errors import ModelNotFound, ModelTooBig, NotReady, ShardDied
from pooled_nb.room.core import ChatSettings
from tests.room.rooms import Rooms, alone, ask, open_rooms
from tests.room.test_comes_back import QUESTION, begun, cut, mend, same_text, snap, told
from tests.sim.clock import simulate


def holders(rooms: Rooms) -> list[str]:
    return [d.name for d in rooms.host.status().devices if d.layers and not d.gone]


async def no_redeal(rooms: Rooms) -> None:
    settings = rooms.host.answering.settings
    await rooms.host.configure(msgspec.structs.replace(settings, redeal=False))


def test_who_leaves_is_dealt_without_at_once() -> None:
    """PROTOCOL section 3, ``leaving``: the answer fails over; nobody is waited for."""

    async def scenario() -> None:
        rooms = await open_rooms(workers=(1.0, 1.0), delay=0.05)
        await rooms.host.start()
        task = await begun(rooms)
        await rooms.devices[1].leave()
        await asyncio.sleep(0.5)
        assert rooms.host.status().state == "degraded"
        assert rooms.host.status().redeal_in in (1, 2)
        await asyncio.sleep(3)
        assert rooms.host.status().state == "answering"
        assert holders(rooms) == ["host", "worker"]
        await same_text(task)
        await rooms.close()

    simulate(scenario)


def test_a_person_deals_again_while_the_answer_waits() -> None:
    """PROTOCOL section 8: the answer goes on with prompt + tokens already shown, over the new deal."""

    async def scenario() -> None:
        rooms = await open_rooms(workers=(1.0, 1.0), delay=0.05)
        guest = await rooms.add(gb=0.0, name="guest")
        await rooms.host.start()
        await no_redeal(rooms)
        task = await begun(rooms)
        rooms.net.kill(rooms.devices[1].mesh.id)
        await asyncio.sleep(120)
        status = rooms.host.status()
        assert (status.state, status.redeal_in) == ("degraded", None)
        assert "Start the room again" in status.sentence
        assert "The host can start the room again." in guest.status().sentence
        queued = asyncio.create_task(ask(guest, "and then?", max_tokens=3))
        await asyncio.sleep(1)
        assert rooms.host.status().waiting == 1, "no question starts a degraded room"
        await rooms.host.start()
        await same_text(task)
        assert (await queued).done.stats.tokens == 3
        await rooms.close()

    simulate(scenario)


def test_a_person_deals_again_in_the_middle_of_an_answer() -> None:
    """PROTOCOL section 6, ``ai-redeal``: a late joiner is brought in by one; the text stays as it is."""

    async def scenario() -> None:
        rooms = await open_rooms(workers=(1.0,), delay=0.05)
        await rooms.host.start()
        task = await begun(rooms)
        await rooms.add(gb=1.0, name="late")
        await rooms.host.start()
        assert holders(rooms) == ["host", "worker", "late"]
        await same_text(task)
        await rooms.close()

    simulate(scenario)


def test_the_setting_off_and_on_again_while_degraded() -> None:
    """PROTOCOL section 8, auto re-deal (setting, on): it counts from when it was switched on."""

    async def scenario() -> None:
        rooms = await open_rooms(workers=(1.0,))
        await rooms.host.start()
        await no_redeal(rooms)
        rooms.net.kill(rooms.devices[0].mesh.id)
        await asyncio.sleep(200)
        assert rooms.host.status().state == "degraded"
        await rooms.host.configure(ChatSettings())
        assert rooms.host.status().redeal_in == 60
        await asyncio.sleep(59)
        assert rooms.host.status().state == "degraded"
        await asyncio.sleep(2)
        assert rooms.host.status().state == "online"
        await rooms.close()

    simulate(scenario)


def test_a_stop_while_degraded_ends_the_answer_and_nothing_else() -> None:
    """PROTOCOL section 8, Stop gives up: the room stays degraded, and the countdown goes on."""

    async def scenario() -> None:
        rooms = await open_rooms(workers=(1.0,), delay=0.05)
        await rooms.host.start()
        task = await begun(rooms)
        rooms.net.kill(rooms.devices[0].mesh.id)
        await asyncio.sleep(30)
        before = rooms.host.status().redeal_in
        await rooms.host.stop()
        heard = await task
        assert heard.done.reason == "abort"
        assert heard.text
        status = rooms.host.status()
        assert status.state == "degraded"
        assert before is not None
        assert status.redeal_in in (before, before - 1)
        await asyncio.sleep(60)
        assert rooms.host.status().state == "online"
        await rooms.close()

    simulate(scenario)


def test_a_room_that_is_closed_while_an_answer_waits() -> None:
    """Every wait ends: the last event is `Done`, and nothing is left."""

    async def scenario() -> None:
        rooms = await open_rooms(workers=(1.0,), delay=0.05)
        await rooms.host.start()
        task = await begun(rooms)
        rooms.net.kill(rooms.devices[0].mesh.id)
        await asyncio.sleep(30)
        await rooms.close()
        assert (await task).done.reason == "error"
        assert rooms.host.status().state == "closed"

    simulate(scenario)


def test_the_host_alone_computes_on_after_its_process_died() -> None:
    """DESIGN section 3: the child takes an out-of-memory along, not the room, nor the answer."""

    async def scenario() -> None:
        rooms = await open_rooms(delay=0.02)
        await rooms.host.start()
        task = await begun(rooms, 0.3)
        shard = rooms.host_shard

        async def dead(*_: Any, **__: Any) -> Any:
            raise ShardDied("The shard died.", "Start again.")

        shard.forward = shard.sample = dead  # type: ignore[method-assign]  # a dead process answers so
        assert shard.on_died
        shard.on_died("The process that computes was killed.")
        assert rooms.host.status().sentence.startswith("host says: The process that computes was killed.")
        await same_text(task)
        await rooms.close()

    simulate(scenario)


def test_what_does_not_fit_any_more_says_who_could_give_how_much() -> None:
    """PROTOCOL section 6: short by how many GB; who asks is told at once; it deals once somebody came."""

    async def scenario() -> None:
        rooms = await open_rooms(workers=(0.06,), host_gb=0.06, delay=0.02)
        guest = await rooms.add(gb=0.0)
        await rooms.host.start()
        task = await begun(rooms, 0.3)
        await rooms.devices[0].leave()
        await asyncio.sleep(5)
        status = rooms.host.status()
        assert status.state == "degraded"
        assert "short by" in status.sentence
        assert status.redeal_in is not None
        assert "short by" in guest.status().sentence
        for room in (guest, rooms.host):
            with pytest.raises(NotReady, match="short by"):
                await ask(room, "and now?")
        heard = told(rooms)
        await asyncio.sleep(200)
        assert heard == [], "nobody is told the same each minute"
        with pytest.raises(ModelTooBig, match="short by"):
            await rooms.host.start()
        assert rooms.host.status().state == "degraded"
        await rooms.add(gb=1.0, name="helper")
        await asyncio.sleep(5)
        assert holders(rooms) == ["host", "helper"]
        await same_text(task)
        await rooms.close()

    simulate(scenario)


def test_a_new_deal_that_fails_is_tried_again() -> None:
    """Nobody holds anything then; the answer waits on, everybody hears what is so and what comes."""

    async def scenario() -> None:
        rooms = await open_rooms(workers=(1.0,), delay=0.02)
        guest = await rooms.add(gb=0.0, name="guest")
        await rooms.host.start()
        task = await begun(rooms, 0.3)
        rooms.host_shard.fail_load = "no space left."
        with pytest.raises(ModelNotFound):
            await rooms.host.start()
        await asyncio.sleep(1)
        status = rooms.host.status()
        assert status.state == "degraded"
        assert status.sentence.startswith("The new deal did not work: no space left.")
        assert guest.status().state == "degraded"
        assert rooms.shards[0].spec is None, "what was told to load has let go of it"
        rooms.host_shard.fail_load = ""
        await asyncio.sleep(62)
        assert rooms.host.status().state in ("online", "answering")
        await same_text(task)
        await rooms.close()

    simulate(scenario)


def test_a_new_deal_that_a_person_stops_in_a_room_at_rest_leaves_it_open() -> None:
    """Nothing is loaded any more, and nothing waits: the first question starts it again."""

    async def scenario() -> None:
        rooms = await open_rooms(workers=(1.0,))
        guest = await rooms.add(gb=0.0)
        await rooms.host.start()
        rooms.shards[0].delay = 50.0
        await rooms.add(gb=1.0)
        starting = asyncio.create_task(rooms.host.start())
        await asyncio.sleep(1)
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
        status = rooms.host.status()
        assert (status.state, status.sentence) == ("open", "The new deal did not work: the host stopped it.")
        rooms.shards[0].delay = 0.0
        await asyncio.sleep(1)
        assert (await ask(guest, "q")).text == (await alone(["q"]))[0].text
        await rooms.close()

    simulate(scenario)


def test_signaling_that_is_down_does_not_hinder_a_new_deal() -> None:
    """PROTOCOL section 2: the room goes on; section 6: where two have no link, one of them is left out."""

    async def scenario() -> None:
        rooms = await open_rooms(workers=(1.0, 1.0, 1.0), delay=0.05)
        await rooms.host.start()
        task = await begun(rooms)
        rooms.net.signaling(False)
        await rooms.devices[1].leave()
        await asyncio.sleep(30)
        assert rooms.host.status().state in ("answering", "online")
        assert len(holders(rooms)) == 2, "the first and the third worker have no link, and find none"
        await same_text(task)
        await rooms.close()

    simulate(scenario)


def test_a_device_that_comes_back_during_a_new_deal_is_a_guest_of_it() -> None:
    """PROTOCOL section 3: who joins while the room loads waits; the next deal brings it in."""

    async def scenario() -> None:
        rooms = await open_rooms(workers=(1.0, 1.0), delay=0.05)
        await rooms.host.start()
        task = await begun(rooms)
        worker, other = rooms.devices[1], rooms.devices[0]
        ids = [rooms.host.mesh.id, other.mesh.id]
        cut(rooms, worker.mesh.id, ids)
        await asyncio.sleep(20)
        rooms.shards[0].delay = 5.0
        starting = asyncio.create_task(rooms.host.start())
        await asyncio.sleep(0.5)
        mend(rooms, worker.mesh.id, ids)
        await starting
        rooms.shards[0].delay = 0.05
        await same_text(task)
        await asyncio.sleep(20)
        assert holders(rooms) == ["host", "worker"]
        assert "redeal" in rooms.host.status().can
        await rooms.host.start()
        assert holders(rooms) == ["host", "worker", "worker 2"]
        assert (await ask(rooms.host, QUESTION, max_tokens=5)).done.stats.tokens == 5
        await rooms.close()

    simulate(scenario)


def test_a_link_that_breaks_while_it_loads_is_waited_for() -> None:
    """PROTOCOL section 8: not dropped while it loads; it comes back under its id, and the load goes on."""

    async def scenario() -> None:
        rooms = await open_rooms(workers=(1.0,))
        rooms.shards[0].delay = 8.0
        starting = asyncio.create_task(rooms.host.start())
        await asyncio.sleep(1)
        snap(rooms, rooms.host.mesh.id, rooms.devices[0].mesh.id)
        await starting
        assert holders(rooms) == ["host", "worker"]
        assert rooms.shards[0].loads == 1
        await rooms.close()

    simulate(scenario)


def test_a_device_lets_go_politely_between_two_answers() -> None:
    """PROTOCOL section 3, ``pledge``: it lends nothing any more, and the room deals without it."""

    async def scenario() -> None:
        rooms = await open_rooms(workers=(1.0, 1.0), delay=0.05)
        guest = await rooms.add(gb=0.0)
        await rooms.host.start()
        task = await begun(rooms)
        queued = asyncio.create_task(ask(guest, "next", max_tokens=3))
        heard = told(rooms)
        leaver = rooms.devices[1]
        mine = next(m for m in leaver.mesh.roster if m.id == leaver.mesh.id)
        leaver.mesh.set_meta(msgspec.structs.replace(mine.meta, contrib_gb=0.0))
        await asyncio.sleep(1)
        assert holders(rooms) == ["host", "worker", "worker 2"], "not in the middle of an answer"
        first = await same_text(task)
        assert not any(type(e).__name__ == "Notice" for e in first.events)
        assert (await queued).done.stats.tokens == 3
        assert holders(rooms) == ["host", "worker"]
        assert rooms.shards[1].spec is None
        assert not any("dropped" in text for _, text in heard)
        await rooms.close()

    simulate(scenario)


def test_a_device_that_the_room_cannot_do_without_is_named_once() -> None:
    """PROTOCOL section 6: how many GB would be short; the room stays as it is."""

    async def scenario() -> None:
        rooms = await open_rooms(workers=(0.06,), host_gb=0.06)
        await rooms.host.start()
        heard = told(rooms)
        leaver = rooms.devices[0]
        mine = next(m for m in leaver.mesh.roster if m.id == leaver.mesh.id)
        leaver.mesh.set_meta(msgspec.structs.replace(mine.meta, contrib_gb=0.0))
        await asyncio.sleep(10)
        assert [text.startswith("worker cannot be let go: ") for _, text in heard] == [True]
        assert (await ask(rooms.host, QUESTION)).text == (await alone([QUESTION]))[0].text
        await rooms.close()

    simulate(scenario)


def test_a_question_to_a_degraded_room_waits() -> None:
    """PROTOCOL section 6: by question no deal is made; by itself one is."""

    async def scenario() -> None:
        rooms = await open_rooms(workers=(1.0,))
        guest = await rooms.add(gb=0.0)
        await rooms.host.start()
        rooms.net.kill(rooms.devices[0].mesh.id)
        await asyncio.sleep(30)
        task = asyncio.create_task(ask(guest, QUESTION))
        await asyncio.sleep(5)
        assert rooms.host.status().state == "degraded"
        assert rooms.host.status().waiting == 1
        heard = await task
        assert heard.text == (await alone([QUESTION]))[0].text
        with pytest.raises(NotReady):
            await guest.start()
        await rooms.close()

    simulate(scenario)
