"""Who has what, before a deal (PROTOCOL section 6, ``ai-inv-req``)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from pooled_nb.mesh.clock import LoopClock
from pooled_nb.mesh.link import packed
from pooled_nb.mesh.messages import read, write
from pooled_nb.mesh.messages.deal import Inv, InvReq, Load, NbLoad
from pooled_nb.room.weights.stock import ANSWER_S, MOST_FILES, MOST_WORDS, Stock
from tests.room.weights.pipe import Pipe, settle
from tests.sim.clock import simulate

SIZES = {"toy/model@1/a.safetensors": 100, "toy/model@1/b.safetensors": 50}
A, B = SIZES


def with_stock(check: Callable[[Stock, Pipe], object], sizes: dict[str, int] | None = None) -> None:
    """Run a check with links to two devices."""

    async def scenario() -> None:
        pipe = Pipe()
        pipe.link("x", "y")
        await check(Stock(outbox=pipe, clock=LoopClock(), sizes=sizes or SIZES), pipe)  # type: ignore[misc]

    simulate(scenario)


async def took(job: asyncio.Task[None]) -> float:
    """Seconds until it is done."""
    loop = asyncio.get_running_loop()
    before = loop.time()
    await job
    return loop.time() - before


def test_all_are_asked_and_waited_for() -> None:
    """PROTOCOL section 6: "which byte ranges of the room's model file each device has", for each file."""

    async def check(stock: Stock, pipe: Pipe) -> None:
        job = asyncio.create_task(stock.ask(["x", "y", "nobody"]))
        await settle()
        assert pipe.sent == [(id, InvReq(url=url)) for id in ("x", "y") for url in SIZES]
        for id in ("x", "y"):
            for url in SIZES:
                assert not job.done()
                stock.heard(id, Inv(url=url, have=["0-9", "10-19"] if id == "x" else []))
        assert await took(job) == 0
        assert stock.have(["x", "y", "nobody"]) == {
            "x": {"a.safetensors": [(0, 20)], "b.safetensors": [(0, 20)]}
        }
        assert stock.listing(["x", "y"]) == {"x": {"a.safetensors": ["0-19"], "b.safetensors": ["0-19"]}}
        assert stock.listing(["y"]) is None

    with_stock(check)


def test_many_files_are_asked_about_in_turns() -> None:
    """PROTOCOL section 6: nothing blocks the loop, and no early answer ends the wait for the rest."""

    async def check(stock: Stock, pipe: Pipe) -> None:
        urls = list(stock._sizes)
        job = asyncio.create_task(stock.ask(["x", "y", "nobody"]))
        await asyncio.sleep(0)
        assert 0 < len(pipe.sent) <= 8
        for _, message in list(pipe.sent):
            assert isinstance(message, InvReq)
            stock.heard("x", Inv(url=message.url, have=[]))
        await settle()
        assert len(pipe.sent) == 2 * len(urls)
        assert not job.done()
        for id in ("x", "y"):
            for url in urls:
                stock.heard(id, Inv(url=url, have=[]))
        assert await took(job) == 0, "and nobody waits for a device that is not here"

    with_stock(check, {f"toy/model@1/{n}.safetensors": 10 for n in range(30)})


def test_not_longer_than_a_moment() -> None:
    """PROTOCOL section 6: "before dealing, 1.5 s"; what comes later is remembered for the next."""

    async def check(stock: Stock, pipe: Pipe) -> None:
        job = asyncio.create_task(stock.ask(["x", "y"]))
        await settle()
        for url in SIZES:
            stock.heard("y", Inv(url=url, have=["0-0"]))
        assert await took(job) == ANSWER_S
        assert list(stock.have(["x", "y"])) == ["y"]
        stock.heard("x", Inv(url=A, have=["5-9"]))
        assert stock.have(["x"]) == {"x": {"a.safetensors": [(5, 10)]}}
        assert await took(asyncio.create_task(stock.ask([]))) == 0
        assert await took(asyncio.create_task(stock.ask(["nobody"]))) == 0

    with_stock(check)


def test_nobody_waits_for_who_left() -> None:
    """PROTOCOL section 6: a device that goes while it is asked costs nobody the rest of the time."""

    async def check(stock: Stock, pipe: Pipe) -> None:
        job = asyncio.create_task(stock.ask(["x"]))
        await settle()
        stock.heard("x", Inv(url=A, have=["0-9"]))
        stock.left("x")
        assert await took(job) == 0
        assert stock.have(["x"]) == {}

    with_stock(check)


def test_what_was_not_asked_is_nothing() -> None:
    """PROTOCOL section 6: of another file, beyond the end, or no range at all."""

    async def check(stock: Stock, pipe: Pipe) -> None:
        stock.heard("x", Inv(url="toy/model@1/c.safetensors", have=["0-9"]))
        stock.heard("x", Inv(url=B, have=["0-50", "x", "40-30"]))
        assert stock.have(["x"]) == {}
        stock.heard("x", Inv(url=B, have=["0-49"]))
        stock.heard("x", Inv(url=B, have=[]))
        assert stock.have(["x"]) == {}

    with_stock(check)


def test_who_gave_what_is_wrong_is_listed_no_more() -> None:
    """PROTOCOL section 6, ``nb-bad``: not for the rest of the room, also under another id."""

    async def check(stock: Stock, pipe: Pipe) -> None:
        for id in ("x", "y"):
            stock.heard(id, Inv(url=A, have=["0-9"]))
        stock.strike("x")
        stock.renamed("x", "z")
        stock.heard("z", Inv(url=A, have=["0-9"]))
        assert list(stock.have(["x", "y", "z"])) == ["y"]
        assert list(stock.listing(["x", "y", "z"]) or ()) == ["y"]

    with_stock(check)


def test_a_listing_is_one_message() -> None:
    """PROTOCOL section 2: ``ai-load`` with ``inv`` is read by every device, whatever others say they have."""
    sizes = {f"toy/model@1/{n}.safetensors": 10**6 for n in range(MOST_FILES + 10)}

    async def check(stock: Stock, pipe: Pipe) -> None:
        ids = [f"{n:036d}" for n in range(100)]
        for id in ids:
            for url in list(sizes)[:40]:
                stock.heard(id, Inv(url=url, have=[f"{n}-{n}" for n in range(0, 60, 2)]))
        stock.heard("x", Inv(url=next(iter(sizes)), have=[f"{n}-{n}" for n in range(0, 8000, 2)]))
        inv = stock.listing(["x", *ids])
        assert inv is not None
        assert sum(len(words) for files in inv.values() for words in files.values()) <= MOST_WORDS
        nb = NbLoad(repo="toy/model", revision="1", config="c" * 64, prev="h", inv=inv)
        load = Load(v=4, model="toy/model", range=[0, 1], ctx=8, next="host", host="h", nb=nb)
        packed(load)
        assert read(write(load)) == load
        await stock.ask(["x"])
        assert len(pipe.sent) == MOST_FILES

    with_stock(check, sizes)
