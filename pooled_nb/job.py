"""Work on the mesh loop, seen from any thread."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import threading
import time
from collections.abc import Callable, Coroutine, Generator
from typing import Any, Generic, TypeVar

from pooled_nb import _notebook, forks
from pooled_nb.errors import RoomClosed, RoomError

T = TypeVar("T")

SLICE_S = 0.03
"""How often a blocked caller looks up: an interrupt and a progress bar get their turn (DESIGN section 7)."""
END_S = 10.0
"""How long a cancelled job may take to clean up before its caller stops waiting for it."""


class Budget:
    """Seconds that several waits share."""

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._end = clock() + seconds

    def left(self) -> float:
        """What is left of them; 0 when they are used up."""
        return max(0.0, self._end - self._clock())


class Job(Generic[T]):
    """A coroutine on the mesh loop, seen from any thread: wait for it, await it, or cancel it.

    Cancelled, it ends as an error of ours: a bare ``CancelledError`` would end a task that awaits it as
    if that task had been cancelled.

    Parameters
    ----------
    otherwise
        What it gives, or raises, when it is cut off: cancelled, or its loop has stopped.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        thread: threading.Thread,
        coro: Coroutine[Any, Any, T],
        otherwise: Callable[[], T] | None = None,
    ) -> None:
        self._fresh()
        self._loop = loop
        self._thread = thread
        self._coro = coro
        self._otherwise = otherwise
        try:
            # An empty context: the caller's would carry its cell, and what we log would land there.
            loop.call_soon_threadsafe(self._begin, context=contextvars.Context())
        except RuntimeError:
            self.abandon()

    def _fresh(self) -> None:
        self._task: asyncio.Task[T] | None = None
        self._cancelled = False
        self._settling = threading.Lock()
        # Marked running at once: only the task's own end settles it, so that whoever waits after a
        # cancel knows the clean-up is over.
        self._future: concurrent.futures.Future[T] = concurrent.futures.Future()
        self._future.set_running_or_notify_cancel()
        self._ended = threading.Event()
        self._future.add_done_callback(lambda _: self._ended.set())
        forks.known(self)

    def _begin(self) -> None:
        if self._cancelled or self._ended.is_set():
            self.abandon()
            return
        self._task = self._loop.create_task(self._coro, context=contextvars.Context())
        self._task.add_done_callback(self._settle)

    def _settle(self, task: asyncio.Task[T]) -> None:
        if task.cancelled():
            self._cut()
        elif not self._settling.acquire(blocking=False):
            return
        elif (error := task.exception()) is not None:
            self._future.set_exception(error)
        else:
            self._future.set_result(task.result())

    def _cut(self) -> None:
        if not self._settling.acquire(blocking=False):
            return
        try:
            if self._otherwise is not None:
                self._future.set_result(self._otherwise())
            elif self._cancelled:
                raise RoomError("This was cancelled.", "Do it again if you want it after all.")
            else:
                raise RoomClosed("The room is over.", "Open or join another one.")
        except Exception as error:
            self._future.set_exception(error)

    def abandon(self) -> None:
        """End a job that did not end by itself: its loop has stopped, or it never ran."""
        if self._task is None:
            self._coro.close()
        self._cut()

    def orphan(self) -> None:
        """See `forks.Orphan`."""
        self._fresh()
        self._settling.acquire()
        self._future.set_exception(forks.elsewhere())

    def done(self) -> bool:
        """Whether it has ended, one way or another."""
        return self._ended.is_set()

    def on_end(self, do: Callable[[], None]) -> None:
        """Call this once it has ended: on the mesh thread, or at once where it has."""
        self._future.add_done_callback(lambda _: do())

    def error(self) -> BaseException | None:
        """Of a job that has ended: why it failed."""
        return self._future.exception(0)

    def wait(self, timeout: float) -> bool:
        """Wait at most ``timeout`` seconds for its end, whatever that is; whether it has ended."""
        budget = Budget(timeout)
        while not self._ended.wait(min(SLICE_S, budget.left())):
            if not budget.left():
                return self._ended.is_set()
            _notebook.while_waiting()
        return True

    def cancel(self) -> None:
        """Ask it to end; returns at once."""
        if self.done():
            return
        self._cancelled = True

        def on_loop() -> None:
            if self._task is not None:
                self._task.cancel()

        try:
            self._loop.call_soon_threadsafe(on_loop)
        except RuntimeError:
            self.abandon()

    def result(self, timeout: float | None = None, *, tick: Callable[[], None] | None = None) -> T:
        """Block until it ends; an interrupt cancels it, and is raised once it has cleaned up.

        Parameters
        ----------
        timeout
            Seconds to wait; the job goes on after it. None: as long as it takes.
        tick
            Called in this thread about every 30 ms while waiting.

        Raises
        ------
        TimeoutError
            It has not ended within ``timeout``.
        RoomError
            Called on the mesh thread itself, which would wait for itself forever; or it was cancelled.
        RoomClosed
            The room was over first.
        """
        if not self.done():
            refuse_on(self._thread)
        budget = Budget(float("inf") if timeout is None else timeout)
        try:
            while not self._ended.wait(min(SLICE_S, budget.left())):
                if not budget.left():
                    break
                _notebook.while_waiting()
                if tick is not None:
                    tick()
        except BaseException:
            self.cancel()
            self.wait(END_S)
            raise
        if not self.done():
            raise TimeoutError("It is still running.")
        if tick is not None:
            tick()
        return self._future.result()

    def __await__(self) -> Generator[Any, None, T]:
        return self._on_other_loop().__await__()

    async def _on_other_loop(self) -> T:
        try:
            return await asyncio.wrap_future(self._future)
        except asyncio.CancelledError:
            self.cancel()
            raise


class Ended(Job[T]):
    """A job that had nothing to do."""

    def __init__(self, value: T) -> None:
        self._fresh()
        self._settling.acquire()
        self._future.set_result(value)


def refuse_on(thread: threading.Thread | None) -> None:
    """Refuse to block the mesh thread.

    Raises
    ------
    RoomError
        This is that thread: it would wait for itself forever.
    """
    if threading.current_thread() is thread:
        raise RoomError(
            "A blocking call was made on the room's own network thread.",
            "Make it from another thread, or pass wait=False and await it.",
        )
