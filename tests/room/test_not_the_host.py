"""What only the host may say, from a device that is not the host (PROTOCOL sections 6 and 7)."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from pooled_nb.mesh.messages import Message, chat
from pooled_nb.mesh.messages import deal as wire
from tests.room.bench import load
from tests.room.rooms import alone, ask, open_rooms
from tests.sim.clock import simulate

QUESTION = "Why is the sky blue?"
MID = 1
"""Of the first answer of a room."""


def lies(liar: str, mid: int) -> list[Message]:
    """All that a host says to one device or to all."""
    own = load(9, lo=0, hi=6)
    assert own.nb is not None
    ranges = {liar: [0, 6]}
    return [
        wire.Wait(),
        wire.StartReq(model="other", boss=liar, by="liar"),
        msgspec.structs.replace(own, host=liar, nb=msgspec.structs.replace(own.nb, prev=liar, ranges=ranges)),
        wire.HostProgress(all={"liar": 50}),
        wire.LayersHeld(ranges={liar: [0, 6]}),
        wire.ReadyAll(model="other", label="Other", ctx=1),
        wire.Share(drop=True, why="Not so."),
        wire.Share(gb=0.01, why="Not so."),
        wire.Next(next=liar, relink=True),
        wire.Degraded(why="Not so."),
        wire.Redeal(by="liar", model="other"),
        wire.StartFailed(why="Not so."),
        chat.GenStart(mid=mid + 1, name="liar", text="Lies?", asker=liar),
        chat.Token(text="LIES", mid=mid),
        chat.Token(text="LIES"),
        chat.GenDone(mid=mid, reason="stop"),
        chat.Queue(n=7),
        chat.Busy(why="Not so.", code="bad"),
        chat.Visibility(mode="host"),
        chat.Style(sampling="creative", persona="", thinking="off"),
        chat.Regen(),
        chat.Reset(),
        chat.History(items=[chat.Exchange(name="liar", text="Lies?", reply="LIES", mid=1)]),
    ]


@pytest.mark.parametrize("who", ["a worker", "a guest"])
def test_a_device_that_is_not_the_host_is_not_obeyed(who: str) -> None:
    """PROTOCOL section 6: ``ai-load`` "counts from creator and ``boss`` alone" (in our rooms the creator is
    both); ``ai-share``, ``ai-next`` and ``ai-degraded`` are the host's, too, and section 7's answers.
    """

    async def scenario() -> None:
        rooms = await open_rooms(workers=(1.0, 1.0), delay=0.05)
        guest = await rooms.add(gb=0.0, name="guest")
        await rooms.host.start()
        liar = rooms.devices[1] if who == "a worker" else guest
        deceived = [device for device in rooms.devices if device is not liar]
        for device in deceived:
            await liar.mesh.connect(device.mesh.id)
        loads = [shard.loads for shard in rooms.shards]
        task = asyncio.create_task(ask(guest, QUESTION))
        await asyncio.sleep(1)
        assert rooms.host.status().state == "answering"
        before = [(d.status().state, d.status().label, d.status().settings, d.role) for d in deceived]
        held = [(d.name, d.layers) for d in rooms.host.status().devices]
        for lie in lies(liar.mesh.id, MID):
            for to in (*[device.mesh.id for device in deceived], rooms.host.mesh.id):
                assert liar.mesh.send(to, lie)
            await asyncio.sleep(0.02)
        assert not task.done()
        after = [(d.status().state, d.status().label, d.status().settings, d.role) for d in deceived]
        assert after == before
        assert rooms.host.status().state == "answering"
        heard = await task
        assert heard.done.reason == "stop"
        assert heard.text == (await alone([QUESTION]))[0].text
        await asyncio.sleep(5)
        assert [shard.loads for shard in rooms.shards] == loads, "nobody loaded what it was told to"
        assert [(d.name, d.layers) for d in rooms.host.status().devices] == held
        for device in rooms.devices:
            assert device.status().state == "online"
            assert [(i.mid, i.text, i.reply) for i in device.transcript.items] == [
                (MID, QUESTION, heard.text)
            ]
        assert (await ask(rooms.host, "And?")).done.reason == "stop"
        await rooms.close()

    simulate(scenario)
