"""Devices that want their memory back while the room is busy otherwise (PROTOCOL section 3, ``pledge``)."""

from __future__ import annotations

import asyncio

import msgspec

from pooled_nb.room.deviceroom import DeviceRoom
from tests.room.rooms import Rooms, ask, open_rooms
from tests.room.test_comes_back import QUESTION, snap, told
from tests.sim.clock import simulate


def lends(room: DeviceRoom, gb: float) -> None:
    mine = next(m for m in room.mesh.roster if m.id == room.mesh.id)
    room.mesh.set_meta(msgspec.structs.replace(mine.meta, contrib_gb=gb))


def holders(rooms: Rooms) -> list[str]:
    return [d.name for d in rooms.host.status().devices if d.layers and not d.gone]


def test_a_wish_of_the_time_in_which_the_room_loads_is_kept() -> None:
    """PROTOCOL section 3, ``pledge``: a device never holds more than it lends, whenever it said so."""

    async def scenario() -> None:
        rooms = await open_rooms(workers=(1.0, 1.0))
        rooms.shards[0].delay = 6.0
        starting = asyncio.create_task(rooms.host.start())
        await asyncio.sleep(2)
        lends(rooms.devices[1], 0.0)
        await starting
        assert holders(rooms) == ["host", "worker", "worker 2"], "it was dealt before"
        rooms.shards[0].delay = 0.0
        await asyncio.sleep(3)
        assert holders(rooms) == ["host", "worker"]
        assert (await ask(rooms.host, QUESTION)).done.reason == "stop"
        await rooms.close()

    simulate(scenario)


def test_a_wish_of_the_time_in_which_the_room_is_degraded_is_kept() -> None:
    """PROTOCOL section 3, ``pledge``: the room gets whole without a new deal, and then lets it go."""

    async def scenario() -> None:
        rooms = await open_rooms(workers=(1.0, 1.0))
        await rooms.host.start()
        host, other, leaver = rooms.host.mesh.id, rooms.devices[0], rooms.devices[1]
        rooms.net.partition(host, other.mesh.id)
        snap(rooms, host, other.mesh.id)
        await asyncio.sleep(30)
        assert rooms.host.status().state == "degraded"
        lends(leaver, 0.0)
        await asyncio.sleep(5)
        assert "worker 2" in holders(rooms), "the deal that comes anyway counts what is lent then"
        rooms.net.heal(host, other.mesh.id)
        await asyncio.sleep(15)
        assert holders(rooms) == ["host", "worker"]
        assert rooms.host.status().state == "online"
        await rooms.close()

    simulate(scenario)


def test_what_cannot_be_granted_is_said_once() -> None:
    """PROTOCOL section 6, how many GB would be short: not again with each who comes, but when it may do."""

    async def scenario() -> None:
        rooms = await open_rooms(workers=(0.06,), host_gb=0.06)
        await rooms.host.start()
        heard = told(rooms)
        lends(rooms.devices[0], 0.0)
        await asyncio.sleep(3)
        assert [text.startswith("worker cannot be let go: ") for _, text in heard] == [True]
        await rooms.add(gb=0.0, name="guest")
        await asyncio.sleep(3)
        assert len(heard) == 1
        await rooms.add(gb=1.0, name="helper")
        await asyncio.sleep(3)
        assert holders(rooms) == ["host", "helper"]
        await rooms.close()

    simulate(scenario)
