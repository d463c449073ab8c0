"""A device whose host is started again while it asks (PROTOCOL section 8, host resume)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from pooled_nb.errors import RoomClosed
from pooled_nb.mesh.clock import LoopClock
from pooled_nb.mesh.gatekeeper import Gatekeeper, GateSettings
from pooled_nb.room.asked import OTHERWISE
from pooled_nb.room.core import ChatSettings, Done
from pooled_nb.room.hostroom import HostRoom
from tests.room.rooms import Rooms, ask, meta_of, open_rooms
from tests.room.test_away import Reading, until_back
from tests.room.toy import MODEL, ToyShard
from tests.sim.clock import simulate

END = 60
DELAY = 0.05


async def room_of(**options: Any) -> Rooms:
    """A room whose gate outlives its host, with a worker and a guest."""
    keeper = Gatekeeper(GateSettings(ask=False))
    rooms = await open_rooms(workers=(1.0,), delay=DELAY, end_after=END, keeper=keeper, **options)
    await rooms.add(gb=0.0, name="guest")
    await rooms.host.start()
    return rooms


async def restart(rooms: Rooms, *, after: float, remembers: bool = True, end_after: int = END) -> None:
    """The host's process ends without a word, and another one takes the room back."""
    before, token = rooms.host, rooms.host.mesh.token
    secrets = before._gate.keeper.secrets
    memory = before.memory()
    await before.abandon()
    await asyncio.sleep(after)

    def new_shard() -> ToyShard:
        return ToyShard(delay=DELAY, end_after=end_after)

    rooms.host_shard = new_shard()
    rooms.host = HostRoom(
        settings=before._settings,
        model=MODEL,
        shard=rooms.host_shard,
        new_shard=new_shard,
        network=rooms.net,
        clock=LoopClock(),
        name="host",
        meta=meta_of(1.0),
        keeper=Gatekeeper(GateSettings(ask=False), saved=secrets),
    )
    if remembers and memory is not None:
        rooms.host.recall(memory)
    await rooms.host.open(["sim"], token)
    await rooms.host.resume()


async def undisturbed(texts: list[str], **options: Any) -> list[str]:
    """The same conversation on one device that nothing happens to."""
    rooms = await open_rooms(end_after=END)
    await rooms.host.start()
    said = [(await ask(rooms.host, text, **options)).text for text in texts]
    await rooms.close()
    return said


@pytest.mark.parametrize("after", [0.5, 8.0, 100.0])
def test_an_answer_is_made_again_and_read_on(after: float) -> None:
    """PROTOCOL section 8: asked again under its ``rid``; nothing shown changes, and what comes is the text of
    one device. Its host may be gone for longer than a minute.
    """

    async def scenario() -> None:
        rooms = await room_of()
        worker, guest = rooms.devices
        first = await ask(guest, "Hello")
        reader = Reading(guest, "Why?")
        await reader.until(12)
        shown = reader.text
        await restart(rooms, after=after)
        assert reader.text.startswith(shown)
        assert (await reader.done()).reason == "stop"
        third = await ask(guest, "And?")
        assert [first.text, reader.text, third.text] == await undisturbed(["Hello", "Why?", "And?"])
        assert [i.text for i in guest.transcript.items] == ["Hello", "Why?", "And?"]
        assert [(i.text, i.reply) for i in worker.transcript.items] == [
            (i.text, i.reply) for i in guest.transcript.items
        ]
        assert guest.status().answering == ""
        await rooms.close()

    simulate(scenario)


def test_a_drawn_answer_is_drawn_alike() -> None:
    """PROTOCOL section 8, and DESIGN section 5 (seeded text is the same bit for bit): nobody gave a seed."""

    async def scenario() -> None:
        rooms = await room_of()
        await rooms.host.configure(ChatSettings(style="creative"))
        await asyncio.sleep(0.1)
        guest = rooms.devices[1]
        reader = Reading(guest, "Why?")
        await reader.until(12)
        shown = reader.text
        await restart(rooms, after=2.0)
        assert (await reader.done()).reason == "stop", reader.events[-1]
        assert reader.text.startswith(shown)
        assert len(reader.text) > len(shown)
        await rooms.close()

    simulate(scenario)


def test_a_host_that_forgot_and_answers_otherwise_is_found_out() -> None:
    """PROTOCOL section 8: "Nothing shown changes": what its reader has is never followed by another text."""

    async def scenario() -> None:
        rooms = await room_of()
        guest = rooms.devices[1]
        await ask(guest, "Hello")
        reader = Reading(guest, "Why?")
        await reader.until(12)
        shown = reader.text
        # Without what was said before, the same question has another answer.
        await restart(rooms, after=2.0, remembers=False)
        await until_back(guest)
        done = await reader.done()
        assert (done.reason, done.why) == ("error", OTHERWISE)
        assert reader.text == shown
        await asyncio.sleep(2)
        assert rooms.host.status().answering == "", "nobody reads that one: it is stopped"
        assert (await ask(guest, "More")).done.reason == "stop"
        await rooms.close()

    simulate(scenario)


def test_a_host_that_stays_away_is_given_up() -> None:
    """PROTOCOL section 8: 15 min; then the room is over for this device, and its reader hears it."""

    async def scenario() -> None:
        rooms = await room_of()
        worker, guest = rooms.devices
        reader = Reading(guest, "Why?")
        await reader.until(3)
        await rooms.host.abandon()
        await asyncio.sleep(600)
        assert guest.status().state == worker.status().state == "away"
        assert "(10 of 15 min)" in guest.status().sentence
        assert "keeps its layers" in worker.status().sentence
        assert rooms.shards[0].spec is not None
        await asyncio.sleep(400)
        assert guest.status().state == worker.status().state == "closed"
        with pytest.raises(RoomClosed):
            await reader.task
        assert not [e for e in reader.events if isinstance(e, Done)]
        await asyncio.sleep(5)
        assert rooms.shards[0].closed, "its memory is given back"
        await rooms.close()

    simulate(scenario)
