"""What everybody hears of a room that lost something: what is so now, and what comes, at every turn."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec
import pytest

from pooled_nb.errors import ModelNotFound
from pooled_nb.mesh.newcomer import Newcomer
from pooled_nb.room import sentences
from pooled_nb.room.recovery import MAX_FAILED, REDEAL_S
from pooled_nb.shard import Loaded, LoadSpec
from tests.room.rooms import Rooms, open_rooms
from tests.room.test_comes_back import begun, cut, same_text, snap, told
from tests.room.toy import ToyShard
from tests.sim.clock import simulate

BY_ITSELF = "The room deals again by itself."
BY_HOST = "The host can start the room again."


class SlowDisk(ToyShard):
    """Says twice how far it is. ``pause``: seconds before each."""

    def __init__(self, pause: float = 5.0) -> None:
        super().__init__()
        self.pause = pause

    async def load(self, spec: LoadSpec, progress: Callable[[int, str], None] | None = None) -> Loaded:
        for pct in (30, 60):
            await asyncio.sleep(self.pause)
            if progress:
                progress(pct, "reading")
        return await super().load(spec)


async def redeal(rooms: Rooms, on: bool) -> None:
    await rooms.host.configure(msgspec.structs.replace(rooms.host.answering.settings, redeal=on))
    await asyncio.sleep(1)


def test_a_deal_that_fails_twice_in_the_same_words_leaves_nobody_loading() -> None:
    """PROTOCOL section 6, ``ai-degraded``: after each ``ai-start-failed`` it waits, and says so."""

    async def scenario() -> None:
        rooms = await open_rooms(workers=(1.0,), delay=0.02)
        guest = await rooms.add(gb=0.0, name="guest")
        await rooms.host.start()
        task = await begun(rooms, 0.3)
        heard = told(rooms)
        rooms.host_shard.fail_load = "no space left."
        with pytest.raises(ModelNotFound):
            await rooms.host.start()
        for failed in range(1, MAX_FAILED + 1):
            await asyncio.sleep(1)
            last = failed == MAX_FAILED
            status = rooms.host.status()
            assert (status.state, guest.status().state) == ("degraded", "degraded")
            assert "redeal" in status.can
            assert (status.redeal_in is None) == last
            assert guest.status().sentence.endswith(BY_HOST if last else BY_ITSELF)
            assert ("by itself" in status.sentence) != last
            assert not task.done(), "the answer waits for the next deal"
            if not last:
                await asyncio.sleep(REDEAL_S)
        assert sum("did not work" in text for _, text in heard) == MAX_FAILED
        await asyncio.sleep(2 * REDEAL_S)
        rooms.host_shard.fail_load = ""
        await rooms.host.start()
        await same_text(task)
        await rooms.close()

    simulate(scenario)


def test_the_setting_that_changes_is_told_to_who_waits() -> None:
    """PROTOCOL section 8, auto re-deal (setting, on): others hear whether they wait for the host's person."""

    async def scenario() -> None:
        rooms = await open_rooms(workers=(1.0,))
        guest = await rooms.add(gb=0.0, name="guest")
        await rooms.host.start()
        rooms.net.kill(rooms.devices[0].mesh.id)
        await asyncio.sleep(20)
        assert guest.status().sentence.endswith(BY_ITSELF)
        await redeal(rooms, on=False)
        assert guest.status().sentence.endswith(BY_HOST)
        late = await rooms.add(gb=0.0, name="late")
        await asyncio.sleep(1)
        assert late.status().sentence.endswith(BY_HOST)
        await redeal(rooms, on=True)
        for room in (guest, late):
            assert (room.status().state, room.status().sentence[-len(BY_ITSELF) :]) == ("degraded", BY_ITSELF)
        await rooms.close()

    simulate(scenario)


def test_at_every_moment_the_sentence_is_of_the_state() -> None:
    """PROTOCOL section 8, auto re-deal: nobody reads "start the room" while it deals by itself."""

    async def scenario() -> None:
        rooms = await open_rooms(workers=(1.0,))
        await rooms.host.start()
        seen: list[tuple[str, str]] = []

        def look() -> None:
            status = rooms.host.status()
            seen.append((status.state, status.sentence))

        rooms.host.on_change = look
        rooms.net.kill(rooms.devices[0].mesh.id)
        await asyncio.sleep(2 * REDEAL_S)
        assert rooms.host.status().state == "online"
        degraded = list(dict.fromkeys(text for state, text in seen if state == "degraded"))
        assert len(degraded) == 2
        assert degraded[0].startswith("worker dropped; ")
        assert degraded[1] == sentences.DEALS
        await rooms.close()

    simulate(scenario)


