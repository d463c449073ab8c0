"""The host's deals: make one, load it everywhere, say who holds what (PROTOCOL section 6)."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import msgspec

from pooled_nb.errors import PooledError
from pooled_nb.mesh.clock import Clock
from pooled_nb.mesh.gatekeeper import MAX_PASSES
from pooled_nb.mesh.mesh import Mesh
from pooled_nb.mesh.messages import deal as wire
from pooled_nb.mesh.messages.link import Member
from pooled_nb.room.checkpoints import RECENT
from pooled_nb.room.dealing import Deal, Fixed, Split, can_hold, choose, grew, lenders, make_deal
from pooled_nb.room.loading import Trouble
from pooled_nb.room.loadmessage import load_message
from pooled_nb.room.paces import FrameKind, Pace, Paces
from pooled_nb.room.shares import Less, Shares, Without
from pooled_nb.room.sizing import Drafts, Form, need_gb, size_of
from pooled_nb.room.starting import OnProgress, Start
from pooled_nb.room.weights.hostside import HostWeights
from pooled_nb.room.weights.supply import Supply
from pooled_nb.shard import QUANT_CLASSES, ModelFacts, Shard

QUIET_S = 6.0
"""Who was silent for so long gets no layers: devices ping every 2.5 s (PROTOCOL section 3)."""
AWAY = "its link is lost."
SILENT = "it does not respond."
KILLED = "it was killed while it loaded or computed."


@dataclass(frozen=True, slots=True)
class Settings:
    """What the room's creator chose; it holds whatever happens. ``ctx`` counts tokens.

    ``kv``: how caches are kept. ``quant``: how linear weights are kept.
    ``drafts``: what drafts on the host, besides what the conversation holds.
    ``speculate``: laps may guess ahead. ``checkpoints``: states after an answer that devices keep.
    ``copies``: what disk copies of them are kept under; empty: there are none.
    """

    code: str
    split: Split
    ctx: int
    exact: bool
    lends_gb: float
    dtype: str | None = None
    kv: str = "f16"
    quant: str = ""
    drafts: Drafts = field(default_factory=Drafts)
    speculate: bool = True
    checkpoints: int = RECENT
    copies: str = ""


class Dealer:
    """Owns the host's shard and the deal as it is.

    Attributes
    ----------
    deal
        The newest deal, loading or loaded; None before the first and after a failed start.
    number
        Counts what was sent of deals: see `is_current`.
    shares
        Who was killed, and holds less since.
    paces, pace
        How fast each device computes, and what this one would say of itself.
    order
        Passes of those who held layers last, as they followed each other; also before a restart of this host.
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
    runs
        Where the host's own layers lie and how it computes them, in words.
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
        weights: HostWeights,
        supply: Supply | None = None,
    ) -> None:
        self.deal: Deal | None = None
        self.number = 0
        self.start: Start | None = None
        self.shard = shard
        self.model = model
        self.exact = settings.exact
        self.ckpt = False
        self.drafts = self.note = self.runs = ""
        self._mesh, self._clock, self._settings = mesh, clock, settings
        self._new_shard, self._on_shard_died = new_shard, on_shard_died
        self._shard_dead, self._weights, self._supply = False, weights, supply
        self.shares = Shares()
        self.paces, self.pace = Paces(), Pace()
        self._vanished: dict[str, str] = {}
        """Who was taken for killed since its link was gone: the id that it had, by its pass."""
        self.order: list[str] = []
        self._numbers: dict[str, int] = {}
        self._fixed: Fixed | None = None
        self._dealt_over: dict[str, float] = {}
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
        return need_gb(self.model, Form(self.dtype, s.kv, s.quant), s.ctx, drafts)

    @property
    def changed(self) -> bool:
        """Whether devices came since the deal that could hold layers, or lend more."""
        return self.deal is not None and grew(self._dealt_over, self.lenders())

    @property
    def fixed(self) -> Fixed | None:
        """What the first start fixed (PROTOCOL section 5); None before it."""
        return self._fixed

    def lenders(self) -> dict[str, float]:
        """What each device lends now that could hold layers, by id."""
        return lenders(self._here({})[0], self._mesh.id, self._settings.split)

    def prefer(self, *, fast: bool) -> bool:
        """Whether the next start is as wished: speed in place of equal tokens only where nothing is fixed."""
        if self._fixed is None:
            self.exact = self._settings.exact and not fast
        return not (fast and self.exact)

    def make(self, excluded: Mapping[str, str]) -> Deal:
        """A deal over the devices that are here and respond. Raises `ModelTooBig`."""
        s = self._settings
        members, out = self._here(excluded)
        deal = make_deal(
            members,
            self._mesh.id,
            self.model,
            split=s.split,
            ctx=s.ctx,
            exact=self.exact,
            dtype=s.dtype,
            kv=s.kv,
            quant=s.quant,
            drafts=s.drafts,
            fixed=self._fixed,
            excluded=out,
            layer_ms={m.id: ms for m in members if (ms := self.paces.of(self._key(m.id)))},
        )
        return replace(deal, seats=tuple(replace(seat, key=self._mesh.seat(seat.id)) for seat in deal.seats))

    def _here(self, excluded: Mapping[str, str]) -> tuple[list[Member], dict[str, str]]:
        """The roster, with what each may hold at most; and who gets no layers for now, with the reason."""
        members: list[Member] = []
        out = dict(excluded)
        for member in self._in_order():
            lends = member.meta.contrib_gb or 0.0
            most = self.shares.most(self._key(member.id), lends)
            if most < lends:
                meta = msgspec.structs.replace(member.meta, contrib_gb=most, pledge_max=None)
                member = msgspec.structs.replace(member, meta=meta)  # noqa: PLW2901  # the same device, less of it
            members.append(member)
            if member.id != self._mesh.id and lends > 0 and (why := self._not_now(member.id, most)):
                out.setdefault(member.id, why)
        return members, out

    def _in_order(self) -> list[Member]:
        """The roster; those who held layers as they followed each other: who holds the same loads nothing."""
        place = {key: n for n, key in enumerate(self.order)}
        me = self._mesh.id
        last = len(place)
        return sorted(self._mesh.roster, key=lambda m: -1 if m.id == me else place.get(self._key(m.id), last))

    def _not_now(self, id: str, most: float) -> str:
        facts = self._mesh.facts(id)
        if facts is None:
            return AWAY
        return KILLED if most <= 0 else SILENT if facts.quiet_s >= QUIET_S else ""

    def _key(self, id: str) -> str:
        return self._mesh.seat(id) or id

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
        self._numbers = {seat.id: self.number for seat in deal.seats}
        here = self.lenders()
        self._dealt_over = {id: gb for id, gb in here.items() if deal.reasons.get(id) not in (AWAY, SILENT)}
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
            room=self._settings.copies,
            weights=self._weights,
            supply=self._supply,
            hears=self._hears,
            number=self.number,
            on_progress=on_progress,
        )
        workers = [s.id for s in deal.seats[1:]]
        self._mesh.spare(workers)
        self._mesh.chain(workers, largest=deal.largest(self.model.dim))
        start = self.start
        try:
            trouble = await start.run()
            self.ckpt, self.drafts, self.note = start.loading.ckpt, start.drafts, start.note
            self.runs = start.runs
            own = self.pace.loaded(start.layer_ms, deal.seats[0].hi, self._clock.now())
            self.computes(self._mesh.id, own)
            return trouble
        finally:
            self._mesh.spare([])
            self.start = None

    def loaded(self, deal: Deal) -> None:
        """The deal stands: what the first one chose is fixed from now on (PROTOCOL section 5)."""
        self.fix(Fixed(deal.dtype, deal.cols, deal.kv, deal.quant))
        self.order = [seat.key or seat.id for seat in deal.seats[1:]]

    def fix(self, fixed: Fixed) -> None:
        """What the first start chose holds for every later one, also after a restart of this host."""
        self._fixed = fixed

    # -- a deal that goes on -----------------------------------------------------------------------

    def is_current(self, sender: str, number: int | None) -> bool:
        """Whether a report is of what this device was told last; one that names no deal counts."""
        return number is None or number == self._numbers.get(sender)

    def moved(self, was: str, id: str, name: str) -> None:
        """The device of a seat came back under another id, or name."""
        if self.deal is None:
            return
        seats = tuple(replace(s, id=id, name=name) if s.id == was else s for s in self.deal.seats)
        self.deal = replace(self.deal, seats=seats)
        if was in self._numbers:
            self._numbers[id] = self._numbers.pop(was)
        if was in self._dealt_over:
            self._dealt_over[id] = self._dealt_over.pop(was)
        self._mesh.chain([s.id for s in seats[1:]], largest=self.deal.largest(self.model.dim))

    def reload(self, id: str) -> None:
        """Tell a device once more what it holds: one that still does is ready at once (section 3)."""
        if self.deal and self.deal.seat(id):
            self.number += 1
            self._numbers[id] = self.number
            self._weights.remind(id)
            inv, me = self._weights.listing(id), self._mesh.id
            message = load_message(self.deal, id, model=self.model, host=me, number=self.number, inv=inv)
            self._mesh.send(id, message)

    def computes(self, id: str, said: wire.Telemetry | None) -> None:
        """A device says how long it computes: it counts at the next deal."""
        seat = self.deal.seat(id) if self.deal else None
        if said and seat:
            self.paces.heard(self._key(id), said.k, seat.hi - seat.lo)

    def ran(self, kind: FrameKind, ms: float) -> None:
        """This device computed a frame of its layers, in so many milliseconds."""
        self.computes(self._mesh.id, self.pace.ran(kind, ms, self._clock.now()))

    def drop(self) -> None:
        """Nobody holds anything of the deal any more."""
        self.deal, self._numbers = None, {}

    async def free(self) -> None:
        """Give back what this device loaded: nobody holds anything of the deal any more. Never raises."""
        if not self._shard_dead:
            with contextlib.suppress(PooledError):  # it has died meanwhile, and holds nothing
                await self.shard.unload()

    def killed(self, id: str, *, did: str = "loaded", needed: bool = False) -> Less | Without | None:
        """A device of the deal was killed while it ``did``: what it gets from now on, which it is told.

        None: it is not here now. It hears it when it comes back, and gets it in the next deal.

        Parameters
        ----------
        needed
            It had held its layers: where the room cannot do with less of it, or it held only one and it is
            the first time, it gets as much again (None), since it may have been one bad moment.
        """
        deal, seat = self.deal, self.deal.seat(id) if self.deal else None
        if deal is None or seat is None:
            return None
        drafts = Drafts(self._settings.drafts.model, deal.draft_layers)
        size = size_of(self.model, Form(deal.dtype, deal.kv, deal.quant), deal.ctx, drafts)
        extra = size.scratch + (size.ends_bytes if id == self._mesh.id else 0)
        key = seat.key or id
        word = self.shares.killed(key, seat.name, size.held[seat.lo : seat.hi], extra, did=did, held=needed)
        if word is None:
            return None
        if needed and not self._can_deal():
            self.shares.forgive(key)
            return None
        here = next((m.id for m in self._mesh.roster if self._key(m.id) == key), "")
        if here != self._mesh.id and self._mesh.facts(here) is None:
            self._vanished[key] = id
            while len(self._vanished) > MAX_PASSES:
                del self._vanished[next(iter(self._vanished))]
            return None
        self.tell_share(key, here)
        return word

    def _can_deal(self) -> bool:
        try:
            self.make({})
        except PooledError:
            return False
        return True

    def tell_share(self, key: str, id: str) -> None:
        """A device hears, once, that it holds less, or nothing, and why.

        One that had only vanished, and is back under its id, was not killed: a process that begins anew has
        another id. It holds as much as before.
        """
        if self._vanished.pop(key, "") == id:
            self.shares.forgive(key)
        word = self.shares.word(key)
        if word is None or id == self._mesh.id:
            return
        less = word if isinstance(word, Less) else None
        share = wire.Share(gb=less.gb if less else None, drop=less is None, why=word.why)
        if not self._mesh.send(id, share):
            self.shares.owe(key, word)

    # -- what everybody hears ----------------------------------------------------------------------

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
            quant=QUANT_CLASSES.get(deal.quant),
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
