"""Answers that go on, and answers that are made anew, in virtual time (PROTOCOL section 7, ``ai-cmd``)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from pooled_nb.errors import BadQuestion
from pooled_nb.mesh.messages import chat
from pooled_nb.room.again import anew
from pooled_nb.room.core import Again, AskOptions, ChatSettings, Done, Notice, Piece, Started
from pooled_nb.room.deviceroom import DeviceRoom
from pooled_nb.room.hostroom import HostRoom
from pooled_nb.room.questions import options_of, params_of
from pooled_nb.room.style import sampling
from pooled_nb.shard import Sampling
from tests.room.rooms import Rooms, again, alone, ask, open_rooms
from tests.room.test_spoken import listen
from tests.sim.clock import simulate

LONG: dict[str, Any] = {"end_after": 10_000}
WAYS: list[dict[str, Any]] = [{}, {"temperature": 0.8, "seed": 11}, {"style": "creative", "seed": 3}]
BOTH: tuple[Again, ...] = ("continue", "regen")


async def online(workers: tuple[float, ...] = (), **options: Any) -> Rooms:
    rooms = await open_rooms(workers=workers, **{**LONG, **options})
    await rooms.host.start()
    return rooms


def shown(rooms: Rooms, device: int = 0) -> list[tuple[str, str]]:
    return [(i.text, i.reply) for i in rooms.devices[device].transcript.items]


@pytest.mark.parametrize("how", WAYS)
@pytest.mark.parametrize("workers", [(), (1.0, 1.0)])
def test_a_continued_answer_is_the_longer_answer(workers: tuple[float, ...], how: dict[str, Any]) -> None:
    """PROTOCOL section 7, `ai-cmd`; DESIGN section 5: 20 tokens and 20 more are the 40 of one go.

    Also where the caches were lost between, and the question after it reads the same conversation.
    """

    async def scenario() -> None:
        rooms = await online(workers)
        await ask(rooms.host, "before", max_tokens=5)
        whole = await ask(rooms.host, "Why?", max_tokens=40, **how)
        after = await ask(rooms.host, "And?", max_tokens=9)
        for lost in (False, True):
            await rooms.host.reset()
            await ask(rooms.host, "before", max_tokens=5)
            part = await ask(rooms.host, "Why?", max_tokens=20, **how)
            assert part.done.reason == "max"
            if lost:
                assert rooms.host.answering.chain is not None
                rooms.host.answering.chain.fail("made up")
            rest = await again(rooms.host, "continue", max_tokens=13)
            assert rest.done.stats.reused == (0 if lost else rest.done.stats.prompt - 1)
            more = await again(rooms.host, "continue", max_tokens=7)
            assert part.text + rest.text + more.text == whole.text
            assert [*(part.done.tokens or []), *(rest.done.tokens or []), *(more.done.tokens or [])] == (
                whole.done.tokens
            )
            assert (await ask(rooms.host, "And?", max_tokens=9)).done.tokens == after.done.tokens
            assert [e.reply for e in rooms.host.answering.conversation.exchanges][1] == whole.text
        await rooms.close()

    simulate(scenario)


def test_before_anything_was_asked_there_is_no_answer() -> None:
    """PROTOCOL section 7, `ai-cmd`: a host is told that, and not to ask the host to start the room."""

    async def scenario() -> None:
        rooms = await open_rooms()
        for what in BOTH:
            with pytest.raises(BadQuestion, match=r"There is no answer to .*Ask a question first"):
                await again(rooms.host, what)
        assert rooms.host.status().state == "open"
        await rooms.close()

    simulate(scenario)


def test_a_drawn_seed_is_kept_on_going_on_and_drawn_anew_on_making_anew() -> None:
    """PROTOCOL section 7, `ai-cmd`: continue keeps the seed of the answer; regen draws another."""

    async def scenario() -> None:
        rooms = await online((1.0,))
        await ask(rooms.host, "Why?", max_tokens=8, temperature=0.9)
        first = rooms.host.answering.conversation.last
        await again(rooms.host, "continue", max_tokens=8)
        second = rooms.host.answering.conversation.last
        assert first
        assert second
        assert first.how == second.how
        assert first.how.temperature == 0.9
        anew = await again(rooms.host, "regen")
        third = rooms.host.answering.conversation.last
        assert third
        assert third.how.seed != first.how.seed
        assert third.how.temperature == 0.9
        assert anew.done.stats.tokens == 8, "as it was asked, but for what is given"
        assert anew.text != second.reply
        # A seed that was given is kept, and so is what greedy makes of the question.
        given = await ask(rooms.host, "And?", max_tokens=6, temperature=0.9, seed=5)
        assert (await again(rooms.host, "regen")).text == given.text
        cool = await again(rooms.host, "regen", style="greedy", max_tokens=4)
        assert cool.text == (await again(rooms.host, "regen")).text
        assert cool.done.stats.tokens == 4
        await rooms.close()

    simulate(scenario)


def test_made_anew_it_is_asked_as_before_but_for_what_is_given() -> None:
    """PROTOCOL section 7, `ai-cmd`: one number changes that number; a style its own, from host and guest."""
    asked = AskOptions(style="creative", top_p=0.5, seed=3, max_tokens=9)
    there = options_of(params_of(asked))
    for given, wanted in (
        (AskOptions(top_p=0.9), Sampling(temperature=0.8, top_k=40, top_p=0.9, seed=3)),
        (AskOptions(temperature=0.2, seed=4), Sampling(temperature=0.2, top_k=40, top_p=0.5, seed=4)),
        (AskOptions(style="focused"), Sampling(temperature=0.4, top_k=20, top_p=0.5, seed=3)),
        (AskOptions(style="greedy"), Sampling()),
        (AskOptions(), Sampling(temperature=0.8, top_k=40, top_p=0.5, seed=3)),
    ):
        for before, now in ((asked, given), (there, given), (there, options_of(params_of(given)))):
            options = anew(before, now)
            assert sampling(options, "greedy") == wanted
            assert options.max_tokens == 9
    hot = AskOptions(temperature=1.5, seed=1)
    assert sampling(anew(hot, AskOptions(style="greedy")), "creative") == Sampling()


def test_screens_follow_an_answer_that_goes_on_and_one_that_is_made_anew() -> None:
    """PROTOCOL section 7: `ai-genstart {cont: 1}` with a new `mid`; `ai-regen` before the new start."""

    async def scenario() -> None:
        rooms = await online((1.0,))
        guest = await rooms.add(gb=0.0, name="mira")
        heard = listen(rooms.devices[0])
        part = await ask(guest, "Why?", max_tokens=4)
        rest = await again(guest, "continue", max_tokens=3)
        await asyncio.sleep(1)
        assert [type(e) for e in rest.events] == [Started, *[Piece] * 3, Done]
        assert rest.done.stats.tokens == 3
        starts = [m for m in heard if isinstance(m, chat.GenStart)]
        assert [(m.mid, m.cont, m.name, m.text) for m in starts] == [
            (1, False, "mira", "Why?"),
            (2, True, "mira", "Why?"),
        ]
        assert shown(rooms) == [("Why?", part.text + rest.text)]
        worker = rooms.devices[0].transcript.items[0]
        assert (worker.mid, worker.stats.startswith("7 tokens")) == (2, True)
        heard.clear()
        anew = await again(guest, "regen", max_tokens=5)
        await asyncio.sleep(1)
        order = [m.t for m in heard if m.t in ("ai-regen", "ai-genstart", "ai-gendone")]
        assert order == ["ai-regen", "ai-genstart", "ai-gendone"]
        assert shown(rooms) == [("Why?", anew.text)]
        assert rooms.devices[0].transcript.items[0].mid == 3
        late = await rooms.add(gb=0.0)
        await asyncio.sleep(1)
        assert [(i.text, i.reply) for i in late.transcript.items] == [("Why?", anew.text)]
        await rooms.close()

    simulate(scenario)


def test_who_came_in_the_middle_sees_it_whole() -> None:
    """PROTOCOL section 7, `of` *(nb)*: a newcomer hears what was said, and what goes on is added to it."""

    async def scenario() -> None:
        rooms = await online((1.0,), delay=0.01)
        running = asyncio.create_task(ask(rooms.devices[0], "Why?", max_tokens=30))
        await asyncio.sleep(0.2)
        late = await rooms.add(gb=0.0, name="late")
        part = await running
        heard = listen(late)
        rest = await again(rooms.devices[0], "continue", max_tokens=3)
        await asyncio.sleep(1)
        assert [(m.cont, m.of) for m in heard if isinstance(m, chat.GenStart)] == [(True, 1)]
        assert shown(rooms) == shown(rooms, 1) == [("Why?", part.text + rest.text)]
        anew = await again(rooms.host, "regen", max_tokens=4)
        await asyncio.sleep(1)
        assert [m.mid for m in heard if isinstance(m, chat.Regen)] == [2]
        assert shown(rooms) == shown(rooms, 1) == [("Why?", anew.text)]
        await rooms.close()

    simulate(scenario)


def test_only_the_last_asker_and_the_host_may() -> None:
    """PROTOCOL section 7: "last asker or host"; whoever else hears `ai-busy`, and is not offered it."""

    async def scenario() -> None:
        rooms = await online((1.0,))
        worker = rooms.devices[0]
        guest = await rooms.add(gb=0.0, name="mira")
        await asyncio.sleep(1)

        def may(room: HostRoom | DeviceRoom) -> set[str]:
            return {"continue", "regen"} & set(room.status().can)

        for room in (rooms.host, worker, guest):
            with pytest.raises(BadQuestion, match="There is no answer to"):
                await again(room, "continue")
            assert may(room) == set()
        await ask(guest, "Why?", max_tokens=4)
        await asyncio.sleep(1)
        assert (may(rooms.host), may(worker), may(guest)) == (
            {"continue", "regen"},
            set(),
            {"continue", "regen"},
        )
        for what in BOTH:
            with pytest.raises(BadQuestion, match="Only who asked last, or the host"):
                await again(worker, what)
        # It stays mira's answer, whoever makes it go on.
        for what in BOTH:
            await again(rooms.host, what, max_tokens=4)
            await asyncio.sleep(1)
            assert may(guest) == {"continue", "regen"}
            assert may(worker) == set()
        assert rooms.host.answering.conversation.exchanges[0].name == "mira"
        assert (await again(guest, "continue", max_tokens=2)).done.stats.tokens == 2
        await guest.leave()
        await asyncio.sleep(1)
        with pytest.raises(BadQuestion, match="Only who asked last"):
            await again(worker, "regen")
        assert (await again(rooms.host, "regen")).done.reason == "max"
        await rooms.close()

    simulate(scenario)


def test_what_is_finished_or_failed_does_not_go_on() -> None:
    """PROTOCOL section 7, `ai-cmd`: only what ended by its length or was stopped goes on; else words."""

    async def scenario() -> None:
        rooms = await open_rooms(workers=(1.0,), end_after=6, delay=0.01)
        await rooms.host.start()
        await ask(rooms.host, "Why?")
        with pytest.raises(BadQuestion, match="is finished"):
            await again(rooms.host, "continue")
        assert "continue" not in rooms.host.status().can
        assert (await again(rooms.host, "regen")).done.reason == "stop"
        # Cut right before its end: what comes is the end, and no text.
        await ask(rooms.host, "And?", max_tokens=6)
        rest = await again(rooms.host, "continue")
        assert (rest.done.reason, rest.text, rest.done.tokens) == ("stop", "", [])
        task = asyncio.create_task(ask(rooms.host, "Then?"))
        await asyncio.sleep(0.05)
        assert rooms.host.answering.chain is not None
        rooms.host.answering.chain.fail("made up")
        assert (await task).done.reason == "error"
        with pytest.raises(BadQuestion, match="failed, so it cannot be continued"):
            await again(rooms.host, "continue")
        assert "regen" in rooms.host.status().can
        await rooms.close()

    simulate(scenario)


def test_a_failed_answer_is_made_anew() -> None:
    """PROTOCOL section 7, `ai-regen`: the failed exchange goes, and the model never reads it."""

    async def scenario() -> None:
        rooms = await online((1.0,), delay=0.1)
        await ask(rooms.host, "one", max_tokens=4)
        failing = asyncio.create_task(ask(rooms.host, "two", max_tokens=4))
        await asyncio.sleep(0.5)
        assert rooms.host.answering.chain is not None
        rooms.host.answering.chain.fail("made up")
        assert (await failing).done.reason == "error"
        anew = await again(rooms.host, "regen")
        assert anew.text == (await alone(["one", "two"], max_tokens=4))[1].text
        assert [e.text for e in rooms.host.answering.conversation.exchanges] == ["one", "two"]
        await asyncio.sleep(1)
        assert [q for q, _ in shown(rooms)] == ["one", "two"]
        await rooms.close()

    simulate(scenario)


def test_a_full_context_does_not_go_on() -> None:
    """PROTOCOL section 7: "an answer ends at `ctx`"; going on runs up to it, past the 32 for questions."""

    async def scenario() -> None:
        rooms = await online(ctx=64)
        part = await ask(rooms.host, "x" * 20, max_tokens=30)
        assert part.done.reason == "max"
        rest = await again(rooms.host, "continue")
        assert rest.done.reason == "ctx"
        assert rest.done.stats.prompt + rest.done.stats.tokens == 64
        with pytest.raises(BadQuestion, match=r"context is full \(64 tokens\)"):
            await again(rooms.host, "continue")
        assert "continue" not in rooms.host.status().can
        await rooms.close()

    simulate(scenario)


def test_a_stopped_answer_goes_on() -> None:
    """PROTOCOL section 7, `ai-stop`: what was stopped may go on, and is the same text then."""

    async def scenario() -> None:
        rooms = await online((1.0,), delay=0.01)
        whole = await ask(rooms.host, "Why?", max_tokens=60)
        await rooms.host.reset()
        task = asyncio.create_task(ask(rooms.host, "Why?", max_tokens=60))
        await asyncio.sleep(0.5)
        await rooms.host.stop()
        part = await task
        assert part.done.reason == "abort"
        left = 60 - part.done.stats.tokens
        assert 0 < left < 60
        rest = await again(rooms.host, "continue", max_tokens=left)
        assert part.text + rest.text == whole.text
        # Stopped before its first word there is nothing to go on from.
        task = asyncio.create_task(ask(rooms.host, "y" * 300, max_tokens=60))
        await asyncio.sleep(0.02)
        await rooms.host.stop()
        assert (await task).done.stats.tokens == 0
        with pytest.raises(BadQuestion, match="before its first word"):
            await again(rooms.host, "continue")
        assert (await again(rooms.host, "regen", max_tokens=2)).done.stats.tokens == 2
        await rooms.close()

    simulate(scenario)


def test_a_continued_answer_keeps_how_it_was_made() -> None:
    """PROTOCOL section 7, *(nb)* options of `ai-cmd`: of continue only the length counts."""

    async def scenario() -> None:
        rooms = await online((1.0,))
        await ask(rooms.devices[0], "Why?", max_tokens=6)
        for given in ({"seed": 1}, {"style": "creative"}, {"system": "x"}, {"thinking": True}):
            with pytest.raises(BadQuestion, match="keeps how it was made"):
                await again(rooms.devices[0], "continue", **given)
        nb = chat.NbParams(max_tokens=6, temperature=2.0, seed=9, system="Be rude.")
        rooms.host.on_message(rooms.devices[0].mesh.id, chat.Cmd(cmd="continue", nb=nb))
        await asyncio.sleep(1)
        assert shown(rooms) == [("Why?", (await alone(["Why?"], max_tokens=12))[0].text)]
        # Without a length: as long as was asked for, else as the room answers.
        assert (await again(rooms.host, "continue")).done.stats.tokens == 6
        await rooms.host.configure(ChatSettings(max_tokens=9))
        await ask(rooms.host, "And?")
        assert (await again(rooms.host, "continue")).done.stats.tokens == 9
        await rooms.close()

    simulate(scenario)


def test_the_system_text_of_an_answer_stays_its_own() -> None:
    """DESIGN section 5: what is set meanwhile does not change an answer that goes on, but one made anew."""

    async def scenario() -> None:
        rooms = await online()
        await rooms.host.configure(ChatSettings(system="Be brief."))
        whole = await ask(rooms.host, "Why?", max_tokens=20)
        await rooms.host.reset()
        part = await ask(rooms.host, "Why?", max_tokens=10)
        await rooms.host.configure(ChatSettings(system="Be long.", thinking=True))
        rest = await again(rooms.host, "continue")
        assert part.text + rest.text == whole.text
        await again(rooms.host, "regen")
        turns, thinking = rooms.host_shard.asked[-1]
        assert [(t.role, t.text) for t in turns] == [("system", "Be long."), ("user", "Why?")]
        assert thinking is True
        await rooms.close()

    simulate(scenario)


def test_speed_is_no_option_of_a_room_that_is_exact() -> None:
    """DESIGN section 5: a fast question is answered exactly, and a sentence says so."""

    async def scenario() -> None:
        rooms = await online((1.0,))
        exact = await ask(rooms.host, "Why?", max_tokens=4)
        for room in (rooms.host, rooms.devices[0]):
            await rooms.host.reset()
            quick = await ask(room, "Why?", max_tokens=4, fast=True)
            assert quick.text == exact.text
            notices = [e.text for e in quick.events if isinstance(e, Notice)]
            assert len(notices) == 1
            assert "%pooled host --fast" in notices[0]
        await rooms.close()

    simulate(scenario)