def test_who_loads_again_is_seen_by_everybody() -> None:
    """PROTOCOL section 6, ``ai-hostprog``: a degraded room shows how far the device is that came back."""

    async def scenario() -> None:
        rooms = await open_rooms(workers=(1.0, 1.0))
        guest = await rooms.add(gb=0.0, name="guest")
        await rooms.host.start()
        worker = rooms.devices[0]
        credentials = worker._admission.newcomer.credentials
        rooms.net.kill(worker.mesh.id)
        await asyncio.sleep(40)
        assert guest.status().state == "degraded"
        await rooms.add(name=worker.mesh.name, newcomer=Newcomer(credentials), shard=SlowDisk())
        await asyncio.sleep(6)
        for room in (rooms.host, guest):
            lines = {d.name: d.progress for d in room.status().devices if not d.gone}
            assert {name: pct for name, pct in lines.items() if pct is not None} == {"worker": 30}
            assert room.status().state == "degraded"
        await asyncio.sleep(10)
        for room in (rooms.host, guest):
            assert room.status().state == "online"
            assert {d.progress for d in room.status().devices} == {None}
        await rooms.close()

    simulate(scenario)


def test_who_loads_again_owes_nobody_a_word() -> None:
    """PROTOCOL section 8: never while it loads; a quiet device that loads has not stopped responding."""

    async def scenario() -> None:
        rooms = await open_rooms(workers=(1.0, 1.0), delay=0.05)
        await rooms.host.start()
        task = await begun(rooms)
        worker = rooms.devices[1]
        credentials = worker._admission.newcomer.credentials
        heard = told(rooms)
        rooms.net.kill(worker.mesh.id)
        back = await rooms.add(name=worker.mesh.name, newcomer=Newcomer(credentials), shard=SlowDisk())
        await asyncio.sleep(1)
        assert rooms.host.status().state == "waiting"
        rooms.net.partition(rooms.host.mesh.id, back.mesh.id)
        await asyncio.sleep(4.8)
        assert (rooms.host.mesh.silence(back.mesh.id) or 0.0) > 4.0, "it is quiet enough to be named"
        rooms.net.heal(rooms.host.mesh.id, back.mesh.id)
        await same_text(task)
        assert not [text for _, text in heard if "stopped responding" in text]
        await rooms.close()

    simulate(scenario)


def test_who_loads_again_is_not_dropped_for_its_silence() -> None:
    """PROTOCOL section 8: dropped after 15 s, never while it loads; it was told its layers a second time."""

    async def scenario() -> None:
        rooms = await open_rooms(workers=(1.0, 1.0), delay=0.05)
        await rooms.host.start()
        task = await begun(rooms)
        worker = rooms.devices[1]
        credentials = worker._admission.newcomer.credentials
        rooms.net.kill(worker.mesh.id)
        shard = SlowDisk(15.0)
        back = await rooms.add(name=worker.mesh.name, newcomer=Newcomer(credentials), shard=shard)
        await asyncio.sleep(1)
        rooms.net.partition(rooms.host.mesh.id, back.mesh.id)
        await asyncio.sleep(20)
        assert rooms.host.status().state == "waiting"
        rooms.net.heal(rooms.host.mesh.id, back.mesh.id)
        await same_text(task)
        assert (shard.loads, back.role) == (1, "worker")
        await rooms.close()

    simulate(scenario)


def test_a_link_between_workers_that_does_not_come_back_costs_15_s() -> None:
    """PROTOCOL section 6, ``ai-next`` (15 s at most), and section 8 (dealt anew 60 s later)."""

    async def scenario() -> None:
        rooms = await open_rooms(workers=(1.0, 1.0), delay=0.05)
        await rooms.host.start()
        task = await begun(rooms)
        a, b = (device.mesh.id for device in rooms.devices)
        cut(rooms, a, [b])
        snap(rooms, a, b)
        await asyncio.sleep(14)
        status = rooms.host.status()
        assert (status.state, status.waits_for) == ("waiting", ["worker", "worker 2"])
        await asyncio.sleep(2)
        status = rooms.host.status()
        assert status.state == "degraded"
        assert status.sentence.startswith("The link between worker and worker 2 is gone. ")
        assert status.redeal_in in (58, 59, 60)
        await asyncio.sleep(57)
        assert rooms.host.status().state == "degraded"
        await same_text(task)
        assert len([d for d in rooms.host.status().devices if d.layers]) == 2, "one of the two is left out"
        await rooms.close()

    simulate(scenario)


def test_one_layer_is_no_plural() -> None:
    """Layers count from 1, for people."""
    assert sentences.layers_of(3, 4) == "layer 4"
    assert sentences.layers_of(3, 6) == "layers 4–6"
