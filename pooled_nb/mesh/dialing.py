"""Links on demand between devices: one dial for all who wait (PROTOCOL section 2, who links whom)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Protocol

from pooled_nb.errors import LinkFailed, RoomClosed, RoomNotFound, SignalingDown
from pooled_nb.mesh.ends import connect_error
from pooled_nb.mesh.gate import Side
from pooled_nb.mesh.jobs import Jobs
from pooled_nb.mesh.link import Link
from pooled_nb.mesh.linkactions import Cause, End
from pooled_nb.mesh.links import Links
from pooled_nb.mesh.network import Connection
from pooled_nb.mesh.stripe import Stripe
from pooled_nb.mesh.stripes import STRIPE, no_stripe


class Dial(Protocol):
    """Dials one id; says to whose links the connection belongs."""

    def __call__(self, to: str, label: str = "") -> Awaitable[tuple[Links, Connection]]:
        """Raises as `Endpoint.dial`."""


class Dialing:
    """Dials devices, and waits until a link to each is admitted.

    Parameters
    ----------
    links
        The links there are now; None: this device is in no room (any more).
    """

    def __init__(
        self, *, links: Callable[[], Links | None], dial: Dial, jobs: Jobs, now: Callable[[], float]
    ) -> None:
        self._links, self._dial, self._jobs, self._now = links, dial, jobs, now
        self._running: dict[str, asyncio.Task[None]] = {}
        self._waiters: dict[str, list[asyncio.Future[End | None]]] = {}

    async def connect(self, to: str) -> None:
        """See `Mesh.connect`."""
        links = self._links()
        if links is not None and links.book.used(to) is not None:
            return
        await self._shared(to, self._connect)

    async def relink(self, to: str) -> None:
        """See `Mesh.relink`. A dial that is under way is the fresh link already."""
        links = self._links()
        linked = links is not None and links.book.used(to) is not None
        await self._shared(to, self._fresh if linked else self._connect)

    async def _shared(self, to: str, dial: Callable[[str, str], Coroutine[Any, Any, None]]) -> None:
        """Wait for the one dial of a device, and begin it unless it runs."""
        links = self._links()
        name = links.name_of(to) if links else to
        # Devices dial the creator, never the reverse.
        if links is None or links.is_creator or to == links.creator:
            raise LinkFailed(f"There is no link to {name} now.", "Wait until it is back.")
        if to == links.id or all(member.id != to for member in links.roster):
            raise LinkFailed(f"{name} is not in the room.", "Wait until it has joined.")
        if to not in self._running:
            task = self._running[to] = self._jobs.spawn(dial(to, name))
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

    async def stripe(self, to: str) -> Stripe:
        """Open one more connection to a device, for slices alone; return once both ends proved themselves.

        Raises
        ------
        LinkFailed
            There is no admitted link, it has as many stripes as may be, or the stripe did not come to be.
            Its cause is `SignalingDown` where nobody could be dialed.
        """
        links = self._links()
        if links is None or links.book.used(to) is None:
            raise LinkFailed("There is no link to this device now.", "Wait until it is back.")
        name = links.name_of(to)
        if (why := links.stripes.obstacle(to, dialed=True)) is not None:
            raise no_stripe(name, why)
        links, connection = await self._reach(to, name, STRIPE)
        return await links.stripes.prove(connection, name)

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
            if not self._of(to):
                began = self._now()
                links, connection = await self._reach(to, name)
                links.add(connection, Side.PEER, since=began)
            end = await self._settled(to)
            if end is None:
                return
            if again or end.cause is not Cause.NO_HELLO:  # open, and no hello: dial once more (section 3)
                raise connect_error(name, end)

    async def _fresh(self, to: str, name: str) -> None:
        """A link beside the one that is used: it takes over, so that the other end misses nobody. Where it
        does not come to be, the old one goes all the same: nobody is to believe in it any more.
        """
        old = self._of(to)
        try:
            began = self._now()
            links, connection = await self._reach(to, name)
            link = links.add(connection, Side.PEER, since=began)
            settled = asyncio.Event()
            link.on_settled = settled.set
            if not link.is_admitted and link.ended is None:
                await settled.wait()
            if link.ended is not None:
                raise connect_error(name, link.ended)
        except LinkFailed:
            for link in old:
                link.drop()
            raise

    async def _settled(self, to: str) -> End | None:
        living = self._of(to)
        if any(link.is_admitted for link in living):
            return None
        if not living:
            return End(Cause.BROKEN, "the connection broke at once")
        waiter: asyncio.Future[End | None] = asyncio.get_running_loop().create_future()
        self._waiters.setdefault(to, []).append(waiter)
        return await waiter

    def _of(self, to: str) -> list[Link]:
        links = self._links()
        return links.book.of(to) if links else []

    async def _reach(self, to: str, name: str, label: str = "") -> tuple[Links, Connection]:
        try:
            return await self._dial(to, label)
        except RoomNotFound as error:
            raise LinkFailed(f"{name} is not reachable.", "Wait until it is back.") from error
        except RoomClosed as error:
            raise LinkFailed(f"There is no link to {name}: this device left the room.") from error
        except SignalingDown as error:
            raise LinkFailed(f"{name} cannot be dialed. {error.what}", error.next_step) from error
