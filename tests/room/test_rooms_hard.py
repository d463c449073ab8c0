"""Rooms in which things happen at the wrong moment, in virtual time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from pooled_nb.errors import NotReady, ShardDied
from pooled_nb.mesh.frame import Encoding, Frame, Kind
from pooled_nb.mesh.messages import deal as wire
from pooled_nb.room.core import AskOptions, ChatSettings, Notice
from pooled_nb.room.deviceroom import DeviceRoom
from tests.room.rooms import Rooms, alone, ask, open_rooms
from tests.room.toy import ToyShard
from tests.sim.clock import simulate


class SlowSample(ToyShard):
    """Most of a lap is spent in the sampler, where no frame is in flight."""

    async def sample(self, *args: Any, **kwargs: Any) -> Any:
        await asyncio.sleep(0.02)
        return await super().sample(*args, **kwargs)


async def slow_sampling(workers: tuple[float, ...]) -> Rooms:
    rooms = await open_rooms(workers=workers)
    slow = SlowSample(end_after=200)
    rooms.host._dealer.shard = rooms.host_shard = slow
    await rooms.host.start()
    return rooms


@pytest.mark.parametrize("workers", [(), (1.0,)])
def test_a_start_during_an_answer_never_shows_other_text(workers: tuple[float, ...]) -> None:
    """PROTOCOL section 8: what is shown is the one-device text; the answer goes on over the new deal."""

    async def scenario() -> None:
        rooms = await slow_sampling(workers)
        whole = await ask(rooms.host, "hello", max_tokens=40)
        await rooms.host.reset()
        task = asyncio.create_task(ask(rooms.host, "hello", max_tokens=40))
        await asyncio.sleep(0.3)
        await rooms.host.start()
        heard = await task
        assert heard.text == whole.text
        assert any(isinstance(e, Notice) and "deals again" in e.text for e in heard.events)
        await rooms.host.reset()
        again = await ask(rooms.host, "hello", max_tokens=40)
        assert again.text == whole.text
        await rooms.close()

    simulate(scenario)


def test_a_worker_that_leaves_while_the_host_samples_is_named() -> None:
    """PROTOCOL section 6, ``ai-degraded``: the reason reaches the person, not its consequence."""

    async def scenario() -> None:
        rooms = await slow_sampling((1.0,))
        task = asyncio.create_task(ask(rooms.host, "hello", max_tokens=40))
        await asyncio.sleep(0.3)
        await rooms.devices[0].leave()
        heard = await task
        assert any(isinstance(e, Notice) and e.text.startswith("worker left; layers") for e in heard.events)
        assert heard.done.stats.tokens == 40
        await rooms.close()

    simulate(scenario)


def test_the_hosts_own_question_ends_with_the_room() -> None:
    """The door's promise: the last event is always `Done`."""

    async def scenario() -> None:
        rooms = await open_rooms(end_after=10_000, delay=0.01)
        await rooms.host.start()
        task = asyncio.create_task(ask(rooms.host, "q", max_tokens=900))
        await asyncio.sleep(0.2)
        await rooms.host.leave()
        assert (await task).done.reason == "error"

    simulate(scenario)


BAD = {
    "two columns in a single frame": Frame(Kind.HIDDEN, 0, 2, bytes(32), Encoding.F32, reset=True),
    "slots nobody may drop": Frame(Kind.HIDDEN_B, 0, 1, bytes(16), Encoding.F32, reset=True, dp=(5, 0xFFFF)),
    "another encoding": Frame(Kind.HIDDEN_B, 0, 1, bytes(8), Encoding.BF16, reset=True),
    "a payload of another model": Frame(Kind.HIDDEN_B, 0, 1, bytes(12), Encoding.F32, reset=True),
    "too many columns": Frame(Kind.HIDDEN_B, 0, 400, bytes(6400), Encoding.F32, reset=True),
}


