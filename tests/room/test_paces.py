"""How fast devices compute, and what a deal makes of it."""

from __future__ import annotations

import asyncio
import itertools
import random

import pytest

from pooled_nb.mesh.frame import Kind
from pooled_nb.mesh.messages import deal as wire
from pooled_nb.room.dealing import make_deal
from pooled_nb.room.paces import ALIKE, TELL_S, FrameKind, Pace, Paces, alike, kind_of
from pooled_nb.shard import Forwarded, Loaded
from tests.room.bench import Bench, load, run
from tests.room.rooms import ask, open_rooms
from tests.room.test_dealing import member
from tests.room.toy import MODEL, ToyShard
from tests.sim.clock import simulate


class TimedShard(ToyShard):
    """A toy that says how long it computes: each frame takes ``ms`` for each of its layers."""

    def __init__(self, ms: float) -> None:
        super().__init__()
        self.ms = ms

    async def load(self, *args: object, **kwargs: object) -> Loaded:
        loaded = await super().load(*args, **kwargs)  # type: ignore[arg-type]  # as it was called
        return Loaded(weights=1, cache=1, seconds=0.0, placed="toy", drafts=loaded.drafts, layer_ms=self.ms)

    async def forward(self, *args: object, **kwargs: object) -> Forwarded:
        ran = await super().forward(*args, **kwargs)  # type: ignore[arg-type]  # as it was called
        layers = self.spec.hi - self.spec.lo if self.spec else 0
        return Forwarded(data=ran.data, pos=ran.pos, n=ran.n, ms=self.ms * layers)


def test_means_per_kind_and_seldom() -> None:
    """PROTOCOL section 6: `ai-tele`: "mean compute ms per frame kind, at most every 700 ms"."""
    pace = Pace()
    assert pace.loaded(2.0, 3, 0.0) == wire.Telemetry(k=wire.Compute(one=6.0))
    assert pace.ran("pre", 900.0, 1.0) is None, "the first of a kind prepares what the others find"
    assert pace.ran("one", 80.0, 1.1) is None
    assert pace.ran("one", 4.0, 1.2) == wire.Telemetry(k=wire.Compute(one=4.0))
    assert pace.ran("one", 5.0, 1.3) is None
    assert pace.ran("pre", 20.0, 1.4) is None
    assert pace.ran("one", 7.0, 1.2 + TELL_S) == wire.Telemetry(k=wire.Compute(one=6.0, pre=20.0))
    assert pace.ran("one", 7.0, 1.3 + TELL_S) is None
    assert pace.ran("one", 7.0, 9.0) == wire.Telemetry(k=wire.Compute(one=7.0)), "of the frames since then"


def test_what_was_not_measured_is_not_said() -> None:
    """PROTOCOL section 6: until measured, nobody says anything."""
    pace = Pace()
    assert pace.loaded(0.0, 3, 0.0) is None
    assert all(pace.ran("one", 0.0, float(now)) is None for now in range(5))


@pytest.mark.parametrize("seed", range(20))
def test_never_more_often(seed: int) -> None:
    """PROTOCOL section 6: at most every 700 ms, whatever runs."""
    rng, pace, now, told = random.Random(seed), Pace(), 0.0, []
    kinds: list[FrameKind] = ["one", "spec", "pre"]
    pace.loaded(1.0, 2, now)
    told.append(now)
    for _ in range(500):
        now += rng.expovariate(10)
        if pace.ran(rng.choice(kinds), rng.uniform(0.1, 50), now):
            told.append(now)
    assert len(told) > 10
    assert all(b - a >= TELL_S for a, b in itertools.pairwise(told))


def test_kinds_of_frames() -> None:
    """PROTOCOL section 6: ``k {one, spec, pre}``."""
    assert [kind_of(batch=b, spec=s) for b, s in ((False, False), (True, True), (True, False))] == [
        "one",
        "spec",
        "pre",
    ]


def test_the_host_counts_by_layer_and_device() -> None:
    """PROTOCOL section 6: "fastest first by measured ms per layer"."""
    paces = Paces()
    assert paces.of("a") is None
    paces.heard("a", wire.Compute(one=12.0), 4)
    assert paces.of("a") == 3.0
    paces.heard("a", wire.Compute(spec=20.0), 4)
    assert paces.of("a") == 4.0
    for nothing in (wire.Compute(pre=90.0), wire.Compute(), wire.Compute(one=0.0)):
        paces.heard("a", nothing, 4)
    paces.heard("a", wire.Compute(one=90.0), 0)
    assert paces.of("a") == 4.0
    for i in range(5_000):
        paces.heard(f"x{i}", wire.Compute(one=1.0), 1)
    assert len(paces._layer_ms) <= 1_000, "bounded, whoever comes"


