"""Devices on simulated machines, which may freeze (see `tests.sim.clocks`)."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.mesh.recorder import CODE, Recorder, device
from tests.sim.clocks import Machine, own_tasks
from tests.sim.faults import FaultyNetwork


class OnMachine:
    """One recorder and its machine; calls of its mesh run there."""

    def __init__(self, net: FaultyNetwork, name: str, **more: Any) -> None:
        self.machine = Machine(name, asyncio.get_running_loop())
        self.recorder: Recorder = self.machine.context.run(
            lambda: device(net, name, clock=self.machine.clock, **more)
        )

    async def create(self, token: str | None = None) -> None:
        await self.machine.spawn(self.recorder.mesh.create(CODE, ["local"], token=token))

    async def join(self) -> None:
        await self.machine.spawn(self.recorder.mesh.join(CODE, ["local"]))

    async def leave(self) -> None:
        await self.machine.spawn(self.recorder.mesh.leave())

    async def freeze(self, seconds: float, *, network_first: bool = True) -> None:
        """For so long; afterwards timers fire before, or after, the network is read."""
        self.machine.network_first = network_first
        self.machine.freeze()
        await asyncio.sleep(seconds)
        self.machine.thaw()


async def machines(net: FaultyNetwork, *names: str) -> list[OnMachine]:
    """A room: the first creates it, the others join."""
    own_tasks(asyncio.get_running_loop())
    devices = [OnMachine(net, name) for name in names]
    await devices[0].create()
    for one in devices[1:]:
        await one.join()
    await asyncio.sleep(1)
    return devices
