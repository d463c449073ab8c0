"""Rooms that guess ahead: what they say is what plain decoding says (PROTOCOL section 7, decode)."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import Any

import pytest

from pooled_nb.mesh.frame import Kind
from pooled_nb.room.core import Piece
from pooled_nb.shard import BUCKET, Sampled, Want
from tests.room.rooms import Heard, Rooms, again, ask, open_rooms
from tests.room.wiretap import tap
from tests.sim.clock import simulate
from tests.sim.network import SimNetwork

QUESTION = "abcabcabd and abcabcabe"
GUESSING: dict[str, dict[str, Any]] = {
    "lookup": {"copies": 0.9},
    "drafter": {"drafter": 0.8},
    "both": {"copies": 0.7, "drafter": 0.7},
    "wrong": {"drafter": 0.0},
}
HOW: dict[str, dict[str, Any]] = {
    "greedy": {},
    "seeded": {"temperature": 0.8, "seed": 11},
}


async def room(workers: int, latency: float = 0.0, **more: Any) -> Rooms:
    rooms = await open_rooms(
        workers=(1.0,) * workers, net=SimNetwork(latency=latency), delay=0.002, **{"end_after": 90, **more}
    )
    await rooms.host.start()
    return rooms


async def plain(*questions: str, options: dict[str, Any], **more: Any) -> list[Heard]:
    """The same conversation on one device, one token a lap."""
    rooms = await room(0, speculate=False, **more)
    heard = [await ask(rooms.host, q, **options) for q in questions]
    await rooms.close()
    return heard


@pytest.mark.parametrize("guessing", GUESSING)
@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize(("workers", "latency"), [(0, 0.0), (1, 0.02), (2, 0.05)])
def test_what_is_guessed_changes_no_text(workers: int, latency: float, how: str, guessing: str) -> None:
    """PROTOCOL section 7: "the same stream as plain decoding, for any sampler", over any chain and wait."""

    async def scenario() -> None:
        model, options = GUESSING[guessing], HOW[how]
        rooms = await room(workers, latency, **model)
        guest = await rooms.add(gb=0.0)
        heard = [await ask(r, q, **options) for r, q in ((guest, QUESTION), (rooms.host, "And " + QUESTION))]
        want = await plain(QUESTION, "And " + QUESTION, options=options, **model)
        assert [h.text for h in heard] == [w.text for w in want]
        assert heard[1].done.tokens == want[1].done.tokens
        assert [h.done.reason for h in heard] == ["stop", "stop"]
        stats = [h.done.stats for h in heard]
        assert all(s.drafted > 0 for s in stats)
        assert [s.tokens for s in stats] == [90, 90]
        right = sum(s.accepted for s in stats) / sum(s.drafted for s in stats)
        assert right < 0.1 if guessing == "wrong" else right > 0.3
        await rooms.close()

    simulate(scenario)


@pytest.mark.parametrize("latency", [0.0, 0.02, 0.05])
def test_laps_are_saved(latency: float) -> None:
    """PROTOCOL section 7: a verify frame brings several tokens a lap; the wait is that of the laps."""

    async def scenario() -> tuple[float, float]:
        took = []
        for speculate in (False, True):
            rooms = await room(2, latency, copies=0.95, speculate=speculate)
            heard = await ask(rooms.host, QUESTION)
            took.append(heard.done.stats.ms)
            await rooms.close()
        return took[0], took[1]

    slow, fast = simulate(scenario)
    assert fast < slow / 2


def test_verify_frames_on_the_wire() -> None:
    """PROTOCOL sections 5 and 7: "a verify frame of 1 + K columns" is `ai-hidden-b` with `spec`, and all
    its columns return; "`k` is the last column kept" in the next frame's `rb`, none where all were right.
    """

    async def scenario() -> None:
        rooms = await room(2, copies=0.8)
        frames, returns = tap(rooms)
        heard = await ask(rooms.host, QUESTION)
        laps = [f for f in frames if f.kind is Kind.HIDDEN or f.spec]
        verify = [f for f in laps if f.spec]
        assert verify
        assert {f.kind for f in verify} == {Kind.HIDDEN_B}
        assert all(2 <= f.n <= 16 and not f.last for f in verify)
        assert all(f.pos // BUCKET == (f.pos + f.n - 1) // BUCKET for f in laps)
        back = {(f.pos, f.n): f.kind for f in returns}
        assert all(back[f.pos, f.n] is Kind.RET_B for f in verify)
        for before, after in pairwise(laps):
            kept = after.pos - before.pos
            assert 1 <= kept <= before.n
            assert after.rb == (kept - 1 if kept < before.n else None)
        assert heard.done.stats.drafted == sum(f.n - 1 for f in verify)
        assert heard.done.stats.accepted == 90 - len(laps)
        await rooms.close()

    simulate(scenario)


def test_a_guess_is_said_with_its_token() -> None:
    """PROTOCOL section 7, `ai-token`: "`d`: 1 drafted, 2 looked up"; absent where it was not guessed."""

    async def scenario() -> None:
        rooms = await room(1, copies=0.6, drafter=0.8)
        guest = await rooms.add(gb=0.0)
        here, there = await ask(rooms.host, QUESTION), await ask(guest, QUESTION)
        for heard in (here, there):
            count = {"": 0, "draft": 0, "lookup": 0}
            for piece in heard.events:
                if isinstance(piece, Piece):
                    count[piece.source] += len(piece.text)
            assert min(count.values()) > 0
            assert count["draft"] + count["lookup"] == heard.done.stats.accepted
        line = rooms.host.answering.conversation.exchanges[-1].stats
        stats = there.done.stats
        assert f"{stats.accepted} of {stats.drafted} drafts right" in line
        await rooms.close()

    simulate(scenario)


@pytest.mark.parametrize("length", [1, 2, 3, 17, 40])
def test_an_answer_is_as_long_as_it_may_be(length: int) -> None:
    """PROTOCOL section 7: `max` and `ctx` end an answer where plain decoding ends, whatever was guessed."""

    async def scenario() -> None:
        for limit in ({"max_tokens": length}, {"max_tokens": 400}):
            more: dict[str, Any] = {"copies": 0.95, "end_after": 10_000, "ctx": 64 + length}
            rooms = await room(1, **more)
            heard = await ask(rooms.host, QUESTION, **limit)
            (want,) = await plain(QUESTION, options=limit, **more)
            assert (heard.text, heard.done.tokens) == (want.text, want.done.tokens)
            assert heard.done.reason == want.done.reason
            assert rooms.host.status().used == heard.done.stats.prompt + heard.done.stats.tokens - 1
            await rooms.close()

    simulate(scenario)


def test_no_more_is_guessed_than_may_still_come() -> None:
    """PROTOCOL section 7: a draft model is not asked for what the length of an answer, or `ctx`, cuts off."""

    async def scenario() -> None:
        for limit, ctx in ((40, 1024), (400, 24 + 40)):
            rooms = await room(0, copies=0.95, end_after=10_000, ctx=ctx)
            sample, asked = rooms.host_shard.sample, []

            async def watched(*args: Any, want: Want | None = None, **more: Any) -> Sampled:
                drawn = await sample(*args, want=want, **more)  # noqa: B023  # awaited within its turn
                asked.append((want or Want(), len(drawn.tokens)))  # noqa: B023
                return drawn

            rooms.host_shard.sample = watched  # type: ignore[method-assign]  # watched, and passed on
            heard = await ask(rooms.host, QUESTION, max_tokens=limit)
            assert (heard.done.stats.prompt, heard.done.stats.tokens) == (24, 40)
            left = 40
            for want, drawn in asked:
                assert max(want.lookup, want.draft) <= max(0, left - 2)
                left -= drawn
            assert max(want.lookup for want, _ in asked) == 15
            await rooms.close()

    simulate(scenario)


def test_no_frame_crosses_a_bucket() -> None:
    """DESIGN section 5, rule 2: a verify frame ends at the bucket; the next one begins there."""

    async def scenario() -> None:
        more: dict[str, Any] = {"copies": 0.97, "end_after": 400, "ctx": 700}
        rooms = await room(1, **more)
        frames, _ = tap(rooms)
        heard = await ask(rooms.host, QUESTION, max_tokens=600)
        (want,) = await plain(QUESTION, options={"max_tokens": 600}, **more)
        assert heard.text == want.text
        assert any(f.spec and (f.pos + f.n) % BUCKET == 0 for f in frames)
        await rooms.close()

    simulate(scenario)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_stop_text_ends_where_it_does_plainly(workers: int) -> None:
    """CASES: "a stop string that spans three tokens": nothing of it is shown, however many came at once."""

    async def scenario() -> None:
        more: dict[str, Any] = {"copies": 0.9}
        whole = (await plain(QUESTION, options={}, **more))[0].text
        for at in (3, 20, 41):
            options = {"stop": [whole[at : at + 3]]}
            rooms = await room(workers, **more)
            heard = await ask(rooms.host, QUESTION, **options)
            want, second = await plain(QUESTION, "next", options=options, **more)
            assert heard.done.reason == "stop"
            assert heard.text == want.text == whole[: whole.index(options["stop"][0])]
            assert heard.done.tokens == want.done.tokens
            assert len(heard.done.tokens or ()) > len(heard.text), "what the model said is kept"
            assert (await ask(rooms.host, "next", **options)).text == second.text
            await rooms.close()

    simulate(scenario)


@pytest.mark.parametrize(("end", "limits"), [("stop", {}), ("ctx", {"ctx": 24 + 40}), ("max", {})])
def test_what_was_held_back_for_a_stop_text_comes_in_the_end(end: str, limits: dict[str, int]) -> None:
    """CASES: "what was held back for it is shown when it does not come"; at `max` it still may, so later."""

    async def scenario() -> None:
        more: dict[str, Any] = {"copies": 0.9, "end_after": 40 if end == "stop" else 10_000, **limits}
        options: dict[str, Any] = {"max_tokens": 40 if end == "max" else 400}
        whole = (await plain(QUESTION, options=options, **more))[0].text
        rooms = await room(1, **more)
        heard = await ask(rooms.host, QUESTION, stop=[whole[-1] + "never said"], **options)
        assert heard.done.reason == end
        held = end == "max"
        assert heard.text == (whole[:-1] if held else whole)
        if held:
            rest = await again(rooms.host, "continue", max_tokens=3)
            assert rest.text.startswith(whole[-1])
        await rooms.close()

    simulate(scenario)


def test_stop_ends_after_the_lap_in_flight() -> None:
    """PROTOCOL section 7, `ai-stop`: what that lap brought is shown, and the text is the plain one's."""

    async def scenario() -> None:
        more: dict[str, Any] = {"copies": 0.9, "end_after": 400}
        (want,) = await plain(QUESTION, options={"max_tokens": 400}, **more)
        for after in (0.5, 0.9, 1.3):
            rooms = await room(2, 0.05, **more)
            task = asyncio.create_task(ask(rooms.host, QUESTION, max_tokens=400))
            await asyncio.sleep(after)
            await rooms.host.stop()
            heard = await task
            assert heard.done.reason == "abort"
            assert want.text.startswith(heard.text)
            rest = await again(rooms.host, "continue", max_tokens=400)
            assert heard.text + rest.text == want.text
            await rooms.close()

    simulate(scenario)


