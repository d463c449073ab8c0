"""An answer that loses its chain goes on, and nobody can tell from its text (PROTOCOL section 8)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.room.rooms import Heard, Rooms, again, ask, open_rooms
from tests.room.test_interrupted import agree
from tests.room.waits import MOMENTS, Losing, Moment, lose_returns, notices, undisturbed
from tests.sim.clock import simulate

WAYS: dict[str, dict[str, Any]] = {
    "greedy": {},
    "seeded": {"temperature": 0.8, "seed": 11},
    "short": {"max_tokens": 9},
}
FIRST, QUESTION, NEXT = "before " * 5, "Why is the sky blue?", "And at night?"


def screens(rooms: Rooms) -> list[list[tuple[str, str]]]:
    """Every device's chat."""
    kept = [rooms.host.answering.conversation.exchanges, *(d.transcript.items for d in rooms.devices)]
    return [[(e.text, e.reply) for e in chat] for chat in kept]


def same(heard: Heard, want: Heard) -> None:
    """Text, tokens and end are those of the undisturbed answer."""
    assert (heard.text, heard.done.tokens) == (want.text, want.done.tokens)
    assert (heard.done.reason, heard.done.why) == (want.done.reason, want.done.why)
    assert heard.done.stats.tokens == want.done.stats.tokens
    assert heard.done.stats.prompt == want.done.stats.prompt


@pytest.mark.parametrize(
    ("way", "moment"),
    [
        *(("greedy", m) for m in MOMENTS),
        *((w, m) for w in ("seeded", "short") for m in ("flight", "drawing")),
    ],
)
@pytest.mark.parametrize("copies", [0.0, 1.0], ids=["plain", "drafting"])
def test_a_lap_lost_anywhere_changes_no_text(copies: float, moment: Moment, way: str) -> None:
    """PROTOCOL section 8: "the host goes on with prompt + tokens already shown. Nothing shown changes."

    Every lap of an answer is lost once, the prompt's included; drafts under way are no tokens of it.
    """

    async def scenario() -> None:
        room: dict[str, Any] = {"copies": copies, "end_after": 24}
        want, after = (await undisturbed(FIRST, QUESTION, NEXT, options=WAYS[way], **room))[1:]
        rooms = await open_rooms(workers=(1.0, 1.0), **room)
        await rooms.host.start()
        lost = 0
        for k in range(1, 30):
            await rooms.host.reset()
            await ask(rooms.host, FIRST, **WAYS[way])
            with Losing(rooms, (k,), moment) as losing:
                heard = await ask(rooms.host, QUESTION, **WAYS[way])
            same(heard, want)
            agree(rooms)
            same(await ask(rooms.host, NEXT, **WAYS[way]), after)
            lost += losing.lost
            if not losing.lost and k > 4:
                break
        assert lost >= (2 if copies else 9)
        await asyncio.sleep(1)
        first, *others = screens(rooms)
        assert all(screen == first for screen in others)
        await rooms.close()

    simulate(scenario)


@pytest.mark.parametrize("copies", [0.0, 1.0], ids=["plain", "drafting"])
@pytest.mark.parametrize("gap", [1, 2, 5])
@pytest.mark.parametrize("way", ["greedy", "seeded"])
def test_a_worker_killed_twice_in_one_answer(way: str, gap: int, copies: float) -> None:
    """CASES, Answers: killed at token 5, and again at 17: the text equals the uninterrupted one.

    With a gap of 1 the second loss comes while the prompt is run again.
    """

    async def scenario() -> None:
        room: dict[str, Any] = {"copies": copies, "end_after": 24}
        (want,) = await undisturbed(QUESTION, options=WAYS[way], **room)
        rooms = await open_rooms(workers=(1.0,), **room)
        guest = await rooms.add(gb=0, name="guest")
        await rooms.host.start()
        twice = 0
        for k in range(1, 22):
            await rooms.host.reset()
            with Losing(rooms, (k, k + gap), "flight") as losing:
                heard = await ask(guest, QUESTION, **WAYS[way])
            assert (heard.text, heard.done.reason) == (want.text, "stop")
            twice += losing.lost == 2
            if not losing.lost and k > 4:
                break
        assert twice >= (2 if copies else 9)
        await rooms.close()

    simulate(scenario)


