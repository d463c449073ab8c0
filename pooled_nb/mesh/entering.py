"""How a device gets into a room: down the list of servers, and to the creator (PROTOCOL section 2)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from pooled_nb.errors import LinkFailed, PooledError, RoomClosed, RoomNotFound, SignalingDown
from pooled_nb.mesh import specs
from pooled_nb.mesh.ends import entry_error
from pooled_nb.mesh.linkstate import Cause, End
from pooled_nb.mesh.network import Endpoint, Network


class Entering:
    """One device's way in.

    Parameters
    ----------
    take
        Makes an endpoint this device's own, or refuses it with an error.
    drop
        Gives it back: the room is not on its server.
    dial
        Dials the creator and adds the link.
    """

    def __init__(
        self,
        *,
        take: Callable[[Endpoint], Awaitable[object]],
        drop: Callable[[], Awaitable[None]],
        dial: Callable[[], Awaitable[None]],
    ) -> None:
        self._take, self._drop, self._dial = take, drop, dial
        self._entry: asyncio.Future[None] | None = None

    async def find(self, network: Network, servers: list[str]) -> None:
        """Return once this device is in and has the first roster. Raises as `Mesh.join`."""
        missing: RoomNotFound | None = None
        while servers:
            try:
                endpoint = await network.register(None, servers)
            except SignalingDown:
                if missing is None:
                    raise
                break
            await self._take(endpoint)
            try:
                await self._enter()
            except RoomNotFound as error:
                # It may be on a server further down the list.
                missing = error
                servers = servers[_place(endpoint.server, servers) + 1 :]
                await self._drop()
            else:
                return
        if missing is None:
            raise SignalingDown("There is no signaling server to ask.", "Name one (--signal, signal=).")
        raise RoomNotFound(
            "No room answers under this code.",
            "Check the code with the host, and that its room is still open.",
        ) from missing

    def entered(self) -> None:
        """The first roster is here."""
        if self._entry is not None and not self._entry.done():
            self._entry.set_result(None)

    def ended(self, end: End) -> bool:
        """The link to the creator ended. False: nobody was on the way in."""
        failed = _NoHelloError() if end.cause is Cause.NO_HELLO else entry_error(end)
        return self._fail(failed)

    def abort(self) -> None:
        """This device leaves before it was in."""
        self._fail(left_early())

    def _fail(self, error: Exception) -> bool:
        if self._entry is None or self._entry.done():
            return False
        self._entry.set_exception(error)
        return True

    async def _enter(self) -> None:
        for again in (False, True):
            entry = self._entry = asyncio.get_running_loop().create_future()
            try:
                await self._dial()
                await entry
            except _NoHelloError:  # open, and no hello: dial once more (section 3)
                if again:
                    raise LinkFailed(
                        "The room opened a link and said nothing.",
                        "Check that its host still runs, then try again.",
                    ) from None
            else:
                return
            finally:
                self._entry = None
                if entry.done() and not entry.cancelled():
                    entry.exception()  # it is told by what `dial` raised, or was awaited
                entry.cancel()


class _NoHelloError(Exception):
    """The link to the creator opened and no ``hello`` came."""


def left_early() -> PooledError:
    """This device left while it was still getting in."""
    return RoomClosed("This device left the room while it was entering.", "Join again.")


def _place(server: str, servers: list[str]) -> int:
    """Which of the list answered; endpoints may show a spec in a shorter form."""
    for i, spec in enumerate(servers):
        if server in (spec, _shown(spec)):
            return i
    return 0


def _shown(spec: str) -> str | None:
    try:
        return specs.parse(spec).shown
    except PooledError:  # what cannot be read answered nothing
        return None
