"""One simulated process: its clock, its context, and what befalls it (freeze, slow timers, kill).

A `Machine` owns every task that its code starts, through a context variable, so that a kill ends exactly
these. While it is frozen none of its code runs: timers that come due and what the network brings wait for the
thaw, and only the clock goes on, as for a kernel whose computer sleeps.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar, copy_context
from typing import Any, TypeVar

T = TypeVar("T")

HERE: ContextVar[Machine | None] = ContextVar("pooled_sim_machine", default=None)
"""The machine whose code runs now."""


def own_tasks(loop: asyncio.AbstractEventLoop) -> None:
    """Let machines know the tasks of their code; once for each loop."""

    def factory(loop: asyncio.AbstractEventLoop, coro: Any, **more: Any) -> asyncio.Task[Any]:
        task: asyncio.Task[Any] = asyncio.Task(coro, loop=loop, **more)
        context: Context | None = more.get("context")
        machine = context[HERE] if context is not None and HERE in context else HERE.get()
        if machine is not None:
            machine.owns(task)
        return task

    loop.set_task_factory(factory)  # type: ignore[arg-type]  # typeshed wants a generic callable


class SimTimer:
    """One timer of one machine."""

    def __init__(self, clock: SimClock, callback: Callable[[], None]) -> None:
        self._clock, self._callback = clock, callback
        self.handle: asyncio.TimerHandle | None = None
        self.over = False

    @property
    def what(self) -> str:
        """What it would call, for whoever finds it left over."""
        return getattr(self._callback, "__qualname__", repr(self._callback))

    def cancel(self) -> None:
        """See `Timer.cancel`."""
        self.over = True
        self._clock.timers.pop(self, None)
        if self.handle:
            self.handle.cancel()

    def due(self) -> None:
        """Fire, or wait for the thaw."""
        if self.over:
            return
        if self._clock.machine.frozen:
            self._clock.machine.late.append(self.due)
            return
        self.over = True
        self._clock.timers.pop(self, None)
        self._callback()


class SimClock:
    """A `Clock` of one machine. Its zero is its own: seconds of one device mean nothing on another."""

    def __init__(self, machine: Machine, offset: float) -> None:
        self.machine, self.offset = machine, offset
        self.timers: dict[SimTimer, None] = {}
        """Those that are still to fire, for the question what is left after a run."""

    def now(self) -> float:
        """See `Clock.now`."""
        return self.machine.loop.time() + self.offset

    def call_later(self, delay: float, callback: Callable[[], None]) -> SimTimer:
        """See `Clock.call_later`."""
        timer = SimTimer(self, callback)
        if self.machine.dead:
            timer.over = True
            return timer
        loop, grain = self.machine.loop, self.machine.timer_grain
        at = loop.time() + max(0.0, delay)
        if grain:  # a hidden tab's timers: together, at whole steps
            at = math.ceil(at / grain) * grain
        self.timers[timer] = None
        timer.handle = loop.call_at(at, timer.due, context=self.machine.context)
        return timer

    async def sleep(self, delay: float) -> None:
        """See `Clock.sleep`."""
        if self.machine.dead:
            raise asyncio.CancelledError
        woken: asyncio.Future[None] = self.machine.loop.create_future()
        timer = self.call_later(delay, lambda: None if woken.done() else woken.set_result(None))
        try:
            await woken
        finally:
            timer.cancel()


class Machine:
    """One process on one computer.

    Attributes
    ----------
    frozen, dead
        Its code does not run now; it never runs again.
    timer_grain
        Timers fire at multiples of so many seconds only, as those of a hidden tab; 0: when they are due.
    slow
        What computing takes is multiplied with this.
    late, arrived
        What came due, and what the network brought, while it was frozen.
    """

    def __init__(self, name: str, loop: asyncio.AbstractEventLoop, *, offset: float = 0.0) -> None:
        self.name, self.loop = name, loop
        self.frozen = self.dead = False
        self.timer_grain, self.slow = 0.0, 1.0
        self.goes = False
        """It leaves the room, or has left: nobody is to blame for dropping it."""
        self.unheard = False
        """What it does from now on reaches nobody."""
        self.network_first = True
        """At the thaw the sockets are read before timers fire, as asyncio does; else after them."""
        self.late: list[Callable[[], None]] = []
        self.arrived: list[Callable[[], None]] = []
        self.frozen_at = self._slept = 0.0
        self.clock = SimClock(self, offset)
        self.context: Context = copy_context()
        self.context.run(HERE.set, self)
        self.tasks: dict[asyncio.Task[Any], None] = {}
        self._thawed: list[asyncio.Future[None]] = []

    def owns(self, task: asyncio.Task[Any]) -> None:
        """Remember a task of this machine until it is done."""
        self.tasks[task] = None
        task.add_done_callback(lambda done: self.tasks.pop(done, None))

    def spawn(self, job: Coroutine[Any, Any, T], name: str = "") -> asyncio.Task[T]:
        """Run something on this machine."""
        return self.loop.create_task(job, name=name or f"{self.name} runs", context=self.context)

    def call(self, callback: Callable[[], object]) -> None:
        """The network brings something: now, at the thaw, or never."""
        if self.dead:
            return
        if self.frozen:
            self.arrived.append(lambda: self.call(callback))
        elif HERE.get() is self:
            callback()
        else:
            self.context.run(callback)

    async def awake(self) -> None:
        """Return at once, or at the thaw; of a dead machine never."""
        if self.dead:
            raise asyncio.CancelledError
        if self.frozen:
            thawed: asyncio.Future[None] = self.loop.create_future()
            self._thawed.append(thawed)
            await thawed

    def freeze(self) -> None:
        """As SIGSTOP, a closed lid, or a callback that takes seconds."""
        if not self.frozen:
            self.frozen, self.frozen_at = True, self.loop.time()

    @property
    def slept(self) -> float:
        """Seconds that it was frozen, in all."""
        return self._slept + (self.loop.time() - self.frozen_at if self.frozen else 0.0)

    def thaw(self) -> None:
        """What waited runs now."""
        if not self.frozen:
            return
        self._slept = self.slept
        self.frozen = False
        waiting, self._thawed = self._thawed, []
        for one in waiting:
            if not one.done():
                one.set_result(None)
        late, self.late = self.late, []
        arrived, self.arrived = self.arrived, []
        for callback in [*arrived, *late] if self.network_first else [*late, *arrived]:
            self.loop.call_soon(callback, context=self.context)

    def kill(self) -> None:
        """As SIGKILL: none of its code runs again; what it would have said reaches nobody."""
        self.dead, self.frozen, self.unheard = True, False, True
        self.late.clear()
        self.arrived.clear()
        for timer in list(self.clock.timers):
            timer.cancel()
        for task in list(self.tasks):
            task.cancel()
