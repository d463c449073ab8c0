"""A device that is to hold less, or nothing (PROTOCOL section 6, ``ai-share``)."""

from __future__ import annotations

import asyncio

import pytest

from pooled_nb.mesh.messages import Message
from pooled_nb.mesh.messages import deal as wire
from pooled_nb.room.deviceroom import DeviceRoom
from tests.room.rooms import Rooms, ask, open_rooms
from tests.sim.clock import simulate

WHY = "its memory ran out twice while it loaded."


def told(rooms: Rooms, device: DeviceRoom, message: Message) -> None:
    """What the host says."""
    assert rooms.host.mesh.send(device.mesh.id, message)


def lends(rooms: Rooms, device: DeviceRoom) -> float:
    """GB that it lends, as the host's roster says."""
    return next(m.meta.contrib_gb or 0.0 for m in rooms.host.mesh.roster if m.id == device.mesh.id)


def test_it_lends_less_from_now_on_and_says_why() -> None:
    """PROTOCOL section 6, ``ai-share {gb, why}``: the roster follows, and so does the next deal."""

    async def scenario() -> None:
        rooms = await open_rooms(workers=(1.0,))
        (device,) = rooms.devices
        told(rooms, device, wire.Share(gb=0.25, why=WHY))
        await asyncio.sleep(1)
        assert lends(rooms, device) == 0.25
        assert rooms.heard["worker"][-1] == f"This device lends 250 MB from now on: {WHY}"
        await rooms.host.start()
        await asyncio.sleep(1)
        assert rooms.shards[0].spec is not None
        assert rooms.shards[0].spec.max_gb == 0.25
        assert f"lends less than it offered: {WHY}" in device.status().sentence
        assert device.role == "worker"
        await rooms.close()

    simulate(scenario)


@pytest.mark.parametrize("held", [False, True])
@pytest.mark.parametrize("message", [wire.Share(drop=True, why=WHY), wire.Share(gb=0.0, why=WHY)])
def test_it_lends_nothing_any_more_and_stays_as_a_guest(held: bool, message: wire.Share) -> None:
    """PROTOCOL section 6, ``ai-share {drop}``: what it holds is given back; it asks like any guest."""

    async def scenario() -> None:
        rooms = await open_rooms(workers=(1.0, 1.0))
        device = rooms.devices[0]
        if held:
            await rooms.host.start()
        told(rooms, device, message)
        await asyncio.sleep(1)
        assert lends(rooms, device) == 0.0
        assert rooms.shards[0].spec is None
        assert device.role == "guest"
        assert device.status().sentence == f"This device holds no layers: {WHY}"
        await rooms.host.start()
        assert rooms.shards[0].spec is None
        assert (await ask(device, "q", max_tokens=3)).done.reason == "max"
        await rooms.close()

    simulate(scenario)


@pytest.mark.parametrize("message", [wire.Share(gb=0.5), wire.Share(drop=True), wire.Share(why="so")])
def test_who_lends_nothing_has_nothing_to_share(message: wire.Share) -> None:
    """PROTOCOL section 6: a guest hears nothing of it, whatever a host says."""

    async def scenario() -> None:
        rooms = await open_rooms(workers=(1.0,))
        guest = await rooms.add(gb=0.0, name="guest")
        before = guest.status()
        told(rooms, guest, message)
        await asyncio.sleep(1)
        assert guest.status().sentence == before.sentence
        assert lends(rooms, guest) == 0.0
        assert len(rooms.heard["guest"]) == 1, "how it trusts its host, and no more"
        await rooms.close()

    simulate(scenario)


def test_a_host_cannot_take_more_than_was_offered() -> None:
    """PROTOCOL section 3: ``pledge`` is the device's word: no message of a host raises it."""

    async def scenario() -> None:
        rooms = await open_rooms(workers=(1.0,))
        (device,) = rooms.devices
        for message in (wire.Share(gb=64.0, why=WHY), wire.Share(why=WHY)):
            told(rooms, device, message)
        await asyncio.sleep(1)
        assert lends(rooms, device) == 1.0
        assert WHY not in " ".join(rooms.heard["worker"])
        await rooms.close()

    simulate(scenario)


def test_a_next_for_who_holds_nothing_is_answered() -> None:
    """PROTOCOL section 6, ``ai-next`` / ``ai-linked``: a host that mixes devices up waits for nobody."""

    async def scenario() -> None:
        rooms = await open_rooms(workers=(1.0,))
        guest = await rooms.add(gb=0.0, name="guest")
        heard: list[Message] = []
        take = rooms.host.on_message

        def on_message(sender: str, message: Message) -> None:
            heard.append(message)
            take(sender, message)

        rooms.host.on_message = on_message  # type: ignore[method-assign]  # a wire tap
        for device in (guest, rooms.devices[0]):
            told(rooms, device, wire.Next(next="host"))
        await asyncio.sleep(1)
        assert [m for m in heard if isinstance(m, wire.Linked)] == [wire.Linked(next="host")] * 2
        await rooms.close()

    simulate(scenario)
