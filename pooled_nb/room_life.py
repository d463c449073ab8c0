"""The life of a room: how it opens, how it is left, whatever happens in between.

The room itself lives on the mesh loop; this is what any thread sees of it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Literal, NoReturn, Self, overload

import msgspec

from pooled_nb import forks
from pooled_nb._notebook import cell
from pooled_nb.counted import still
from pooled_nb.errors import RoomClosed
from pooled_nb.job import Budget, Ended, Job
from pooled_nb.room import core as seam
from pooled_nb.room.memory import Resumable
from pooled_nb.threads import mesh

Opening = Callable[[Callable[[int, str], None]], Coroutine[Any, Any, seam.RoomCore]]
"""Opens a room and reports percent and words meanwhile."""

LEAVE_S = 5.0
"""Leaving says goodbye and ends the process that computes; beyond this it is cut off."""
GOODBYE = 0.8
"""The share of that time which the goodbye gets; the rest is for cutting it off."""
KEPT_NOTICES = 50
NUMBERS_S = 5.0
"""Numbers of links change by themselves: who watches a room sees that so often, if nothing else happens."""

log = logging.getLogger("pooled_nb")


class RoomLife:
    """Opens a room, keeps what it says, leaves it. The base of `Room`."""

    def __init__(self, opening: Opening) -> None:
        self.notices: list[str] = []
        self.progress: tuple[int | None, str] = (None, "")
        self._core: seam.RoomCore | None = None
        self._status: seam.Status | None = None
        self._left = False
        self._forked = False
        self._restarts = False
        self._acted_in: int | None = None
        self._said_in: int | None = None
        self._opens: asyncio.Task[None] | None = None
        self._leaving: asyncio.Task[None] | None = None
        self._budget: Budget | None = None
        self._lock = threading.Lock()
        self._watchers: set[Callable[[], None]] = set()
        mesh.hold()
        forks.known(self)
        self._opening = mesh.submit(self._open(opening), self._never_opened)

    # On the mesh loop.

    def _report(self, percent: int | None, words: str) -> None:
        self.progress = (percent, words)
        self._wake()

    async def _open(self, opening: Opening) -> None:
        self._opens = asyncio.current_task()
        try:
            core = await opening(self._report)
            core.on_change, core.on_notice = self._changed, self._noticed
            self._core = core
            self._begin(core)
        except BaseException:
            self._let_go()
            raise
        self._changed()
        self._count_on()

    def _begin(self, core: seam.RoomCore) -> None:
        """It is open, and nobody has used it yet."""

    def _never_opened(self) -> NoReturn:
        self._let_go()
        raise RoomClosed("This room was left before it was open.", "Host or join it again.")

    def _changed(self) -> None:
        if self._look() == "closed" and self._leaving is None:
            with contextlib.suppress(RoomClosed):
                mesh.submit(self._leave(Budget(LEAVE_S)))
        self._wake()

    def _count_on(self) -> None:
        """Whoever watches the room is told where only its numbers have changed."""
        if self._left:
            return
        asyncio.get_running_loop().call_later(NUMBERS_S, self._count_on)
        before = self._status
        if self._watchers:
            self._look()
        if self._status != before:
            self._wake()

    def _look(self) -> seam.State:
        assert self._core is not None
        now = self._core.status()
        with self._lock:
            before = self._status
            if now.state == "closed" and before is not None and len(before.devices) > len(now.devices):
                # A room that ends loses one device after the other; what is kept of it shows whom it had.
                now = msgspec.structs.replace(now, devices=before.devices)
            if not self._left:  # after that it is over, whatever the room still says
                self._status = now
        return now.state

    def _noticed(self, sentence: str) -> None:
        with self._lock:
            before = self.notices
            # One that only counts on takes the place of what it said a second ago.
            counts = bool(before) and before[-1] != sentence and still(before[-1]) == still(sentence)
            self.notices = [*(before[:-1] if counts else before), sentence][-KEPT_NOTICES:]
        self._wake()

    async def _leave(self, budget: Budget) -> None:
        # Whoever comes second waits for the first: the thread must not end under it.
        self._budget = budget
        if self._leaving is None:
            self._leaving = asyncio.create_task(self._end())
        _, late = await asyncio.wait({self._leaving}, timeout=GOODBYE * budget.left())
        if late:
            self._leaving.cancel()
            self._let_go()

    async def _part(self, seconds: float) -> None:
        """Leave once that is polite; whoever leaves at once meanwhile ends this, too."""
        assert self._core is not None
        try:
            await self._core.leave(after_answer=True)
        except Exception:
            log.exception("leaving the room politely failed")
        await self._leave(Budget(seconds))

    async def _end(self) -> None:
        try:
            if self._opens is not None:
                await asyncio.wait({self._opens})  # it was cancelled, and may be putting things away
            if self._core is not None:
                if self._restarts and isinstance(self._core, Resumable):
                    await self._core.abandon()
                else:
                    await self._core.leave()
                self._look()
        except Exception:
            log.exception("leaving the room failed")
        self._let_go()

    def _let_go(self) -> None:
        with self._lock:
            if self._left:
                return
            self._left = True
            if self._status is not None and self._status.state != "closed":
                over = "This device has left the room."
                self._status = msgspec.structs.replace(self._status, state="closed", sentence=over, can=[])
        self._wake()
        mesh.release(self._budget)

    # From any thread.

    def _wake(self) -> None:
        with self._lock:
            watchers = list(self._watchers)
        for wake in watchers:
            try:
                wake()
            except Exception:
                log.warning("a view of the room failed", exc_info=True)

    def watch(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Call this, on any thread, after something has changed; what comes back ends it."""
        with self._lock:
            self._watchers.add(wake)

        def end() -> None:
            with self._lock:
                self._watchers.discard(wake)

        return end

    def seen(self) -> seam.Status | None:
        """The room as it was at its last change, without asking it; None while it opens."""
        return self._status

    @property
    def left(self) -> bool:
        """Whether this device has left it, or it was closed, or it never opened."""
        return self._left

    @overload
    def leave(
        self, *, after_answer: bool = False, wait: Literal[True] = True, timeout: float = LEAVE_S
    ) -> Self: ...
    @overload
    def leave(
        self, *, after_answer: bool = False, wait: Literal[False], timeout: float = LEAVE_S
    ) -> Job[Self]: ...
    def leave(
        self, *, after_answer: bool = False, wait: bool = True, timeout: float = LEAVE_S
    ) -> Self | Job[Self]:
        """Leave the room; when the host leaves, the room is over. Never fails, and may be called again.

        An interrupt is raised once the goodbye is said or the time is up; a second one cuts it off.

        Parameters
        ----------
        after_answer
            Politely: the running answer ends first, and a device that holds layers hands them over before it
            goes. An interrupt meanwhile leaves at once.
        wait
            False: return at once; await what comes back, or call its ``result``.
        timeout
            Seconds for the goodbye; what has not ended by then is cut off.
        """
        politely = after_answer and self._core is not None and not self._left
        if not wait:
            return self._parting(timeout) if politely else self._goodbye(Budget(timeout))
        said = False
        if politely:
            try:
                said = self._wait_politely(self._parting(timeout))
            except BaseException:
                self.leave(timeout=timeout)
                raise
        budget = Budget(timeout)
        if not self._left:
            mesh.refuse()
        try:
            try:
                self._goodbye(budget).wait(budget.left())
            except KeyboardInterrupt:
                self._goodbye(budget).wait(budget.left())
                raise
        finally:
            self._budget = budget
            self._let_go()
            mesh.join(budget)
        return self._acted(said=said)

    def abandon(self, *, timeout: float = LEAVE_S) -> Self:
        """Leave because this kernel starts again: a room that it hosts is not closed, and can be resumed.

        The others are told nothing, and wait for it. From a room that is hosted elsewhere this is `leave`.
        Never fails.

        Parameters
        ----------
        timeout
            Seconds; what has not ended by then is cut off.
        """
        self._restarts = True
        return self.leave(timeout=timeout)

    def _parting(self, timeout: float) -> Job[Self]:
        try:
            return mesh.submit(self._then(lambda: self._part(timeout)), lambda: self)
        except RoomClosed:
            return Ended(self)

    def _wait_politely(self, parting: Job[Self]) -> bool:
        """Wait until it has left; whether what is shown of the wait says so."""
        parting.result()
        return False

    def _acted(self, *, said: bool = False) -> Self:
        """Return it from a call of the cell that runs, which may have ``said`` already how the room is."""
        self._acted_in = cell()
        self._said_in = self._acted_in if said else None
        return self

    def _goodbye(self, budget: Budget) -> Job[Self]:
        if self._left:
            return Ended(self)
        self._opening.cancel()
        try:
            return mesh.submit(self._then(lambda: self._leave(budget)), lambda: self)
        except RoomClosed:
            return Ended(self)

    async def _then(self, work: Callable[[], Awaitable[None]]) -> Self:
        # Made only here: a coroutine that the loop never came to would complain of it.
        await work()
        return self

    def orphan(self) -> None:
        """See `forks.Orphan`."""
        self._lock = threading.Lock()
        self._watchers = set()
        self._left = self._forked = True
