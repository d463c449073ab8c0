"""Anything, in any order, from anybody: in the end the screens show what one device would have said."""

from __future__ import annotations

import asyncio
import random

import pytest

from pooled_nb.errors import PooledError
from pooled_nb.room.core import AskOptions, Done
from pooled_nb.room.deviceroom import DeviceRoom
from pooled_nb.room.hostroom import HostRoom
from tests.room.rooms import ask, open_rooms
from tests.sim.clock import simulate

STEPS = 30


async def act(room: HostRoom | DeviceRoom, rng: random.Random, number: int) -> str:
    """One person does one thing, and leaves it again now and then; what came of it, in a word."""
    length = rng.randrange(1, 30)
    options = AskOptions(max_tokens=length)
    what = rng.choice(["ask", "ask", "continue", "continue", "regen", "stop"])
    if what == "stop":
        await room.stop()
        return what
    if what == "ask":
        events = room.ask(f"q{number}", options)
    else:
        events = room.again("continue" if what == "continue" else "regen", options)
    patience = rng.choice([1, 5, 10_000])
    try:
        async for event in events:
            patience -= 1
            if isinstance(event, Done):
                return f"{what}: {event.reason}"
            if not patience:
                break
    except PooledError:
        return f"{what}: refused"
    finally:
        await events.aclose()  # type: ignore[attr-defined]  # an async generator
    return f"{what}: left"


@pytest.mark.parametrize("seed", range(12))
def test_screens_and_model_agree_whatever_happens(seed: int) -> None:
    """PROTOCOL section 7; DESIGN section 5: screens agree, and each answer is what one device alone gives.

    However it was cut, continued or made anew.
    """

    async def scenario() -> None:
        rng = random.Random(seed)
        rooms = await open_rooms(workers=(1.0, 1.0), end_after=45, delay=0.003, ctx=4096, copies=0.8)
        await rooms.add(gb=0.0, name="mira")
        await rooms.host.start()
        everybody: list[HostRoom | DeviceRoom] = [rooms.host, *rooms.devices]
        tasks = []
        for number in range(STEPS):
            tasks.append(asyncio.create_task(act(rng.choice(everybody), rng, number)))
            await asyncio.sleep(rng.choice([0, 0, 0.01, 0.3, 2]))
            if rng.random() < 0.04:
                await rooms.host.reset()
            chain = rooms.host.answering.chain
            assert chain is not None
            if rng.random() < 0.04:
                chain.fail("made up")
            if rng.random() < 0.2:
                chain.lose("made up")
            if rng.random() < 0.1:
                rooms.host.answering.hold("made up")
                asyncio.get_running_loop().call_later(
                    rng.choice([0, 0.5, 3]), rooms.host.answering.online, chain
                )
        outcomes = await asyncio.gather(*tasks)
        await asyncio.sleep(5)
        assert sum("max" in o or "stop" in o for o in outcomes) > 3, outcomes
        kept = rooms.host.answering.conversation
        for device in rooms.devices:
            assert device.transcript.items == kept.exchanges
            assert device.status().state == "online"
            assert device.status().waiting == 0
        # The same chat on one device, each answer at one go.
        read = [
            (t.text, a.text, len(a.ids or [])) for t, a in zip(kept.turns[::2], kept.turns[1::2], strict=True)
        ]
        one = await open_rooms(end_after=45, ctx=4096, copies=0.8, speculate=False, checkpoints=0)
        await one.host.start()
        for question, reply, tokens in read:
            assert (await ask(one.host, question, max_tokens=tokens)).text == reply
        await one.close()
        await rooms.close()

    simulate(scenario)