@pytest.mark.parametrize("guessing", ["lookup", "both"])
def test_what_goes_on_or_is_made_anew_is_the_same(guessing: str) -> None:
    """PROTOCOL section 7, `ai-cmd`: in parts as at one go, anew as before, and the next question over it."""

    async def scenario() -> None:
        model = GUESSING[guessing]
        rooms = await room(2, 0.02, **model)
        want, second = await plain(QUESTION, "more", options={}, **model)
        parts = [await ask(rooms.host, QUESTION, max_tokens=13)]
        parts += [await again(rooms.host, "continue", max_tokens=n) for n in (1, 30, 200)]
        assert "".join(p.text for p in parts) == want.text
        assert (await ask(rooms.host, "more")).text == second.text
        assert (await again(rooms.host, "regen")).text == second.text
        assert (await again(rooms.host, "regen", max_tokens=20)).text == second.text[:20]
        await rooms.close()

    simulate(scenario)


@pytest.mark.parametrize("when", [0.31, 0.47, 0.6, 0.83])
def test_a_failure_in_the_middle_leaves_nothing_behind(when: float) -> None:
    """PROTOCOL section 5: after a failed lap all begins anew, whatever was pending; DESIGN section 5."""

    async def scenario() -> None:
        rooms = await room(2, 0.02, copies=0.8)
        want, second = await plain(QUESTION, "more", options={}, copies=0.8)
        task = asyncio.create_task(ask(rooms.host, QUESTION))
        await asyncio.sleep(when)
        assert rooms.host.answering.chain
        rooms.host.answering.chain.fail("made up")
        heard = await task
        assert heard.done.reason == "error"
        assert want.text.startswith(heard.text)
        assert (await again(rooms.host, "regen")).text == want.text
        assert (await ask(rooms.host, "more")).text == second.text
        await rooms.close()

    simulate(scenario)


