"""How long an answer waits, and how often it tries, to the second (PROTOCOL section 8)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from pooled_nb.errors import NotReady
from pooled_nb.mesh.clock import LoopClock
from pooled_nb.mesh.frame import Encoding, Frame, Kind
from pooled_nb.room.chain import Chain
from pooled_nb.room.core import Queued
from pooled_nb.room.flights import Flights
from pooled_nb.room.holding import PAUSES, TRIES, WAIT_S, Tries
from pooled_nb.room.laps import Laps
from pooled_nb.shard import LoadSpec, Prompt
from tests.room.rooms import Rooms, ask, open_rooms
from tests.room.toy import MODEL, ToyShard
from tests.room.waits import Losing, chain_of, hold, lose_returns, notices, undisturbed
from tests.sim.clock import simulate

QUESTION = "Why is the sky blue?"


def now() -> float:
    return asyncio.get_running_loop().time()


async def online(**room: Any) -> Rooms:
    rooms = await open_rooms(workers=(1.0,), **room)
    await rooms.host.start()
    return rooms


def test_four_tries_without_a_new_token() -> None:
    """PROTOCOL section 8: "a waiting answer gives up after 6 min, or 4 tries"; each is paused before."""
    tries = Tries()
    assert (TRIES, len(PAUSES)) == (4, 4)
    for n in range(TRIES):
        assert tries.lost(100.0)
        assert tries.pause(100.0) == PAUSES[n]
        tries.over(100.5)
    assert not tries.lost(101.0)
    tries.over(101.0)
    tries.progress(0)
    assert not tries.lost(102.0), "nothing new came of the last"
    tries.over(102.0)
    tries.progress(1)
    assert tries.lost(103.0), "a token came: as if nothing had been"
    assert tries.waited == 2.0


def test_six_minutes_of_one_wait() -> None:
    """PROTOCOL section 8: 6 min; each wait has its own."""
    tries = Tries()
    assert tries.left(5.0) == WAIT_S == 360.0
    for since in (10.0, 1_000.0):
        assert tries.lost(since)
        assert tries.left(since + 359.0) == 1.0
        tries.over(since + 359.0)
    assert tries.waited == 718.0


@pytest.mark.parametrize("after", [0, 6], ids=["prompt", "answer"])
def test_an_answer_tries_four_times_and_then_says_what_to_do(after: int) -> None:
    """PROTOCOL section 8: 4 tries; what is shown stays, and the next question is answered."""

    async def scenario() -> None:
        (want,) = await undisturbed(QUESTION, options={})
        rooms = await online()
        guest = await rooms.add(gb=0, name="guest")
        lose_returns(rooms, lost := set(range(after + 1, 100)))
        asked = asyncio.create_task(ask(rooms.host, QUESTION))
        await asyncio.sleep(0)
        waiting = asyncio.create_task(ask(guest, QUESTION))
        heard = await asked
        lost.clear()
        assert sum("tries again" in notice for notice in notices(heard)) == TRIES, "the first, and four more"
        assert heard.done.reason == "error"
        assert heard.done.why == (
            "The answer stopped: No answer from worker within 90 s. 4 more tries brought nothing new; "
            "ask again when the room is whole, or was dealt anew."
        )
        assert rooms.notices[-1] == heard.done.why
        assert want.text.startswith(heard.text)
        assert len(heard.text) == after
        assert (await waiting).done.reason == "stop", "those who wait are answered then"
        await rooms.close()

    simulate(scenario)


def test_a_token_between_makes_the_tries_anew() -> None:
    """PROTOCOL section 8: "4 tries" without progress; an answer that gets on is not given up."""

    async def scenario() -> None:
        (want,) = await undisturbed(QUESTION, options={})
        rooms = await online()
        with Losing(rooms, range(3, 300, 7), "flight") as losing:
            heard = await ask(rooms.host, QUESTION)
        assert losing.lost > 6
        assert (heard.text, heard.done.tokens) == (want.text, want.done.tokens)
        await rooms.close()

    simulate(scenario)


@pytest.mark.parametrize("seconds", [359.0, 361.0])
@pytest.mark.parametrize("when", [0.0, 0.3], ids=["prompt", "answer"])
def test_six_minutes_and_not_one_second_less(seconds: float, when: float) -> None:
    """PROTOCOL section 8: after 6 min the answer is given up, and with it those in the queue."""

    async def scenario() -> None:
        (want,) = await undisturbed(QUESTION, options={})
        rooms = await online(delay=0.02)
        guest = await rooms.add(gb=0, name="guest")
        running = asyncio.create_task(ask(rooms.host, QUESTION))
        await asyncio.sleep(when)
        waiting = asyncio.create_task(ask(guest, QUESTION))
        await asyncio.sleep(0.1)
        chain, began = chain_of(rooms), now()
        rooms.host.answering.hold("mira dropped; layers 4–6 are missing.")
        assert rooms.host.answering.waits == "mira dropped; layers 4–6 are missing."
        asyncio.get_running_loop().call_later(seconds, rooms.host.answering.online, chain)
        heard = await running
        if seconds < WAIT_S:
            assert (heard.text, heard.done.reason) == (want.text, "stop")
            assert heard.done.stats.ms < 10_000, "what it waited is no part of its speed"
            assert "waited 359 s" in rooms.host.answering.conversation.exchanges[0].stats
            assert (await waiting).done.reason == "stop"
        else:
            assert now() - began == pytest.approx(WAIT_S, abs=0.1)
            assert heard.done.reason == "error"
            assert heard.done.why == (
                "The answer stopped: mira dropped; layers 4–6 are missing. It waited 6 min; ask again "
                "when the room is whole, or was dealt anew."
            )
            assert want.text.startswith(heard.text)
            with pytest.raises(NotReady, match="It waited 6 min; ask again"):
                await waiting
            assert not rooms.host.answering.waits
        await asyncio.sleep(10)
        assert (await ask(guest, QUESTION)).done.reason == "stop"
        await rooms.close()

    simulate(scenario)


def test_questions_alone_wait_as_long() -> None:
    """PROTOCOL section 8: nothing ran when the room began to wait; who asks meanwhile waits 6 min at most."""

    async def scenario() -> None:
        rooms = await online()
        guest = await rooms.add(gb=0, name="guest")
        chain = chain_of(rooms)
        rooms.host.answering.hold("mira dropped.")
        assert rooms.host.answering.waits == ""
        await asyncio.sleep(1_000)
        began = now()
        task = asyncio.create_task(ask(guest, QUESTION))
        with pytest.raises(NotReady, match=r"mira dropped\. It waited 6 min"):
            await task
        assert now() - began == pytest.approx(WAIT_S, abs=1)
        task = asyncio.create_task(ask(guest, QUESTION))
        await asyncio.sleep(300)
        rooms.host.answering.online(chain)
        heard = await task
        assert heard.done.reason == "stop"
        assert isinstance(heard.events[0], Queued)
        await rooms.close()

    simulate(scenario)


class Sleeper(LoopClock):
    """The time of a device that sleeps, and knows of it."""

    def __init__(self) -> None:
        super().__init__()
        self.slept = 0.0

    def now(self) -> float:
        return super().now() - self.slept

    async def nap(self, seconds: float) -> None:
        self.slept += seconds
        asyncio.get_running_loop().pass_time(seconds)  # type: ignore[attr-defined]  # the virtual loop
        await asyncio.sleep(0)


def test_a_wait_is_not_over_because_its_host_slept() -> None:
    """PROTOCOL section 8: "this device stalled: it judges nobody"; the 6 min are those it was awake."""

    async def scenario() -> None:
        rooms = await online(delay=0.02)
        answering, sleeper = rooms.host.answering, Sleeper()
        answering._speaking._wait._clock = sleeper
        running = asyncio.create_task(ask(rooms.host, QUESTION))
        await asyncio.sleep(0.3)
        chain, began = chain_of(rooms), now()
        answering.hold("mira does not answer.")
        await asyncio.sleep(350)
        await sleeper.nap(3_600)
        await asyncio.sleep(9)
        assert not running.done()
        answering.online(chain)
        assert (await running).done.reason == "stop"
        assert now() - began > 3_900
        await rooms.close()

    simulate(scenario, limit=20_000)


@pytest.mark.parametrize("nap", [2.0, 20.0, 100.0, 3_600.0])
def test_a_host_that_sleeps_in_the_middle_of_a_lap_loses_nothing(nap: float) -> None:
    """PROTOCOL section 8, late timers: the text is the same, and no lap is given up for its sleep."""

    async def scenario() -> None:
        (want,) = await undisturbed(QUESTION, options={})
        rooms = await online(delay=0.02)
        task = asyncio.create_task(ask(rooms.host, QUESTION))
        await asyncio.sleep(0.41)
        asyncio.get_running_loop().pass_time(nap)  # type: ignore[attr-defined]  # the virtual loop
        heard = await task
        assert (heard.text, heard.done.reason) == (want.text, "stop")
        assert notices(heard) == []
        assert heard.done.stats.ms < 6_000
        await rooms.close()

    simulate(scenario, limit=20_000)


def frame(kind: Kind = Kind.HIDDEN) -> Frame:
    return Frame(kind, 5, 1, b"", Encoding.F32)


@pytest.mark.parametrize("nap", [0.0, 3.0, 29.0, 3_600.0])
def test_a_lap_is_not_late_for_what_this_device_slept(nap: float) -> None:
    """PROTOCOL section 8, late timers: 30 s of a lap's own time, to the second, however long the nap."""

    async def scenario() -> None:
        sleeper, late = Sleeper(), []
        flights = Flights(
            Laps(), clock=sleeper, rtt=lambda: 0.0, late=lambda limit: late.append((limit, now()))
        )
        began = now()
        back = flights.out(frame(), prefill=False)
        await asyncio.sleep(10)
        if nap:
            await sleeper.nap(nap)
        await asyncio.sleep(19.9)
        assert not late
        await asyncio.sleep(0.2)
        assert late == [(30.0, pytest.approx(began + 30 + nap, abs=0.01))]
        flights.fail(ValueError)
        assert isinstance(back.exception(), ValueError)

    simulate(scenario, limit=20_000)


