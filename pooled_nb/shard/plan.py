"""Who holds which layers: both splits of PROTOCOL section 6, as pure functions without torch.

The same input gives the same plan on every machine: all ties break by the order the devices are
listed in. A device never holds more than it lends: weights, the caches at this ``ctx`` and, on the
host, embedding, norm and head are counted. Layers that share one cache are never cut apart.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from msgspec import Struct, field

from pooled_nb.errors import ModelTooBig
from pooled_nb.shard.fill import Sizes, any_order, fill, join_glued, snap
from pooled_nb.shard.footprint import capacity

GB = 1e9
PHONE_COST = 20
"""An unmeasured phone costs as much as this many computers (PROTOCOL section 6)."""


class Candidate(Struct, frozen=True, kw_only=True):
    """A device that could hold layers.

    Attributes
    ----------
    id, name
        Its id on the wire, and the name people know.
    lends
        Bytes it lends. Anything but a positive, finite number counts as nothing.
    ms
        Measured milliseconds per layer; None (or nothing positive) until measured.
    pledge_max
        Bytes it could lend at most, if it said so: names who could give more.
    """

    id: str
    name: str
    lends: float
    ms: float | None = None
    phone: bool = False
    host: bool = False
    pledge_max: float | None = None


class ModelSize(Struct, frozen=True, kw_only=True):
    """What has to fit.

    Attributes
    ----------
    layer_bytes
        Bytes of each layer's weights, in the dtype the room runs.
    kv_bytes
        Bytes one token takes in each layer's cache, in the form the room keeps it in.
    ends_bytes
        Bytes of embedding, final norm and head (and of drafts), held by the host.
    ctx
        Tokens the caches hold; they grow in steps of 256.
    state_bytes
        Bytes of each layer's running state with its snapshots; empty: no layer has one.
    scratch_bytes
        Bytes one token takes on each device beside that (`footprint.CacheSizes.scratch`).
    glued
        Ranges ``[lo, hi)`` that one device must hold whole.
    """

    label: str
    layer_bytes: list[int]
    kv_bytes: list[int]
    ends_bytes: int
    ctx: int
    state_bytes: list[int] = field(default_factory=list)
    scratch_bytes: int = 0
    glued: list[tuple[int, int]] = field(default_factory=list)

    @property
    def held(self) -> list[int]:
        """Bytes of each layer where it is held: weights and caches."""
        columns = capacity(self.ctx)
        states = self.state_bytes or [0] * len(self.layer_bytes)
        parts = zip(self.layer_bytes, self.kv_bytes, states, strict=True)
        return [weights + kv * columns + state for weights, kv, state in parts]

    @property
    def scratch(self) -> int:
        """Bytes on each device that holds any layer, beside them."""
        return self.scratch_bytes * capacity(self.ctx)

    @property
    def total(self) -> int:
        """Bytes on one device that holds it all."""
        return sum(self.held) + self.ends_bytes + self.scratch


class Share(Struct, frozen=True, kw_only=True):
    """One device's layers ``[lo, hi)`` and the bytes they take there."""

    id: str
    lo: int
    hi: int
    bytes: int


class Plan(Struct, frozen=True, kw_only=True):
    """The chain, host first, in layer order; and why each other device is out: ``unneeded`` or ``small``."""

    shares: list[Share]
    out: dict[str, str]


def plan_speed(devices: Sequence[Candidate], model: ModelSize) -> Plan:
    """Split for speed: fastest first, each up to what it can hold, the rest stay guests.

    Until anything is measured the fewest hops win, and a phone counts as 20 computers. Where only some
    devices are measured, the others count as the slowest of those (a phone as 20 of them).

    Raises
    ------
    ModelTooBig
        The sentence says how many GB are short, and who could give more.
    """
    sizes, host, workers = _prepare(devices, model)
    if any(_ms(device) is not None for device in devices):
        counts = _by_measure(host, workers, sizes)
    else:
        counts = _fewest_hops(host, workers, sizes)
    counts = counts or _last_resort(host, workers, sizes)
    if counts is None:
        raise _too_big(host, workers, sizes, model)
    return _plan(counts, devices, sizes)


def plan_memory(devices: Sequence[Candidate], model: ModelSize) -> Plan:
    """Split by memory: in proportion to what each lends, at least one layer each, largest remainders first.

    Phones hold none while the computers can hold the model.

    Raises
    ------
    ModelTooBig
        The sentence says how many GB are short, and who could give more.
    """
    sizes, host, workers = _prepare(devices, model)
    computers = [worker for worker in workers if not worker.phone]
    counts = _proportional(host, computers, sizes) or _last_resort(host, computers, sizes)
    counts = counts or _proportional(host, workers, sizes) or _last_resort(host, workers, sizes)
    if counts is None:
        raise _too_big(host, workers, sizes, model)
    return _plan(counts, devices, sizes)


