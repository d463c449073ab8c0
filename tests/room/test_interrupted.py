"""Rooms that are stopped, reset or that fail at any moment: the host knows what each device holds."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from pooled_nb.errors import BadQuestion
from pooled_nb.room.core import ChatSettings
from pooled_nb.shard import Prompt
from tests.room.rooms import Rooms, again, ask, open_rooms
from tests.room.test_bad_input import break_once
from tests.room.test_keeping import SYSTEM, room
from tests.room.toy import LAYERS
from tests.room.toylane import ToyLane
from tests.sim.clock import simulate
from tests.sim.network import SimNetwork


def render_slowly(rooms: Rooms, which: int = 1) -> None:
    """The prompt of this number takes a second to be made."""
    render, left = rooms.host_shard.render, which

    async def slowly(*args: Any, **more: Any) -> Prompt:
        nonlocal left
        left -= 1
        await asyncio.sleep(0 if left else 1)
        return await render(*args, **more)

    rooms.host_shard.render = slowly  # type: ignore[method-assign]  # watched, and passed on


def test_a_question_that_was_stopped_at_once_costs_no_state() -> None:
    """PROTOCOL section 7: what waits to be saved is the answer before it, also where it is made anew."""

    async def scenario() -> None:
        rooms = await room()
        one = await ask(rooms.host, "one")
        render_slowly(rooms)
        task = asyncio.create_task(ask(rooms.host, "two"))
        await asyncio.sleep(0.5)
        await rooms.host.stop()
        assert ((await task).done.reason, (await task).done.tokens) == ("abort", [])
        for _ in range(2):
            anew = await again(rooms.host, "regen")
            assert anew.done.stats.reused == one.done.stats.prompt + one.done.stats.tokens
        await rooms.close()

    simulate(scenario)


@pytest.mark.parametrize("renders", [1, 2], ids=["the prompt", "its system text"])
def test_a_new_chat_that_comes_while_a_prompt_is_made(renders: int) -> None:
    """PROTOCOL section 7, `ai-reset`: nothing of the old chat is made anew, and no device keeps a state."""

    async def scenario() -> None:
        rooms = await room()
        await rooms.host.configure(ChatSettings(system=SYSTEM))
        await ask(rooms.host, "one")
        await ask(rooms.host, "two")
        chain = rooms.host.answering.chain
        assert chain
        if renders == 2:
            chain.fail("made up")  # else the system text is kept already
        render_slowly(rooms, renders)
        task = asyncio.create_task(again(rooms.host, "regen"))
        await asyncio.sleep(0.5)
        await rooms.host.reset()
        with pytest.raises(BadQuestion, match="A new chat began"):
            await task
        assert rooms.host.status().used == 0
        assert not rooms.host.answering.conversation.items
        assert len(chain.kept.kept) == (renders == 1), "the system text alone"
        await rooms.close()

    simulate(scenario)


@pytest.mark.parametrize("error", [BadQuestion("The template refuses.", "Ask."), RuntimeError("no reason")])
def test_a_system_text_that_cannot_be_kept_costs_no_answer(error: Exception) -> None:
    """PROTOCOL section 7, "a pinned system prompt": without it nothing is kept."""

    async def scenario() -> None:
        rooms = await room()
        await rooms.host.configure(ChatSettings(system=SYSTEM))
        break_once(rooms.host_shard, "render", error, after=1)
        assert (await ask(rooms.host, "one")).done.reason == "stop"
        assert rooms.host.answering.chain
        assert rooms.host.answering.chain.kept._pinned is None
        await rooms.host.reset()
        assert (await ask(rooms.host, "two")).done.reason == "stop"
        assert rooms.host.answering.chain.kept._pinned, "the next chat asks again"
        await rooms.close()

    simulate(scenario)


def agree(rooms: Rooms) -> None:
    """Every device holds what `fed` says, once what waits has ridden on a frame; and no slot too many."""
    chain = rooms.host.answering.chain
    assert chain
    rb = chain._riding._rb
    whole = ToyLane.over(0, LAYERS)
    for pos, (token, generated) in enumerate(zip(chain.fed.ids, chain.fed.generated, strict=True)):
        h = token
        for layer, cache in enumerate(whole.layers):
            h = cache.step(h, layer, pos, not generated)
    lanes = [shard.lane for shard in (rooms.host_shard, *rooms.shards)]
    for lane in lanes if len(chain.fed) else ():
        for i, cache in enumerate(lane.layers):
            numbers, state = cache.numbers, cache.state
            if rb is not None:
                numbers, state = numbers[: lane.base + rb + 1], lane.snapshots[rb][i]
            assert (numbers, state) == (whole.layers[lane.lo + i].numbers, whole.layers[lane.lo + i].state)
    promised = {k.slot for k in chain.kept.kept} - {chain._riding.save}
    assert all(promised <= set(lane.slots) for lane in lanes)
    assert all(len(lane.slots) <= chain.kept._most + 2 for lane in lanes)


@pytest.mark.parametrize("seed", range(8))
def test_what_the_host_counts_on_is_what_devices_hold(seed: int) -> None:
    """PROTOCOL section 7: `fed` is "the exact tokens every device's caches hold", whatever came between."""

    async def scenario() -> None:
        rng = random.Random(seed)
        rooms = await open_rooms(
            workers=(1.0,) * (seed % 3),
            net=SimNetwork(latency=rng.choice([0.0, 0.02])),
            copies=rng.choice([0.0, 0.8, 0.95]),
            drafter=rng.choice([None, 0.7]),
            end_after=rng.choice([8, 60]),
            checkpoints=seed % 4,
            ctx=4096,
            delay=0.003,
        )
        await rooms.host.start()
        host = rooms.host
        ends = set()
        for i in range(16):
            last = host.answering.conversation.last
            what = rng.choice(["ask", "ask", "regen", "continue", "reset", "system"])
            length = rng.choice([1, 2, 9, 40, 100])
            if what == "reset":
                await host.reset()
            elif what == "system":
                await host.configure(ChatSettings(system=rng.choice(["", SYSTEM, "Else."])))
            if what == "regen" and last:
                asked = again(host, "regen", max_tokens=length)
            elif what == "continue" and last and last.ids and last.reason in ("max", "abort"):
                asked = again(host, "continue", max_tokens=length)
            else:
                stop = [rng.choice(["a", "#", "&'"])] if rng.random() < 0.3 else None
                asked = ask(host, f"question {i} " * rng.choice([1, 9, 20]), max_tokens=length, stop=stop)
            task = asyncio.create_task(asked)
            for _ in range(rng.choice([0, 1, 2])):
                await asyncio.sleep(rng.choice([0.0, 0.003, 0.01, 0.05, 0.1, 0.3]))
                if task.done() or not host.answering.queue.running:
                    break
                chain = host.answering.chain
                assert chain
                how = rng.choice(["stop", "stop", "reset", "fail", "lose", "lose", "hold", "hold", "cancel"])
                if how == "fail":
                    chain.fail("made up")
                elif how == "lose":
                    chain.lose("made up")
                elif how == "hold":
                    host.answering.hold("made up")
                    asyncio.get_running_loop().call_later(
                        rng.choice([0, 0.1, 5]), host.answering.online, chain
                    )
                elif how == "cancel":
                    task.cancel()
                else:
                    await (host.stop() if how == "stop" else host.reset())
            (heard,) = await asyncio.gather(task, return_exceptions=True)
            await asyncio.sleep(6)
            assert not host.answering.queue.running
            ends.add(type(heard) if isinstance(heard, BaseException) else heard.done.reason)
            agree(rooms)
        assert len(ends) > 1
        await rooms.close()

    simulate(scenario)