def test_a_lap_that_slept_is_no_slow_one() -> None:
    """PROTOCOL section 8: "slowest recent lap" is of laps: else one nap makes every later limit long."""

    async def scenario() -> None:
        sleeper, laps = Sleeper(), Laps()
        flights = Flights(laps, clock=sleeper, rtt=lambda: 0.0, late=lambda _: None)
        back = flights.out(frame(), prefill=False)
        await asyncio.sleep(0.5)
        await sleeper.nap(600)
        await asyncio.sleep(0.5)
        flights.returned(frame(Kind.RET), 0)
        assert back.result() == b""
        assert laps.times.slowest_s == pytest.approx(1.0)

    simulate(scenario)


class Sent:
    """Frames that go nowhere."""

    def __init__(self) -> None:
        self.frames: list[Frame] = []

    def send_frame(self, to: str, frame: Frame) -> bool:
        self.frames.append(frame)
        return True


async def chain_that_goes_nowhere(epoch: int = 0) -> tuple[Chain, Sent, ToyShard]:
    shard, sent = ToyShard(), Sent()
    await shard.load(
        LoadSpec(
            repo="toy",
            revision="1",
            folder=None,
            config_sha256="",
            lo=0,
            hi=3,
            ends=True,
            ctx=64,
            dtype="float32",
        )
    )
    chain = Chain(
        shard=shard,
        sender=sent,
        clock=LoopClock(),
        workers=["w"],
        names=["worker"],
        dtype="float32",
        dim=MODEL.dim,
        width=16,
        cols=32,
        rtt=lambda: 0.0,
        epoch=epoch,
    )
    return chain, sent, shard