def test_a_dropped_device_changes_no_text() -> None:
    """DESIGN section 5: "before and after a drop": the room deals anew in the middle of a conversation."""

    async def scenario() -> None:
        rooms = await room(2, 0.02, copies=0.8)
        want = await plain(QUESTION, "more", "last", options={}, copies=0.8)
        texts = [(await ask(rooms.host, QUESTION)).text]
        task = asyncio.create_task(ask(rooms.host, "more"))
        await asyncio.sleep(0.5)
        await rooms.devices[1].leave()
        texts.append((await task).text)
        assert (await again(rooms.host, "regen")).text == texts[1]
        texts.append((await ask(rooms.host, "last")).text)
        assert texts == [w.text for w in want]
        await rooms.close()

    simulate(scenario)


def test_fast_rooms_guess_as_well() -> None:
    """DESIGN section 5, rule 5: in fast mode frames have their own width; lookup still saves laps."""

    async def scenario() -> None:
        rooms = await room(2, 0.05, copies=0.9, exact=False)
        frames, _ = tap(rooms)
        heard = await ask(rooms.host, QUESTION)
        assert heard.done.stats.accepted > 20
        assert any(f.spec and f.n > 1 for f in frames)
        assert (await ask(rooms.host, "more")).done.reason == "stop"
        await rooms.close()

    simulate(scenario)


