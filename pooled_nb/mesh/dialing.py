"""Links on demand between devices: one dial for all who wait (PROTOCOL section 2, who links whom)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from pooled_nb.errors import LinkFailed, RoomNotFound
from pooled_nb.mesh.ends import connect_error
from pooled_nb.mesh.jobs import Jobs
from pooled_nb.mesh.linkbook import LinkBook
from pooled_nb.mesh.linkstate import Cause, End

Dial = Callable[[str], Awaitable[object]]


class Dialing:
    """Dials devices, and waits until a link to each is admitted.

    Parameters
    ----------
    dial
        Dials one id and adds the link to the book.
    book
        The links there are now.
    """

    def __init__(self, *, dial: Dial, book: Callable[[], LinkBook], jobs: Jobs) -> None:
        self._dial, self._book, self._jobs = dial, book, jobs
        self._running: dict[str, asyncio.Task[None]] = {}
        self._waiters: dict[str, list[asyncio.Future[End | None]]] = {}

    async def connect(self, to: str, name: str) -> None:
        """Return once an admitted link exists. Raises `LinkFailed`."""
        if to not in self._running:
            task = self._running[to] = self._jobs.spawn(self._connect(to, name))
            task.add_done_callback(lambda _task: self._running.pop(to, None))
        task = self._running[to]
        try:
            # Who stops waiting does not end the dial for the others.
            await asyncio.shield(task)
        except asyncio.CancelledError:
            me = asyncio.current_task()
            if not task.cancelled() or (me is not None and me.cancelling()):
                raise
            raise LinkFailed(f"There is no link to {name}: this device left the room.") from None

    def outcome(self, to: str, end: End | None) -> None:
        """A link to ``to`` was admitted (None), or the last one ended."""
        for waiter in self._waiters.pop(to, []):
            if not waiter.done():
                waiter.set_result(end)

    def cancel(self) -> None:
        """This device leaves."""
        for to in list(self._waiters):
            self.outcome(to, End(Cause.OURS, "this device left the room"))
        for task in list(self._running.values()):
            task.cancel()

    async def _connect(self, to: str, name: str) -> None:
        for again in (False, True):
            # A link that it dialed may be on its way already: then that one is waited for.
            if not self._book().of(to):
                try:
                    await self._dial(to)
                except RoomNotFound as error:
                    raise LinkFailed(f"{name} is not reachable.", "Wait until it is back.") from error
            end = await self._settled(to)
            if end is None:
                return
            if again or end.cause is not Cause.NO_HELLO:  # open, and no hello: dial once more (section 3)
                raise connect_error(name, end)

    async def _settled(self, to: str) -> End | None:
        if self._book().used(to) is not None:
            return None
        if not self._book().of(to):
            return End(Cause.BROKEN, "the connection broke at once")
        waiter: asyncio.Future[End | None] = asyncio.get_running_loop().create_future()
        self._waiters.setdefault(to, []).append(waiter)
        return await waiter
