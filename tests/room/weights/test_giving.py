"""Answers to ``ai-wget`` (PROTOCOL sections 2 and 6): honest askers, and those who are not."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from pooled_nb.errors import ModelNotFound
from pooled_nb.mesh.clock import LoopClock
from pooled_nb.mesh.credit import PART, WINDOW
from pooled_nb.mesh.messages.weights import Wack, Wget, Wpart
from pooled_nb.mesh.network import Path
from pooled_nb.room.weights.giving import AT_ONCE, JOBS, MIN_WIN, READS, Giving, may_cross
from pooled_nb.room.weights.grant import AHEAD, STALL_S
from pooled_nb.room.weights.hashes import Span
from tests.room.weights.onefile import DATA, SIZE, URL, Files
from tests.room.weights.pipe import Disk, Pipe, settle
from tests.sim.clock import simulate


@dataclass
class Said:
    """A host's word."""

    pipe: Pipe
    known: set[Span] = field(default_factory=set)
    gave: list[tuple[str, Span, str]] = field(default_factory=list)

    def knows(self, span: Span) -> bool:
        return span in self.known

    def gives(self, to: str, span: Span, sha256: str) -> None:
        assert not self.pipe.end(to, 1), "said after the end"
        self.gave.append((to, span, sha256))


@dataclass
class Giver:
    """A device that gives, and those that may ask it."""

    files: Files = field(default_factory=Files)
    gives: bool = True
    vouching: bool = False
    pipe: Pipe = field(default_factory=Pipe)
    disk: Disk = field(default_factory=Disk)
    workers: set[str] = field(default_factory=lambda: {"a", "b"})
    model: tuple[str, str] | None = ("toy/model", "1")

    def __post_init__(self) -> None:
        self.pipe.link("a", "b", "guest")
        self.said = Said(self.pipe)
        self.giving = Giving(
            out=self.pipe,
            clock=LoopClock(),
            holdings=self.files,  # type: ignore[arg-type]  # it takes nothing
            runner=self.disk,
            gives=self.gives,
            asks=lambda id: id in self.workers,
            model=lambda: self.model,
            vouches=self.said if self.vouching else None,
        )

    def ask(
        self,
        id: str | int = 1,
        lo: int = 0,
        hi: int = SIZE,
        *,
        who: str = "a",
        url: str = URL,
        win: int | None = None,
    ) -> None:
        """``hi`` is exclusive here."""
        self.giving.asked(who, Wget(id=id, url=url, lo=lo, hi=hi - 1, win=win))

    def got(self, id: str | int = 1, got: int | None = None, *, who: str = "a", cancel: bool = False) -> None:
        self.giving.acknowledged(who, Wack(id=id, got=got, cancel=cancel))

    async def all(self, id: str | int = 1, *, who: str = "a") -> bytes:
        """Acknowledge what comes until it ends; returns all that came."""
        for _ in range(10_000):
            await settle(10)
            self.got(id, len(self.pipe.got.get((who, id), b"")), who=who)
            if self.pipe.end(who, id):
                return self.pipe.data(who, id)
        pytest.fail("it never ends")


def with_giver(check: Callable[[Giver], object], **facts: object) -> None:
    """Run a check with a giver; nothing of it may be left."""

    async def scenario() -> None:
        giver = Giver(**facts)  # type: ignore[arg-type]  # by keyword
        await check(giver)  # type: ignore[misc]  # each is a coroutine
        await giver.giving.close()
        assert not giver.giving._links
        assert not giver.pipe.faults
        assert all(not window.unacknowledged for window in giver.pipe.windows.values())

    simulate(scenario)


def missed(giver: Giver, id: str | int = 1, who: str = "a") -> bool:
    """Whether all that was said of a range is that it is not to be had."""
    return giver.pipe.parts(who, id) == [Wpart(id=id, miss=True)]