@pytest.mark.parametrize("frame", BAD.values(), ids=BAD)
def test_a_bad_frame_does_not_end_the_worker(frame: Frame) -> None:
    """PROTOCOL section 5: ``ai-error``, and the next frame with ``reset`` runs as if nothing had been."""

    async def scenario() -> None:
        rooms = await open_rooms(workers=(1.0, 1.0))
        await rooms.host.start()
        rooms.devices[0].on_frame(rooms.host.mesh.id, frame)
        await asyncio.sleep(1)
        assert (await ask(rooms.host, "q")).text == (await alone(["q"]))[0].text
        await rooms.close()

    simulate(scenario)


def test_frames_count_only_from_the_device_before() -> None:
    """PROTOCOL section 5: *(nb)* ``prev`` in ``ai-load``."""

    async def scenario() -> None:
        rooms = await open_rooms(workers=(1.0, 1.0))
        await rooms.host.start()
        before = rooms.shards[1].columns_run
        rooms.devices[1].on_frame(
            rooms.host.mesh.id, Frame(Kind.HIDDEN_B, 0, 1, bytes(16), Encoding.F32, reset=True)
        )
        await asyncio.sleep(1)
        assert rooms.shards[1].columns_run == before
        await rooms.close()

    simulate(scenario)


@pytest.mark.parametrize("busy", [False, True])
def test_a_workers_shard_that_dies_degrades_the_room(busy: bool) -> None:
    """PROTOCOL section 6: the host hears of it, running or idle, and deals again; the answer goes on."""

    async def scenario() -> None:
        rooms = await open_rooms(workers=(1.0,), delay=0.02)
        await rooms.host.start()
        device, shard = rooms.devices[0], rooms.shards[0]
        task = asyncio.create_task(ask(rooms.host, "q", max_tokens=40)) if busy else None
        await asyncio.sleep(0.5)

        async def dead(*_: Any, **__: Any) -> Any:
            raise ShardDied("The shard died.", "Start again.")

        shard.forward = dead  # type: ignore[method-assign]  # a dead process answers so
        assert shard.on_died
        shard.on_died("The process that computes was killed.")
        await asyncio.sleep(1)
        status = rooms.host.status()
        assert status.state == "degraded"
        assert "was killed" in status.sentence
        assert device.role == "guest"
        await asyncio.sleep(5)
        assert device.role == "worker"
        want = (await alone(["q"]))[0].text
        if task:
            assert (await task).text == want
            await rooms.host.reset()
        assert (await ask(rooms.host, "q")).text == want
        await rooms.close()

    simulate(scenario)


@pytest.mark.parametrize("who", ["host", "guest"])
def test_closing_one_question_leaves_the_others(who: str) -> None:
    """PROTOCOL section 7, ``ai-stop {rid}``: exactly that question is taken back."""

    async def scenario() -> None:
        rooms = await open_rooms(end_after=10_000, delay=0.01)
        guest = await rooms.add(gb=0.0)
        await rooms.host.start()
        room = rooms.host if who == "host" else guest
        first = asyncio.create_task(ask(room, "first", max_tokens=60))
        await asyncio.sleep(0.1)
        second = room.ask("second", AskOptions(max_tokens=3))
        await anext(second)
        third = asyncio.create_task(ask(room, "third", max_tokens=3))
        await asyncio.sleep(0.05)
        await second.aclose()  # type: ignore[attr-defined]  # an async generator
        assert (await first).done.stats.tokens == 60
        assert (await third).done.stats.tokens == 3
        assert [e.text for e in rooms.host.answering.conversation.exchanges] == ["first", "third"]
        await rooms.close()

    simulate(scenario)


