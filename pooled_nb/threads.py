"""The mesh thread: one daemon thread with one asyncio loop, and a way to reach it from any other thread.

Network and room logic live here and never on the kernel's loop, so that a running cell cannot stall
the room (DESIGN section 3). The thread starts with the first room and ends with the last.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import sys
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from pooled_nb import _notebook, forks
from pooled_nb.errors import RoomClosed
from pooled_nb.job import END_S, Budget, Job, refuse_on
from pooled_nb.mesh.loop import new_loop

T = TypeVar("T")

SWITCH_INTERVAL_S = 0.0005
"""Beside a pure-Python cell a round trip then takes 7.5 ms instead of 11.7 (DESIGN section 3)."""
GRACE_S = 0.2
"""Tasks that are left when the last room is over may end by themselves within this."""

log = logging.getLogger("pooled_nb")
log.addHandler(logging.NullHandler())  # logging's last resort would print into whatever cell runs


class _Life:
    """The thread from its start to its end."""

    def __init__(self) -> None:
        self.loop = new_loop()
        self.loop.set_exception_handler(_to_log)
        self.loop.set_default_executor(
            concurrent.futures.ThreadPoolExecutor(thread_name_prefix=f"{_notebook.OURS}work")
        )
        self.jobs: set[Job[Any]] = set()
        self.ending = Budget(END_S)
        self.thread = threading.Thread(target=self._main, name="pooled-mesh", daemon=True)
        self.thread.start()

    def stop(self, ending: Budget) -> None:
        """End it within this budget; returns at once."""
        self.ending = ending
        self.loop.call_soon_threadsafe(self.loop.stop)

    def _main(self) -> None:
        loop = self.loop
        asyncio.set_event_loop(loop)
        try:
            loop.run_forever()
            # What ends the room may be what is waited for: it gets the moment it needs to say so.
            left = self._let_end(asyncio.all_tasks(loop), min(GRACE_S, self.ending.left()))
            for task in left:
                task.cancel()
            self._let_end(left, self.ending.left())
            self._let_end({loop.create_task(loop.shutdown_asyncgens())}, self.ending.left())
        finally:
            asyncio.set_event_loop(None)
            loop.close()
            # Nobody waits for what can no longer end.
            for job in list(self.jobs):
                job.abandon()

    def _let_end(self, tasks: set[asyncio.Task[Any]], seconds: float) -> set[asyncio.Task[Any]]:
        if not tasks:
            return tasks
        _, left = self.loop.run_until_complete(asyncio.wait(tasks, timeout=seconds))
        return left


class MeshThread:
    """The thread and its loop, for any thread to use; `hold` and `release` count who needs it."""

    def __init__(self) -> None:
        self._fresh()

    def _fresh(self) -> None:
        self._lock = threading.RLock()
        self._users = 0
        self._life: _Life | None = None
        self._ending: _Life | None = None
        self._interval = 0.0
        forks.known(self)

    @property
    def running(self) -> bool:
        """Whether somebody holds it."""
        return self._users > 0

    def hold(self) -> None:
        """Start the thread if needed and keep it until the matching `release`."""
        with self._lock:
            self._users += 1
            if self._users > 1:
                return
            self._interval = sys.getswitchinterval()
            sys.setswitchinterval(SWITCH_INTERVAL_S)
            _notebook.guard()
            self._life = _Life()

    def release(self, budget: Budget | None = None) -> None:
        """Undo one `hold`; the last one ends the thread and gives the switch interval back.

        Parameters
        ----------
        budget
            How long that may take, clean-up of what still runs included.
        """
        budget = budget or Budget(END_S)
        with self._lock:
            self._users -= 1
            if self._users > 0:
                return
            life, self._life = self._life, None
            self._ending = life
            self._give_back()
        assert life is not None
        life.stop(budget)
        self.join(budget)

    def _give_back(self) -> None:
        # Left alone where someone else has set it meanwhile.
        if abs(sys.getswitchinterval() - SWITCH_INTERVAL_S) < 1e-6:
            sys.setswitchinterval(self._interval)

    def join(self, budget: Budget | None = None) -> None:
        """Wait until a thread that nobody holds any more has ended; not on that thread itself."""
        life = self._ending
        if life is not None and threading.current_thread() is not life.thread:
            life.thread.join(END_S if budget is None else min(budget.left(), threading.TIMEOUT_MAX))

    def refuse(self) -> None:
        """Refuse to block the mesh thread: RoomError where this is it."""
        refuse_on(self._life.thread if self._life is not None else None)

    def submit(self, coro: Coroutine[Any, Any, T], otherwise: Callable[[], T] | None = None) -> Job[T]:
        """Run a coroutine on the mesh loop; see `Job`.

        Raises
        ------
        RoomClosed
            No room is open, so there is no loop.
        """
        with self._lock:
            life = self._life
            if life is None:
                coro.close()
                raise RoomClosed("This room is over.", "Host or join another one.")
            job = Job(life.loop, life.thread, coro, otherwise)
            life.jobs.add(job)
        job.on_end(lambda: life.jobs.discard(job))
        return job

    def run(self, coro: Coroutine[Any, Any, T], *, tick: Callable[[], None] | None = None) -> T:
        """Run a coroutine on the mesh loop and block until it ends; see `Job.result`."""
        return self.submit(coro).result(tick=tick)

    def orphan(self) -> None:
        """See `forks.Orphan`: the child may hold a thread of its own."""
        if self._life is not None:
            self._give_back()
        _kept.append((self._life, self._ending))
        self._fresh()


_kept: list[Any] = []
"""In a forked child: the parent's loop, which must not be closed here."""

mesh = MeshThread()
"""The one of this process."""


def _to_log(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    log.error("%s", context.get("message", "error on the mesh loop"), exc_info=context.get("exception"))
