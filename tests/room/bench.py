"""A worker on its own: its links recorded, its shard a toy."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec

from pooled_nb.errors import LinkFailed, ShardDied
from pooled_nb.mesh.clock import LoopClock
from pooled_nb.mesh.frame import Encoding, Frame, Kind
from pooled_nb.mesh.messages import Message, deal
from pooled_nb.room.worker import Worker
from tests.room.toy import ToyShard
from tests.sim.clock import simulate

HOST = "host-id"


class Links:
    """What a worker does to the mesh, in order. ``fails``: how often dialing a device fails yet."""

    def __init__(self) -> None:
        self.said: list[Message] = []
        self.frames: list[tuple[str, Frame]] = []
        self.dialed: list[str] = []
        self.chains: list[tuple[str, ...]] = []
        self.fails: dict[str, int] = {}
        self.dial_s = 0.0
        self.up = True

    def send(self, to: str, message: Message) -> bool:
        assert to == HOST
        self.said += [message] if self.up else []
        return self.up

    def send_frame(self, to: str, frame: Frame) -> bool:
        self.frames.append((to, frame))
        return True

    def chain(self, ids: Sequence[str]) -> None:
        self.chains.append(tuple(ids))

    async def connect(self, to: str) -> None:
        await self._dial(to, to)

    async def relink(self, to: str) -> None:
        await self._dial(to, f"{to} anew")

    async def _dial(self, to: str, how: str) -> None:
        assert to in self.chains[-1], "its frames are expected before it is dialed"
        self.dialed.append(how)
        await asyncio.sleep(self.dial_s)
        if self.fails.get(to, 0):
            self.fails[to] -= 1
            raise LinkFailed("It is not in the room.", "Wait.")

    def heard(self, kind: type[Any]) -> list[Any]:
        return [m for m in self.said if isinstance(m, kind)]


class Bench:
    """A worker, its links, and the shards it was given."""

    def __init__(self, shard: ToyShard | None = None, *, lends: float = 1.0, supply: Any = None) -> None:
        self.links = Links()
        self.shards = [shard or ToyShard()]
        self.loads: list[Any] = []
        self.worker = Worker(
            links=self.links,
            shard=self._shard,
            clock=LoopClock(),
            folder=None,
            lends_gb=lends,
            max_download_gb=20.0,
            on_change=lambda: None,
            supply=supply,
        )
        self._count(self.shard)

    @property
    def shard(self) -> ToyShard:
        return self.shards[-1]

    def _shard(self) -> ToyShard:
        return self.shard

    def _count(self, shard: ToyShard) -> None:
        load = shard.load

        async def counted(spec: Any, progress: Any = None) -> Any:
            self.loads.append(spec)
            return await load(spec, progress)

        shard.load = counted  # type: ignore[method-assign]  # what is loaded is what is looked at

    def dies(self, why: str = "The shard's process was killed, most likely because memory ran out.") -> None:
        """Its process ends: the room opens another one."""

        async def dead(*_: Any, **__: Any) -> Any:
            raise ShardDied(why, "Lend less.")

        self.shard.forward = dead  # type: ignore[method-assign]  # as a dead process answers
        self.shards.append(ToyShard())
        self._count(self.shard)
        self.worker.lost(why)

    def frame(self, number: int = 1, **more: Any) -> None:
        kind = more.pop("kind", Kind.HIDDEN_B)
        data = struct.pack("<4I", number, 0, 0, 0)
        frame = Frame(kind, more.pop("pos", 0), 1, data, Encoding.F32, last=True, **more)
        self.worker.on_frame(more.get("sender", "before"), frame)


def load(number: int = 1, *, lo: int = 2, hi: int = 4, after: str = "host", **more: Any) -> deal.Load:
    nb = deal.NbLoad(
        repo="toy/model",
        revision="1",
        config="0" * 64,
        files={"model.safetensors": {"size": 1}},
        dtype="float32",
        enc="f32",
        width=16,
        cols=32,
        prev=more.pop("prev", "before"),
        ranges={"x": [lo, hi]},
        deal=number,
    )
    message = deal.Load(v=4, model="toy/model", range=[lo, hi], ctx=512, next=after, host=HOST, nb=nb)
    return msgspec.structs.replace(message, **more)


def run(
    scenario: Callable[[Bench], Awaitable[None]],
    shard: Callable[[], ToyShard] = ToyShard,
    *,
    supply: Any = None,
) -> None:
    async def whole() -> None:
        bench = Bench(shard(), supply=supply)
        await scenario(bench)
        await bench.worker.close()

    simulate(whole)
