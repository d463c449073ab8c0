"""Whether a relay lets this device in: one that is set, else those of a deployment (PROTOCOL section 2)."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Sequence

from msgspec import Struct

from pooled_nb.doctor.findings import Finding
from pooled_nb.doctor.network import Network
from pooled_nb.errors import SignalingDown
from pooled_nb.mesh import relay as client
from pooled_nb.mesh import specs, turnapi
from pooled_nb.mesh.ice import TurnServer
from pooled_nb.room.ways import is_local

ANSWER_S = 5.0


class Relay(Struct, frozen=True, kw_only=True):
    """One relay, without its secret.

    Attributes
    ----------
    place
        Host and port; empty where what is set cannot be read: then ``problem`` and ``step`` say why.
    source
        Where it is set, or the signaling server that names it.
    given
        A deployment named it: nothing on this device is wrong where it does not work.
    """

    place: str = ""
    source: str = ""
    given: bool = False
    ms: float | None = None
    problem: str = ""
    step: str = ""


async def look(network: Network, signal: Sequence[str] = ()) -> list[Relay]:
    """Ask each for a relayed address, and give that back.

    Parameters
    ----------
    signal
        Specs of signaling servers: each is asked for a relay where none is set.
    """
    if network.problem:
        return [Relay(problem=network.problem, step=network.step)]
    if network.relay is not None:
        return [await try_out(network.relay, source=network.source)]
    if not network.asks:
        return []
    found = await asyncio.gather(*map(_offered, signal))
    return [relay for relays in found for relay in relays]


async def try_out(server: TurnServer, *, source: str, given: bool = False) -> Relay:
    """What one relay says."""
    began = time.monotonic()
    problem = ""
    try:
        async with asyncio.timeout(ANSWER_S):
            transport, _ = await client.allocate(server, asyncio.DatagramProtocol)
        ended = time.monotonic()
        await client.give_back(transport)
    except Exception as error:  # whatever aioice and the system raise
        problem = client.why(error, server)
    return Relay(
        place=server.place,
        source=source,
        given=given,
        ms=None if problem else (ended - began) * 1e3,
        problem=problem,
    )


async def _offered(spec: str) -> list[Relay]:
    try:
        server = specs.parse(spec)
    except SignalingDown:
        return []  # its own finding says it
    if is_local(server.base):
        return []
    relays: tuple[TurnServer, ...] = ()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(turnapi.WAIT_S):  # a join waits no longer
            for url in turnapi.urls_of(server.base):
                with contextlib.suppress(turnapi.NoSuchServiceError):
                    given = await turnapi.ask(url)
                    relays = given.relays if given else ()
                    break
    return list(await asyncio.gather(*(try_out(r, source=server.shown, given=True) for r in relays)))


def judge(seen: Sequence[Relay], *, relay_only: bool = False) -> list[Finding]:
    """Facts in, findings out."""
    found = [_finding(one, sum(other.source == one.source for other in seen)) for one in seen]
    if relay_only and not any(one.ms is not None for one in seen):
        todo = "Name one that works (POOLED_TURN, or %pooled network --turn), or switch relay only off."
        result = "nothing but a relay may be used, and none works"
        found.append(Finding(what="relay only", mark="fail", result=result, todo=todo))
    return found


def _finding(one: Relay, several: int) -> Finding:
    if not one.place:
        return Finding(what="network settings", mark="fail", result=one.problem.rstrip("."), todo=one.step)
    what = f"relay {one.place}"
    if one.problem and one.given:
        todo = f"Tell whoever runs {one.source}, which names this relay; or set POOLED_TURN to another one."
        return Finding(what=what, mark="warn", result=one.problem, todo=todo)
    if one.problem:
        hours = "many relays take a password for hours only"
        todo = f"Check {one.source}: host, port, user and password; {hours}."
        return Finding(what=what, mark="fail", result=one.problem, todo=todo)
    whence = f", as {one.source} names it" if one.given else ""
    more = f"; of {several} ways to a relay the first that answers is used" if several > 1 else ""
    return Finding(what=what, mark="ok", result=f"lets this device in, {one.ms or 0:.0f} ms{whence}{more}")
