"""What cannot be, through the whole room: the answer fails with a name and a sentence; the next one works."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Literal

import msgspec
import pytest

from pooled_nb.errors import FrameRefused, ModelTooBig, NotReady, PooledError, ShardDied, WrongNumbers
from pooled_nb.mesh.messages import deal as wire
from tests.room.rooms import Rooms, alone, ask, open_rooms
from tests.room.toy import ToyShard
from tests.sim.clock import simulate

ERRORS: dict[str, tuple[Callable[[], Exception], str, str]] = {
    "NaN made here": (
        lambda: WrongNumbers("NaN or infinity was produced here, in layer 4.", "Start in another dtype."),
        "NaN or infinity was produced here, in layer 4.",
        "Start in another dtype.",
    ),
    "NaN that arrived": (
        lambda: WrongNumbers("NaN or infinity arrived here, before layer 4.", "Look at the device before."),
        "NaN or infinity arrived here, before layer 4.",
        "Look at the device before.",
    ),
    "memory": (
        lambda: ModelTooBig("This device ran out of memory: 2.00 GB more were needed.", "Lend less."),
        "This device ran out of memory: 2.00 GB more were needed.",
        "Lend less.",
    ),
    "another position": (
        lambda: FrameRefused("The frame starts at position 9, and the caches hold 4 columns.", "Reset."),
        "The frame starts at position 9, and the caches hold 4 columns.",
        "Ask again.",
    ),
    "a rollback too far": (
        lambda: FrameRefused("The frame rolls back to column 9, and the last draft kept 4.", "Reset."),
        "The frame rolls back to column 9, and the last draft kept 4.",
        "Ask again.",
    ),
    "a slot that is not there": (
        lambda: FrameRefused("The frame loads slot 5, which this device does not hold.", "Reset."),
        "The frame loads slot 5, which this device does not hold.",
        "Ask again.",
    ),
    "what nobody foresaw": (lambda: RuntimeError("index out of range"), "index out of range", "Ask again."),
}
Where = Literal["host", "first", "last"]


def break_once(shard: ToyShard, job: str, error: Exception, *, after: int = 0) -> None:
    """The shard's method fails once, at its call number ``after``."""
    plain, calls = getattr(shard, job), 0

    async def once(*args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == after + 1:
            raise error
        return await plain(*args, **kwargs)

    setattr(shard, job, once)


def shard_of(rooms: Rooms, where: Where) -> tuple[ToyShard, str]:
    """A device's shard, and its name."""
    if where == "host":
        return rooms.host_shard, "host"
    held = [(s, d.mesh.name) for d, s in zip(rooms.devices, rooms.shards, strict=False) if s.spec]
    held.sort(key=lambda pair: pair[0].spec.lo if pair[0].spec else 0)
    return held[0 if where == "first" else -1]


@pytest.mark.parametrize("where", ["host", "first", "last"])
@pytest.mark.parametrize("kind", ERRORS)
@pytest.mark.parametrize("after", [0, 3], ids=["prompt", "answer"])
def test_a_frame_that_fails_is_named_and_the_next_question_is_answered(
    kind: str, where: Where, after: int
) -> None:
    """PROTOCOL sections 5 and 6: ``ai-error``: the laps fail with the device's name, the caches are reset.

    CASES, Devices: any device's failure ends one answer with its name.
    """
    make, what, step = ERRORS[kind]

    async def scenario() -> None:
        rooms = await open_rooms(workers=(1.0, 1.0))
        guest = await rooms.add(gb=0, name="guest")
        await rooms.host.start()
        before = await ask(guest, "first")
        shard, name = shard_of(rooms, where)
        break_once(shard, "forward", make(), after=after)
        asked = await ask(guest, "q")
        assert asked.done.reason == "error"
        assert asked.done.why == (f"The answer stopped: {name} says: {what.rstrip('.')}. {step}")
        assert rooms.notices[-1] == asked.done.why, "the host's person sees why, too"
        assert rooms.host.status().state == guest.status().state == "online"
        wanted = await alone(["first", "q"])
        assert before.text == wanted[0].text
        again = await ask(guest, "q")
        # What failed is a part of the conversation, with the text that it had.
        assert again.done.reason != "error"
        await rooms.host.reset()
        assert [(await ask(guest, q)).text for q in ("first", "q")] == [h.text for h in wanted]
        await rooms.close()

    simulate(scenario)


@pytest.mark.parametrize("kind", ["NaN that arrived", "memory", "what nobody foresaw"])
@pytest.mark.parametrize("after", [0, 3])
def test_a_token_that_cannot_be_drawn_ends_its_answer(kind: str, after: int) -> None:
    """PROTOCOL section 7: what fails on the host alone fails one answer, and everybody hears why."""
    make, what, step = ERRORS[kind]

    async def scenario() -> None:
        rooms = await open_rooms(workers=(1.0,))
        guest = await rooms.add(gb=0, name="guest")
        await rooms.host.start()
        break_once(rooms.host_shard, "sample", make(), after=after)
        asked = await ask(guest, "q")
        assert asked.done.why == f"The answer stopped: host says: {what.rstrip('.')}. {step}"
        assert rooms.host.status().state == "online"
        await rooms.host.reset()
        assert (await ask(guest, "q")).text == (await alone(["q"]))[0].text
        await rooms.close()

    simulate(scenario)


@pytest.mark.parametrize("job", ["forward", "sample", "render"])
def test_the_hosts_process_that_dies_is_named_and_another_one_goes_on(job: str) -> None:
    """DESIGN section 3: the child takes an out-of-memory along, not the room, nor the answer."""

    async def scenario() -> None:
        rooms = await open_rooms(workers=(1.0,))
        guest = await rooms.add(gb=0, name="guest")
        await rooms.host.start()
        shard = rooms.host_shard
        why = "The shard's process was killed, most likely because memory ran out."

        async def dead(*_: Any, **__: Any) -> Any:
            assert shard.on_died
            shard.on_died(why)
            raise ShardDied(why, "Lend less memory, then start again.")

        setattr(shard, job, dead)
        asked = asyncio.create_task(ask(guest, "q"))
        await asyncio.sleep(1)
        for room in (rooms.host, guest):
            status = room.status()
            assert status.state == "degraded"
            assert f"host says: {why.rstrip('.')}." in status.sentence
        assert "redeal" in rooms.host.status().can
        assert (await asked).text == (await alone(["q"]))[0].text
        assert rooms.host.status().state == "online"
        await rooms.close()

    simulate(scenario)


MISSING = "The weight model.layers.3.mlp.up_proj.weight is missing: no file in tiny holds it."


def test_files_that_miss_a_tensor_cost_the_worker_its_seat() -> None:
    """CASES, Devices: a device that cannot load its range: its card says why, the room deals without it."""

    async def scenario() -> None:
        rooms = await open_rooms(workers=(1.0,))
        broken = await rooms.add(shard=ToyShard(fail_load=MISSING), name="mira")
        guest = await rooms.add(gb=0, name="guest")
        await rooms.host.start()
        assert any(f"mira cannot hold its layers: {MISSING}" in notice for notice in rooms.notices)
        assert next(d for d in rooms.host.status().devices if d.name == "mira").out.startswith(MISSING)
        assert MISSING in broken.status().sentence
        assert (await ask(guest, "q")).text == (await alone(["q"]))[0].text
        await rooms.close()

    simulate(scenario)


@pytest.mark.parametrize("why", [MISSING, "This device ran out of memory while loading layers 1 to 3."])
def test_a_host_that_cannot_load_says_so_to_everybody(why: str) -> None:
    """PROTOCOL section 6 (``ai-start-failed``): in words; the room stays open, and starts once it can."""

    async def scenario() -> None:
        rooms = await open_rooms(workers=(1.0,))
        guest = await rooms.add(gb=0, name="guest")
        rooms.host_shard.fail_load = why
        with pytest.raises(PooledError, match=why.split(":")[0].rstrip(".")):
            await rooms.host.start()
        await asyncio.sleep(1)
        for room in (rooms.host, guest):
            assert f"The room did not start: {why}" in room.status().sentence
        with pytest.raises(NotReady, match="did not start"):
            await ask(guest, "q")
        rooms.host_shard.fail_load = ""
        await rooms.host.start()
        assert (await ask(guest, "q")).text == (await alone(["q"]))[0].text
        await rooms.close()

    simulate(scenario)


LOADS: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "another way to keep caches": ({"kv": "q4"}, {}, "'q4'"),
    "another layout of int8": ({"kv": "q8"}, {"kvq": "int8-block"}, "'int8-block'"),
    "int8 that is not named": ({"kv": "q8"}, {}, "'q8'"),
    "a name without int8": ({}, {"kvq": "int8-row"}, "'int8-row'"),
    "weights in another form": ({}, {"quant": "q4_0"}, "'q4_0'"),
}


