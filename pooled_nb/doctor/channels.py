"""Whether two connections of this machine open data channels and carry bytes (DESIGN section 4)."""

from __future__ import annotations

import asyncio
import importlib
import time
from typing import Any

from msgspec import Struct

from pooled_nb.doctor.findings import Finding
from pooled_nb.errors import PooledError

OPEN_S = 7.0
LOOK_S = 0.01
SAID = b"pooled_nb"


class Channels(Struct, frozen=True, kw_only=True):
    """How long it took until bytes had come back; ``problem`` where they did not."""

    ms: float | None = None
    problem: str = ""


async def look(*, limit: float = OPEN_S) -> Channels:
    """A real pair of connections over loopback: describe, connect, echo."""
    # aiortc takes half a second to load: off the loop, whose other probes count milliseconds.
    rtc = await asyncio.get_running_loop().run_in_executor(
        None, importlib.import_module, "pooled_nb.mesh.rtc"
    )
    pair = [_connection(rtc, remote, dialed) for remote, dialed in (("far", True), ("near", False))]
    began = time.monotonic()
    try:
        async with asyncio.timeout(limit):
            await _echo(*pair)
        return Channels(ms=(time.monotonic() - began) * 1e3)
    except TimeoutError:
        return Channels(problem=pair[0].failure or pair[1].failure or "no data channel opens")
    except PooledError as error:
        return Channels(problem=error.what.rstrip("."))
    finally:
        await asyncio.gather(*(connection.close() for connection in pair))


def _connection(rtc: Any, remote: str, dialed: bool) -> Any:
    from pooled_nb.mesh.clock import LoopClock
    from pooled_nb.mesh.ice import IcePolicy

    return rtc.RtcConnection(
        remote=remote,
        connection_id="dc_doctor",
        label="dc_doctor",
        dialed=dialed,
        clock=LoopClock(),
        ice=IcePolicy.local(),
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
                result=f"two connections of this machine do not meet: {seen.problem}",
                todo="Allow UDP for this Python in the firewall, then: pip install -U aiortc",
            )
        ]
    return [Finding(what=what, mark="ok", result=f"open on this machine, {seen.ms or 0:.0f} ms")]