def test_epochs_go_on_from_chain_to_chain() -> None:
    """PROTOCOL section 5: a return of another epoch is dropped, also one of an earlier deal."""

    async def scenario() -> None:
        chain, sent, _ = await chain_that_goes_nowhere(epoch=254)
        prompt = Prompt(ids=[5, 6, 2], generated=[False] * 3)
        epochs = []
        for _ in range(3):
            task = asyncio.create_task(chain.prefill(prompt, lambda: False))
            await asyncio.sleep(0.1)
            epochs.append(sent.frames[-1].epoch)
            chain.on_return("w", Frame(Kind.RET_B, 2, 1, b"\0" * 16, Encoding.F32, epoch=253, last=True))
            assert not task.done()
            chain.lose("made up")
            await asyncio.gather(task, return_exceptions=True)
        assert epochs == [255, 1, 3], "one more for each reset, and for each loss"
        assert all(frame.reset for frame in sent.frames)

    simulate(scenario)


def test_a_hold_that_is_short_costs_one_try() -> None:
    """PROTOCOL section 8: a room that was whole again at once is gone on with at once."""

    async def scenario() -> None:
        rooms = await online(delay=0.02)
        task = asyncio.create_task(ask(rooms.host, QUESTION))
        await asyncio.sleep(0.3)
        began = now()
        hold(rooms, 0.0)
        heard = await task
        assert heard.done.reason == "stop"
        assert now() - began < 3, "36 laps of 0.04 s, and no pause"
        assert "waited" not in rooms.host.answering.conversation.exchanges[0].stats
        assert notices(heard)[-1] == "The answer goes on."
        await rooms.close()

    simulate(scenario)
