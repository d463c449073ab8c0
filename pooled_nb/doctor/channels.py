"""Whether two connections of this machine open data channels and carry bytes, and how (DESIGN section 4)."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from msgspec import Struct

from pooled_nb.doctor.findings import Finding
from pooled_nb.errors import PooledError
from pooled_nb.mesh import stacks
from pooled_nb.mesh.stack import Stack

OPEN_S = 7.0
LOOK_S = 0.01
SAID = b"pooled_nb"


class Channels(Struct, frozen=True, kw_only=True):
    """How long it took until bytes had come back; ``problem`` where they did not.

    Attributes
    ----------
    over
        What they run on, as of the setting ``transport``.
    tuned
        What they are tuned for; empty where they are stock, or not aiortc's.
    stock, step
        Why they are, and what to do about it.
    """

    ms: float | None = None
    problem: str = ""
    over: str = stacks.DEFAULT
    tuned: str = ""
    stock: str = ""
    step: str = ""


async def look(over: str = stacks.DEFAULT, *, limit: float = OPEN_S) -> Channels:
    """A real pair of connections over loopback, as rooms make them: describe, connect, echo."""
    try:
        # A stack takes half a second to load: off the loop, whose other probes count milliseconds.
        stack = await asyncio.get_running_loop().run_in_executor(None, stacks.get, over)
        await stack.settle()
    except PooledError as error:
        return Channels(over=over, problem=error.what.rstrip("."), step=error.next_step)
    pair = [_connection(stack, remote, dialed) for remote, dialed in (("far", True), ("near", False))]
    began = time.monotonic()
    try:
        async with asyncio.timeout(limit):
            await _echo(*pair)
        ms = (time.monotonic() - began) * 1e3
        return Channels(ms=ms, over=over) if over != stacks.DEFAULT else _of_aiortc(ms)
    except TimeoutError:
        problem = pair[0].failure or pair[1].failure or "no data channel opens"
        return Channels(over=over, problem=problem)
    except PooledError as error:
        return Channels(over=over, problem=error.what.rstrip("."))
    finally:
        await asyncio.gather(*(connection.close() for connection in pair))


def _of_aiortc(ms: float) -> Channels:
    from pooled_nb.mesh import sctp

    verdict = sctp.verdict()
    tuned = sctp.SHOWN if verdict.tuned else ""
    return Channels(ms=ms, tuned=tuned, stock=verdict.why, step=verdict.step)


def _connection(stack: Stack, remote: str, dialed: bool) -> Any:
    from pooled_nb.mesh.clock import LoopClock
    from pooled_nb.mesh.ice import IcePolicy
    from pooled_nb.mesh.rtc import RtcConnection

    return RtcConnection(
        remote=remote,
        connection_id="dc_doctor",
        label="dc_doctor",
        dialed=dialed,
        clock=LoopClock(),
        ice=IcePolicy.local(),
        stack=stack,
    )


async def _echo(near: Any, far: Any) -> None:
    from pooled_nb.mesh import descriptions

    back: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    def heard(data: bytes) -> None:
        if not back.done():
            back.set_result(data)

    far.wire.on_message = far.wire.send
    near.wire.on_message = heard
    await near.accept(descriptions.take(await far.answer(descriptions.take(await near.offer()))))
    while not (near.wire.is_open and far.wire.is_open):  # noqa: ASYNC110  # two things, no one event
        await asyncio.sleep(LOOK_S)
    near.wire.send(SAID)
    await back


def judge(seen: Channels) -> list[Finding]:
    """Facts in, findings out."""
    what = "data channels"
    if seen.problem:
        return [
            Finding(
                what=what,
                mark="fail",
                result=seen.problem
                if seen.step
                else f"two connections of this machine do not meet: {seen.problem}",
                todo=seen.step
                or f"Allow UDP for this Python in the firewall, then: pip install -U {seen.over}",
            )
        ]
    opened = f"open on this machine, {seen.ms or 0:.0f} ms"
    if seen.stock:
        return [
            Finding(
                what=what,
                mark="warn",
                result=f"{opened}; stock aiortc ({seen.stock}): links are slower",
                todo=seen.step,
            )
        ]
    how = f"tuned for {seen.tuned}" if seen.tuned else f"over {seen.over}"
    return [Finding(what=what, mark="ok", result=f"{opened}; {how}")]