def test_noise_moves_no_layers() -> None:
    """PROTOCOL section 6: a tie keeps what is dealt where it is."""
    assert alike({}) == {}
    assert alike({"h": 1.0, "a": 0.97}) == {"h": 0.97, "a": 0.97}
    assert alike({"h": 1.0, "a": 0.5, "b": 0.5 * ALIKE}) == {"a": 0.5, "b": 0.5, "h": 1.0}


def test_the_fastest_get_all_they_can_hold() -> None:
    """PROTOCOL section 6: "each up to what it can hold", "the host keeps at least one layer"."""

    def seats(**layer_ms: float) -> list[tuple[str, int]]:
        members = [member("h"), member("a"), member("b")]
        deal = make_deal(members, "h", MODEL, split="speed", ctx=256, exact=True, layer_ms=layer_ms)
        return [(s.id, s.hi - s.lo) for s in deal.seats]

    assert seats() == [("h", MODEL.layers)]
    assert seats(h=4.0, a=1.0) == [("h", 1), ("a", MODEL.layers - 1)]
    assert seats(h=4.0, a=3.9) == [("h", MODEL.layers)], "about as fast: no hop is worth that"
    assert seats(h=4.0, b=1.0, a=2.0) == [("h", 1), ("b", MODEL.layers - 1)]
    assert seats(h=1.0, a=4.0) == [("h", MODEL.layers)]


def test_by_memory_nobody_is_asked_how_fast_it_is() -> None:
    """PROTOCOL section 6: "By memory: in proportion to what each lends"."""
    members = [member("h"), member("a")]
    plain = make_deal(members, "h", MODEL, split="memory", ctx=256, exact=True)
    fast = make_deal(members, "h", MODEL, split="memory", ctx=256, exact=True, layer_ms={"h": 9.0, "a": 1.0})
    assert plain.seats == fast.seats


def test_a_worker_says_it_when_it_has_loaded_and_while_it_computes() -> None:
    """PROTOCOL section 6: `ai-tele`, worker → host."""

    async def scenario(bench: Bench) -> None:
        bench.worker.load(load(1))
        await asyncio.sleep(1)
        said = [type(m) for m in bench.links.said if isinstance(m, wire.Telemetry | wire.Ready)]
        assert said == [wire.Telemetry, wire.Ready]
        assert bench.links.heard(wire.Telemetry) == [wire.Telemetry(k=wire.Compute(one=4.0))]
        bench.frame(1, reset=True)
        for pos in range(1, 21):
            bench.frame(1, pos=pos, kind=Kind.HIDDEN)
            await asyncio.sleep(0.1)
        told = bench.links.heard(wire.Telemetry)[1:]
        assert 2 <= len(told) <= 3
        assert {m.k for m in told} == {wire.Compute(one=4.0)}
        assert len(bench.links.frames) == 21

    run(scenario, lambda: TimedShard(2.0))


def test_a_room_deals_by_it_at_the_next_deal() -> None:
    """PROTOCOL section 6: who is measured as faster gets what it can hold, and text is the same."""

    async def whole() -> None:
        rooms = await open_rooms(split="speed", host_gb=0.055, host_shard=TimedShard(8.0))
        worker = await rooms.add(gb=1.0, shard=TimedShard(1.0))
        await rooms.host.start()
        layers = [line.layers for line in rooms.host.status().devices]
        assert layers == [(0, 4), (4, 6)], "until measured, the host holds what it can"
        before = await ask(rooms.host, "hello")
        paces = rooms.host._dealer.paces
        known = [paces.of(rooms.host._dealer._key(id)) for id in (rooms.host.mesh.id, worker.mesh.id)]
        assert known == [8.0, 1.0]
        await rooms.host.start()
        assert [line.layers for line in rooms.host.status().devices] == [(0, 1), (1, 6)]
        after = await ask(rooms.host, "hello")
        assert before.text
        assert after.done.reason == before.done.reason
        await rooms.close()

    simulate(whole)
