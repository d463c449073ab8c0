"""Whether signaling servers answer: the embedded one, and those that are configured (PROTOCOL section 2)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from msgspec import Struct

from pooled_nb.doctor.findings import Finding
from pooled_nb.errors import PooledError, SignalingDown
from pooled_nb.mesh import specs
from pooled_nb.mesh.clock import LoopClock
from pooled_nb.mesh.peerjs import shapes
from pooled_nb.mesh.peerjs.session import Session
from pooled_nb.mesh.signalserver import SignalServer

ANSWER_S = 5.0
EMBEDDED = "embedded"


class Signaling(Struct, frozen=True, kw_only=True):
    """One server: ``shown`` as typed; ``step`` where the failure has one of its own."""

    shown: str
    ms: float | None = None
    problem: str = ""
    step: str = ""


async def look(servers: Sequence[str], *, limit: float = ANSWER_S) -> list[Signaling]:
    """Register at each of them with an id of no room, and leave again; the embedded one is first."""
    return list(await asyncio.gather(_embedded(limit), *(_configured(spec, limit) for spec in servers)))


async def _embedded(limit: float) -> Signaling:
    try:
        server = await SignalServer.start()
    except SignalingDown as error:
        return Signaling(shown=EMBEDDED, problem=error.what, step=error.next_step)
    try:
        return await _register(specs.parse(server.url), EMBEDDED, limit)
    finally:
        await server.close()


async def _configured(spec: str, limit: float) -> Signaling:
    try:
        server = specs.parse(spec)
    except SignalingDown as error:
        return Signaling(shown=specs.without_secrets(spec), problem=error.what, step=error.next_step)
    return await _register(server, server.shown, limit)


async def _register(server: specs.Server, shown: str, limit: float) -> Signaling:
    """What a room does first: the WebSocket, and an id."""
    url = server.socket_url(id := shapes.random_id(), shapes.random_token())
    session = Session(
        LoopClock(), [url], [shown], id=id, on_message=lambda m: None, on_outage=lambda down: None
    )
    began = time.monotonic()
    try:
        async with asyncio.timeout(limit):
            await session.register()
        return Signaling(shown=shown, ms=(time.monotonic() - began) * 1e3)
    except TimeoutError:
        return Signaling(shown=shown, problem="no answer")
    except PooledError as error:
        return Signaling(shown=shown, problem=why(error.what, shown))
    finally:
        await session.close()


def why(sentence: str, shown: str) -> str:
    """The reason in a sentence that names one server: ``… tried: ws://x (network: refused)`` …."""
    _, found, rest = sentence.rpartition(f"{shown} (")
    reason = rest.rpartition(")")[0] if found else ""
    return reason or sentence.rstrip(".")


def judge(seen: Sequence[Signaling]) -> list[Finding]:
    """Facts in, findings out. Devices meet at the first server that answers, so one of several may fail."""
    others = [one for one in seen if one.shown != EMBEDDED]
    one_answers = any(not one.problem for one in others)
    return [_finding(one, one_answers) for one in seen]


def _finding(one: Signaling, one_answers: bool) -> Finding:
    if one.shown == EMBEDDED:
        what = "signaling, embedded"
        if not one.problem:
            return Finding(what=what, mark="ok", result="starts and answers on this machine")
        todo = one.step or "Allow connections to 127.0.0.1 for this Python; a proxy must not catch them."
        return Finding(what=what, mark="fail", result=one.problem.rstrip("."), todo=todo)
    what = f"signaling {one.shown}"
    if not one.problem:
        return Finding(what=what, mark="ok", result=f"answers in {one.ms or 0:.0f} ms")
    todo = one.step or "Check its address and the network, or name another one with --signal."
    return Finding(
        what=what, mark="warn" if one_answers else "fail", result=one.problem.rstrip("."), todo=todo
    )
