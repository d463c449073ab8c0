"""Two associations over a network of our own on the virtual clock: lost, late, doubled, in any order."""

from __future__ import annotations

import asyncio
import heapq
import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from aiortc.rtcdatachannel import RTCDataChannel, RTCDataChannelParameters
from aiortc.rtcsctptransport import RTCSctpCapabilities

from pooled_nb.mesh.sctp.association import Association
from pooled_nb.mesh.sctp.policy import TUNED, Policy
from pooled_nb.mesh.sctp.window import Window


@dataclass
class Road:
    """What a network does to packets of one direction. Seconds, probabilities, bytes per second (0: any)."""

    delay: float = 0.02
    jitter: float = 0.0
    loss: float = 0.0
    doubled: float = 0.0
    late: float = 0.0
    rate: float = 0.0
    queue: int = 200_000


class Wire:
    """A DTLS transport as an association sees it."""

    def __init__(self, road: Road, seed: int, role: str) -> None:
        self.state = "connected"
        self._role = role
        self.road = road
        self.random = random.Random(seed)
        self.to: Wire | None = None
        self.association: Association | None = None
        self.packets = 0
        self.is_cut = False
        self.seen: Callable[[bytes], bool] | None = None
        self._loop = asyncio.get_running_loop()
        self._free_at = 0.0
        self._under_way: list[tuple[float, int, bytes]] = []
        self._came: deque[bytes] = deque()

    def send_now(self, packets: Sequence[bytes]) -> None:
        for packet in packets:
            self._send(packet)

    def _send(self, packet: bytes) -> None:
        if self.state != "connected":
            raise ConnectionError
        self.packets += 1
        road, chance = self.road, self.random.random
        if self.is_cut or chance() < road.loss or (self.seen is not None and not self.seen(packet)):
            return
        for _ in range(1 + (chance() < road.doubled)):
            delay = road.delay + chance() * road.jitter + (road.delay if chance() < road.late else 0.0)
            if road.rate:
                now = self._loop.time()
                if (self._free_at - now) * road.rate > road.queue:
                    return
                self._free_at = max(now, self._free_at) + len(packet) / road.rate
                delay += self._free_at - now
            # Of those that are due at the same time, the loop's own heap keeps no order.
            at = self._loop.time() + delay
            heapq.heappush(self._under_way, (at, self.packets, packet))
            self._loop.call_at(at, self._leaves)

    def _leaves(self) -> None:
        assert self.to is not None
        self.to._arrived(heapq.heappop(self._under_way)[2])

    def _arrived(self, packet: bytes) -> None:
        """A batch is what came in one turn of the loop."""
        self._came.append(packet)
        if len(self._came) == 1:
            self._loop.call_soon(self._read)

    def _read(self) -> None:
        came, self._came = self._came, deque()
        if self.association is None:
            return
        for packet in came:
            self.association.receive_now(packet)
        self.association.batch_ended()

    def _register_data_receiver(self, receiver: Any) -> None:
        self.association = receiver

    def _unregister_data_receiver(self, receiver: Any) -> None:
        self.association = None


@dataclass
class Pair:
    """Two associations joined."""

    a: Association
    b: Association

    @property
    def wires(self) -> tuple[Wire, Wire]:
        return self.a.transport, self.b.transport  # type: ignore[return-value]

    async def close(self) -> None:
        await self.a.stop()
        await self.b.stop()


def pair(
    road: Road | None = None,
    *,
    back: Road | None = None,
    seed: int = 0,
    windows: tuple[Window | None, Window | None] = (None, None),
    policy: Policy = TUNED,
) -> Pair:
    """Two associations over a road there and one back."""
    road = Road() if road is None else road
    one, other = Wire(road, seed, "client"), Wire(back or road, seed + 1, "server")
    one.to, other.to = other, one
    return Pair(
        Association(one, window=windows[0], policy=policy),
        Association(other, window=windows[1], policy=policy),
    )


async def start(ends: Pair) -> None:
    """Let them shake hands."""
    can = RTCSctpCapabilities(maxMessageSize=65_536)
    await ends.a.start(can, ends.b.port)
    await ends.b.start(can, ends.a.port)


async def until(done: Callable[[], bool], seconds: float = 120.0) -> None:
    """Wait for something to become true; it fails after so many seconds of the virtual clock."""
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    while not done():
        assert loop.time() < end, "it did not come true"
        await asyncio.sleep(0.005)


def is_up(ends: Pair) -> bool:
    established = Association.State.ESTABLISHED
    return ends.a._association_state == ends.b._association_state == established


def channels(
    ends: Pair, stream_id: int, *, ordered: bool = True, retransmits: int | None = None
) -> tuple[RTCDataChannel, RTCDataChannel, list[Any], list[Any]]:
    """A negotiated channel: both its ends, and what each received."""
    made = []
    for end in (ends.a, ends.b):
        parameters = RTCDataChannelParameters(
            label=str(stream_id), negotiated=True, id=stream_id, ordered=ordered, maxRetransmits=retransmits
        )
        channel = RTCDataChannel(end, parameters)
        got: list[Any] = []
        channel.on("message", got.append)
        made.append((channel, got))
    return made[0][0], made[1][0], made[0][1], made[1][1]