@pytest.mark.parametrize("case", LOADS)
def test_a_deal_in_a_form_unknown_here_is_refused_in_words(case: str) -> None:
    """PROTOCOL section 6 (``kv``, ``kvq``, ``quant``): what decides bits is understood, or refused."""
    change, more, words = LOADS[case]

    async def scenario() -> None:
        rooms = await open_rooms(workers=(1.0,))
        await rooms.host.start()
        device, shard = rooms.devices[0], rooms.shards[0]
        held = shard.spec
        deal = rooms.host._dealer.deal
        assert deal
        start = rooms.host._dealer
        message = wire.Load(
            v=4,
            model="toy/model",
            range=[3, 6],
            ctx=1024,
            next="host",
            host=rooms.host.mesh.id,
            nb=wire.NbLoad(
                repo="toy/model",
                revision="1",
                config="0" * 64,
                dtype="float32",
                enc="f32",
                prev=rooms.host.mesh.id,
                deal=start.number,
                **more,
            ),
        )
        device.on_message(rooms.host.mesh.id, msgspec.structs.replace(message, **change))
        await asyncio.sleep(1)
        assert words in device.status().sentence
        assert "Update the older device" in device.status().sentence
        assert rooms.host.status().state == "degraded"
        assert shard.spec == held, "nothing was loaded"
        await rooms.host.start()
        assert (await ask(device, "q")).text == (await alone(["q"]))[0].text
        await rooms.close()

    simulate(scenario)


def test_a_room_of_int8_caches_says_so_everywhere() -> None:
    """PROTOCOL section 6: ``kv`` and ``kvq`` in each ``ai-load``; the promise shown names its class."""

    async def scenario() -> None:
        rooms = await open_rooms(workers=(1.0,), kv="q8")
        guest = await rooms.add(gb=0, name="guest")
        await rooms.host.start()
        await asyncio.sleep(1)
        assert [s.spec.kv for s in (rooms.host_shard, *rooms.shards) if s.spec] == ["q8", "q8"]
        assert rooms.host.status().kv == guest.status().kv == "q8"
        assert rooms.host.status().exact
        assert guest.status().exact
        assert rooms.host.status().sentence == (
            "Online over host and worker. The text is the same as one device alone would give with caches in "
            "int8."
        )
        await rooms.close()

    simulate(scenario)