# -- what is given ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lo", "hi"), [(0, SIZE), (7, 8), (100, 100 + PART), (100, 101 + PART), (AHEAD - 3, SIZE)]
)
def test_a_range_in_parts_and_in_order(lo: int, hi: int) -> None:
    """PROTOCOL section 6: "in order, parts of 65,536 bytes", ``off`` counts from ``lo``, then ``done``."""

    async def check(giver: Giver) -> None:
        giver.ask("r", lo, hi)
        assert await giver.all("r") == DATA[lo:hi]
        parts = giver.pipe.parts("a", "r")
        assert [len(p.data or b"") for p in parts[:-2]] == [PART] * (len(parts) - 2)
        assert parts[-1] == Wpart(id="r", off=hi - lo, done=True)
        assert (giver.giving.given.bytes, giver.giving.given.to) == (hi - lo, {"a": hi - lo})

    with_giver(check)


@pytest.mark.parametrize("win", [MIN_WIN, PART + 1, 300_000, None, 2**31 - 1])
def test_a_window_is_obeyed(win: int | None) -> None:
    """PROTOCOL section 6: "at most ``win`` = 8 MiB unacknowledged (a smaller ``win`` is obeyed)"."""

    async def check(giver: Giver) -> None:
        size = min(SIZE, 3 * (win or WINDOW))
        giver.ask(1, 0, size, win=win)
        most = min(win or WINDOW, WINDOW, size)
        await settle(500)
        got = len(giver.pipe.data("a", 1))
        assert most - PART < got <= most
        if got < size:
            giver.got(1, got - 10)
            await settle(500)
            assert got <= len(giver.pipe.data("a", 1)) <= got - 10 + most
            giver.got(1, size + 1)
            giver.got(1, 5)
            await settle()
            assert len(giver.pipe.data("a", 1)) <= got - 10 + most, "said of bytes that were never sent"
        assert await giver.all() == DATA[:size]

    with_giver(check)


def test_the_ranges_of_a_link_share_one_window() -> None:
    """PROTOCOL section 6: "at most 8 at once per link", which share one window of 8 MiB."""

    async def check(giver: Giver) -> None:
        for id in range(AT_ONCE):
            giver.ask(id)
        await settle(2_000)
        assert giver.pipe.windows["a"].unacknowledged <= WINDOW
        assert WINDOW - AT_ONCE * PART < sum(len(giver.pipe.data("a", id)) for id in range(AT_ONCE)) <= WINDOW
        giver.ask(1, who="b")
        assert await giver.all(1, who="b") == DATA, "another link has its own"
        for id in range(AT_ONCE):
            assert len(giver.pipe.data("a", id)) > 0
            giver.got(id, cancel=True)

    with_giver(check)


def test_not_more_than_eight_at_once() -> None:
    """PROTOCOL section 6: 1,000 at once: eight are served, of the others each hears a miss."""

    async def check(giver: Giver) -> None:
        for id in range(1_000):
            giver.ask(id, 0, 10 * MIN_WIN, win=MIN_WIN)
        assert giver.pipe.sent == [("a", Wpart(id=id, miss=True)) for id in range(AT_ONCE, 1_000)]
        await settle()
        assert await giver.all(3) == DATA[: 10 * MIN_WIN]
        await settle()
        giver.ask("next", 0, 10)
        assert await giver.all("next") == DATA[:10]
        for id in range(AT_ONCE):
            giver.got(id, cancel=True)

    with_giver(check)


def test_memory_is_bounded() -> None:
    """CONTRIBUTING, "typed and bounded": eight ranges together read about as far ahead as one alone."""

    async def check(giver: Giver) -> None:
        for id in range(AT_ONCE):
            giver.ask(id, win=MIN_WIN)
        await settle()
        assert giver.files.largest <= AHEAD // AT_ONCE
        for id in range(AT_ONCE):
            giver.got(id, cancel=True)
        await settle()
        giver.ask("alone")
        assert await giver.all("alone") == DATA
        assert giver.files.largest == AHEAD

    with_giver(check)


