"""How a device gets into a room: down the list of servers, and to the creator (PROTOCOL section 2).

At 5 s it says what is being tried. It stops at 15 s, or at 40 s while network paths are still tried, each
with its own reason: the host does not answer the dial (here), no path (`linkstate`), a link that opens and
whose gate does not answer (`linkstate`). While a person is being asked, no timer runs.
"""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Awaitable, Callable, Sequence

from pooled_nb.errors import LinkFailed, PooledError, RoomClosed, RoomNotFound, SignalingDown
from pooled_nb.mesh import specs
from pooled_nb.mesh.clock import Clock
from pooled_nb.mesh.deadline import Deadline
from pooled_nb.mesh.ends import entry_error
from pooled_nb.mesh.linkactions import Cause, End
from pooled_nb.mesh.linkstate import OPEN_S, LinkState, State
from pooled_nb.mesh.network import Endpoint, Network, NoServer

STILL_CONNECTING_S = 5.0
"""Seconds after which a join says that it is still connecting, and what it tries (section 2)."""
ENDED = "The host of this room has ended, or does not answer: ask its person for a new link or code."
EARLY_S = 0.01
"""A dial that gave up so short before `OPEN_S` was not answered either."""


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
    link
        The newest link to the creator, if there is one.
    notice
        Takes a sentence for people.
    """

    def __init__(
        self,
        *,
        clock: Clock,
        take: Callable[[Endpoint], Awaitable[object]],
        drop: Callable[[], Awaitable[None]],
        dial: Callable[[], Awaitable[None]],
        link: Callable[[], LinkState | None],
        notice: Callable[[str], None],
    ) -> None:
        self._clock, self._take, self._drop, self._dial = clock, take, drop, dial
        self._link, self._notice = link, notice
        self._entry: asyncio.Future[None] | None = None
        self._doing = ""

    async def find(self, network: Network, servers: list[str]) -> None:
        """Return once this device is in and has the first roster. Raises as `Mesh.join`."""
        still = self._clock.call_later(STILL_CONNECTING_S, self._tell)
        try:
            await self._find(network, servers)
        finally:
            still.cancel()

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

    # -- inside ------------------------------------------------------------------------------------

    def _tell(self) -> None:
        state = self._link()
        if state is not None and state.is_waiting:
            return  # its person knows what is waited for
        doing = self._doing if state is None else _AT.get(state.state, self._doing)
        self._notice(f"Still connecting: {doing} …")

    async def _find(self, network: Network, servers: list[str]) -> None:
        missing: RoomNotFound | None = None
        asked: list[str] = []
        while servers:
            self._doing = f"looking for a signaling server ({_listed(servers)})"
            try:
                endpoint = await network.register(None, servers)
            except SignalingDown as error:
                if missing is None and servers and all(map(_on_this_machine, servers)):
                    # No network is wanting there: a room of this machine brings its own server.
                    raise SignalingDown(error.what, ENDED) from None
                if missing is None:
                    raise
                asked += error.tries if isinstance(error, NoServer) else ()
                break
            self._doing = f"signaling works ({endpoint.server}), and the host has not answered yet"
            await self._take(endpoint)
            try:
                await self._enter()
            except RoomNotFound as error:
                # It may be on a server further down the list.
                missing = error
                asked += [*endpoint.passed, f"{endpoint.server} (no such room)"]
                servers = servers[_place(endpoint.server, servers) + 1 :]
                await self._drop()
            else:
                return
        if missing is None:
            raise SignalingDown("There is no signaling server to ask.", "Name one (--signal, signal=).")
        raise RoomNotFound(
            f"No room answers under this code: {', '.join(asked)}.",
            "Check the code with the host, and that its room is still open.",
        ) from missing

    def _fail(self, error: Exception) -> bool:
        if self._entry is None or self._entry.done():
            return False
        self._entry.set_exception(error)
        return True

    def _unanswered(self) -> None:
        self._fail(_no_answer())

    async def _enter(self) -> None:
        for again in (False, True):
            entry = self._entry = asyncio.get_running_loop().create_future()
            try:
                await self._dialed(entry)
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

    async def _dialed(self, entry: asyncio.Future[None]) -> None:
        """Dial; give up when nobody answers, and when this device leaves meanwhile."""
        began = self._clock.now()
        late = Deadline(self._clock, OPEN_S, self._unanswered)
        dial = asyncio.ensure_future(self._dial())
        try:
            await asyncio.wait({dial, entry}, return_when=asyncio.FIRST_COMPLETED)
            if dial.done():
                dial.result()
        except LinkFailed as error:
            if self._clock.now() - began < OPEN_S - EARLY_S:
                raise
            raise _no_answer() from error
        finally:
            late.cancel()
            if not dial.done():
                dial.cancel()
            await asyncio.gather(dial, return_exceptions=True)


_AT = {
    State.CONNECTING: "the host answered, and network paths to it are still being tried",
    State.HELLO: "the link to the host is open, and the host has said nothing yet",
    State.GATE: "the link to the host is open, and its gate has not answered yet",
    State.ADMITTED: "the host let this device in, and its list of devices is not here yet",
}


class _NoHelloError(Exception):
    """The link to the creator opened and no ``hello`` came."""


def left_early() -> PooledError:
    """This device left while it was still getting in."""
    return RoomClosed("This device left the room while it was entering.", "Join again.")


def _no_answer() -> LinkFailed:
    return LinkFailed(
        f"The host does not answer: nothing came back in {OPEN_S:.0f} s.",
        "Check that its notebook still runs and that it is online, then try again.",
    )


def _listed(servers: Sequence[str]) -> str:
    return ", ".join(_shown(server) or server for server in servers)


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


def _on_this_machine(server: str) -> bool:
    try:
        host = specs.parse(server).host
        return ipaddress.ip_address(host).is_loopback
    except PooledError:
        return False
    except ValueError:
        return host == "localhost"
