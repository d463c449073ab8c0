"""Who holds which layers, and what must be the same on each (PROTOCOL section 6). Decides only."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from pooled_nb.errors import ModelTooBig
from pooled_nb.mesh.messages.link import Member
from pooled_nb.room.chain import ENCODING
from pooled_nb.shard import BUCKET, Candidate, ModelFacts, ModelSize, plan_memory, plan_speed

Split = Literal["speed", "memory", "alone"]
"""``alone``: the host holds every layer, whoever else lends (DESIGN section 7)."""

WIDTH = 16
"""Columns of a frame of generated text: 1 + 15 drafts (DESIGN section 5, rule 1)."""
COLS_CPU = 32
COLS_GPU = 256
COLS = (16, 32, 64, 128, 256)
"""What prompt frames may be padded to: divisors of the position bucket."""
DTYPES = ("bfloat16", "float16", "float32")
ITEMSIZE = {"bfloat16": 2, "float16": 2, "float32": 4}


@dataclass(frozen=True, slots=True)
class Seat:
    """One device's place in the chain: layers ``[lo, hi)``, ``gb`` of weights and caches."""

    id: str
    name: str
    lo: int
    hi: int
    gb: float


@dataclass(frozen=True, slots=True)
class Deal:
    """A whole deal. ``seats`` in chain order, the host first; ``out`` says why a device holds nothing."""

    seats: tuple[Seat, ...]
    out: Mapping[str, str]
    dtype: str
    width: int
    cols: int
    ctx: int
    one_sig: bool
    reasons: Mapping[str, str]
    """Why a device that tried could not load, in its own words."""

    @property
    def ranges(self) -> dict[str, list[int]]:
        """Layers by id, as the wire says them."""
        return {s.id: [s.lo, s.hi] for s in self.seats}

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


def can_hold(member: Member) -> bool:
    """Whether a device may hold layers of a room of ours: it lends memory and speaks our frames."""
    nb = member.meta.nb
    lends = bool(member.meta.webgpu and (member.meta.contrib_gb or 0) > 0)
    return lends and nb is not None and nb.width >= WIDTH and nb.cols >= COLS[0] and "float32" in nb.dtypes


def fits(member: Member, fixed: Fixed) -> bool:
    """Whether a device runs the room's dtype natively and its prompt frames whole."""
    nb = member.meta.nb
    return nb is not None and fixed.dtype in nb.dtypes and nb.cols >= fixed.cols


def choose(members: Sequence[Member], model: ModelFacts, dtype: str | None) -> Fixed:
    """The dtype that all of these run natively, the model's own first, and the widest prompt frames."""
    offers = [m.meta.nb for m in members if m.meta.nb]
    order = [dtype] if dtype else [d for d in dict.fromkeys((model.dtype, *DTYPES)) if d in ENCODING]
    common = next((d for d in order if all(d in nb.dtypes for nb in offers)), "float32")
    most = COLS_CPU if any(nb.device == "cpu" for nb in offers) else COLS_GPU
    narrowest = min((nb.cols for nb in offers), default=COLS_CPU)
    return Fixed(dtype or common, max(c for c in COLS if c <= min(most, max(narrowest, COLS[0]))))


def size_of(model: ModelFacts, dtype: str, ctx: int) -> ModelSize:
    """What has to fit, in the dtype the room runs."""
    scale = ITEMSIZE[dtype] / ITEMSIZE.get(model.dtype, 2)
    return ModelSize(
        label=model.label,
        layer_bytes=[round(b * scale) for b in model.layer_bytes],
        kv_bytes=[b * ITEMSIZE[dtype] // 2 for b in model.kv_bytes],
        ends_bytes=round(model.ends_bytes * scale),
        ctx=ctx,
    )


def need_gb(model: ModelFacts, dtype: str, ctx: int) -> float:
    """GB that all devices together hold: weights, and caches in whole buckets."""
    size = size_of(model, dtype, ctx)
    held = math.ceil(ctx / BUCKET) * BUCKET
    return (sum(size.layer_bytes) + size.ends_bytes + held * sum(size.kv_bytes)) / 1e9


def lenders(members: Sequence[Member], host: str, split: Split) -> frozenset[tuple[str, float]]:
    """Who could hold layers beside the host, and how much each lends: when it grows, a new deal may help."""
    if split == "alone":
        return frozenset()
    return frozenset((m.id, m.meta.contrib_gb or 0.0) for m in members if m.id != host and can_hold(m))


def make_deal(
    members: Sequence[Member],
    host: str,
    model: ModelFacts,
    *,
    split: Split,
    ctx: int,
    exact: bool,
    dtype: str | None = None,
    fixed: Fixed | None = None,
    excluded: Mapping[str, str] | None = None,
) -> Deal:
    """Deal the model's layers over the devices of the roster.

    Parameters
    ----------
    members
        The roster, the host among them.
    dtype
        What the room's creator wants; None: the model's own where every device has it.
    fixed
        What the first start fixed; None at the first start.
    excluded
        Devices that could not load in this start, by id, with the reason.

    Raises
    ------
    ModelTooBig
        The memory lent does not hold it: by how many GB, and who could give more.
    """
    excluded = excluded or {}
    others = split != "alone"
    able = [m for m in members if m.id == host or (others and can_hold(m) and m.id not in excluded)]
    if fixed is None and split == "speed":
        # The fewest hops are wanted anyway: a device that lacks the model's dtype must not slow the others.
        own = [m for m in able if m.id == host or _native(m, model)]
        try:
            return _deal(members, own, host, model, choose(own, model, dtype), split, ctx, exact, excluded)
        except ModelTooBig:
            pass
    fixed = fixed or choose(able, model, dtype)
    able = [m for m in able if m.id == host or fits(m, fixed)]
    return _deal(members, able, host, model, fixed, split, ctx, exact, excluded)


def _native(member: Member, model: ModelFacts) -> bool:
    return member.meta.nb is not None and model.dtype in member.meta.nb.dtypes


def _deal(
    members: Sequence[Member],
    able: Sequence[Member],
    host: str,
    model: ModelFacts,
    fixed: Fixed,
    split: Split,
    ctx: int,
    exact: bool,
    excluded: Mapping[str, str],
) -> Deal:
    size = size_of(model, fixed.dtype, ctx)
    candidates = [
        Candidate(
            id=m.id,
            name=m.name,
            lends=(m.meta.contrib_gb or 0.0) * 1e9,
            phone=m.meta.phone,
            host=m.id == host,
            pledge_max=m.meta.pledge_max * 1e9 if m.meta.pledge_max else None,
        )
        for m in able
    ]
    plan = (plan_memory if split == "memory" else plan_speed)(candidates, size)
    names = {m.id: m.name for m in members}
    seats = tuple(Seat(s.id, names[s.id], s.lo, s.hi, s.bytes / 1e9) for s in plan.shares)
    held = {s.id for s in seats}
    out = {**plan.out, **dict.fromkeys(excluded, "late")}
    out |= {m.id: "unneeded" for m in members if m.id not in held and m.id not in out}
    sigs = {m.meta.nb.sig if m.meta.nb else "" for m in members if m.id in held}
    width = WIDTH if exact else 1
    return Deal(
        seats, out, fixed.dtype, width, fixed.cols, ctx, one_sig=len(sigs) == 1, reasons=dict(excluded)
    )