# -- what is not given -----------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["relayed", "unknown"])
def test_no_weights_over_a_relay(path: Path) -> None:
    """PROTOCOL section 2: over a path that is not known to be direct the serving side answers with a miss."""

    async def check(giver: Giver) -> None:
        giver.pipe.link("a", path=path)
        giver.ask()
        assert missed(giver)
        assert not may_cross(giver.pipe.facts("a"))
        assert not may_cross(None)
        assert may_cross(giver.pipe.facts("b"))

    with_giver(check)


def test_a_path_that_becomes_relayed() -> None:
    """PROTOCOL section 2: weights *never* cross a relayed link, not the rest of a range either."""

    async def check(giver: Giver) -> None:
        giver.ask(win=PART)
        await settle()
        giver.pipe.paths["a"] = "relayed"
        giver.got(1, PART)
        await settle()
        assert giver.pipe.data("a", 1) == DATA[: 2 * PART], "but the part that waited for its turn already"
        assert giver.pipe.end("a", 1) == "miss"

    with_giver(check)


@pytest.mark.parametrize(
    ("url", "lo", "hi"),
    [
        (URL, 0, SIZE + 1),
        (URL, SIZE, SIZE + 1),
        (URL, 2**53 - 2, 2**53 - 1),
        (URL, 10, 10),
        (URL, 10, 3),
        ("toy/model@2/model.safetensors", 0, 1),
        ("other/model@1/model.safetensors", 0, 1),
        ("toy/model@1/other.safetensors", 0, 1),
        ("toy/model@1/../../etc/passwd", 0, 1),
        ("/etc/passwd", 0, 1),
        ("file:///etc/passwd", 0, 1),
        ("", 0, 1),
        ("x" * 2_000, 0, 1),
    ],
)
def test_only_ranges_of_the_rooms_model(url: str, lo: int, hi: int) -> None:
    """PROTOCOL section 6: "a cached range of the room's model", within the file, and no path at all."""

    async def check(giver: Giver) -> None:
        giver.ask(1, lo, hi, url=url)
        await settle()
        assert missed(giver)

    with_giver(check)


def test_only_what_is_here_whole() -> None:
    """PROTOCOL section 6: public peers answer only for ranges they hold; ours for all of it or nothing."""

    async def check(giver: Giver) -> None:
        for id, (lo, hi) in enumerate([(0, 101), (99, 201), (150, 300), (100, 200), (120, 130)]):
            giver.ask(id, lo, hi)
        await settle()
        assert [missed(giver, id) for id in range(5)] == [True, True, True, False, False]
        assert await giver.all(3) == DATA[100:200]
        assert await giver.all(4) == DATA[120:130]

    with_giver(check, files=Files((100, 200), (250, SIZE)))


def test_only_workers_ask() -> None:
    """PROTOCOL section 6: "to admitted workers only": a guest gets nothing, and nobody without a deal."""

    async def check(giver: Giver) -> None:
        giver.ask(1, who="guest")
        assert missed(giver, who="guest")
        giver.ask(1, who="stranger")
        assert giver.pipe.sent == [("guest", Wpart(id=1, miss=True))]
        giver.model = None
        giver.ask(2)
        assert missed(giver, 2)

    with_giver(check)


@pytest.mark.parametrize("facts", [{"gives": False}, {"files": Files(private=True)}])
def test_nothing_private_and_nothing_forbidden(facts: dict[str, object]) -> None:
    """PROTOCOL section 6: where this device's person forbids it, and of private models, nothing is given."""

    async def check(giver: Giver) -> None:
        giver.ask()
        await settle()
        assert missed(giver)

    with_giver(check, **facts)


@pytest.mark.parametrize(
    "error", [ModelNotFound("It is gone.", "Fetch it."), OSError("disk"), ValueError("odd")]
)
def test_a_disk_that_fails_is_a_miss(error: Exception) -> None:
    """PROTOCOL section 6: "any failure falls back": who asked goes elsewhere, also in the middle."""

    async def check(giver: Giver) -> None:
        giver.ask(1, win=PART)
        await settle()
        giver.files.fails = error
        for got in range(PART, AHEAD + 2 * PART, PART):
            giver.got(1, got)
            await settle()
        assert giver.pipe.data("a", 1) == DATA[:AHEAD]
        assert giver.pipe.end("a", 1) == "miss"

    with_giver(check)