Counts = list[tuple[Candidate, int]]
"""Devices in chain order, host first, each with how many pieces it holds (at least one)."""


def _prepare(devices: Sequence[Candidate], model: ModelSize) -> tuple[Sizes, Candidate, list[Candidate]]:
    """Check what was given, and set aside who cannot hold a single layer."""
    hosts = [device for device in devices if device.host]
    if len(hosts) != 1 or len({device.id for device in devices}) != len(devices):
        raise ValueError("a plan needs exactly one host and ids that differ")
    lengths = {len(model.layer_bytes), len(model.kv_bytes), len(model.state_bytes or model.kv_bytes)}
    if not model.layer_bytes or len(lengths) != 1:
        raise ValueError("a plan needs the bytes of every layer")
    pieces, edges = join_glued(model.held, model.glued)
    sizes = Sizes(pieces, edges, model.ends_bytes, model.scratch)
    workers = [d for d in devices if not d.host and _room(d, sizes) >= min(sizes.pieces)]
    return sizes, hosts[0], workers


def lent(device: Candidate) -> float:
    """Bytes a device really lends: what is not a positive number counts as nothing (PROTOCOL section 6)."""
    return device.lends if math.isfinite(device.lends) and device.lends > 0 else 0.0


def _ms(device: Candidate) -> float | None:
    return device.ms if device.ms is not None and math.isfinite(device.ms) and device.ms > 0 else None


def _room(device: Candidate, sizes: Sizes) -> float:
    """Bytes left for layers."""
    return lent(device) - sizes.scratch - (sizes.ends if device.host else 0)


def _by_measure(host: Candidate, workers: list[Candidate], sizes: Sizes) -> Counts | None:
    known = [ms for d in (host, *workers) if (ms := _ms(d)) is not None]
    slowest = max(known, default=1.0)

    def cost(device: Candidate) -> float:
        return _ms(device) or slowest * (PHONE_COST if device.phone else 1)

    # A tie goes to the host (no hop), then to who holds more (fewer hops).
    ranked = sorted(workers, key=lambda d: (cost(d), -lent(d)))
    before = [d for d in ranked if cost(d) < cost(host)]
    after = [d for d in ranked if cost(d) >= cost(host)]
    most = fill(0, [_room(host, sizes)], sizes)[0]
    # The host sits first in the chain whatever its speed: the faster ones take all they can after its
    # first piece, and it keeps what they leave; only then do the slower ones get any.
    for own in range(1, most + 1):
        taken = fill(own, [_room(d, sizes) for d in before], sizes)
        if own + sum(taken) == len(sizes.pieces):
            return _counts([host, *before], [own, *taken])
    if most < 1:
        return None
    taken = fill(most, [_room(d, sizes) for d in (*before, *after)], sizes)
    if most + sum(taken) < len(sizes.pieces):
        return None
    return _counts([host, *before, *after], [most, *taken])


def _fewest_hops(host: Candidate, workers: list[Candidate], sizes: Sizes) -> Counts | None:
    own = fill(0, [_room(host, sizes)], sizes)[0]
    if own < 1:
        return None
    computers = sorted((d for d in workers if not d.phone), key=lambda d: -lent(d))
    phones = sorted((d for d in workers if d.phone), key=lambda d: -lent(d))
    best: tuple[int, Counts] | None = None
    for k in range(len(phones) + 1):
        chosen = [*phones[:k], *computers]
        taken = fill(own, [_room(d, sizes) for d in chosen], sizes)
        if own + sum(taken) < len(sizes.pieces):
            continue
        used = _counts(chosen, taken)
        hops = sum(PHONE_COST if d.phone else 1 for d, _ in used)
        if best is None or hops < best[0]:
            best = (hops, used)
    return None if best is None else [(host, own), *best[1]]


