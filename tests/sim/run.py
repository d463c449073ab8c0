"""Run one story to its end, and say what is wrong with it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from pooled_nb.room.core import AskOptions
from tests.sim import check
from tests.sim.befall import befall
from tests.sim.stage import leave_all, staged
from tests.sim.story import Say, Story
from tests.sim.world import World

START_S = 5.0
GIVE_UP_S = 1_200.0
"""After the last fault a question may take so long: 15 min of knocking, and the answer."""
SETTLE_S = 400.0
FULL = "must stay for the answer"
"""The context is full: no fault of the room's."""


@dataclass
class Result:
    """What came of a run."""

    story: Story
    wrong: list[str] = field(default_factory=list)
    trace: list[str] = field(default_factory=list)
    digest: str = ""
    seconds: float = 0.0
    """Virtual."""
    outcomes: dict[str, int] = field(default_factory=dict)


Plant = Callable[[World], None]
"""Called with the world before anything happens in it: where a test plants a bug."""


def run(story: Story, plant: Plant | None = None) -> Result:
    """Run a story. Never raises for what the room did wrong: that is in `Result.wrong`."""

    async def play(world: World) -> None:
        if plant:
            plant(world)
        await _play(story, world)

    world, wrong = staged(story.shape, story.seed, play)
    result = Result(story, wrong, world.trace, world.net.digest.hexdigest(), world.now)
    for heard in world.heard:
        result.outcomes[heard.outcome] = result.outcomes.get(heard.outcome, 0) + 1
    return result


async def _play(story: Story, world: World) -> None:
    await world.host()
    joining = []
    for number, gb in enumerate(story.shape.workers, 1):
        joining.append(asyncio.create_task(world.join(f"w{number}", gb)))
        await asyncio.sleep(0.3)
    for number in range(story.shape.guests):
        joining.append(asyncio.create_task(world.join(f"g{number + 1}", 0.0)))
        await asyncio.sleep(0.3)
    loop = world.loop
    loop.call_at(1_000.0 + START_S, lambda: world.on("host", lambda room: room.start()))
    for say in story.script:
        loop.call_at(1_000.0 + say.at, lambda say=say: _say(world, say))
    for fault in story.befalls:
        loop.call_at(1_000.0 + fault.at, lambda fault=fault: befall(world, fault))
    last = max([START_S, *[say.at for say in story.script], *[f.at + f.s for f in story.befalls]])
    await asyncio.sleep(max(0.0, last + 1.0 - world.now))
    await asyncio.wait([*joining, *world.doing], timeout=GIVE_UP_S)
    if world.asking:
        await asyncio.wait(world.asking, timeout=GIVE_UP_S)
    world.wrong += check.all_over(world)
    deadline = world.now + SETTLE_S
    while (why := check.unsettled(world)) and world.now < deadline:  # noqa: ASYNC110  # many things
        await asyncio.sleep(2.0)
    if why:
        world.wrong.append(f"after {SETTLE_S:.0f} s of peace {why}")
    world.note("all", "peace")
    for device in world.devices.values():  # what was to befall a frame or a load that never came
        device.tamper.next.clear()
        device.ills.loads.clear()
    await _everybody_asks(world)
    world.wrong += check.questions(world, story)
    await leave_all(world)


async def _everybody_asks(world: World) -> None:
    """When nothing befalls it any more, a room that can answer answers everybody."""
    able = check.is_able(world)
    host = world.devices["host"]
    if host.here and host.room.status().used > world.shape.ctx // 3:  # else the context is full
        world.on("host", lambda room: room.reset())
        await asyncio.sleep(1.0)
    if host.here and host.room.status().state == "open":
        started = world.on("host", lambda room: room.start())
        if started is not None:
            await started
    for name, device in list(world.devices.items()):
        if not device.here:
            continue
        heard = world.ask(name, "ask", f"{name} in peace", AskOptions(max_tokens=6))
        await asyncio.wait([world.asking[-1]], timeout=120.0 if able else 500.0)
        if able and heard.outcome not in ("stop", "max") and FULL not in heard.refused:
            world.wrong.append(f"{name} asked in peace, and it ended with {heard.outcome} {heard.refused}")
        elif heard.outcome == "nothing":
            world.wrong.append(f"{name} asked in peace, and heard nothing")


def _say(world: World, say: Say) -> None:
    device = world.devices.get(say.who)
    if device is None or device.machine.dead or device.left or not device.joined:
        return
    if say.what == "stop":
        world.on(say.who, lambda room: room.stop())
    elif say.what == "reset":
        world.on(say.who, lambda room: room.reset())
    else:
        world.ask(say.who, say.what, say.text, say.options)