def test_an_error_of_an_earlier_lap_ends_no_answer() -> None:
    """PROTOCOL section 5: *(nb)* what belongs to another epoch, or another deal, is dropped."""

    async def scenario() -> None:
        rooms = await open_rooms(workers=(1.0,), delay=0.01)
        await rooms.host.start()
        task = asyncio.create_task(ask(rooms.host, "q"))
        await asyncio.sleep(0.2)
        worker = rooms.devices[0].mesh.id
        rooms.host.on_message(worker, wire.Error(message="old", pos=9, epoch=200, deal=1))
        rooms.host.on_message(worker, wire.Error(message="older", pos=9, deal=77))
        rooms.host.on_message("a stranger", wire.Error(message="not of the chain", pos=9))
        assert (await task).done.reason == "stop"
        await rooms.close()

    simulate(scenario)


def test_an_unforeseen_error_while_rendering_refuses_that_question() -> None:
    """PROTOCOL section 7: one answer fails with its words; the room, and the next question, live."""

    async def scenario() -> None:
        rooms = await open_rooms()
        guest = await rooms.add(gb=0.0)
        await rooms.host.start()
        render = rooms.host_shard.render

        async def boom(*_: Any, **__: Any) -> Any:
            raise RuntimeError("boom")

        rooms.host_shard.render = boom  # type: ignore[method-assign]  # an error no door promises
        with pytest.raises(NotReady, match="boom"):
            await ask(guest, "q")
        rooms.host_shard.render = render  # type: ignore[method-assign]  # whole again
        assert (await ask(guest, "q")).done.reason == "stop"
        await rooms.close()

    simulate(scenario)


def test_everyone_knows_how_many_wait() -> None:
    """PROTOCOL section 7, ``ai-queue {n}``: to all, after every change, also when one begins."""

    async def scenario() -> None:
        rooms = await open_rooms(delay=0.01)
        guest = await rooms.add(gb=0.0)
        await rooms.host.start()
        task = asyncio.create_task(ask(rooms.host, "q"))
        await asyncio.sleep(0.2)
        assert guest.status().answering == "host"
        assert guest.status().waiting == rooms.host.status().waiting == 0
        await task
        await rooms.close()

    simulate(scenario)


def test_a_new_chat_during_an_answer_clears_every_screen() -> None:
    """PROTOCOL section 7, ``ai-reset``: the answer under way belongs to the old chat."""

    async def scenario() -> None:
        rooms = await open_rooms(end_after=10_000, delay=0.01)
        guest: DeviceRoom = await rooms.add(gb=0.0)
        await rooms.host.start()
        task = asyncio.create_task(ask(rooms.host, "q", max_tokens=100))
        await asyncio.sleep(0.2)
        await rooms.host.reset()
        assert (await task).done.reason == "abort"
        await asyncio.sleep(0.5)
        assert not rooms.host.answering.conversation.exchanges
        assert not guest.transcript.items
        assert guest.status().state == "online"
        fresh = await ask(guest, "q", max_tokens=5)
        assert fresh.done.stats.reused == 0
        await rooms.close()

    simulate(scenario)


@pytest.mark.parametrize("auto", [True, False])
def test_a_drop_has_one_reason_and_one_next_step_for_each(auto: bool) -> None:
    """Words: what is so, then what happens next; only the host can start a room again."""

    async def scenario() -> None:
        rooms = await open_rooms(workers=(1.0, 1.0), delay=0.02)
        guest = await rooms.add(gb=0.0, name="guest")
        await rooms.host.start()
        await rooms.host.configure(ChatSettings(redeal=auto))
        task = asyncio.create_task(ask(rooms.host, "q"))
        await asyncio.sleep(0.5)
        await rooms.devices[1].leave()
        await asyncio.sleep(0.5)
        here, there = rooms.host.status().sentence, guest.status().sentence
        what = "worker 2 left; layers 5–6 are missing."
        next_here = "The room deals again by itself over the devices here, or now: %pooled redeal."
        if not auto:
            next_here = "Start the room again to deal over the devices here: %pooled redeal."
        next_there = "The room deals again by itself." if auto else "The host can start the room again."
        assert (here, there) == (f"{what} {next_here}", f"{what} {next_there}")
        if not auto:
            await rooms.host.start()
        assert (await task).text == (await alone(["q"]))[0].text
        await rooms.close()

    simulate(scenario)