@pytest.mark.parametrize(("latency", "pays"), [(0.0, False), (0.05, True)])
def test_a_drafter_is_used_where_it_pays(latency: float, pays: bool) -> None:
    """PROTOCOL section 7: 20 ms a guess, laps of 6 ms, or of 160 over a wire, by the room's clock."""

    async def scenario() -> None:
        took = []
        for speculate in (False, True):
            rooms = await room(2, latency, drafter=0.8, drafting=0.02, end_after=300, speculate=speculate)
            frames, _ = tap(rooms)
            heard = await ask(rooms.host, QUESTION, max_tokens=300)
            took.append(heard.done.stats.ms)
            await rooms.close()
        late = frames[len(frames) // 2 :]
        drafted = sum(f.spec for f in late) / len(late)
        assert drafted > 0.8 if pays else drafted < 0.2
        assert took[1] < took[0] * (0.6 if pays else 1.15)

    simulate(scenario)


def test_without_the_setting_nothing_is_guessed() -> None:
    """PROTOCOL section 7: "one token a lap" where the room's creator wants it so."""

    async def scenario() -> None:
        rooms = await room(1, copies=0.9, drafter=0.9, speculate=False)
        frames, _ = tap(rooms)
        heard = await ask(rooms.host, QUESTION)
        assert heard.done.stats.drafted == 0
        assert "drafts" not in rooms.host.answering.conversation.exchanges[-1].stats
        assert not any(f.spec for f in frames)
        await rooms.close()

    simulate(scenario)
