"""Who holds which layers, and what must be the same on each (PROTOCOL section 6). Decides only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from pooled_nb.errors import ModelTooBig
from pooled_nb.mesh.messages.link import Member
from pooled_nb.room.chain import ENCODING
from pooled_nb.room.paces import alike
from pooled_nb.room.sizing import Drafts, Form, size_of
from pooled_nb.shard import Candidate, ModelFacts, plan_memory, plan_speed

Split = Literal["speed", "memory", "alone"]
"""``alone``: the host holds every layer, whoever else lends (DESIGN section 7)."""

WIDTH = 16
"""Columns of a frame of generated text: 1 + 15 drafts (DESIGN section 5, rule 1)."""
COLS_CPU = 64
"""Up to 384 tokens all frames of a prompt fly at once. SmolLM2 takes 25 ms more than with 32 for 12 tokens,
and as much less for 40 or 60."""
COLS_GPU = 256
COLS = (16, 32, 64, 128, 256)
"""What prompt frames may be padded to: divisors of the position bucket."""
DTYPES = ("bfloat16", "float16", "float32")


@dataclass(frozen=True, slots=True)
class Seat:
    """One device's place in the chain: layers ``[lo, hi)``, ``gb`` of weights and caches.

    ``key``: the id of the pass by which its device comes back to it (`Mesh.seat`); empty: it has none.
    """

    id: str
    name: str
    lo: int
    hi: int
    gb: float
    key: str = ""


@dataclass(frozen=True, slots=True)
class Deal:
    """A whole deal. ``seats`` in chain order, the host first; ``out`` says why a device holds nothing.

    ``draft_layers``: how many of the model's own draft layers the host loads.
    """

    seats: tuple[Seat, ...]
    out: Mapping[str, str]
    dtype: str
    width: int
    cols: int
    ctx: int
    one_sig: bool
    reasons: Mapping[str, str]
    """Why a device that tried could not load, in its own words."""
    kv: str = "f16"
    draft_layers: int = 0
    quant: str = ""

    @property
    def ranges(self) -> dict[str, list[int]]:
        """Layers by id, as the wire says them."""
        return {s.id: [s.lo, s.hi] for s in self.seats}

    def largest(self, dim: int) -> int:
        """Payload bytes of its largest frame: a prompt's, or a verify frame's of 63 columns (section 5)."""
        return max(self.cols, self.width, 63) * dim * ENCODING[self.dtype].width

    def seat(self, id: str) -> Seat | None:
        """The seat of this device."""
        return next((s for s in self.seats if s.id == id), None)

    def neighbours(self, id: str) -> tuple[str, str]:
        """Ids before and after; after the last comes ``"host"``."""
        ids = [s.id for s in self.seats]
        i = ids.index(id)
        return ids[i - 1], ids[i + 1] if i + 1 < len(ids) else "host"


@dataclass(frozen=True, slots=True)
class Fixed:
    """What is fixed at the room's first start, since it decides bits (PROTOCOL section 5)."""

    dtype: str
    cols: int
    kv: str = "f16"
    quant: str = ""


def can_hold(member: Member) -> bool:
    """Whether a device may hold layers of a room of ours: it lends memory and speaks our frames."""
    nb = member.meta.nb
    lends = bool(member.meta.webgpu and (member.meta.contrib_gb or 0) > 0)
    return lends and nb is not None and nb.width >= WIDTH and nb.cols >= COLS[0] and "float32" in nb.dtypes


def fits(member: Member, fixed: Fixed) -> bool:
    """Whether a device runs the room's dtype natively and its prompt frames whole."""
    nb = member.meta.nb
    return nb is not None and fixed.dtype in nb.dtypes and nb.cols >= fixed.cols


def choose(
    members: Sequence[Member], model: ModelFacts, dtype: str | None, kv: str = "f16", quant: str = ""
) -> Fixed:
    """The dtype that all of these run natively, the model's own first, and the widest prompt frames."""
    offers = [m.meta.nb for m in members if m.meta.nb]
    order = [dtype] if dtype else [d for d in dict.fromkeys((model.dtype, *DTYPES)) if d in ENCODING]
    common = next((d for d in order if all(d in nb.dtypes for nb in offers)), "float32")
    most = COLS_CPU if any(nb.device == "cpu" for nb in offers) else COLS_GPU
    narrowest = min((nb.cols for nb in offers), default=COLS_CPU)
    return Fixed(dtype or common, max(c for c in COLS if c <= min(most, max(narrowest, COLS[0]))), kv, quant)


