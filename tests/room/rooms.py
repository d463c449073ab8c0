"""Whole rooms on the simulated network, with toy shards behind the real door."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from pooled_nb.mesh.clock import LoopClock
from pooled_nb.mesh.gatekeeper import Gatekeeper, GateSettings
from pooled_nb.mesh.messages.link import DeviceMeta, NbMeta
from pooled_nb.mesh.newcomer import Newcomer
from pooled_nb.room.checkpoints import RECENT
from pooled_nb.room.core import Again, AnswerEvent, AskOptions, Done, Piece
from pooled_nb.room.dealer import Settings
from pooled_nb.room.deviceroom import DeviceRoom
from pooled_nb.room.doorfacts import Confirm, Starts
from pooled_nb.room.hostroom import HostRoom
from pooled_nb.room.keeping import Slot
from pooled_nb.room.memory import Memory
from pooled_nb.room.sizing import Drafts
from pooled_nb.room.weights.means import Means
from pooled_nb.shard import ModelFacts
from tests.room.toy import MODEL, ToyShard
from tests.sim.network import SimNetwork

CODE = "4TKG9P"


def meta_of(gb: float, cols: int = 32) -> DeviceMeta:
    offers = NbMeta(v=1, device="cpu", dtypes=["float32"], enc=["f32"], width=16, cols=cols, sig="toy")
    return DeviceMeta(webgpu=gb > 0, contrib_gb=gb, ua="Jupyter", nb=offers)


@dataclass
class Rooms:
    """A host and its devices."""

    net: SimNetwork
    host: HostRoom
    host_shard: ToyShard
    devices: list[DeviceRoom] = field(default_factory=list)
    shards: list[ToyShard] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)
    heard: dict[str, list[str]] = field(default_factory=dict)
    """What each device's person was told, by the name it came with."""

    async def add(
        self,
        *,
        gb: float = 1.0,
        shard: ToyShard | None = None,
        name: str = "worker",
        meta: DeviceMeta | None = None,
        newcomer: Newcomer | None = None,
        confirm: Confirm | None = None,
        progress: Callable[[int, str], None] | None = None,
        slot: Slot | None = None,
        means: Means | None = None,
    ) -> DeviceRoom:
        """A device joins; ``gb`` 0 is a guest. ``slot``: its pass is saved there."""
        toy = (shard or ToyShard()) if gb else None
        room = DeviceRoom(
            code=CODE,
            network=self.net,
            clock=LoopClock(),
            name=name,
            meta=meta or meta_of(gb),
            shard=toy,
            new_shard=ToyShard,
            lends_gb=gb,
            folder=None,
            newcomer=newcomer,
            confirm=confirm,
            means=means,
        )
        heard = self.heard[name] = []
        room.on_notice = heard.append
        if slot is not None:
            room.keep(slot, name)
        try:
            await room.join(["sim"], progress)
        except BaseException:
            await room.leave()
            raise
        self.devices.append(room)
        if toy:
            self.shards.append(toy)
        return room

    async def close(self) -> None:
        """Everybody leaves, the host last."""
        for device in self.devices:
            await device.leave()
        await self.host.leave()


async def open_rooms(
    *,
    workers: Sequence[float] = (),
    host_gb: float = 1.0,
    split: str = "memory",
    ctx: int = 1024,
    end_after: int = 40,
    net: SimNetwork | None = None,
    delay: float = 0.0,
    copies: float = 0.0,
    drafter: float | None = None,
    drafting: float = 0.0,
    speculate: bool = True,
    exact: bool = True,
    checkpoints: int = RECENT,
    kv: str = "f16",
    quant: str = "",
    drafts: Drafts | None = None,
    cols: int = 32,
    ask: bool = False,
    keeper: Gatekeeper | None = None,
    starts: Starts = "all",
    token: str | None = None,
    recall: Memory | None = None,
    model: ModelFacts = MODEL,
    host_shard: ToyShard | None = None,
    means: Means | None = None,
) -> Rooms:
    """A room with these workers, not started. ``copies``, ``drafter``, ``drafting``: see `ToyShard`.

    ``recall``: what the host's process before remembered. ``means``: what the host may do about weights.
    """
    net = net or SimNetwork()

    def new_shard() -> ToyShard:
        return ToyShard(end_after=end_after, delay=delay, copies=copies, drafter=drafter, drafting=drafting)

    shard = host_shard or new_shard()
    host = HostRoom(
        settings=Settings(
            code=CODE,
            split="memory" if split == "memory" else "speed",
            ctx=ctx,
            exact=exact,
            lends_gb=host_gb,
            speculate=speculate,
            checkpoints=checkpoints,
            kv=kv,
            quant=quant,
            drafts=drafts or Drafts(),
        ),
        model=model,
        shard=shard,
        new_shard=new_shard,
        network=net,
        clock=LoopClock(),
        name="host",
        meta=meta_of(host_gb, cols),
        keeper=keeper or Gatekeeper(GateSettings(ask=ask)),
        starts=starts,
        means=means,
    )
    if recall is not None:
        host.recall(recall)
    await host.open(["sim"], token)
    rooms = Rooms(net, host, shard)
    host.on_notice = rooms.notices.append
    for gb in workers:
        await rooms.add(gb=gb, shard=ToyShard(delay=delay), meta=meta_of(gb, cols))
    return rooms


@dataclass
class Heard:
    """What an asker heard."""

    text: str
    done: Done
    events: list[AnswerEvent]


async def ask(room: HostRoom | DeviceRoom, text: str, **options: object) -> Heard:
    """Ask and read to the end."""
    events = [event async for event in room.ask(text, AskOptions(**options))]  # type: ignore[arg-type]  # by keyword
    done = events[-1]
    assert isinstance(done, Done)
    return Heard("".join(e.text for e in events if isinstance(e, Piece)), done, events)


async def again(room: HostRoom | DeviceRoom, what: Again, **options: object) -> Heard:
    """Continue the newest answer, or make it anew, and read to the end."""
    events = [event async for event in room.again(what, AskOptions(**options))]  # type: ignore[arg-type]  # by keyword
    done = events[-1]
    assert isinstance(done, Done)
    return Heard("".join(e.text for e in events if isinstance(e, Piece)), done, events)


async def alone(questions: Sequence[str], **options: object) -> list[Heard]:
    """The same conversation on one device."""
    rooms = await open_rooms()
    await rooms.host.start()
    heard = [await ask(rooms.host, q, **options) for q in questions]
    await rooms.close()
    return heard
