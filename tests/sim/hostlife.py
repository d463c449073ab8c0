"""What outlives a simulated host's process: the memory, the gate's secrets, the registration's token.

`pooled_nb.room.keeping` and its saver write these to files; here they are kept as the bytes that a file
holds, a moment after each change, so that no run depends on a disk.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import msgspec

from pooled_nb.errors import SignalingDown
from pooled_nb.mesh.gatekeeper import Gatekeeper, GateSettings
from pooled_nb.room.core import AskOptions
from pooled_nb.room.hostroom import HostRoom
from pooled_nb.room.memory import Memory
from tests.sim.world import Device, World

SAVING_S = 0.05


@dataclass
class Kept:
    """What a disk holds of one room."""

    memory: bytes = b""
    due: bool = False


def remember(device: Device) -> Kept:
    """Keep the memory of this host from now on."""
    room, machine = device.room, device.machine
    assert isinstance(room, HostRoom)
    kept = device.kept if device.kept is not None else Kept()
    device.kept, kept.due = kept, False

    def save() -> None:
        kept.due = False
        memory = room.memory()
        kept.memory = msgspec.json.encode(memory) if memory is not None else b""

    def changed() -> None:
        if not kept.due:
            kept.due = True
            machine.loop.call_later(SAVING_S, lambda: machine.call(save))

    room.on_memory = changed
    changed()
    return kept


def revive(world: World, s: float, *, politely: bool = False) -> None:
    """Kill the host's process (``politely``: its kernel restarts), and take the room back after ``s``."""
    device = world.devices["host"]

    async def goes_and_comes() -> None:
        room = device.room
        assert isinstance(room, HostRoom)
        keeper, token, kept = world.keeper, room.mesh.token, device.kept
        assert keeper is not None
        device.away = True
        if politely:
            device.left = device.machine.unheard = True
            await device.machine.spawn(room.abandon())
            memory = room.memory()
            assert memory is not None
            kept.memory = msgspec.json.encode(memory)
        else:
            world.end(device)
        secrets = keeper.secrets
        await asyncio.sleep(s)
        memory = msgspec.json.decode(kept.memory, type=Memory)
        while True:  # as a person who tries again
            machine = world.machine("host")
            device.machine, device.left = machine, False
            new = Gatekeeper(GateSettings(ask=False), saved=secrets, random_bytes=world.random_bytes)
            try:
                await machine.spawn(world.open(device, new, token, memory))
                break
            except SignalingDown as error:
                world.note("host", f"cannot go on: {error}")
                device.left = True
                await machine.spawn(device.room.leave())
                await asyncio.sleep(5.0)
        device.away = False
        opened = device.room
        assert isinstance(opened, HostRoom)
        world.doing.append(machine.spawn(opened.resume()))
        for question in opened.asked:
            world.ask("host", "ask", question.text, question.options or AskOptions())

    world.doing.append(world.loop.create_task(goes_and_comes()))
