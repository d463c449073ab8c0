"""What a device that joined says of itself while its room recovers (PROTOCOL sections 3 and 6)."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from pooled_nb.mesh.messages import chat
from pooled_nb.mesh.messages import deal as wire
from pooled_nb.room import away
from pooled_nb.room.core import ChatSettings
from tests.room.rooms import open_rooms
from tests.room.test_away import break_link, until, until_back
from tests.sim.clock import simulate


@pytest.mark.parametrize(
    ("knocking", "layers", "asked", "words"),
    [
        (None, False, False, "this device knocks. "),
        ((0.4, 60.0), False, False, "this device knocks (1 of 60 s). "),
        ((12.9, 60.0), True, False, "(12 of 60 s) and keeps its layers. "),
        ((61.0, 900.0), False, True, "(1 of 15 min) and keeps your question. "),
        ((905.0, 900.0), True, True, "(15 of 15 min) and keeps its layers and your question. "),
    ],
)
def test_how_long_it_has_knocked_and_what_it_keeps(
    knocking: tuple[float, float] | None, layers: bool, asked: bool, words: str
) -> None:
    """PROTOCOL sections 3 and 8: 60 s, then the 15 min in which a host may take its room back."""
    said = away.sentence(knocking, layers=layers, asked=asked)
    assert words in said
    assert said.startswith("The host does not answer; ")
    assert said.endswith("It goes on by itself when the host is back; %pooled leave gives up.")


def test_a_host_that_knows_no_pass_any_more_decides_anew() -> None:
    """PROTOCOL section 4: whoever proves nothing waits for a person, also who was here before."""

    async def scenario() -> None:
        rooms = await open_rooms(ask=False)
        guest = await rooms.add(gb=0.0, name="guest")
        token = rooms.host.mesh.token
        await rooms.host.abandon()
        other = await open_rooms(net=rooms.net, ask=True, token=token)
        await until(lambda: bool(other.host.status().lobby))
        await asyncio.sleep(1)
        status = guest.status()
        (line,) = other.host.status().lobby
        assert status.state == "away"
        assert status.sentence.startswith("The host is back and decides anew whether this device comes in.")
        assert line.digits
        assert line.digits in status.sentence
        await guest.leave()
        await other.close()
        await rooms.close()

    simulate(scenario)


def test_layers_that_no_link_leads_to_are_said_as_such() -> None:
    """PROTOCOL section 6, ``ai-linked {ok}``: it holds what it held, and is no part of the chain."""

    async def scenario() -> None:
        rooms = await open_rooms(workers=(1.0,))
        await rooms.host.start()
        await asyncio.sleep(1)
        (device,) = rooms.devices
        held = device.status().sentence
        assert held.startswith("Online. This device holds layers 4–6. ")
        device.on_message(rooms.host.mesh.id, wire.Next(next="nobody"))
        await asyncio.sleep(14)
        assert device.status().sentence == (
            "This device holds layers 4–6. There is no link to the next device."
        )
        assert device.role == "worker"
        device.on_message(rooms.host.mesh.id, wire.Next(next="host"))
        await asyncio.sleep(1)
        assert device.status().sentence == held
        await rooms.close()

    simulate(scenario)


def test_a_device_under_another_id_keeps_what_it_held_under_the_one_before() -> None:
    """PROTOCOL section 3: an ``ai-layers`` that still says its old id does not take its layers away."""

    async def scenario() -> None:
        rooms = await open_rooms(workers=(1.0,))
        await rooms.host.start()
        await asyncio.sleep(1)
        (device,) = rooms.devices
        host, held = rooms.host.mesh.id, rooms.host._dealer.deal
        assert held is not None
        device._ids.appendleft("the id before")
        message = wire.LayersHeld(ranges={host: [0, 3], "the id before": [3, 6]})
        device.on_message(host, message)
        await asyncio.sleep(1)
        assert rooms.shards[0].spec is not None
        device.on_message(host, msgspec.structs.replace(message, ranges={host: [0, 6]}))
        await asyncio.sleep(1)
        assert rooms.shards[0].spec is None
        await rooms.close()

    simulate(scenario)


def test_what_changed_while_it_was_away_is_known_when_it_is_back() -> None:
    """PROTOCOL section 3, order after admission: what is not said is the default again."""

    async def scenario() -> None:
        rooms = await open_rooms(workers=(1.0,))
        guest = await rooms.add(gb=0.0, name="guest")
        await rooms.host.configure(ChatSettings(visibility="asker", style="creative"))
        await asyncio.sleep(1)
        assert guest.status().settings.style == "creative"
        rooms.net.partition(guest.mesh.id, rooms.host.mesh.id)
        break_link(rooms, guest)
        await until(lambda: guest.status().state == "away")
        await rooms.host.configure(ChatSettings())
        guest.on_message(rooms.host.mesh.id, chat.Queue(n=3))
        rooms.net.heal(guest.mesh.id, rooms.host.mesh.id)
        await until_back(guest)
        status = guest.status()
        assert (status.settings, status.waiting, status.state) == (ChatSettings(), 0, "open")
        await rooms.close()

    simulate(scenario)


def test_a_device_that_comes_while_the_room_loads_sees_that_it_does() -> None:
    """PROTOCOL section 6, ``ai-hostprog``: who joins while the room loads waits, and is told what for."""

    async def scenario() -> None:
        rooms = await open_rooms(workers=(1.0,), delay=5.0)
        starting = asyncio.create_task(rooms.host.start())
        await asyncio.sleep(1)
        late = await rooms.add(gb=0.0, name="late")
        await asyncio.sleep(1)
        assert late.status().state == "loading"
        await starting
        await asyncio.sleep(1)
        assert late.status().state == "online"
        await rooms.close()

    simulate(scenario)
