"""A worker driven by hand: what it holds, and what it loads anew (PROTOCOL sections 3, 5 and 6)."""

from __future__ import annotations

import asyncio
import random
import struct
from typing import Any

import msgspec
import pytest

from pooled_nb.mesh.frame import Encoding, Frame, Kind
from pooled_nb.mesh.messages import deal
from pooled_nb.shard import Columns, Control
from tests.room.bench import HOST, Bench, load, run
from tests.room.toy import ToyShard


def test_exactly_what_it_holds_is_ready_at_once() -> None:
    """PROTOCOL section 3: "a device that still holds exactly that answers ``ai-ready`` at once".

    Neighbours, ranges and the deal's number may be others; frames count again from one with ``reset``.
    """

    async def scenario(bench: Bench) -> None:
        bench.worker.load(load(1))
        await asyncio.sleep(5)
        bench.worker.load(load(2, after="next", prev="another"))
        await asyncio.sleep(0)
        assert bench.worker.layers == (2, 4), "they are shown all along"
        await asyncio.sleep(0.001)
        assert len(bench.loads) == 1
        ready = bench.links.heard(deal.Ready)
        assert [(r.deal, r.slots, r.ckpt) for r in ready] == [(1, [], True), (2, [], True)]
        assert bench.links.dialed == ["next"]
        assert bench.links.chains[-1] == ("another", "next")
        bench.frame(1, reset=True)
        await asyncio.sleep(5)
        assert bench.links.frames == [], "the device before it is another one now"
        data = struct.pack("<4I", 7, 0, 0, 0)
        for pos, reset in ((5, False), (0, True)):
            frame = Frame(Kind.HIDDEN_B, pos, 1, data, Encoding.F32, reset=reset, epoch=4)
            bench.worker.on_frame("another", frame)
        await asyncio.sleep(5)
        assert [(to, f.pos, f.epoch) for to, f in bench.links.frames] == [("next", 0, 4)]

    run(scenario, lambda: ToyShard(delay=1.0))


@pytest.mark.parametrize(("after", "n"), [("next", 3), ("host", 1)])
def test_only_the_last_worker_returns_the_last_column_alone(after: str, n: int) -> None:
    """PROTOCOL section 7: "the head runs on the last column only": between workers all columns travel."""

    async def scenario(bench: Bench) -> None:
        bench.worker.load(load(1, after=after))
        await asyncio.sleep(1)
        data = struct.pack("<12I", *range(12))
        frame = Frame(Kind.HIDDEN_B, 0, 3, data, Encoding.F32, reset=True, epoch=1, last=True)
        bench.worker.on_frame("before", frame)
        await asyncio.sleep(1)
        [(_, sent)] = bench.links.frames
        assert (sent.n, sent.pos + sent.n, len(sent.payload)) == (n, 3, n * 16)

    run(scenario)


DIFFERENT: dict[str, dict[str, Any]] = {
    "range": {"lo": 1},
    "context": {"ctx": 256},
    "caches": {"kv": "q8"},
    "weights": {"quant": "int8-row"},
    "dtype": {"dtype": "bfloat16", "enc": "bf16"},
    "columns": {"cols": 64},
    "width": {"width": 1},
    "revision": {"revision": "2"},
    "files": {"files": {"model.safetensors": {"size": 2}}},
    "attention": {"attn": "eager"},
}


@pytest.mark.parametrize("what", DIFFERENT)
def test_whatever_decides_bits_is_loaded_anew(what: str) -> None:
    """PROTOCOL section 6: ``nb`` says "everything that decides bits": another one of it is another load."""
    change = dict(DIFFERENT[what])

    async def scenario(bench: Bench) -> None:
        bench.worker.load(load(1))
        await asyncio.sleep(1)
        other = load(2, **{k: change.pop(k) for k in ("lo", "ctx", "kv") if k in change})
        nb = other.nb
        assert nb is not None
        more = {"kvq": "int8-row"} if other.kv == "q8" else {}
        changed = msgspec.structs.replace(nb, **change, **more)
        bench.worker.load(msgspec.structs.replace(other, nb=changed))
        await asyncio.sleep(1)
        assert len(bench.loads) == 2, bench.worker.trouble
        assert [r.deal for r in bench.links.heard(deal.Ready)] == [1, 2]

    run(scenario)


