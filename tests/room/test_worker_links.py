"""A worker and the device after it (PROTOCOL section 6, ``ai-next``)."""

from __future__ import annotations

import asyncio

import pytest

from pooled_nb.mesh.frame import Kind
from pooled_nb.mesh.messages import deal
from tests.room.bench import HOST, Bench, load, run
from tests.room.toy import ToyShard


@pytest.mark.parametrize("relink", [False, True])
def test_the_device_after_it_changes(relink: bool) -> None:
    """PROTOCOL section 6, ``ai-next {relink}`` / ``ai-linked {ok}``: no frame counts before."""

    async def scenario(bench: Bench) -> None:
        bench.worker.load(load(1, after="old"))
        await asyncio.sleep(1)
        bench.links.dial_s = 2.0
        bench.worker.next(deal.Next(next="new", relink=relink), HOST)
        await asyncio.sleep(1)
        assert not bench.worker.needs("old"), "that its link ends is no news"
        assert not bench.worker.needs("new"), "nor is that of one that only comes to be"
        assert bench.worker.needs("before")
        bench.frame(1, reset=True)
        await asyncio.sleep(2)
        assert bench.links.frames == []
        assert bench.links.heard(deal.Linked) == [deal.Linked(next="new", ok=True)]
        assert len(bench.links.heard(deal.Ready)) == 1
        assert bench.worker.needs("new")
        bench.frame(2, reset=True)
        await asyncio.sleep(1)
        assert [to for to, _ in bench.links.frames] == ["new"]
        assert bench.links.dialed == ["old", "new anew" if relink else "new"]

    run(scenario)


def test_the_last_of_the_chain_needs_no_link() -> None:
    """PROTOCOL section 6, ``ai-next``: ``next`` may be the host, to which there is one."""

    async def scenario(bench: Bench) -> None:
        bench.worker.load(load(1, after="old"))
        await asyncio.sleep(1)
        bench.worker.next(deal.Next(next="host", relink=True), HOST)
        await asyncio.sleep(1)
        assert bench.links.heard(deal.Linked) == [deal.Linked(next="host", ok=True)]
        bench.frame(2, reset=True)
        await asyncio.sleep(1)
        assert [(to, f.kind) for to, f in bench.links.frames] == [(HOST, Kind.RET_B)]

    run(scenario)


@pytest.mark.parametrize(("fails", "ok"), [(3, True), (99, False)])
def test_one_that_is_not_in_the_roster_yet_is_waited_for_a_moment(fails: int, ok: bool) -> None:
    """PROTOCOL section 6: "The host holds a waiting answer for it 15 s at most": it hears of it before."""

    async def scenario(bench: Bench) -> None:
        bench.worker.load(load(1))
        await asyncio.sleep(1)
        bench.links.fails = {"new": fails}
        bench.worker.next(deal.Next(next="new"), HOST)
        await asyncio.sleep(14)
        assert bench.links.heard(deal.Linked) == [deal.Linked(next="new", ok=ok)]
        assert bench.worker.layers == (2, 4), "what it holds, it keeps"
        assert bool(bench.worker.unlinked) != ok
        assert bench.worker.trouble == ""
        bench.worker.next(deal.Next(next="third"), HOST)
        await asyncio.sleep(1)
        assert bench.links.heard(deal.Linked)[-1] == deal.Linked(next="third", ok=True)
        assert bench.worker.unlinked == ""

    run(scenario)


def test_a_new_next_while_it_loads_counts_for_the_load() -> None:
    """PROTOCOL section 6, ``ai-next``: the load goes on, links to that one, and both are answered."""

    async def scenario(bench: Bench) -> None:
        bench.worker.load(load(1, after="old"))
        await asyncio.sleep(2)
        bench.worker.next(deal.Next(next="new"), HOST)
        await asyncio.sleep(5)
        assert bench.links.dialed == ["new"]
        assert len(bench.loads) == 1
        assert [m.t for m in bench.links.said if not isinstance(m, deal.Progress)] == [
            "ai-linked",
            "ai-ready",
        ]

    run(scenario, lambda: ToyShard(delay=5.0))


@pytest.mark.parametrize("held", [False, True])
def test_a_new_next_while_it_links_for_a_load_takes_no_ready_away(held: bool) -> None:
    """PROTOCOL section 6, ``ai-ready``: the host waits for it, whatever else it says meanwhile."""

    async def scenario(bench: Bench) -> None:
        if held:
            bench.worker.load(load(1))
            await asyncio.sleep(1)
        bench.links.dial_s = 2.0
        bench.worker.load(load(2, after="old"))
        await asyncio.sleep(1)
        assert bench.links.dialed == ["old"]
        bench.worker.next(deal.Next(next="new"), HOST)
        await asyncio.sleep(3)
        assert bench.links.heard(deal.Linked) == [deal.Linked(next="new", ok=True)]
        assert [r.deal for r in bench.links.heard(deal.Ready)] == [1, 2] if held else [2]
        bench.worker.next(deal.Next(next="third"), HOST)
        await asyncio.sleep(3)
        assert bench.links.heard(deal.Ready)[-1].deal == 2
        assert len(bench.links.heard(deal.Ready)) == 1 + held, "of one load it is said once"

    run(scenario)


def test_who_holds_nothing_cannot_link() -> None:
    """PROTOCOL section 6, ``ai-linked {ok}``: said at once, so that the host waits for nothing."""

    async def scenario(bench: Bench) -> None:
        bench.worker.next(deal.Next(next="new"), HOST)
        bench.worker.load(load(1))
        await asyncio.sleep(1)
        bench.worker.drop()
        await asyncio.sleep(1)
        bench.worker.next(deal.Next(next="new"), HOST)
        await asyncio.sleep(1)
        assert bench.links.heard(deal.Linked) == [deal.Linked(next="new")] * 2
        assert bench.shard.spec is None
        assert bench.links.chains[-1] == ()

    run(scenario)
