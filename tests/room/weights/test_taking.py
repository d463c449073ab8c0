"""One piece from one device (PROTOCOL section 6, ``ai-wget``)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pooled_nb.errors import ModelNotFound
from pooled_nb.mesh.clock import LoopClock
from pooled_nb.mesh.messages import Message
from pooled_nb.mesh.messages.weights import Wack, Wget, Wpart
from pooled_nb.room.weights.giving import Giving
from pooled_nb.room.weights.runner import inline
from pooled_nb.room.weights.taking import ACK, ACK_S, STALL_S, WIN, How, Order, Taken, Taking
from pooled_nb.shard import Piece
from tests.room.weights.pipe import Pipe
from tests.room.weights.toyfiles import ToyHoldings, ToyIncoming, ToyModel
from tests.sim.clock import simulate

URL = "toy/model@1/model.safetensors"
BLOCK = 3 * ACK + 12_345
PART = 65_536
MODEL = ToyModel(block=BLOCK, each=1)


@dataclass
class Line:
    """What is sent to the other device, which answers as it is told."""

    taking: Taking = field(init=False)
    said: list[Message] = field(default_factory=list)
    answers: Callable[[Wget], Awaitable[None]] | None = None
    up: bool = True
    jobs: list[asyncio.Task[None]] = field(default_factory=list)

    def send(self, to: str, message: Message) -> bool:
        assert to == "a"
        if self.up:
            self.said.append(message)
            if isinstance(message, Wget) and self.answers:
                self.jobs.append(asyncio.ensure_future(self.answers(message)))
        return self.up

    def broadcast(self, message: Message, *, but: str | None = None) -> None:
        raise AssertionError

    def heard(self, kind: type[Any]) -> list[Any]:
        return [m for m in self.said if isinstance(m, kind)]


class Bench:
    def __init__(self) -> None:
        self.model = MODEL
        self.piece = self.model.blocks[1]
        self.data = self.model.data(self.piece)
        self.holdings = ToyHoldings(self.model)
        self.line = Line()
        self.taking = self.line.taking = Taking(outbox=self.line, clock=LoopClock(), run=inline)
        self.bytes: list[int] = []
        self.sha256 = self.model.sha256(self.piece)

    def order(self) -> Order:
        async def word() -> str:
            return self.sha256

        return Order(
            device="a",
            url=URL,
            piece=self.piece,
            sha256=word,
            begin=partial(self.holdings.take, "toy/model", "1", self.piece),
            on_bytes=self.bytes.append,
        )

    async def take(self) -> Taken:
        return await self.taking.take(self.order())

    def gives(self, *, wrong: int = -1, upto: int | None = None, done: bool = True) -> None:
        """The device gives what is asked for; ``wrong``: a byte of the piece that it changes."""

        async def give(wget: Wget) -> None:
            lo = wget.lo - self.piece.lo
            data = bytearray(self.data[lo : wget.hi - self.piece.lo + 1])
            if 0 <= wrong - lo < len(data):
                data[wrong - lo] ^= 1
            end = len(data) if upto is None else min(upto, len(data))
            for off in range(0, end, PART):
                self.part(wget, off, bytes(data[off : min(off + PART, end)]))
                await asyncio.sleep(0.01)
            if done:
                self.taking.heard("a", Wpart(id=wget.id, done=True))

        self.line.answers = give

    def part(self, wget: Wget, off: int, data: bytes, **more: bool) -> None:
        self.taking.heard("a", Wpart(id=wget.id, off=off, data=data, **more))


def run(scenario: Callable[[Bench], Awaitable[None]]) -> None:
    async def whole() -> None:
        bench = Bench()
        await scenario(bench)
        await bench.taking.close()
        await asyncio.gather(*bench.line.jobs)
        assert not bench.holdings.taken, "every piece was let go of"

    simulate(whole)


def test_a_piece_is_taken_whole() -> None:
    """PROTOCOL section 6: `hi` inclusive, ``win`` said, acknowledged each MiB, ``got`` counts from lo."""

    async def scenario(bench: Bench) -> None:
        bench.gives()
        assert await bench.take() == Taken(How.HERE)
        assert bench.holdings.here[bench.piece] == bench.data
        (wget,) = bench.line.heard(Wget)
        assert (wget.url, wget.lo, wget.hi, wget.win) == (URL, bench.piece.lo, bench.piece.hi - 1, WIN)
        got = [ack.got for ack in bench.line.heard(Wack)]
        assert got == [ACK, 2 * ACK, 3 * ACK, BLOCK]
        assert bench.bytes[-1] == BLOCK
        assert bench.bytes == sorted(bench.bytes)

    run(scenario)


def test_a_miss_goes_to_the_next_source_at_once() -> None:
    """PROTOCOL section 6: ``ai-wpart {miss: 1}``: what came before it is kept."""

    async def scenario(bench: Bench) -> None:
        bench.gives(upto=2 * PART, done=False)
        taking = asyncio.ensure_future(bench.take())
        await asyncio.sleep(1)
        (wget,) = bench.line.heard(Wget)
        bench.taking.heard("b", Wpart(id=wget.id, done=True))
        bench.taking.heard("a", Wpart(id="other", miss=True))
        bench.taking.heard("a", Wpart(id=99, miss=True))
        await asyncio.sleep(1)
        assert not taking.done(), "of others, and of other requests, nothing counts"
        bench.taking.heard("a", Wpart(id=wget.id, miss=True))
        assert (await taking).how is How.MISS
        assert bench.holdings.parts[bench.piece] == bench.data[: 2 * PART]
        assert bench.line.heard(Wack) == [], "what is over needs no word"
        bench.gives()
        assert (await bench.take()).how is How.HERE
        assert bench.line.heard(Wget)[1].lo == bench.piece.lo + 2 * PART, "it goes on where it ended"

    run(scenario)


def test_fifteen_seconds_without_a_byte() -> None:
    """PROTOCOL section 6: "15 s stall"; empty parts are no bytes, and what came is kept."""

    async def scenario(bench: Bench) -> None:
        bench.gives(upto=PART, done=False)
        began = asyncio.get_running_loop().time()
        taking = asyncio.ensure_future(bench.take())
        for _ in range(7):
            await asyncio.sleep(2)
            bench.part(bench.line.heard(Wget)[0], PART, b"")
        assert not taking.done()
        assert (await taking).how is How.STALLED
        assert asyncio.get_running_loop().time() - began == pytest.approx(STALL_S)
        assert bench.line.heard(Wack) == [Wack(id=1, cancel=True)]
        assert bench.holdings.parts[bench.piece] == bench.data[:PART]

    run(scenario)


class SlowPipe(Pipe):
    """A link to "me" that carries so many bytes of weights a second."""

    def __init__(self, taking: Callable[[], Taking], rate: float) -> None:
        super().__init__()
        self._taking, self._rate, self._free_at = taking, rate, 0.0
        self._waiting = 0
        self.link("me")

    async def send_bulk(self, *what: Any, **more: Any) -> bool:
        for _ in range(1_000):
            if self._waiting <= 2:
                break
            await asyncio.sleep(0.1)
        return await super().send_bulk(*what, **more)

    def _part(self, to: str, part: Wpart) -> None:
        loop = asyncio.get_running_loop()
        self._free_at = max(self._free_at, loop.time()) + 0.001 + len(part.data or b"") / self._rate
        self._waiting += 1
        loop.call_at(self._free_at, self._arrived, part)

    def _arrived(self, part: Wpart) -> None:
        self._waiting -= 1
        self._taking().heard("a", part)


@pytest.mark.parametrize("rate", [20_000.0, 6_000.0])
def test_over_a_slow_link(rate: float) -> None:
    """PROTOCOL section 6, ``ai-wack``: both ends see that a slow range goes on; it is asked for once."""

    async def scenario(bench: Bench) -> None:
        giving = Giving(
            out=SlowPipe(lambda: bench.taking, rate),
            clock=LoopClock(),
            holdings=ToyHoldings(MODEL, MODEL.pieces),
            runner=inline,
            gives=True,
            asks=lambda id: id == "me",
            model=lambda: ("toy/model", "1"),
        )

        class ToGiver(Line):
            def send(self, to: str, message: Message) -> bool:
                self.said.append(message)
                if isinstance(message, Wget):
                    giving.asked("me", message)
                elif isinstance(message, Wack):
                    giving.acknowledged("me", message)
                return True

        bench.line = ToGiver()
        bench.taking = Taking(outbox=bench.line, clock=LoopClock(), run=inline)
        assert await bench.take() == Taken(How.HERE)
        assert len(bench.line.heard(Wget)) == 1
        assert len(bench.line.heard(Wack)) <= BLOCK / min(PART, rate * ACK_S) + 1, (
            "and not each part of a fast one"
        )
        await giving.close()

    run(scenario)


class LateClock(LoopClock):
    """Its timers fire when the device wakes up: ``asleep`` seconds late."""

    asleep = 0.0

    def call_later(self, delay: float, callback: Callable[[], None]) -> Any:
        return super().call_later(delay + self.asleep, callback)


def test_a_device_that_slept_judges_nobody() -> None:
    """PROTOCOL section 8: "a timer that fired late: this device stalled: it judges nobody on that tick"."""

    async def scenario(bench: Bench) -> None:
        clock = LateClock()
        bench.taking = bench.line.taking = Taking(outbox=bench.line, clock=clock, run=inline)
        clock.asleep = 100.0
        taking = asyncio.ensure_future(bench.take())
        await asyncio.sleep(1)
        clock.asleep = 0.0
        await asyncio.sleep(STALL_S + 100)
        assert not taking.done()
        await asyncio.sleep(STALL_S)
        assert (await taking).how is How.STALLED

    run(scenario)


def slow(seconds: float) -> Callable[[Callable[[], Any]], Awaitable[Any]]:
    """A disk that takes so long for each call."""

    async def run_slowly(job: Callable[[], Any], /) -> Any:
        await asyncio.sleep(seconds)
        return job()

    return run_slowly


def test_a_slow_disk_of_ours_is_no_stall_of_theirs() -> None:
    """PROTOCOL section 8: while this device writes, the other one waits for it."""

    async def scenario(bench: Bench) -> None:
        bench.taking = bench.line.taking = Taking(outbox=bench.line, clock=LoopClock(), run=slow(20))

        async def give(wget: Wget) -> None:
            for off in range(0, BLOCK, ACK):
                for at in range(off, min(off + ACK, BLOCK), PART):
                    bench.part(wget, at, bench.data[at : min(at + PART, BLOCK)])
                await asyncio.sleep(22)  # until it was acknowledged
            bench.taking.heard("a", Wpart(id=wget.id, done=True))

        bench.line.answers = give
        assert (await bench.take()).how is How.HERE

    run(scenario)


def test_cancelled_while_it_writes() -> None:
    """PROTOCOL section 6: a thread cannot be stopped: who stops the load waits for the piece."""

    async def scenario(bench: Bench) -> None:
        bench.taking = bench.line.taking = Taking(outbox=bench.line, clock=LoopClock(), run=slow(3))
        bench.gives(upto=PART, done=False)
        taking = asyncio.ensure_future(bench.take())
        await asyncio.sleep(4)
        taking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await taking
        assert bench.holdings.ends == [(bench.piece, "kept")]
        assert bench.holdings.parts[bench.piece] == bench.data[:PART]

    run(scenario)


def test_a_link_that_breaks_ends_it_at_once() -> None:
    """PROTOCOL section 3: nothing comes over a link that is gone; what came is kept."""

    async def scenario(bench: Bench) -> None:
        bench.gives(upto=PART, done=False)
        taking = asyncio.ensure_future(bench.take())
        await asyncio.sleep(1)
        bench.taking.gone("b")
        await asyncio.sleep(0)
        assert not taking.done()
        bench.taking.gone("a")
        await asyncio.sleep(0.01)
        assert taking.done()
        assert (await taking).how is How.GONE
        bench.line.up = False
        assert (await bench.take()).how is How.GONE
        assert len(bench.holdings.parts[bench.piece]) == PART

    run(scenario)


def test_wrong_bytes_are_thrown_away() -> None:
    """DESIGN section 6: a byte that is not the one that is vouched for: all of it goes."""

    async def scenario(bench: Bench) -> None:
        bench.gives(wrong=BLOCK // 2)
        taken = await bench.take()
        assert taken.how is How.BAD
        assert bench.holdings.ends == [(bench.piece, "thrown away")]
        assert bench.holdings.parts == bench.holdings.here == {}

    run(scenario)


def test_two_sources_are_no_proof_against_either() -> None:
    """DESIGN section 6: what an earlier source gave may be the wrong part: all of it comes from one, then."""

    async def scenario(bench: Bench) -> None:
        bench.holdings.parts[bench.piece] = b"wrong" * 1_000
        bench.gives()
        assert (await bench.take()).how is How.HERE
        assert bench.holdings.here[bench.piece] == bench.data
        assert [w.lo - bench.piece.lo for w in bench.line.heard(Wget)] == [5_000, 0]
        del bench.holdings.here[bench.piece]
        bench.holdings.parts[bench.piece] = b"wrong" * 1_000
        bench.gives(wrong=7)
        assert (await bench.take()).how is How.BAD, "all of it was its own"

    run(scenario)


def test_what_others_left_meanwhile_is_of_two_sources_too() -> None:
    """DESIGN section 6: the second try is of one source, whatever other kernels leave meanwhile."""

    async def scenario(bench: Bench) -> None:
        bench.holdings.parts[bench.piece] = b"wrong" * 1_000
        take = bench.holdings.take

        def begin(repo: str, revision: str, piece: Piece) -> ToyIncoming | None:
            if bench.holdings.ends:
                bench.holdings.parts[piece] = b"again" * 500
            return take(repo, revision, piece)

        bench.holdings.take = begin  # type: ignore[method-assign]  # as another kernel that comes and goes
        bench.gives()
        assert (await bench.take()).how is How.HERE
        assert bench.holdings.here[bench.piece] == bench.data

    run(scenario)


def test_what_is_here_already_is_only_checked() -> None:
    """PROTOCOL section 6: all of it came before this process ended, and nobody had looked at its hash."""

    async def scenario(bench: Bench) -> None:
        bench.holdings.parts[bench.piece] = bench.data
        assert (await bench.take()).how is How.HERE
        assert bench.line.said == []

    run(scenario)


def test_what_nobody_vouches_for_is_not_kept() -> None:
    """DESIGN section 6: "A range from a peer counts only when its hash is one the host vouches for"."""

    async def scenario(bench: Bench) -> None:
        bench.gives()
        bench.sha256 = ""
        assert (await bench.take()).how is How.MISS
        assert bench.holdings.ends == [(bench.piece, "dropped")]

    run(scenario)


@pytest.mark.parametrize("how", ["short", "long", "shuffled", "twice"])
def test_parts_that_were_not_asked_for(how: str) -> None:
    """PROTOCOL section 6: short, long, shuffled or altered parts: all of the piece is thrown away."""

    async def scenario(bench: Bench) -> None:
        taking = asyncio.ensure_future(bench.take())
        await asyncio.sleep(1)
        (wget,) = bench.line.heard(Wget)
        bench.part(wget, 0, bench.data[:PART])
        await asyncio.sleep(0.1)
        match how:
            case "short":
                bench.taking.heard("a", Wpart(id=wget.id, done=True))
            case "long":
                for off in range(PART, BLOCK + PART, PART):
                    bench.part(wget, off, (bench.data + b"more" * PART)[off : off + PART])
                    await asyncio.sleep(0.01)
            case "shuffled":
                bench.part(wget, 2 * PART, bench.data[2 * PART : 3 * PART])
            case "twice":
                bench.part(wget, 0, bench.data[:PART])
        taken = await taking
        assert (taken.how, bool(taken.why)) == (How.BAD, True)
        assert bench.holdings.ends == [(bench.piece, "dropped")]
        assert bench.line.heard(Wack)[-1] == Wack(id=1, cancel=True)

    run(scenario)


def test_cancelled_it_keeps_what_came() -> None:
    """PROTOCOL section 6: a load that is stopped: the other device hears it, and the next try goes on."""

    async def scenario(bench: Bench) -> None:
        bench.gives(upto=10 * PART, done=False)
        taking = asyncio.ensure_future(bench.take())
        await asyncio.sleep(1)
        taking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await taking
        assert bench.holdings.taken == set(), "the piece is free before its load has ended"
        assert bench.holdings.parts[bench.piece] == bench.data[: 10 * PART]
        assert bench.line.heard(Wack)[-1] == Wack(id=1, cancel=True)
        bench.taking.heard("a", Wpart(id=1, off=10 * PART, data=b"late"))

    run(scenario)


def test_a_full_disk_is_said() -> None:
    """DESIGN section 6: what this device cannot write is nobody else's fault; what is here stays."""

    async def scenario(bench: Bench) -> None:
        bench.holdings.full = True
        bench.gives(upto=PART, done=False)
        with pytest.raises(ModelNotFound, match="disk is full"):
            await bench.take()
        assert bench.holdings.ends == [(bench.piece, "kept")]
        assert bench.line.heard(Wack)[-1] == Wack(id=1, cancel=True)

    run(scenario)


