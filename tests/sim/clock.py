"""Virtual time: an asyncio loop on which a minute takes no time, and every run is the same run.

Time moves only when nothing is left to do. Work in real threads (`asyncio.to_thread`) makes time stand
still until it is back, so that a timeout never counts how slow the test machine is; work in another
process says so with `VirtualLoop.hold`.
"""

from __future__ import annotations

import asyncio
import contextlib
import selectors
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, TypeVar

T = TypeVar("T")

STUCK_S = 30.0
"""Real seconds without any event and without any timer after which a simulation is called stuck."""


class _Selector(selectors.BaseSelector):
    """A real selector that lets virtual time pass instead of waiting."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop
        self._real = selectors.DefaultSelector()

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if events := self._real.select(0):
            return events
        if self._loop.held:
            return self._real.select(STUCK_S if timeout is None else 0.005) if timeout != 0 else []
        if timeout is None:
            events = self._real.select(STUCK_S)
            if not events:
                raise RuntimeError("the simulation is stuck: no timer is set and nothing happens")
            return events
        self._loop.pass_time(timeout)
        return []

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return self._real.register(fileobj, events, data)

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._real.unregister(fileobj)

    def modify(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return self._real.modify(fileobj, events, data)

    def get_map(self) -> Any:
        return self._real.get_map()

    def close(self) -> None:
        self._real.close()


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose `time` is virtual."""

    def __init__(self) -> None:
        self._virtual = 1_000.0
        self.held = 0
        self.errors: list[dict[str, Any]] = []
        super().__init__(_Selector(self))
        self.set_exception_handler(lambda _loop, context: self.errors.append(context))

    def time(self) -> float:
        return self._virtual

    def pass_time(self, seconds: float) -> None:
        """Move the clock; nothing that was due in between fires before the next turn of the loop."""
        self._virtual += seconds

    @contextlib.contextmanager
    def hold(self) -> Iterator[None]:
        """Time stands still while real work is out."""
        self.held += 1
        try:
            yield
        finally:
            self.held -= 1

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> asyncio.Future[Any]:
        self.held += 1
        try:
            future = super().run_in_executor(executor, func, *args)
        except BaseException:
            self.held -= 1
            raise
        future.add_done_callback(lambda _f: setattr(self, "held", self.held - 1))
        return future


def simulate(scenario: Callable[[], Awaitable[T]], *, limit: float = 3_600.0) -> T:
    """Run a scenario in virtual time.

    Fails when it takes over ``limit`` virtual seconds, when a callback raised, and when a task is left.
    """

    async def run() -> T:
        result = await asyncio.wait_for(scenario(), limit)
        for _ in range(3):  # what was cancelled on the way out may end
            await asyncio.sleep(0)
        left = asyncio.all_tasks() - {asyncio.current_task()}
        assert not left, f"tasks are left: {left}"
        return result

    loops: list[VirtualLoop] = []

    def factory() -> VirtualLoop:
        loops.append(VirtualLoop())
        return loops[0]

    with asyncio.Runner(loop_factory=factory) as runner:
        result = runner.run(run())
    for context in loops[0].errors:
        raise AssertionError(f"a callback raised: {context['message']}") from context.get("exception")
    return result