def lenders(members: Sequence[Member], host: str, split: Split) -> dict[str, float]:
    """Who could hold layers beside the host, and how much each lends: when it grows, a new deal may help."""
    if split == "alone":
        return {}
    return {m.id: m.meta.contrib_gb or 0.0 for m in members if m.id != host and can_hold(m)}


def grew(before: Mapping[str, float], now: Mapping[str, float]) -> bool:
    """Whether somebody came who lends, or lends more."""
    return any(gb > before.get(id, 0.0) for id, gb in now.items())


def make_deal(
    members: Sequence[Member],
    host: str,
    model: ModelFacts,
    *,
    split: Split,
    ctx: int,
    exact: bool,
    dtype: str | None = None,
    kv: str = "f16",
    quant: str = "",
    drafts: Drafts | None = None,
    fixed: Fixed | None = None,
    excluded: Mapping[str, str] | None = None,
    layer_ms: Mapping[str, float] | None = None,
) -> Deal:
    """Deal the model's layers over the devices of the roster.

    Parameters
    ----------
    members
        The roster, the host among them.
    dtype
        What the room's creator wants; None: the model's own where every device has it.
    kv
        How caches are kept: ``f16`` or ``q8``.
    quant
        How linear weights are kept: ``int8``, ``int4``, or as they are (empty).
    drafts
        What is to draft on the host. The model's own draft layers give way where they do not fit.
    fixed
        What the first start fixed; None at the first start.
    excluded
        Devices that could not load in this start, by id, with the reason.
    layer_ms
        Milliseconds a layer, by id, of the devices that were measured.

    Raises
    ------
    ModelTooBig
        The memory lent does not hold it: by how many GB, and who could give more.
    """
    excluded = excluded or {}
    others = split != "alone"
    able = [m for m in members if m.id == host or (others and can_hold(m) and m.id not in excluded)]
    wanted = drafts or Drafts()

    def deal(able: Sequence[Member], fixed: Fixed) -> Deal:
        way = _Way(members, host, model, fixed, split, ctx, exact, wanted, excluded, alike(layer_ms or {}))
        try:
            return _deal(able, way)
        except ModelTooBig:
            if not wanted.layers:
                raise
            return _deal(able, replace(way, drafts=Drafts(wanted.model)))

    if fixed is None and split == "speed":
        # The fewest hops are wanted anyway: a device that lacks the model's dtype must not slow the others.
        own = [m for m in able if m.id == host or _native(m, model)]
        try:
            return deal(own, choose(own, model, dtype, kv, quant))
        except ModelTooBig:
            pass
    fixed = fixed or choose(able, model, dtype, kv, quant)
    return deal([m for m in able if m.id == host or fits(m, fixed)], fixed)


@dataclass(frozen=True, slots=True)
class _Way:
    """How a deal is made, whoever may hold layers."""

    members: Sequence[Member]
    host: str
    model: ModelFacts
    fixed: Fixed
    split: Split
    ctx: int
    exact: bool
    drafts: Drafts
    excluded: Mapping[str, str]
    layer_ms: Mapping[str, float]


def _native(member: Member, model: ModelFacts) -> bool:
    return member.meta.nb is not None and model.dtype in member.meta.nb.dtypes


def _deal(able: Sequence[Member], way: _Way) -> Deal:
    fixed, host = way.fixed, way.host
    size = size_of(way.model, Form(fixed.dtype, fixed.kv, fixed.quant), way.ctx, way.drafts)
    candidates = [
        Candidate(
            id=m.id,
            name=m.name,
            lends=(m.meta.contrib_gb or 0.0) * 1e9,
            ms=way.layer_ms.get(m.id),
            phone=m.meta.phone,
            host=m.id == host,
            pledge_max=m.meta.pledge_max * 1e9 if m.meta.pledge_max else None,
        )
        for m in able
    ]
    plan = (plan_memory if way.split == "memory" else plan_speed)(candidates, size)
    names = {m.id: m.name for m in way.members}
    seats = tuple(Seat(s.id, names[s.id], s.lo, s.hi, s.bytes / 1e9) for s in plan.shares)
    held = {s.id for s in seats}
    out = {**plan.out, **dict.fromkeys(way.excluded, "late")}
    out |= {m.id: "unneeded" for m in way.members if m.id not in held and m.id not in out}
    sigs = {m.meta.nb.sig if m.meta.nb else "" for m in way.members if m.id in held}
    return Deal(
        seats,
        out,
        fixed.dtype,
        WIDTH if way.exact else 1,
        fixed.cols,
        way.ctx,
        one_sig=len(sigs) == 1,
        reasons=dict(way.excluded),
        kv=fixed.kv,
        draft_layers=way.drafts.layers,
        quant=fixed.quant,
    )
