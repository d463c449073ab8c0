"""Background jobs of a mesh: none is forgotten, none outlives it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from pooled_nb.errors import PooledError
from pooled_nb.mesh.clock import Clock

log = logging.getLogger(__name__)

STEP_S = 0.01
"""How often `Jobs.settle` looks whether all is done."""


class Jobs:
    """Tasks on the mesh loop."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._tasks: set[asyncio.Task[None]] = set()

    def spawn(self, job: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run a job; what it raises is logged unless it is an error for people, which whoever waits gets."""
        task = asyncio.get_running_loop().create_task(job)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    async def settle(self, patience: float, *, also: Callable[[], bool]) -> None:
        """Wait until all jobs are done and ``also`` is true; after ``patience`` seconds cancel them."""
        deadline = self._clock.now() + patience
        while (self._tasks or not also()) and self._clock.now() < deadline:
            await self._clock.sleep(STEP_S)
        left = list(self._tasks)
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, PooledError):
            log.error("a job of the mesh failed", exc_info=error)
