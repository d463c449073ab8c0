"""The host's deals: make one, load it everywhere, say who holds what (PROTOCOL section 6)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from pooled_nb.mesh.clock import Clock
from pooled_nb.mesh.mesh import Mesh
from pooled_nb.mesh.messages import deal as wire
from pooled_nb.room.checkpoints import RECENT
from pooled_nb.room.dealing import Deal, Fixed, Split, can_hold, choose, lenders, make_deal
from pooled_nb.room.loading import Trouble
from pooled_nb.room.sizing import Drafts, Form, need_gb
from pooled_nb.room.starting import OnProgress, Start
from pooled_nb.room.worker import room_key
from pooled_nb.shard import ModelFacts, Shard

QUIET_S = 6.0


@dataclass(frozen=True, slots=True)
class Settings:
    """What the room's creator chose; it holds whatever happens. ``ctx`` counts tokens.

    ``kv``: how caches are kept. ``drafts``: what drafts on the host, besides what the conversation holds.
    ``speculate``: laps may guess ahead. ``checkpoints``: states after an answer that devices keep.
    """

    code: str
    split: Split
    ctx: int
    exact: bool
    lends_gb: float
    dtype: str | None = None
    kv: str = "f16"
    drafts: Drafts = field(default_factory=Drafts)
    speculate: bool = True
    checkpoints: int = RECENT


class Dealer:
    """Owns the host's shard and the deal as it is.

    Attributes
    ----------
    deal
        The newest deal, loading or loaded; None before the first and after a failed start.
    number
        Its number: what workers report of another one is ignored.
    start
        The attempt under way, or None.
    shard
        The host's own; another one after it died.
    exact
        Text as one device gives it: fixed at the first start, as the frames' widths are.
    ckpt
        Every device of the loaded deal applies checkpoint control.
    drafts, note
        What can draft besides prompt lookup (``model``, ``layers`` or nothing), and what the host's person
        should know of it.
    """

    def __init__(
        self,
        *,
        mesh: Mesh,
        clock: Clock,
        settings: Settings,
        model: ModelFacts,
        shard: Shard,
        new_shard: Callable[[], Shard],
        on_shard_died: Callable[[str], None],
    ) -> None:
        self.deal: Deal | None = None
        self.number = 0
        self.start: Start | None = None
        self.shard = shard
        self.model = model
        self.exact = settings.exact
        self.ckpt = False
        self.drafts = self.note = ""
        self._mesh, self._clock, self._settings = mesh, clock, settings
        self._new_shard, self._on_shard_died = new_shard, on_shard_died
        self._shard_dead = False
        self._fixed: Fixed | None = None
        self._dealt_over: frozenset[tuple[str, float]] = frozenset()
        shard.on_died = self._died

    @property
    def dtype(self) -> str:
        """What the room runs, or would run with the devices now here."""
        if fixed := self.deal or self._fixed:
            return fixed.dtype
        many = self._settings.split == "memory"
        holding = [m for m in self._mesh.roster if m.id == self._mesh.id or (many and can_hold(m))]
        return choose(holding, self.model, self._settings.dtype).dtype

    @property
    def need_gb(self) -> float:
        """GB that the model needs here: weights and caches, and what drafts."""
        s = self._settings
        drafts = Drafts(s.drafts.model, self.deal.draft_layers) if self.deal else s.drafts
        return need_gb(self.model, Form(self.dtype, s.kv), s.ctx, drafts)

    @property
    def changed(self) -> bool:
        """Whether devices came since the deal that could hold layers, or lend more."""
        return self.deal is not None and bool(self._lenders() - self._dealt_over)

    def _lenders(self) -> frozenset[tuple[str, float]]:
        return lenders(self._mesh.roster, self._mesh.id, self._settings.split)

    def prefer(self, *, fast: bool) -> bool:
        """Whether the next start is as wished: speed in place of equal tokens only where nothing is fixed."""
        if self._fixed is None:
            self.exact = self._settings.exact and not fast
        return not (fast and self.exact)

    def make(self, excluded: Mapping[str, str]) -> Deal:
        """A deal over the devices now here. Raises `ModelTooBig`."""
        s = self._settings
        return make_deal(
            self._mesh.roster,
            self._mesh.id,
            self.model,
            split=s.split,
            ctx=s.ctx,
            exact=self.exact,
            dtype=s.dtype,
            kv=s.kv,
            drafts=s.drafts,
            fixed=self._fixed,
            excluded=excluded,
        )

    def announce(self, *, again: bool) -> None:
        """Tell everyone that a start begins."""
        if again:
            self._mesh.broadcast(wire.Redeal(by=self._mesh.name, model=self.model.repo))
        else:
            request = wire.StartReq(model=self.model.repo, boss=self._mesh.id, by=self._mesh.name)
            self._mesh.broadcast(request)

    async def load(self, deal: Deal, on_progress: OnProgress) -> Trouble | None:
        """Load a deal everywhere: None, or the device in trouble. Raises what this device's load raises."""
        if self._shard_dead:
            self.shard, self._shard_dead = self._new_shard(), False
            self.shard.on_died = self._died
        self.deal = deal
        self.number += 1
        self._dealt_over = self._lenders()
        self.start = Start(
            deal,
            me=self._mesh.id,
            model=self.model,
            shard=self.shard,
            outbox=self._mesh,
            clock=self._clock,
            exact=self.exact,
            lends_gb=self._settings.lends_gb,
            draft=self._settings.drafts.model,
            room=room_key(self._settings.code),
            hears=self._hears,
            number=self.number,
            on_progress=on_progress,
        )
        workers = [s.id for s in deal.seats[1:]]
        self._mesh.spare(workers)
        self._mesh.chain(workers)
        start = self.start
        try:
            trouble = await start.run()
            self.ckpt, self.drafts, self.note = start.loading.ckpt, start.drafts, start.note
            return trouble
        finally:
            self._mesh.spare([])
            self.start = None

    def loaded(self, deal: Deal) -> None:
        """The deal stands: what the first one chose is fixed from now on (PROTOCOL section 5)."""
        self._fixed = Fixed(deal.dtype, deal.cols, deal.kv)

    def layers(self, deal: Deal) -> wire.LayersHeld:
        """Who holds what, for everyone."""
        names = {m.id: m.name for m in self._mesh.roster}
        return wire.LayersHeld(
            by={s.name: f"{s.lo}–{s.hi - 1}" for s in deal.seats},
            held={s.name: round(s.gb, 3) for s in deal.seats},
            out={names[id]: why for id, why in deal.out.items() if id in names},
            ranges=deal.ranges,
            same=deal.one_sig and self.exact,
            dtype=deal.dtype,
            kv=deal.kv,
        )

    def ready_all(self) -> wire.ReadyAll:
        """The room is online."""
        return wire.ReadyAll(model=self.model.repo, label=self.model.label, ctx=self._settings.ctx)

    async def close(self) -> None:
        """End the shard."""
        self.shard.on_died = None
        await self.shard.close()

    def _hears(self, id: str) -> bool:
        """Whether anything was heard of a device lately: it pings every 2.5 s (PROTOCOL section 3)."""
        facts = self._mesh.facts(id)
        return facts is not None and facts.quiet_s < QUIET_S

    def _died(self, why: str) -> None:
        self._shard_dead = True
        if self.start:
            self.start.loading.failed(self._mesh.id, why)
        else:
            self._on_shard_died(why)
