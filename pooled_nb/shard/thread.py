"""A shard in a thread of this process: for scripts and debugging.

A cell that computes then stalls the model, and memory that runs out ends the whole process (DESIGN
section 3).
"""

from __future__ import annotations

import asyncio
import contextlib
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar, cast

from pooled_nb.errors import PooledError, ShardError
from pooled_nb.shard import protocol
from pooled_nb.shard.caller import Caller
from pooled_nb.shard.door import Progress
from pooled_nb.shard.faults import as_pooled_error
from pooled_nb.shard.stopping import Stops

if TYPE_CHECKING:
    from pooled_nb.shard.desk import Desk

T = TypeVar("T")


class ThreadShard(Caller):
    """The same desk as in the child, in one worker thread."""

    def __init__(self) -> None:
        super().__init__()
        self._thread = ThreadPoolExecutor(1, "pooled-shard")
        self._desk: Desk | None = None
        self._stops = Stops()
        self._number = 0
        self._closed = False

    async def _run(self, job: protocol.AnyJob, result: type[T], progress: Progress | None = None) -> T:
        if self._closed:
            raise ShardError("The shard is closed.", "Open another one.")
        loop = asyncio.get_running_loop()

        def report(pct: int, words: str) -> None:
            if progress is not None:
                loop.call_soon_threadsafe(progress, pct, words)

        self._number += 1
        number = self._number
        # Shielded: a job whose caller goes away keeps its place in the order, as in the child.
        running = loop.run_in_executor(self._thread, self._do, number, job, report)
        running.add_done_callback(_look_at)
        try:
            return cast(T, await asyncio.shield(running))
        except asyncio.CancelledError:
            if isinstance(job, protocol.STOPPABLE):
                self._stops.ask(number)
            raise

    def _do(self, number: int, job: protocol.AnyJob, report: Progress) -> object:
        """Do a job, in the thread: the imports take seconds, too."""
        try:
            if self._desk is None:
                from pooled_nb.shard.desk import Desk
                from pooled_nb.shard.device import hold_threads

                hold_threads()
                self._desk = Desk()
            return self._desk.run(job, report, self._stops.of(number))
        except PooledError:
            raise
        except Exception as error:
            raise as_pooled_error(error) from error
        finally:
            self._stops.ended(number)

    async def close(self) -> None:
        """See `Shard.close`: waits for the job that runs; one that can be stopped ends soon."""
        if self._closed:
            return
        self._closed = True
        for number in range(self._number + 1):
            self._stops.ask(number)
        if self._desk is not None:
            with contextlib.suppress(Exception):
                loop = asyncio.get_running_loop()
                await asyncio.shield(
                    loop.run_in_executor(
                        self._thread, self._do, self._number + 1, protocol.Unload(), lambda *_: None
                    )
                )
        self._desk = None
        self._thread.shutdown(wait=False)


def _look_at(done: asyncio.Future[Any]) -> None:
    """Take note of the error of a job that nobody waits for any more."""
    if not done.cancelled():
        done.exception()