def _proportional(host: Candidate, workers: list[Candidate], sizes: Sizes) -> Counts | None:
    if sizes.edges[-1] != len(sizes.pieces):
        return _near_proportional(host, workers, sizes)
    total = len(sizes.pieces)
    # Counted by the largest, so that a count holds wherever in the model it falls.
    largest = max(sizes.pieces)

    def cap(device: Candidate) -> int:
        return min(total, int(_room(device, sizes) // largest))

    if cap(host) < 1:
        return None
    able = sorted((d for d in workers if cap(d) >= 1), key=lambda d: -lent(d))[: total - 1]
    chain = [host, *(d for d in workers if d in able)]
    caps = [cap(d) for d in chain]
    if sum(caps) < total:
        return None
    lends = [lent(d) for d in chain]
    quota = [total * (mine / sum(lends)) for mine in lends]
    counts = [min(most, max(1, math.floor(q))) for q, most in zip(quota, caps, strict=True)]
    while sum(counts) != total:
        over = [q - c for q, c in zip(quota, counts, strict=True)]
        if sum(counts) < total:
            i = max((i for i in range(len(chain)) if counts[i] < caps[i]), key=lambda i: over[i])
            counts[i] += 1
        else:
            i = min((i for i in range(len(chain)) if counts[i] > 1), key=lambda i: over[i])
            counts[i] -= 1
    return _counts(chain, counts)


def _near_proportional(host: Candidate, workers: list[Candidate], sizes: Sizes) -> Counts | None:
    """In proportion as far as layers that are never cut apart allow; the smallest lenders go first."""
    able = sorted(workers, key=lambda d: -lent(d))[: len(sizes.pieces) - 1]
    while True:
        chain = [host, *(d for d in workers if d in able)]
        whole = sum(lent(d) for d in chain)
        taken = (
            snap([lent(d) / whole for d in chain], [_room(d, sizes) for d in chain], sizes) if whole else None
        )
        if taken is not None:
            return _counts(chain, taken)
        if not able:
            return None
        able.pop()


def _last_resort(host: Candidate, workers: list[Candidate], sizes: Sizes) -> Counts | None:
    """Try any order: layers of different sizes may fit in one order of the devices and not in another."""
    found = any_order(_room(host, sizes), [_room(d, sizes) for d in workers], sizes)
    if found is None:
        return None
    own, order, taken = found
    return [(host, own), *_counts([workers[i] for i in order], taken)]


def _counts(chain: Sequence[Candidate], taken: Sequence[int]) -> Counts:
    return [(device, n) for device, n in zip(chain, taken, strict=True) if n > 0]


def _plan(counts: Counts, devices: Sequence[Candidate], sizes: Sizes) -> Plan:
    starts = [0]
    for _, n in counts:
        starts.append(starts[-1] + n)
    shares = [
        Share(
            id=d.id,
            lo=sizes.edges[a],
            hi=sizes.edges[b],
            bytes=sum(sizes.pieces[a:b]) + sizes.scratch + (sizes.ends if d.host else 0),
        )
        for (d, _), (a, b) in zip(counts, pairwise(starts), strict=True)
    ]
    held = {share.id for share in shares}
    small = min(sizes.pieces)
    return Plan(
        shares=shares,
        out={d.id: "small" if _room(d, sizes) < small else "unneeded" for d in devices if d.id not in held},
    )


def _too_big(host: Candidate, workers: list[Candidate], sizes: Sizes, model: ModelSize) -> ModelTooBig:
    """Say how many GB are short, and who could give more."""
    devices = [host, *workers]
    alone = sizes.pieces[0] - _room(host, sizes)
    whole = max(range(len(sizes.pieces)), key=lambda i: sizes.pieces[i])
    missing = sizes.pieces[whole] - max(_room(d, sizes) for d in devices)
    if alone > 0:
        layers = (
            "at least one layer" if sizes.edges[1] == 1 else f"{_layers(sizes, 0)}, which share one cache"
        )
        short, givers = alone, [host]
        where = f" on {host.name}, which as host holds embedding, head and {layers}"
    elif missing > 0 and sizes.edges[whole + 1] - sizes.edges[whole] > 1:
        short, givers = missing, devices
        where = f": its {_layers(sizes, whole)} share one cache, so one device must hold them all"
    else:
        own = fill(0, [_room(host, sizes)], sizes)[0]
        taken = fill(own, [_room(d, sizes) for d in workers], sizes)
        short, givers, where = float(sum(sizes.pieces[own + sum(taken) :])), devices, ""
    extra = [(device.pledge_max or 0.0) - lent(device) for device in givers]
    most = max(range(len(givers)), key=lambda i: extra[i])
    if math.isfinite(extra[most]) and extra[most] >= 0.01 * GB:
        step = f"{givers[most].name} could give {_gb(extra[most], up=False)} more."
    elif alone > 0:
        step = f"Let {host.name} lend more, or choose a smaller model."
    else:
        step = "Let another device join, or choose a smaller model or a shorter context."
    return ModelTooBig(f"The memory lent is short by {_gb(short, up=True)} for {model.label}{where}.", step)


def _layers(sizes: Sizes, piece: int) -> str:
    """A piece's layers for people, who count from 1."""
    return f"layers {sizes.edges[piece] + 1} to {sizes.edges[piece + 1]}"


def _gb(size: float, *, up: bool) -> str:
    """Bytes as people read them; what is missing is rounded up, what could be had down."""
    step = 100 if size < GB else 10
    scaled = size / GB * step
    return f"{max(1, math.ceil(scaled) if up else math.floor(scaled)) / step:g} GB"