def test_a_file_that_became_shorter() -> None:
    """PROTOCOL section 6: a part has what it says, or there is none."""

    async def check(giver: Giver) -> None:
        giver.files.short = 1
        giver.ask()
        await settle()
        assert missed(giver)

    with_giver(check)


# -- who asks too much -----------------------------------------------------------------------------


def test_a_tiny_window_is_not_served() -> None:
    """PROTOCOL section 6: a smaller ``win`` is obeyed; one of a byte would be all message."""

    async def check(giver: Giver) -> None:
        for win in (0, 1, MIN_WIN - 1):
            giver.ask(win, win=win)
            assert missed(giver, win)

    with_giver(check)


def test_who_never_acknowledges_is_let_go() -> None:
    """PROTOCOL section 6: a peer that takes nothing keeps neither memory nor the link's window for ever."""

    async def check(giver: Giver) -> None:
        giver.ask(1, win=PART)
        giver.ask(2, 0, 100)
        await asyncio.sleep(STALL_S - 1)
        assert giver.pipe.data("a", 1) == DATA[:PART]
        assert giver.pipe.end("a", 2) == "done"
        assert giver.pipe.windows["a"].unacknowledged == PART + 100, "it has not come yet"
        giver.got(1, 10)
        await asyncio.sleep(STALL_S)
        assert not giver.pipe.end("a", 1), "it got on, if slowly"
        await asyncio.sleep(STALL_S)
        assert giver.pipe.end("a", 1) == "miss"
        assert giver.pipe.windows["a"].unacknowledged == 0
        assert not giver.giving._links

    with_giver(check)


def test_a_storm_of_asking_and_cancelling() -> None:
    """PROTOCOL section 6, ``cancel``: however often, the disk does one thing at a time for one device."""

    async def check(giver: Giver) -> None:
        giver.disk.stuck = asyncio.Event()
        for id in range(1_000):
            giver.ask(id)
            await asyncio.sleep(0)
            giver.got(id, cancel=True)
        assert giver.disk.now == 1
        giver.ask("honest", who="b")
        await settle()
        assert giver.disk.now == 2
        assert sum(missed(giver, id) for id in range(1_000)) == 1_000 - JOBS
        giver.disk.stuck.set()
        giver.disk.stuck = None
        assert await giver.all("honest", who="b") == DATA
        await settle(2_000)
        assert not giver.giving._links
        assert giver.disk.jobs < 20, "what was cancelled before its turn was never read"
        giver.ask("again")
        assert await giver.all("again") == DATA

    with_giver(check)


def test_few_read_at_a_time() -> None:
    """CONTRIBUTING: many devices that ask at once do not take all threads of this one."""

    async def check(giver: Giver) -> None:
        many = {f"w{n}" for n in range(20)}
        giver.workers |= many
        giver.pipe.link(*many)
        for who in many:
            for id in range(3):
                giver.ask(id, 0, 3 * PART, who=who)
        for who in many:
            for id in range(3):
                assert await giver.all(id, who=who) == DATA[: 3 * PART]
        assert giver.disk.most == READS

    with_giver(check)


def test_one_name_twice() -> None:
    """PROTOCOL section 6: ``id`` names one range: a second one under it changes nothing of the first."""

    async def check(giver: Giver) -> None:
        giver.ask(1, 0, 10)
        giver.ask(1, 5, 10)
        assert await giver.all() == DATA[:10]
        await settle()
        assert giver.pipe.parts("a", 1) == [
            Wpart(id=1, off=0, data=DATA[:10]),
            Wpart(id=1, off=10, done=True),
        ]
        giver.ask(1, 5, 10, who="b")
        assert await giver.all(who="b") == DATA[5:10], "another device has its own names"
        giver.got("never asked", 5)
        giver.got(1, 5, who="stranger")

    with_giver(check)


