"""A worker whose memory runs out, or whose shard dies (PROTOCOL section 6, ``ai-error``, ``ai-share``)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from pooled_nb.errors import ModelNotFound, OutOfMemory, PooledError, ShardDied
from pooled_nb.mesh.messages import deal
from tests.room.bench import Bench, load, run
from tests.room.toy import ToyShard

MEMORY: dict[str, tuple[Callable[[], Exception], bool, str]] = {
    "the device": (lambda: OutOfMemory("This device ran out of memory.", "Lend less."), True, "Lend less."),
    "a process that was killed": (lambda: ShardDied("It was killed.", "Lend less."), True, "Lend less."),
    "this process": (MemoryError, True, "ran out of memory. Close other programs"),
    "files that are not there": (lambda: ModelNotFound("No file.", "Look for it."), False, "Look for it."),
}


@pytest.mark.parametrize("what", MEMORY)
def test_a_load_that_fails_says_whether_less_may_work(what: str) -> None:
    """PROTOCOL section 6, ``ai-share``: the host halves only what was killed."""
    make, killed, step = MEMORY[what]

    async def scenario(bench: Bench) -> None:
        good = bench.shard.load

        async def fails(*_: Any, **__: Any) -> Any:
            raise make()

        bench.shard.load = fails  # type: ignore[method-assign]  # what a shard says
        bench.worker.load(load(7))
        await asyncio.sleep(1)
        (error,) = bench.links.heard(deal.Error)
        assert (error.load, error.killed, error.deal) == (True, killed, 7)
        assert step in error.message
        assert step in bench.worker.trouble
        assert (bench.worker.layers, bench.worker.progress) == (None, None)
        bench.shard.load = good  # type: ignore[method-assign]  # the next try
        bench.worker.load(load(8, lo=3))
        await asyncio.sleep(1)
        assert (bench.worker.layers, bench.worker.trouble) == ((3, 4), "")

    run(scenario)


@pytest.mark.parametrize("what", [name for name, (_, killed, _) in MEMORY.items() if killed])
def test_memory_that_runs_out_while_it_runs_gives_the_layers_back(what: str) -> None:
    """PROTOCOL section 6, ``ai-error {load}``: the host deals anew; the device stays, with its next step."""
    make, _, step = MEMORY[what]

    async def scenario(bench: Bench) -> None:
        bench.worker.load(load(7))
        await asyncio.sleep(1)
        good = bench.shard.forward

        async def fails(*_: Any, **__: Any) -> Any:
            raise make()

        bench.shard.forward = fails  # type: ignore[method-assign]  # what a shard says
        bench.frame(1, reset=True)
        bench.frame(2, pos=1)
        await asyncio.sleep(1)
        (error,) = bench.links.heard(deal.Error)
        assert (error.load, error.killed, error.deal) == (True, True, 7)
        assert step in bench.worker.trouble
        assert bench.worker.layers is None
        died = isinstance(make(), ShardDied)
        assert (bench.shard.spec is None) != died, "a dead process holds nothing that could be given back"
        bench.shard.forward = good  # type: ignore[method-assign]  # the next try
        bench.worker.load(load(8))
        await asyncio.sleep(1)
        assert len(bench.loads) == 2
        assert bench.worker.layers == (2, 4)

    run(scenario)


class Fetches:
    """What brings a shard's pieces before it reads them; it takes two seconds."""

    asks = False

    async def load(self, shard: ToyShard, spec: Any, progress: Any) -> Any:
        await asyncio.sleep(2)
        return await shard.load(spec, progress)


@pytest.mark.parametrize("when", ["told", "fetching", "loading", "linking", "running", "idle"])
def test_a_shard_that_dies_is_told_once(when: str) -> None:
    """PROTOCOL section 6, *(nb)* ``killed``: the host hears of it, whatever it does."""

    async def scenario(bench: Bench) -> None:
        bench.links.dial_s = 2.0
        bench.worker.load(load(7, after="next"))
        await asyncio.sleep({"told": 0, "fetching": 1, "loading": 3, "linking": 6}.get(when, 10))
        assert len(bench.loads) == (when not in ("told", "fetching"))
        assert (bench.worker.layers is not None) == (when in ("linking", "running", "idle"))
        if when == "running":
            bench.frame(1, reset=True)
            await asyncio.sleep(1)
        bench.dies()
        await asyncio.sleep(10)
        (error,) = bench.links.heard(deal.Error)
        assert (error.load, error.killed, error.deal) == (True, True, 7)
        assert "memory ran out" in bench.worker.trouble
        assert bench.shards[-1].spec is None
        bench.worker.load(load(8))
        await asyncio.sleep(10)
        assert bench.worker.layers == (2, 4)
        assert bench.shards[-1].spec is not None, "the new process holds them"

    run(scenario, lambda: ToyShard(delay=3.0), supply=Fetches())


def test_one_that_dies_before_it_is_told_to_load_loads_all_of_it() -> None:
    """PROTOCOL section 6, ``ai-share``: halved is what was killed while loading, and nothing was loaded."""

    async def scenario(bench: Bench) -> None:
        bench.dies()
        await asyncio.sleep(1)
        assert "memory ran out" in bench.worker.trouble
        bench.worker.load(load(7))
        await asyncio.sleep(10)
        assert not bench.links.heard(deal.Error)
        assert len(bench.links.heard(deal.Ready)) == 1
        assert (bench.worker.layers, bench.worker.trouble) == ((2, 4), "")

    run(scenario, supply=Fetches())


def test_one_that_dies_while_the_host_is_away_loads_again_when_it_is_back() -> None:
    """PROTOCOL section 3: the host always sends ``ai-load`` again, so nothing has to be told twice."""

    async def scenario(bench: Bench) -> None:
        bench.worker.load(load(1))
        await asyncio.sleep(1)
        bench.links.up = False
        bench.dies()
        await asyncio.sleep(1)
        bench.links.up = True
        bench.worker.load(load(1))
        await asyncio.sleep(1)
        assert len(bench.loads) == 2
        assert len(bench.links.heard(deal.Ready)) == 2

    run(scenario)


def test_an_error_of_another_kind_leaves_the_layers() -> None:
    """PROTOCOL section 6, ``ai-error`` without ``load``: one frame failed, and the worker runs on."""

    async def scenario(bench: Bench) -> None:
        bench.worker.load(load(7))
        await asyncio.sleep(1)
        good, calls = bench.shard.forward, list[int]()

        async def fails_once(*args: Any, **kwargs: Any) -> Any:
            calls.append(1)
            if len(calls) == 1:
                raise PooledError("Something else.", "Ask again.")
            return await good(*args, **kwargs)

        bench.shard.forward = fails_once  # type: ignore[method-assign]  # one bad frame
        bench.frame(1, reset=True, epoch=3)
        bench.frame(2, pos=1, epoch=3)
        bench.frame(2, reset=True, epoch=4)
        await asyncio.sleep(1)
        (error,) = bench.links.heard(deal.Error)
        assert (error.load, error.killed, error.epoch, error.deal) == (False, False, 3, 7)
        assert [f.epoch for _, f in bench.links.frames] == [4]

    run(scenario)
