"""The conversation over a restart of its host: kept, private, and the same text after it (section 8)."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from pooled_nb.errors import BadQuestion
from pooled_nb.mesh.messages import chat
from pooled_nb.room.core import AskOptions, ChatSettings
from pooled_nb.room.memory import MAX_EXCHANGES, SavedChat, SavedQuestion
from tests.room.rooms import Rooms, again, ask, open_rooms
from tests.room.waits import undisturbed
from tests.sim.clock import simulate

QUESTION = "Why is the sky blue?"


def through_a_file(saved: SavedChat) -> SavedChat:
    """As a file keeps it: bounds are checked on the way back."""
    return msgspec.json.decode(msgspec.json.encode(saved), type=SavedChat)


def saved(rooms: Rooms, **seats: str | None) -> SavedChat:
    """``seats`` by device name; every other has none."""
    ids = {device.mesh.id: device.mesh.name for device in rooms.devices}
    return through_a_file(rooms.host.answering.chat(lambda id: seats.get(ids.get(id, id), "")))


async def restarted(memory: SavedChat, **room: Any) -> Rooms:
    """A new host that remembers."""
    rooms = await open_rooms(workers=(1.0,), **room)
    rooms.host.answering.recall(memory, lambda seat: f"seat of {seat}")
    await rooms.host.start()
    return rooms


@pytest.mark.parametrize("asks", [True, False], ids=["its host asks", "its guest asks"])
def test_a_host_that_dies_while_an_answer_is_made_anew_has_the_one_before(asks: bool) -> None:
    """PROTOCOL section 8, host resume: what gave way to an answer that never was is made anew once more."""

    async def scenario() -> None:
        rooms = await open_rooms(workers=(1.0,), delay=0.02)
        guest = await rooms.add(gb=0, name="guest")
        await rooms.host.start()
        asker = rooms.host if asks else guest
        first = await ask(asker, QUESTION, max_tokens=12)
        before = saved(rooms, guest="g")
        anew = asyncio.create_task(again(asker, "regen", max_tokens=12))
        await asyncio.sleep(0.15)
        assert rooms.host.answering.answering
        assert rooms.host.answering.conversation.last is None, "it has given way"
        memory = saved(rooms, guest="g")
        assert (memory.exchanges, memory.turns, memory.last) == (before.exchanges, before.turns, before.last)
        await rooms.host.reset()
        assert saved(rooms, guest="g").exchanges == [], "but not into a new chat"
        await anew
        await rooms.close()
        rooms = await restarted(memory)
        assert (await again(rooms.host, "regen", max_tokens=12)).text == first.text
        await rooms.close()

    simulate(scenario)


@pytest.mark.parametrize("what", ["ask", "continue", "regen"])
@pytest.mark.parametrize("options", [{}, {"temperature": 0.8, "seed": 5}])
def test_a_conversation_goes_on_after_a_restart_as_if_nothing_had_been(
    options: dict[str, Any], what: Any
) -> None:
    """PROTOCOL section 8, host resume, and DESIGN section 5: the text is that of the one-device run."""

    async def scenario() -> None:
        want = await undisturbed("one", QUESTION, "more", options=options | {"max_tokens": 20})
        rooms = await open_rooms(workers=(1.0,))
        await rooms.host.start()
        await ask(rooms.host, "one", max_tokens=20, **options)
        length = 20 if what == "ask" else 8
        part = await ask(rooms.host, QUESTION, max_tokens=length, **options)
        memory = saved(rooms)
        kept = rooms.host.answering.conversation.exchanges
        await rooms.close()
        rooms = await restarted(memory)
        assert rooms.host.answering.conversation.exchanges == kept
        if what == "continue":
            rest = await again(rooms.host, "continue", max_tokens=12)
            assert part.text + rest.text == want[1].text
        elif what == "regen":
            assert (await again(rooms.host, "regen", max_tokens=20)).text == want[1].text
        assert (await ask(rooms.host, "more", max_tokens=20, **options)).text == want[2].text
        mids = [e.mid for e in rooms.host.answering.conversation.exchanges]
        assert mids == sorted(set(mids)), "numbers go on"
        assert len(mids) == 3
        guest = await rooms.add(gb=0, name="guest")
        await asyncio.sleep(1)
        assert guest.transcript.items == rooms.host.answering.conversation.exchanges
        await rooms.close()

    simulate(scenario)


def test_what_one_device_and_the_host_see_is_not_kept() -> None:
    """PROTOCOL section 8, host resume: exchanges only where visibility says so; nothing is kept in part."""

    async def scenario() -> None:
        rooms = await open_rooms(workers=(1.0,))
        guest = await rooms.add(gb=0, name="guest")
        await rooms.host.start()
        await ask(guest, "open", max_tokens=3)
        await rooms.host.configure(ChatSettings(visibility="asker"))
        await ask(guest, "secret", max_tokens=3)
        await ask(rooms.host, "mine", max_tokens=3)
        memory = saved(rooms, guest="pass")
        raw = msgspec.json.encode(memory).decode()
        assert [(e.text, e.seat, e.mode) for e in memory.exchanges] == [
            ("open", "pass", "all"),
            ("mine", "", "asker"),
        ]
        assert [t.text for t in memory.turns if t.role == "user"] == ["open", "mine"]
        assert "secret" not in raw
        assert memory.last is None, "it was answered with the secret before it"
        assert memory.turns_of_last == 0
        assert guest.mesh.id not in raw
        await rooms.host.configure(ChatSettings())
        await ask(guest, "secret too", max_tokens=3)
        assert saved(rooms, guest=None).exchanges[0].text == "mine", "nothing of whose seat is not kept"
        await rooms.host.reset()
        assert saved(rooms) == SavedChat(newest=4)
        await rooms.close()
        rooms = await restarted(memory)
        assert [e.text for e in rooms.host.answering.conversation.exchanges] == ["open", "mine"]
        with pytest.raises(BadQuestion, match="There is no answer to continue"):
            await again(rooms.host, "continue")
        assert rooms.host.answering.chat(lambda _: "").turns == memory.turns, "and is kept again"
        await rooms.close()

    simulate(scenario)


def test_who_asked_is_known_again() -> None:
    """PROTOCOL section 8: an asker that comes back continues its answer, and is not answered twice."""

    async def scenario() -> None:
        rooms = await open_rooms(workers=(1.0,))
        guest = await rooms.add(gb=0, name="guest")
        await rooms.host.start()
        await ask(guest, "one", max_tokens=4)
        await ask(guest, QUESTION, max_tokens=4)
        await again(guest, "continue", max_tokens=4)
        memory = saved(rooms, guest="pass")
        first, second = memory.exchanges
        assert first.rid
        assert second.rid
        assert (first.before, second.before) == (0, 4)
        await rooms.close()

        rooms = await restarted(memory)
        host, answering = rooms.host, rooms.host.answering
        told: list[Any] = []
        host.mesh.send = lambda _to, message: not told.append(message)  # type: ignore[method-assign]  # watched
        answering.renamed("seat of pass", "new id")
        host.on_message("new id", chat.Ask(text="one", rid=first.rid))
        host.on_message("new id", chat.Cmd(cmd="continue", rid=second.rid))
        begun, text, done, cont, rest, _ = told
        assert (begun.asker, begun.rid, text.text, done.mid) == ("new id", first.rid, first.reply, first.mid)
        assert (cont.cont, rest.text) == (True, second.reply[4:])
        assert answering.answering == ""
        host.on_message("new id", chat.Cmd(cmd="continue", rid="another", nb=chat.NbParams(max_tokens=4)))
        await asyncio.sleep(2)
        whole = (await undisturbed("one", options={"max_tokens": 4}))[0].text
        assert first.reply == whole
        assert len(answering.conversation.exchanges[1].reply) == 12
        await rooms.close()

    simulate(scenario)


def test_a_long_conversation_keeps_what_a_screen_shows_and_a_model_reads() -> None:
    """PROTOCOL section 6, `ai-history`: the last 20; the model reads all of it."""

    async def scenario() -> None:
        rooms = await open_rooms(ctx=4096)
        await rooms.host.start()
        for i in range(MAX_EXCHANGES + 3):
            await ask(rooms.host, f"q{i}", max_tokens=2)
        await again(rooms.host, "regen", max_tokens=3)
        memory = saved(rooms)
        assert [e.text for e in memory.exchanges] == [f"q{i}" for i in range(3, MAX_EXCHANGES + 3)], (
            "one gave way"
        )
        assert len(memory.turns) == 2 * (MAX_EXCHANGES + 3)
        assert memory.turns == rooms.host.answering.conversation.turns
        await rooms.close()

    simulate(scenario)


def test_own_questions_are_kept_with_their_seeds() -> None:
    """PROTOCOL section 8: queued questions survive; asked again, a drawn one gives the same text."""

    async def scenario() -> None:
        rooms = await open_rooms(workers=(1.0,), delay=0.02)
        guest = await rooms.add(gb=0, name="guest")
        await rooms.host.start()
        assert rooms.host.answering.own_questions() == []
        running = asyncio.create_task(ask(rooms.host, QUESTION, style="creative", max_tokens=30))
        await asyncio.sleep(0.2)
        tasks = [
            asyncio.create_task(ask(guest, "not mine")),
            asyncio.create_task(ask(rooms.host, "two", style="creative", seed=7, max_tokens=5)),
            asyncio.create_task(again(rooms.host, "regen")),
        ]
        await asyncio.sleep(0.2)
        mine = rooms.host.answering.own_questions()
        assert [q.text for q in mine] == [QUESTION, "two"]
        assert mine[1].options == AskOptions(style="creative", seed=7, max_tokens=5)
        whole = await running
        await asyncio.gather(*tasks, return_exceptions=True)
        await rooms.host.reset()
        first = msgspec.json.decode(msgspec.json.encode(mine[0]), type=SavedQuestion)
        seconds = [event async for event in rooms.host.ask(first.text, first.options)]
        assert seconds[-1].tokens == whole.done.tokens  # type: ignore[union-attr]  # the last event is Done
        await rooms.close()

    simulate(scenario)
