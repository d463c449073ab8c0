"""Many devices in one process that arrive at once: the other end of `benchmarks.gate`.

Lines of JSON on standard input say what to do, so that no secret is in a command line::

    {"url", "code", "key", "n", "gate"}   answered by {"ready"}; "gate" false: connections alone, no room
    {}                                    arrive; answered by {"seconds": [...], "failed": [...]}
    {}                                    leave; the process ends
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

from pooled_nb.mesh import codes
from pooled_nb.mesh.clock import LoopClock
from pooled_nb.mesh.frame import Frame
from pooled_nb.mesh.ice import IcePolicy
from pooled_nb.mesh.mesh import Mesh
from pooled_nb.mesh.messages import Message
from pooled_nb.mesh.messages.link import DeviceMeta, Member
from pooled_nb.mesh.newcomer import Credentials, Newcomer
from pooled_nb.mesh.rtcnetwork import RtcNetwork

Close = Callable[[], Awaitable[object]]


class Silent:
    """`MeshListener` of a guest that only wants to be in."""

    def on_roster(self, members: tuple[Member, ...]) -> None:
        """See `MeshListener`."""

    def on_admitted(self, member: Member, was: str) -> None:
        """See `MeshListener`."""

    def on_away(self, id: str, name: str, why: str) -> None:
        """See `MeshListener`."""

    def on_back(self) -> None:
        """See `MeshListener`."""

    def on_gone(self, id: str, name: str, why: str, *, left: bool) -> None:
        """See `MeshListener`."""

    def on_message(self, sender: str, message: Message) -> None:
        """See `MeshListener`."""

    def on_frame(self, sender: str, frame: Frame) -> None:
        """See `MeshListener`."""

    def on_notice(self, text: str) -> None:
        """See `MeshListener`."""

    def on_closed(self, why: str) -> None:
        """See `MeshListener`."""


async def enter(order: dict[str, Any], number: int) -> Close:
    """Join the room with its invite key; gives what leaves it."""
    clock = LoopClock()
    mesh = Mesh(
        network=RtcNetwork(clock, IcePolicy.local()),
        clock=clock,
        name=f"device {number}",
        meta=DeviceMeta(ua="Jupyter", contrib_gb=0.0),
        listener=Silent(),
        gates=Newcomer(Credentials(key=order["key"])),
    )
    await mesh.join(order["code"], [order["url"]])
    return mesh.leave


async def connect(order: dict[str, Any]) -> Close:
    """Open one connection to the creator's id and nothing more: ICE, DTLS, SCTP."""
    network = RtcNetwork(LoopClock(), IcePolicy.local())
    endpoint = await network.register(None, [order["url"]])
    connection = await endpoint.dial(codes.room_id(order["code"]))
    opened = asyncio.Event()
    connection.control.on_open = opened.set
    if not connection.control.is_open:
        await asyncio.wait_for(opened.wait(), 40)

    async def close() -> None:
        await connection.close()
        await endpoint.close()

    return close


async def main() -> None:
    """Do what the lines say."""
    asyncio.get_running_loop().set_exception_handler(lambda _loop, _what: None)
    order = json.loads(await asyncio.to_thread(sys.stdin.readline))
    print(json.dumps({"ready": True}), flush=True)
    if not await asyncio.to_thread(sys.stdin.readline):
        return  # who measures is gone
    began = time.perf_counter()
    seconds: list[float] = []
    failed: list[str] = []
    inside: list[Close] = []

    async def one(number: int) -> None:
        try:
            inside.append(await (enter(order, number) if order["gate"] else connect(order)))
        except Exception as error:
            failed.append(f"{type(error).__name__}: {error}")
        else:
            seconds.append(time.perf_counter() - began)

    await asyncio.gather(*(one(number) for number in range(order["n"])))
    print(json.dumps({"seconds": seconds, "failed": failed}), flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    await asyncio.gather(*(leave() for leave in inside))


if __name__ == "__main__":
    asyncio.run(main())
