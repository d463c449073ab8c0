"""Links to the host that break at any time, at any device: every answer is that of one device, and once."""

from __future__ import annotations

import asyncio
import random

import pytest

from pooled_nb.errors import NotReady
from pooled_nb.room.core import Done
from pooled_nb.room.deviceroom import DeviceRoom
from tests.room.rooms import Rooms, ask, open_rooms
from tests.room.test_away import Reading, break_link, until
from tests.sim.clock import simulate

QUESTIONS = 3


async def breaks(rooms: Rooms, rng: random.Random, seconds: float) -> int:
    """Break links for so long; some come back at once, some after a while. How many were broken."""
    loop = asyncio.get_running_loop()
    end, broken = loop.time() + seconds, 0
    while loop.time() < end:
        await asyncio.sleep(rng.uniform(0.1, 4))
        device = rng.choice(rooms.devices)
        if device.status().state == "away":
            continue
        ends = device.mesh.id, rooms.host.mesh.id
        if rng.random() < 0.5:
            rooms.net.partition(*ends)
            loop.call_later(rng.uniform(0.2, 12), rooms.net.heal, *ends)
        break_link(rooms, device)
        broken += 1
    return broken


async def asks(
    guest: DeviceRoom, rng: random.Random, lengths: dict[str, int], readers: dict[str, Reading]
) -> None:
    """Ask one question after the other; what is refused since the host is away is asked again."""
    for number in range(QUESTIONS):
        text, length = f"{guest.mesh.name} asks {number}", rng.choice([10, 40])
        while text not in readers:
            await until(lambda: guest.status().state != "away")
            reader = Reading(guest, text, max_tokens=length)
            try:
                await asyncio.wait_for(reader.task, 600)
            except NotReady:
                await asyncio.sleep(0.5)
            else:
                lengths[text], readers[text] = length, reader
        await asyncio.sleep(rng.uniform(0, 2))


@pytest.mark.parametrize("seed", range(10))
def test_whatever_breaks_each_question_has_its_one_answer(seed: int) -> None:
    """PROTOCOL sections 3, 7 and 8: places, layers and questions outlive a link; one chat everywhere."""

    async def scenario() -> None:
        rng = random.Random(seed)
        rooms = await open_rooms(workers=(1.0,) * (seed % 3), delay=0.03, copies=0.4 * (seed % 2))
        guests = [await rooms.add(gb=0.0, name=name) for name in ("mira", "noor")]
        await rooms.host.start()
        lengths: dict[str, int] = {}
        readers: dict[str, Reading] = {}
        broken, *_ = await asyncio.gather(
            breaks(rooms, rng, rng.choice([8.0, 20.0, 40.0])),
            *(asks(guest, rng, lengths, readers) for guest in guests),
        )
        assert broken
        await asyncio.sleep(30)
        chat = [(e.text, e.reply) for e in rooms.host.answering.conversation.exchanges]
        assert sorted(text for text, _ in chat) == sorted(readers)
        for text, reply in chat:
            reader = readers[text]
            assert reader.text == reply
            done = reader.events[-1]
            assert isinstance(done, Done)
            assert done.reason in ("stop", "max"), done.why
        for device in rooms.devices:
            assert [(i.text, i.reply) for i in device.transcript.items] == chat
            status = device.status()
            assert (status.answering, status.state) == ("", "online")
        await rooms.close()
        one = await open_rooms(copies=0.4 * (seed % 2))
        await one.host.start()
        assert [(await ask(one.host, text, max_tokens=lengths[text])).text for text, _ in chat] == [
            reply for _, reply in chat
        ]
        await one.close()

    simulate(scenario)
