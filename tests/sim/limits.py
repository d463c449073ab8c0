"""Whole rooms for the limits of PROTOCOL section 8: set them up, let something happen, look at the clock."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from pooled_nb.mesh.frame import Frame
from pooled_nb.room.core import AskOptions, Status
from tests.sim.befall import befall
from tests.sim.faults import Fault
from tests.sim.shape import Shape
from tests.sim.stage import leave_all, opened, staged
from tests.sim.world import Heard, World

TICK = 0.6
"""A tick is half a second; what is decided on one is at most that late."""


@dataclass
class Scene:
    """One room that is online, and what happens to it."""

    world: World
    sent: list[tuple[float, Frame]] = field(default_factory=list)
    """Frames that the host sent, with their times."""

    @property
    def now(self) -> float:
        return self.world.now

    def status(self, who: str = "host") -> Status:
        return self.world.devices[who].room.status()

    def befall(self, kind: str, who: str = "", **more: object) -> None:
        befall(self.world, Fault(self.now, kind, who, **more))  # type: ignore[arg-type]  # by keyword

    def ask(self, who: str = "host", tokens: int = 20, text: str = "why is the sea salt?") -> Heard:
        return self.world.ask(who, "ask", text, AskOptions(max_tokens=tokens))

    async def until(self, holds: Callable[[], object], limit: float = 1_200.0) -> float:
        """Wait until it holds: when that was."""
        deadline = self.now + limit
        while not holds():  # many things, no one event
            assert self.now < deadline, "it never came to that"
            await asyncio.sleep(0.01)
        return self.now

    async def tokens(self, heard: Heard, n: int) -> float:
        """Wait until so many tokens are shown."""
        return await self.until(lambda: len(heard.events) > n)

    def roster(self) -> list[str]:
        return [member.name for member in self.world.devices["host"].room.mesh.roster]

    def loses(self, who: str = "w1", frames: int = 1) -> None:
        """The next frames of a device never leave it."""
        self.world.devices[who].tamper.next += ["nothing"] * frames

    def states(self, who: str) -> list[tuple[float, str, str]]:
        return self.world.devices[who].states

    def first(self, who: str, state: str, since: float) -> float:
        """When a device was first in that state, from then on."""
        return next(at for at, name, _ in self.states(who) if name == state and at >= since)


def scene(play: Callable[[Scene], Awaitable[None]], *, start: bool = True, **shape: object) -> World:
    """Open a room of this shape, play, let everybody leave; the answers must be one device's."""

    async def whole(world: World) -> None:
        await opened(world, start=start)
        room = world.devices["host"].room
        it = Scene(world)
        real = room.mesh.send_frame

        def send_frame(to: str, frame: Frame) -> bool:
            it.sent.append((world.now, frame))
            return real(to, frame)

        room.mesh.send_frame = send_frame  # type: ignore[method-assign]  # as the chain uses it
        await play(it)
        if world.asking:
            await asyncio.wait(world.asking, timeout=1_000.0)
        await leave_all(world)

    shaped = Shape(**({"speculate": False} | shape))  # type: ignore[arg-type]  # by keyword
    world, wrong = staged(shaped, 1, whole)
    assert not wrong, "\n".join(wrong)
    return world
