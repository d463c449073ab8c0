"""What a device that joined lends to its room: its shard, its worker, its loan (PROTOCOL section 6)."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection

from msgspec import structs

from pooled_nb.mesh.clock import Clock
from pooled_nb.mesh.frame import Frame
from pooled_nb.mesh.mesh import Mesh
from pooled_nb.mesh.messages import deal as wire
from pooled_nb.mesh.messages.link import DeviceMeta
from pooled_nb.room.shares import amount
from pooled_nb.room.weights.supply import Supply
from pooled_nb.room.worker import Worker
from pooled_nb.shard import Shard

NOTHING = "This device lends no memory."


class Lending:
    """The part of `DeviceRoom` that holds layers.

    Parameters
    ----------
    shard
        None: this device lends nothing and stays a guest.
    new_shard
        Makes another shard when the one before died.
    gb
        What it lends at most.
    folder, max_download_gb, room, supply
        As of `Worker`.
    on_change, say
        Something that is shown changed; a sentence for the person.

    Attributes
    ----------
    worker
        None before this device is in the room, and where it lends nothing.
    shared
        Why it lends less than its person offered, in the host's words.
    """

    def __init__(
        self,
        *,
        mesh: Mesh,
        clock: Clock,
        meta: DeviceMeta,
        shard: Shard | None,
        new_shard: Callable[[], Shard],
        gb: float,
        folder: str | None,
        max_download_gb: float,
        room: str,
        supply: Supply | None = None,
        on_change: Callable[[], None],
        say: Callable[[str], None],
    ) -> None:
        self.worker: Worker | None = None
        self.shared = ""
        self._mesh, self._clock, self._meta = mesh, clock, meta
        self._shard, self._new_shard, self._gb = shard, new_shard, gb
        self._folder, self._max_download_gb, self._room = folder, max_download_gb, room
        self._supply = supply
        self._on_change, self._say = on_change, say
        if shard:
            shard.on_died = self._on_died

    @property
    def holds(self) -> bool:
        """Whether layers are here, or are being loaded."""
        return self.worker is not None and (
            self.worker.layers is not None or self.worker.progress is not None
        )

    @property
    def offers(self) -> bool:
        """Whether a deal may count on this device."""
        return self.worker is not None and not self.worker.trouble and self._gb > 0

    def enter(self) -> None:
        """This device is in the room: from now on it can hold layers. Once is enough."""
        if self.worker is None and self._shard is not None:
            self.worker = Worker(
                links=self._mesh,
                shard=self._living,
                clock=self._clock,
                folder=self._folder,
                lends_gb=self._gb,
                max_download_gb=self._max_download_gb,
                on_change=self._on_change,
                room=self._room,
                supply=self._supply,
            )

    # -- what the host says ------------------------------------------------------------------------

    def load(self, message: wire.Load) -> None:
        """Take a deal, or say why not."""
        if self.worker is not None and self._gb > 0:
            self.worker.load(message)
            return
        number = message.nb.deal if message.nb else None
        self._mesh.send(message.host, wire.Error(message=NOTHING, load=True, deal=number))

    def next(self, message: wire.Next) -> None:
        """The device after this one changed."""
        if self.worker is not None:
            self.worker.next(message, self._mesh.creator)
        else:
            self._mesh.send(self._mesh.creator, wire.Linked(next=message.next))

    def share(self, message: wire.Share) -> None:
        """Lend less from now on, or nothing: its load was killed. Never more than its person offered."""
        worker, gb = self.worker, message.gb or 0.0
        if worker is None or self._gb <= 0 or (message.gb is None and not message.drop):
            return
        why = message.why or "its memory ran out while it loaded."
        if message.drop or not math.isfinite(gb) or gb <= 0:
            self._gb = 0.0
            worker.drop(why)
            self._say(f"This device lends nothing to this room any more: {why}")
        elif gb < self._gb:
            self._gb, self.shared = gb, why
            worker.lends(gb)
            self._say(f"This device lends {amount(gb)} from now on: {why}")
        self.pledge(self._gb)

    def pledge(self, gb: float | None) -> None:
        """Tell the room how much this device lends; None: as much as ever. What it holds, it keeps."""
        self._mesh.set_meta(structs.replace(self._meta, contrib_gb=self._gb if gb is None else gb))

    def left_out(self, ids: Collection[str], dealt: Collection[str]) -> None:
        """The host said who holds what: where none of this device's ``ids`` is among them, it gives back."""
        if self.worker is not None and not any(id in dealt for id in ids):
            self.worker.drop()

    def drop(self) -> None:
        """Give the layers back."""
        if self.worker is not None:
            self.worker.drop()

    def needs(self, id: str) -> bool:
        """As of `Worker.needs`."""
        return self.worker is not None and self.worker.needs(id)

    def on_frame(self, sender: str, frame: Frame) -> None:
        """A frame of the device before this one."""
        if self.worker is not None:
            self.worker.on_frame(sender, frame)

    # -- the shard ---------------------------------------------------------------------------------

    async def close(self) -> None:
        """Let go of the layers, then end the shard."""
        try:
            if self.worker is not None:
                await self.worker.close()
        finally:
            if self._shard is not None:
                self._shard.on_died = None
                await self._shard.close()

    def _living(self) -> Shard:
        if self._shard is None:
            self._shard = self._new_shard()
            self._shard.on_died = self._on_died
        return self._shard

    def _on_died(self, why: str) -> None:
        self._shard = None
        if self.worker is not None:
            self.worker.lost(why)
        self._say(why)