@pytest.mark.parametrize("copies", [0.0, 1.0], ids=["plain", "drafting"])
def test_a_return_that_never_arrives(copies: float) -> None:
    """PROTOCOL section 8: at its limit the lap fails, and the answer goes on by itself."""

    async def scenario() -> None:
        (want,) = await undisturbed(QUESTION, options={}, copies=copies)
        rooms = await open_rooms(workers=(1.0, 1.0), copies=copies)
        await rooms.host.start()
        lost = lose_returns(rooms, {1, 4, 9})
        heard = await ask(rooms.host, QUESTION)
        same(heard, want)
        assert lost() == 3
        assert len(notices(heard)) == 6
        assert notices(heard)[:2] == [
            "No answer from worker → worker 2 within 90 s. The answer tries again.",
            "The answer goes on.",
        ]
        await rooms.close()

    simulate(scenario)


@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_return_that_is_lost_among_others_costs_no_answer(number: int) -> None:
    """PROTOCOL section 7: six frames of a prompt fly at once; one that is lost is noticed by the next."""

    async def scenario() -> None:
        question = "x" * 150
        (want,) = await undisturbed(question, options={})
        rooms = await open_rooms(workers=(1.0,), delay=0.01)
        await rooms.host.start()
        lost = lose_returns(rooms, {number})
        began = asyncio.get_running_loop().time()
        heard = await ask(rooms.host, question)
        same(heard, want)
        assert lost() == 1
        assert notices(heard)[0].startswith("A frame to worker, or its answer, was lost on the way.")
        assert asyncio.get_running_loop().time() - began < 5, "at once, not at its limit"
        await rooms.close()

    simulate(scenario)


@pytest.mark.parametrize("moment", ["flight", "drawing"])
def test_stop_texts_that_span_the_cut(moment: Moment) -> None:
    """CASES, Answers: nothing of a stop text is shown; what was held back comes when it does not."""

    async def scenario() -> None:
        (plain,) = await undisturbed(QUESTION, options={})
        text = plain.text
        never = [text[at : at + 3] + "~" for at in range(20)]
        for stop in (never[:16], [text[20:23]], [text[14:19], *never[:8]], [text[30:], *never[4:9]]):
            how = {"stop": stop}
            (want,) = await undisturbed(QUESTION, options=how)
            rooms = await open_rooms(workers=(1.0,))
            await rooms.host.start()
            lost = 0
            for k in range(1, 45):
                await rooms.host.reset()
                with Losing(rooms, (k, k + 2), moment) as losing:
                    heard = await ask(rooms.host, QUESTION, **how)
                same(heard, want)
                lost += losing.lost
                if not losing.lost and k > 4:
                    break
            assert lost > 20
            await rooms.close()

    simulate(scenario)


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("way", ["greedy", "seeded"])
def test_an_answer_that_goes_on_or_is_made_anew_waits_as_well(way: str, moment: Moment) -> None:
    """PROTOCOL section 7, `ai-cmd`: continue and regen lose laps, too, and nothing shown changes."""

    async def scenario() -> None:
        how = WAYS[way]
        (whole,) = await undisturbed(QUESTION, options=how | {"max_tokens": 20})
        rooms = await open_rooms(workers=(1.0,))
        guest = await rooms.add(gb=0, name="guest")
        await rooms.host.start()
        for k in (1, 2, 4, 9):
            await rooms.host.reset()
            part = await ask(guest, QUESTION, max_tokens=8, **how)
            with Losing(rooms, (k,), moment) as losing:
                rest = await again(guest, "continue", max_tokens=12)
            assert losing.lost
            assert part.text + rest.text == whole.text
            await asyncio.sleep(0.1)
            assert screens(rooms) == [[(QUESTION, whole.text)]] * 3
            assert rest.done.stats.tokens == 12
            with Losing(rooms, (k,), moment) as losing:
                anew = await again(guest, "regen", max_tokens=20)
            assert losing.lost
            assert anew.text == whole.text
            await asyncio.sleep(0.1)
            assert screens(rooms) == [[(QUESTION, whole.text)]] * 3
        await rooms.close()

    simulate(scenario)


@pytest.mark.parametrize(("ctx", "length"), [(64, 400), (1024, 13), (1024, 1)])
def test_the_limits_hold_across_the_cut(ctx: int, length: int) -> None:
    """CASES, Answers: "stops exactly at 64 and says so", however often it had to go on."""

    async def scenario() -> None:
        question = "x" * 30
        how = {"max_tokens": length}
        (want,) = await undisturbed(question, options=how, ctx=ctx, end_after=500)
        for k in (1, 2, 3, 7, 12, 13, 30, 33, 34):
            rooms = await open_rooms(workers=(1.0,), ctx=ctx, end_after=500)
            await rooms.host.start()
            with Losing(rooms, (k, k + 3), "flight"):
                heard = await ask(rooms.host, question, **how)
            same(heard, want)
            assert heard.done.why == want.done.why != ""
            await rooms.close()

    simulate(scenario)
