"""One seed makes one story: a room, what its people ask, and what befalls it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from random import Random

from pooled_nb.room.core import AskOptions
from tests.sim.faults import Fault
from tests.sim.shape import Shape

TEXTS = (
    "why is the sea salt?",
    "tell me of hell and of all who dwell there",
    "one, two, three, four, one, two, three,",
    "a a a a a a a a",
    "Name a bird that swims.",
    "What did I ask before?",
    "Sing.",
)
BEGIN_S = 12.0
"""When the room is up, mostly, and people begin to ask."""
SPAN_S = 40.0
"""Seconds in which they ask, and in which faults come."""

DEVICE = (
    "freeze",
    "stall",
    "hidden",
    "slow",
    "alone",
    "kill",
    "restart",
    "leave",
    "politely",
    "shard",
    "memory",
    "frame",
)
FRAMES = ("shape", "position", "nan", "columns", "twice", "nothing", "stale", "stale")
PAIR = ("partition", "half", "fail")
ROOM = ("signaling", "noise", "join", "reboot")
STRIPE = "stripe"
"""Of rooms that have stripes alone, and drawn apart: the seeds of rooms without are the same runs as ever."""
ALL = (*DEVICE, *PAIR, *ROOM, STRIPE)


@dataclass(frozen=True)
class Say:
    """What one person does: ``what`` is ask, continue, regen, stop, reset, or set (the visibility)."""

    at: float
    who: str
    what: str = "ask"
    text: str = ""
    options: AskOptions = field(default_factory=AskOptions)


@dataclass(frozen=True)
class Story:
    """A run by its value: the same value is the same run.

    ``faults`` None are those of the seed. ``says``: the numbers of those that are said; None: all.
    """

    seed: int
    faults: tuple[Fault, ...] | None = None
    says: tuple[int, ...] | None = None
    kinds: tuple[str, ...] = ALL

    def __repr__(self) -> str:
        told = [f"seed={self.seed}"]
        if self.faults is not None:
            told.append(f"faults={self.faults!r}")
        if self.says is not None:
            told.append(f"says={self.says!r}")
        return f"Story({', '.join(told)})"

    @cached_property
    def shape(self) -> Shape:
        """The room."""
        rng = Random(f"shape {self.seed}")
        workers = tuple(rng.choice((0.35, 0.5, 1.0, 1.0)) for _ in range(rng.choice((1, 1, 2, 2, 3, 4))))
        far = rng.random() < 0.3
        return Shape(
            host_gb=rng.choice((0.3, 1.0, 1.0, 1.0)),
            workers=workers,
            guests=rng.choice((0, 0, 1, 1, 2)),
            latency=round(rng.uniform(0.05, 0.2), 3) if far else round(rng.uniform(0.001, 0.03), 3),
            jitter=rng.choice((0.0, 0.01, 0.05)) if not far else rng.choice((0.0, 0.1)),
            loss=rng.choice((0.0, 0.0, 0.01, 0.05)),
            keepalive_ms=rng.choice((0.0, 0.0, 0.0, 50.0)),
            frame=rng.choice((0.01, 0.05, 0.15)),
            load=rng.choice((0.5, 3.0, 12.0)),
            stripes=Random(f"stripes {self.seed}").choice((0, 0, 0, 1, 3)),
        )

    @cached_property
    def script(self) -> tuple[Say, ...]:
        """What people do, by time."""
        rng = Random(f"script {self.seed}")
        names = self.names
        says: list[Say] = []
        for number in range(rng.randint(2, 6)):
            says.append(self._say(rng, number, rng.choice(names)))
        says.sort(key=lambda say: say.at)
        chosen = range(len(says)) if self.says is None else self.says
        return tuple(says[i] for i in chosen)

    def _say(self, rng: Random, number: int, who: str) -> Say:
        at = round(BEGIN_S + rng.uniform(-4, SPAN_S), 2)
        what = (
            "ask"
            if number < 2 or rng.random() < 0.7
            else rng.choice(("continue", "regen", "stop", "stop", "reset"))
        )
        if what == "reset":
            who = "host"
        text = f"{number}: {rng.choice(TEXTS)}"
        options = AskOptions(max_tokens=rng.choice((12, 20, 40)))
        if what == "ask" and rng.random() < 0.4:
            options = AskOptions(max_tokens=options.max_tokens, style="creative", seed=rng.randint(0, 3))
        return Say(at, who, what, text if what == "ask" else "", options)

    @property
    def names(self) -> list[str]:
        """All devices at the beginning."""
        shape = self.shape
        workers = [f"w{i}" for i, _ in enumerate(shape.workers, 1)]
        return ["host", *workers, *[f"g{i + 1}" for i in range(shape.guests)]]

    @cached_property
    def befalls(self) -> tuple[Fault, ...]:
        """The faults, by time."""
        if self.faults is not None:
            return self.faults
        rng = Random(f"faults {self.seed}")
        kinds = tuple(kind for kind in self.kinds if kind != STRIPE)
        count = rng.choice((0, 1, 1, 2, 2, 3, 4, 8)) if kinds else 0
        faults = [self._fault(rng, rng.choice(kinds)) for _ in range(count)]
        if self.shape.stripes and STRIPE in self.kinds:
            rng = Random(f"stripe faults {self.seed}")
            faults += [self._stripe(rng) for _ in range(rng.choice((0, 1, 2, 4)))]
        return tuple(sorted(faults, key=lambda fault: fault.at))

    def _stripe(self, rng: Random) -> Fault:
        """What befalls the stripes between two neighbours of the chain, as it is planned."""
        workers = [name for name in self.names if name[0] == "w"]
        ring = ["host", *workers, "host"]
        who, other = rng.choice(list(pairwise(ring)))
        at = round(rng.choice(self.script).at + rng.uniform(0, 5), 2)
        how = rng.choice(("fail", "hole", "late"))
        s = 0.0 if how == "fail" else round(rng.choice((rng.uniform(0.5, 6), rng.uniform(6, 50))), 1)
        return Fault(at, STRIPE, who, other, s=s, how=how)

    def _fault(self, rng: Random, kind: str) -> Fault:
        names = self.names
        at = rng.uniform(2.0 if rng.random() < 0.15 else BEGIN_S - 2, BEGIN_S + SPAN_S)
        if rng.random() < 0.6 and self.script:  # while somebody is answered, mostly
            at = rng.choice(self.script).at + rng.uniform(0, 5)
        at = round(at, 2)
        who = rng.choice([*names, *[n for n in names if n[0] == "w"] * 2])
        other = rng.choice([name for name in names if name != who])
        s = round(rng.choice((rng.uniform(0.5, 6), rng.uniform(6, 20), rng.uniform(20, 100))), 1)
        fault = Fault(at, kind, who, s=s)
        if kind in PAIR:
            fault = replace(fault, other=other)
        if kind in ROOM:
            fault = replace(fault, who="host" if kind == "reboot" else "")
        match kind:
            case "fail":
                return replace(fault, s=0.0, how=rng.choice(("all", "link", "stripe")))
            case "slow":
                return replace(fault, how=rng.choice(("10", "100", "1000")))
            case "stall":
                return replace(fault, s=round(rng.choice((rng.uniform(0.5, 8), rng.uniform(8, 45))), 1))
            case "kill" | "leave" | "politely":
                return replace(fault, s=0.0, who=rng.choice([n for n in names if n != "host"]))
            case "join":
                return replace(fault, s=rng.choice((0.0, 0.5, 1.0)))
            case "shard":
                return replace(fault, s=0.0)
            case "memory":
                return replace(fault, s=0.0, how=rng.choice(("refused", "killed", "killed")))
            case "frame":
                worker = rng.choice([n for n in names if n[0] == "w"])
                how = rng.choice(
                    ("shape", "position", "nan", "columns", "twice", "nothing", "stale", "stale")
                )
                return replace(fault, s=0.0, who=worker, how=how)
        return fault