# -- how it ends -----------------------------------------------------------------------------------


def test_cancelled() -> None:
    """PROTOCOL section 6, ``ai-wack {cancel}``: nothing more comes, and the window is free again."""

    async def check(giver: Giver) -> None:
        giver.ask(1, win=2 * PART)
        await settle()
        giver.got(1, cancel=True)
        giver.got(1, 2 * PART)
        await settle()
        assert giver.pipe.data("a", 1) == DATA[: 2 * PART]
        assert not giver.pipe.end("a", 1)
        assert giver.pipe.windows["a"].unacknowledged == 0

    with_giver(check)


@pytest.mark.parametrize("how", ["left", "closed", "fresh link", "deal", "model"])
def test_a_range_ends_with_what_it_stands_on(how: str) -> None:
    """PROTOCOL section 6: "a range ends with its link and its deal"; over a fresh link it begins anew."""

    async def check(giver: Giver) -> None:
        giver.ask(1, win=PART)
        await settle()
        before = len(giver.pipe.sent)
        match how:
            case "left":
                giver.giving.left("a")
            case "closed":
                await giver.giving.close()
            case "fresh link":
                giver.pipe.link("a")
                giver.got(1, PART)
            case "deal":
                giver.workers.discard("a")
                giver.giving.look()
            case "model":
                giver.model = ("toy/model", "2")
                giver.giving.look()
        await settle()
        told = [("a", Wpart(id=1, miss=True))] if how not in ("left", "closed") else []
        assert giver.pipe.sent[before:] == told
        assert not giver.giving._links
        giver.ask(2)
        assert missed(giver, 2) == (how in ("closed", "deal", "model"))
        giver.got(2, cancel=True)

    with_giver(check)


def test_a_fresh_link_while_the_disk_is_read() -> None:
    """PROTOCOL section 6: nothing goes over another link than the one that it was asked over."""

    async def check(giver: Giver) -> None:
        giver.disk.stuck = asyncio.Event()
        giver.ask()
        await settle()
        giver.pipe.link("a")
        giver.disk.stuck.set()
        await settle()
        assert missed(giver)

    with_giver(check)


def test_a_range_that_is_given_on_through_a_new_deal() -> None:
    """PROTOCOL section 6: who is a worker before and after goes on with what it takes."""

    async def check(giver: Giver) -> None:
        giver.ask(1, win=PART)
        await settle()
        giver.workers = {"a", "c"}
        giver.giving.look()
        assert await giver.all() == DATA

    with_giver(check)


# -- the host's word -------------------------------------------------------------------------------


def test_a_host_hashes_while_it_gives() -> None:
    """PROTOCOL section 6, ``nb-hash``: of what it gives itself it vouches for each byte, before ``done``."""

    async def check(giver: Giver) -> None:
        giver.ask(1, 5, AHEAD + 999)
        await giver.all()
        giver.ask(1, 5, 10, who="b")
        giver.got(1, cancel=True, who="b")
        await settle()
        span = Span(URL, 5, AHEAD + 999)
        assert giver.said.gave == [("a", span, hashlib.sha256(DATA[5 : AHEAD + 999]).hexdigest())]

    with_giver(check, vouching=True)


def test_a_hash_that_is_known_is_not_made_again() -> None:
    """PROTOCOL section 6, ``nb-hash``: hashed when it came, or said before."""

    async def check(giver: Giver) -> None:
        giver.files.known[0, 100] = "e" * 64
        giver.said.known.add(Span(URL, 0, 200))
        giver.ask(1, 0, 100)
        await giver.all()
        giver.ask(1, 0, 200, who="b")
        await giver.all(who="b")
        assert giver.said.gave == [("a", Span(URL, 0, 100), "e" * 64), ("b", Span(URL, 0, 200), "")]

    with_giver(check, vouching=True)