def test_a_frame_under_way_belongs_to_the_deal_before() -> None:
    """PROTOCOL section 3: ``ai-load`` again while a frame is computed: its output is not sent, what waits is
    dropped, and the next frame with ``reset`` finds the shard free.
    """

    async def scenario(bench: Bench) -> None:
        bench.worker.load(load(1))
        await asyncio.sleep(2)
        bench.frame(1, reset=True, epoch=1)
        bench.frame(2, pos=1, epoch=1)
        await asyncio.sleep(0.5)
        bench.worker.load(load(2))
        await asyncio.sleep(0.01)
        bench.frame(5, reset=True, epoch=2)
        await asyncio.sleep(10)
        assert [(f.epoch, f.pos) for _, f in bench.links.frames] == [(2, 0)]
        alone = ToyShard()
        await alone.load(bench.loads[0])
        data = struct.pack("<4I", 5, 0, 0, 0)
        ran = await alone.forward(Columns(pos=0, n=1, wide=True), Control(reset=True), data=data, last=True)
        assert bench.links.frames[0][1].payload == ran.data

    run(scenario, lambda: ToyShard(delay=1.0))


def test_the_same_load_goes_on_for_the_newest_deal() -> None:
    """PROTOCOL section 3: the host sends ``ai-load`` again to who comes back: what it reads it reads once."""

    async def scenario(bench: Bench) -> None:
        bench.worker.load(load(1))
        bench.worker.load(load(2))
        await asyncio.sleep(3)
        bench.worker.load(load(3, after="next"))
        await asyncio.sleep(3)
        assert len(bench.loads) == 1
        assert [(r.deal, r.slots) for r in bench.links.heard(deal.Ready)] == [(3, [])]
        assert bench.links.dialed == ["next"]

    run(scenario, lambda: ToyShard(delay=5.0))


def test_what_it_lends_now_still_has_to_cover_it() -> None:
    """PROTOCOL section 6: "A device never holds more than it lends", also what it holds already."""

    async def scenario(bench: Bench) -> None:
        bench.worker.load(load(1))
        await asyncio.sleep(1)
        bench.worker.lends(0.5)
        bench.worker.load(load(2))
        await asyncio.sleep(1)
        assert len(bench.loads) == 1, "two bytes are less than that"
        bench.worker.lends(1e-9)
        bench.worker.load(load(3))
        await asyncio.sleep(1)
        assert [spec.max_gb for spec in bench.loads] == [1.0, 1e-9]

    run(scenario)


@pytest.mark.parametrize("seed", range(20))
def test_whatever_comes_in_whatever_order_ends_in_what_the_last_one_asked_for(seed: int) -> None:
    """PROTOCOL section 6: the newest command counts, and what is ready is what the shard holds."""

    async def scenario(bench: Bench) -> None:
        rng = random.Random(seed)
        bench.links.dial_s = 0.3
        last: deal.Load | None = None
        number = 0
        for _ in range(40):
            match rng.randrange(6):
                case 0 | 1:
                    number += 1
                    last = load(number, lo=rng.randrange(1, 4), after=rng.choice(["host", "a", "b"]))
                    bench.worker.load(last)
                case 2 if last:
                    last = msgspec.structs.replace(last, next=rng.choice(["host", "a", "b"]))
                    bench.worker.next(deal.Next(next=last.next, relink=rng.random() < 0.5), HOST)
                case 3:
                    bench.worker.drop()
                    last = None
                case 4:
                    bench.frame(rng.randrange(9), reset=rng.random() < 0.5)
                case _:
                    await asyncio.sleep(rng.choice([0.0, 0.1, 0.5, 2.0]))
        await asyncio.sleep(20)
        before = len(bench.links.frames)
        if last is None:
            assert bench.worker.layers is None
            assert bench.shard.spec is None
            return
        assert bench.worker.layers == tuple(last.range)
        assert bench.shard.spec is not None
        assert [bench.shard.spec.lo, bench.shard.spec.hi] == last.range
        assert bench.links.heard(deal.Ready)[-1].deal == number
        bench.frame(3, reset=True)
        await asyncio.sleep(3)
        assert [to for to, _ in bench.links.frames[before:]] == [HOST if last.next == "host" else last.next]

    run(scenario, lambda: ToyShard(delay=0.5))