def test_another_kernel_takes_it() -> None:
    """DESIGN section 6: the cache is safe for several kernels at once: nothing is asked for twice."""

    async def scenario(bench: Bench) -> None:
        bench.holdings.elsewhere.add(bench.piece)
        assert (await bench.take()).how is How.ELSEWHERE
        assert bench.line.said == []

    run(scenario)


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 10**6))
def test_whatever_comes_only_the_right_piece_is_kept(seed: int) -> None:
    """PROTOCOL section 6: any order, loss, duplicate, change and end of parts, and any try before it."""
    rng = Random(seed)

    async def scenario(bench: Bench) -> None:
        if rng.random() < 0.3:
            bench.holdings.parts[bench.piece] = rng.choice([bench.data[:5_000], b"wrong" * 1_000])

        async def give(wget: Wget) -> None:
            lo = wget.lo - bench.piece.lo
            size = wget.hi - wget.lo + 1
            parts = [
                Wpart(id=wget.id, off=off, data=bench.data[lo + off : lo + min(off + PART, size)])
                for off in range(0, size, PART)
            ]
            parts.append(Wpart(id=wget.id, done=True))
            for _ in range(rng.choice([0, 0, 0, 1, 2])):
                at = rng.randrange(len(parts))
                match rng.choice(["lose", "twice", "swap", "change", "miss"]):
                    case "lose":
                        del parts[at]
                    case "twice":
                        parts.insert(at, parts[at])
                    case "swap":
                        parts[at], parts[at - 1] = parts[at - 1], parts[at]
                    case "change" if parts[at].data:
                        other = b"x" * len(parts[at].data or b"")
                        parts[at] = Wpart(id=wget.id, off=parts[at].off, data=other)
                    case _:
                        parts.insert(at, Wpart(id=wget.id, miss=True))
                if not parts:
                    break
            for part in parts:
                bench.taking.heard("a", part)
                await asyncio.sleep(0.001)

        bench.line.answers = give
        taken = await bench.take()
        here = bench.holdings.here.get(bench.piece)
        assert (here == bench.data) if taken.how is How.HERE else (here is None)
        if taken.how is How.BAD:
            assert bench.piece not in bench.holdings.parts

    run(scenario)
