"""The stage of every simulated room: loop, secrets and spies, and what must hold when it is over."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack
from random import Random
from unittest import mock

from pooled_nb.room import answering
from tests.sim import check
from tests.sim.clock import VirtualLoop
from tests.sim.clocks import own_tasks
from tests.sim.hostlife import remember
from tests.sim.onedevice import Spied, replay
from tests.sim.shape import Shape
from tests.sim.world import World


class _Errors(logging.Handler):
    """What the package logs as an error is a bug: it was caught where nothing should have been raised."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.seen: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        where = ""
        if error is not None and error.__traceback__ is not None:
            trace = error.__traceback__
            while trace.tb_next is not None:
                trace = trace.tb_next
            where = f" at {trace.tb_frame.f_code.co_filename.split('/')[-1]}:{trace.tb_lineno}"
        self.seen.append(f"logged: {record.getMessage()}: {type(error).__name__}: {error}{where}")


def staged(shape: Shape, seed: int, play: Callable[[World], Awaitable[None]]) -> tuple[World, list[str]]:
    """Let something play in a new world; the world as it was at the end, and what is wrong with it.

    ``play`` must let everybody leave. Two calls with equal arguments are one run.
    """
    wrong: list[str] = []
    errors = _Errors()
    log = logging.getLogger("pooled_nb")
    rng = Random(f"secrets {seed}")
    loops: list[VirtualLoop] = []
    worlds: list[World] = []

    def factory() -> VirtualLoop:
        loops.append(VirtualLoop())
        own_tasks(loops[0])
        return loops[0]

    async def scenario() -> None:
        worlds.append(World(shape, seed, remember))
        await play(worlds[0])
        wrong.extend(await check.nothing_left(worlds[0]))

    with ExitStack() as stack:
        stack.enter_context(mock.patch.object(answering, "Conversation", Spied))
        stack.enter_context(mock.patch.object(secrets, "token_bytes", lambda n=16: rng.randbytes(n)))
        stack.enter_context(mock.patch.object(secrets, "token_urlsafe", lambda n=16: rng.randbytes(n).hex()))
        stack.enter_context(mock.patch.object(secrets, "randbelow", rng.randrange))
        log.addHandler(errors)
        stack.callback(log.removeHandler, errors)
        with asyncio.Runner(loop_factory=factory) as runner:
            try:
                runner.run(scenario())
            except AssertionError:
                raise
            except Exception as error:  # the run goes into the report, whatever ended it
                wrong.append(f"the run ended with {type(error).__name__}: {error}")
            finally:
                for machine in worlds[0].machines:
                    machine.kill()
    for context in loops[0].errors:
        wrong.append(f"a callback raised: {context.get('exception') or context['message']!r}")
    world = worlds[0]
    return world, wrong + world.wrong + errors.seen + replay(world.said, shape.ctx)


async def opened(world: World, *, start: bool = True, names: Sequence[str] = ()) -> None:
    """The host, its workers and guests are in, and the room is online."""
    await world.host()
    for number, gb in enumerate(world.shape.workers, 1):
        await world.join(f"w{number}", gb)
    for number in range(world.shape.guests):
        await world.join(f"g{number + 1}", 0.0)
    for name in names:
        await world.join(name, 0.0)
    if start:
        started = world.on("host", lambda room: room.start())
        assert started is not None
        await started
        await asyncio.sleep(1.0)


async def leave_all(world: World) -> None:
    """Everybody leaves, the host last."""
    for device in reversed(list(world.devices.values())):
        if not device.machine.dead:
            device.goes = True
            await device.machine.spawn(device.room.leave())
            device.left = True
