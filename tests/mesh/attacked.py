"""A room that is attacked, whose devices must notice nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from pooled_nb.errors import RoomRefused
from pooled_nb.mesh.messages import chat
from pooled_nb.mesh.newcomer import Credentials
from tests.mesh.recorder import CODE, ROOM, Recorder, device, leave
from tests.sim.clock import simulate
from tests.sim.liar import Liar

TICK = 0.6
"""Seconds within which something that happens "at once" has happened: a tick and some latency."""
STRANGER = "5tr4nger"


class Room:
    """A host that asks, and two devices that came with the invite link and are linked to each other."""

    net: Liar
    host: Recorder
    one: Recorder
    two: Recorder

    @classmethod
    async def open(cls) -> Room:
        room = cls()
        room.net = Liar()
        room.host = device(room.net, "host", ask=True)
        await room.host.mesh.create(CODE, ["local"])
        room.one, room.two = room.invited("one"), room.invited("two")
        for joins in (room.one, room.two):
            await joins.mesh.join(CODE, ["local"])
        await room.one.mesh.connect(room.two.mesh.id)
        await asyncio.sleep(1.0)
        for each in room.devices:
            each.gone.clear()
            each.rosters.clear()
            each.notices.clear()
        return room

    @property
    def devices(self) -> list[Recorder]:
        return [self.host, self.one, self.two]

    def invited(self, name: str, **more: Any) -> Recorder:
        """A device that has the invite link."""
        return device(self.net, name, credentials=Credentials(key=self.host.gates.keeper.key), **more)

    @property
    def waiting(self) -> list[str]:
        return [request.name for request in self.host.gates.keeper.lobby]

    def decide(self, *, allow: bool, number: int | None = None) -> None:
        for request in self.host.gates.keeper.lobby:
            if number in (None, request.number):
                self.host.gates.keeper.decide(request.number, allow=allow)
        self.host.mesh.decided()

    async def noticed_nothing(self, *, came: int = 0) -> None:
        """Nobody of the room was gone or told anything, and all still hear each other."""
        for each in self.devices:
            assert not each.gone, each.mesh.name
            assert not each.closed, each.mesh.name
            assert len(each.rosters) <= came, each.mesh.name
            each.messages.clear()
        assert not self.one.notices
        assert not self.two.notices
        self.host.mesh.broadcast(chat.Queue(n=7))
        assert self.one.mesh.send(self.two.mesh.id, chat.Typing(name="one"))
        assert self.two.mesh.send(ROOM, chat.Ask(text="hello"))
        await asyncio.sleep(TICK)
        assert (ROOM, chat.Queue(n=7)) in self.one.messages
        heard = sorted(self.two.messages, key=lambda told: told[1].t)
        assert heard == [(ROOM, chat.Queue(n=7)), (self.one.mesh.id, chat.Typing(name="one"))]
        assert self.host.messages == [(self.two.mesh.id, chat.Ask(text="hello"))]


def attack(scenario: Callable[[Room], Awaitable[None]], *, came: int = 0) -> None:
    """Open a room, run the attack, and see that nobody else noticed."""

    async def run() -> None:
        room = await Room.open()
        await scenario(room)
        await room.noticed_nothing(came=came)
        await leave(room.two, room.one, room.host)

    simulate(run)


async def joining(device: Recorder) -> asyncio.Task[None]:
    task = asyncio.create_task(device.mesh.join(CODE, ["local"]))
    await asyncio.sleep(TICK)
    return task


async def refused(task: asyncio.Task[None], reason: str) -> None:
    with pytest.raises(RoomRefused, match=reason):
        await asyncio.wait_for(task, TICK)
