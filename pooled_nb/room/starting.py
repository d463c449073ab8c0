"""One start: send the deal, load everywhere, wait until all are ready (PROTOCOL section 6)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

from pooled_nb.errors import OutOfMemory, ShardDied
from pooled_nb.mesh.clock import Clock, Timer
from pooled_nb.mesh.liveness import LATE_S
from pooled_nb.mesh.messages import deal as wire
from pooled_nb.room.dealing import Deal
from pooled_nb.room.loading import Loading, Trouble
from pooled_nb.room.loadmessage import load_message
from pooled_nb.room.outbox import Outbox
from pooled_nb.room.same import runs
from pooled_nb.room.sizing import Drafts, Form, draft_bytes
from pooled_nb.room.weights.hostside import HostWeights
from pooled_nb.room.weights.supply import Supply
from pooled_nb.room.worker import PROGRESS_S
from pooled_nb.shard import LoadSpec, ModelFacts, Shard

OnProgress = Callable[[int, str], None]

AWAY_S = 15.0
"""So long a start waits for a device whose link broke: as long as for one that says nothing."""


class Start:
    """Actor for one attempt with one deal. Messages of workers come in through `loading`.

    Parameters
    ----------
    draft
        A small model that drafts on this device.
    room
        What disk copies of checkpoints are kept under.
    weights
        Asks who has what, before anybody is told to load.
    supply
        Brings what this device's shard lacks; None: the shard fetches all of it itself.

    Attributes
    ----------
    drafts, note
        What can draft here, and what the person should know of it, as this device's load said.
    runs
        Where its layers lie and how they are computed, in words.
    layer_ms
        What one of its layers takes here for a frame; 0: not measured.
    """

    def __init__(
        self,
        deal: Deal,
        *,
        me: str,
        model: ModelFacts,
        shard: Shard,
        outbox: Outbox,
        clock: Clock,
        exact: bool,
        lends_gb: float,
        draft: ModelFacts | None = None,
        room: str = "",
        weights: HostWeights,
        supply: Supply | None = None,
        hears: Callable[[str], bool],
        number: int,
        on_progress: OnProgress,
    ) -> None:
        self.deal = deal
        self.number = number
        self.drafts = self.note = self.runs = ""
        self.layer_ms = 0.0
        self._draft, self._room, self._weights, self._supply = draft, room, weights, supply
        self.loading = Loading({s.id: s.name for s in deal.seats})
        self._me, self._model, self._shard, self._exact = me, model, shard, exact
        self._outbox, self._clock, self._on_progress = outbox, clock, on_progress
        self._own_error: Exception | None = None
        self._lends_gb, self._hears = lends_gb, hears
        self._away: dict[str, Timer] = {}

    async def run(self) -> Trouble | None:
        """Load everywhere: None when all are ready, else the first device in trouble.

        Raises
        ------
        PooledError
            The host itself cannot load.
        """
        await self._weights.prepare()
        for seat in self.deal.seats[1:]:
            if not self._outbox.send(seat.id, self._message(seat.id)):
                self.loading.failed(seat.id, "there is no link to it.")
        own = asyncio.create_task(self._load_own(), name="pooled-host-load")
        teller = asyncio.create_task(self._tell(), name="pooled-host-progress")
        try:
            trouble = await self.loading.settled()
            if trouble and trouble.id == self._me:
                raise self._own_error or ShardDied(trouble.why, "Start the room again to load it anew.")
            return trouble
        finally:
            for timer in self._away.values():
                timer.cancel()
            for task in (own, teller):
                task.cancel()
            await asyncio.gather(own, teller, return_exceptions=True)

    async def _load_own(self) -> None:
        try:
            load = self._shard.load if self._supply is None else partial(self._supply.load, self._shard)
            loaded = await load(self._own_spec(), self._on_own_progress)
        except Exception as error:  # whatever it is, the start must not wait for ever
            self._own_error = error
            self.loading.failed(self._me, str(error), killed=isinstance(error, ShardDied | OutOfMemory))
            return
        self.drafts, self.note = loaded.drafts, loaded.note
        self.runs, self.layer_ms = runs(loaded), loaded.layer_ms
        self.loading.is_ready(self._me, ckpt=True)

    def _on_own_progress(self, pct: int, _words: str) -> None:
        asks = self._supply is not None and self._supply.asks
        self.loading.progress(self._me, pct, asks=asks)

    def _own_spec(self) -> LoadSpec:
        """What this device loads: its layers, the model's ends, and what drafts."""
        deal, draft = self.deal, self._draft
        # What drafts is loaded beside it, and the checkpoints that are kept leave room for it.
        form, drafts = Form(deal.dtype, deal.kv, deal.quant), Drafts(draft, deal.draft_layers)
        drafting = draft_bytes(self._model, form, deal.ctx, drafts)
        return LoadSpec(
            **_files(self._model),
            lo=deal.seats[0].lo,
            hi=deal.seats[0].hi,
            ends=True,
            ctx=deal.ctx,
            dtype=deal.dtype,
            width=deal.width,
            cols=deal.cols,
            exact=self._exact,
            max_gb=self._lends_gb - drafting / 1e9,
            kv=deal.kv,
            quant=deal.quant,
            room=self._room,
            draft=LoadSpec(
                **_files(draft),
                lo=0,
                hi=draft.layers,
                ends=True,
                ctx=min(deal.ctx, draft.max_ctx),
                dtype=deal.dtype,
            )
            if draft
            else None,
            draft_layers=deal.draft_layers,
        )

    def heard(self, sender: str, message: wire.Progress | wire.Ready | wire.Error | wire.Linked) -> None:
        """A worker reports; what it says of an earlier deal is ignored."""
        if isinstance(message, wire.Linked):
            if not message.ok and self.deal.seat(sender):
                self._unlinked(sender, message.next)
            return
        if message.deal is not None and message.deal != self.number:
            return
        match message:
            case wire.Progress():
                self.loading.progress(sender, message.pct, asks=message.asks)
            case wire.Ready():
                self.loading.is_ready(sender, ckpt=message.ckpt)
            case wire.Error() if message.load:
                self.loading.failed(sender, message.message, killed=message.killed)

    def away(self, id: str) -> None:
        """The link to a device broke: its process may live, and load on."""
        if self.deal.seat(id) and id not in self._away:
            self._wait_for(id)

    def _wait_for(self, id: str) -> None:
        due = self._clock.now() + AWAY_S

        def over() -> None:
            if self._clock.now() - due > LATE_S:  # this device slept: it judges nobody by that
                self._wait_for(id)
            else:
                self.lost(id, "its link broke.")

        self._away[id] = self._clock.call_later(AWAY_S, over)

    def back(self, id: str, was: str) -> None:
        """A device is in again. Under its id it lives, and is told once more; under another it began anew."""
        if timer := self._away.pop(was, None):
            timer.cancel()
        if not self.deal.seat(was):
            return
        if id != was:
            self.lost(was, "its process began anew.")
            return
        self.loading.again(id)
        self._weights.remind(id)
        self._outbox.send(id, self._message(id))

    def lost(self, id: str, why: str, *, left: bool = False) -> None:
        """A device is gone. Where it was loading, memory that ran out is the usual cause."""
        self.loading.failed(id, why, killed=not left and id not in self.loading.ready)

    def _unlinked(self, sender: str, other: str) -> None:
        """A link between two workers did not come to be: whichever the host no longer hears is to blame."""
        silent = not self._hears(other)
        names = self.loading.names
        blamed, peer = (other, sender) if silent and other in names else (sender, other)
        self.loading.failed(blamed, f"there is no link between it and {names.get(peer, 'the next device')}.")

    async def _tell(self) -> None:
        while True:
            self._outbox.broadcast(wire.HostProgress(all=self.loading.by_name()))
            self._on_progress(self.loading.total, self.loading.words)
            await self._clock.sleep(PROGRESS_S)

    def _message(self, id: str) -> wire.Load:
        inv = self._weights.listing(id)
        return load_message(self.deal, id, model=self._model, host=self._me, number=self.number, inv=inv)


def _files(model: ModelFacts) -> dict[str, Any]:
    """Where a model's files are, and what they must be."""
    return {
        "repo": model.repo,
        "revision": model.revision,
        "folder": model.folder,
        "config_sha256": model.config_sha256,
        "files": model.files,
    }
