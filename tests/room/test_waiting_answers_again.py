"""Who comes back hears the answers it asked for, each once (PROTOCOL sections 7 and 8)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from pooled_nb.mesh.messages import Message, chat
from pooled_nb.room.audience import PIECE, so_far
from pooled_nb.room.core import ChatSettings
from pooled_nb.room.replays import KEPT, NEW_CHAT, Replay, Replays
from pooled_nb.room.transcript import Transcript
from tests.room.rooms import Rooms, again, ask, open_rooms
from tests.room.waits import chain_of, undisturbed
from tests.sim.clock import simulate

QUESTION = "Why is the sky blue?"


def replay(mid: int, **more: Any) -> Replay:
    start = chat.GenStart(mid=mid, name="mira", text="q", asker="a", rid=f"r{mid}")
    return Replay(start, "text", chat.GenDone(mid=mid, reason="stop"), "a", "all", **more)


def test_the_newest_answers_are_remembered() -> None:
    """PROTOCOL section 8: told again under the ``rid`` it was asked with, to who asked it alone."""
    replays = Replays()
    for mid in range(1, KEPT + 3):
        replays.add("a", f"r{mid}", replay(mid))
    replays.add("a", None, replay(99))
    assert not replays.find("a", "r2", "all"), "memory is bounded"
    assert not replays.find("b", "r9", "all")
    assert not replays.find("a", None, "all")
    told = replays.find("a", "r9", "all")
    assert [type(m) for m in told] == [chat.GenStart, chat.Token, chat.GenDone]
    replays.renamed("a", "b")
    assert not replays.find("a", "r9", "all")
    (start, *_) = replays.find("b", "r9", "asker")
    assert isinstance(start, chat.GenStart)
    assert (start.asker, start.rid, start.text, start.hidden) == ("b", "r9", "q", False)
    start, done = replays.find("b", "r9", "host")
    assert start == chat.GenStart(mid=9, hidden=True, asker="b", rid="r9")
    assert done == chat.GenDone(mid=9, hidden=True, reason="stop")
    replays.new_chat()
    assert replays.find("b", "r9", "all") == [chat.Busy(why=NEW_CHAT, code="gone", rid="r9")]


def test_a_long_answer_travels_in_pieces() -> None:
    """PROTOCOL section 7, `ai-token`: each of a size that is taken."""
    text = "x" * (2 * PIECE + 1)
    _, *told = so_far(chat.GenStart(mid=1), text, None, "whole")
    assert [len(m.text) for m in told if isinstance(m, chat.Token)] == [PIECE, PIECE, 1]


def greeted(rooms: Rooms, id: str) -> list[Message]:
    queue, *told = rooms.host.answering.greet(id)
    assert isinstance(queue, chat.Queue)
    return told


@pytest.mark.parametrize("asked", ["new", "continue"])
def test_a_newcomer_sees_the_answer_under_way_whole(asked: str) -> None:
    """PROTOCOL section 6: a newcomer's screen ends as everybody's, though it came in the middle."""

    async def scenario() -> None:
        rooms = await open_rooms(workers=(1.0,), delay=0.02)
        await rooms.host.start()
        assert greeted(rooms, "someone") == []
        await ask(rooms.host, "before", max_tokens=4)
        if asked == "continue":
            await ask(rooms.host, QUESTION, max_tokens=5)
        late = (
            asyncio.create_task(again(rooms.host, "continue", max_tokens=20))
            if asked == "continue"
            else (asyncio.create_task(ask(rooms.host, QUESTION, max_tokens=25)))
        )
        await asyncio.sleep(0.4)
        newcomer = Transcript()
        seen = rooms.host.answering.conversation.seen_by("someone", "all")
        for message in [chat.History(items=seen), *greeted(rooms, "someone")]:
            newcomer.read(message)
        assert len(newcomer.text) > 5
        plain = rooms.host.mesh.broadcast

        def broadcast(message: Message, *, but: str | None = None) -> None:
            newcomer.read(message)
            plain(message, but=but)

        rooms.host.mesh.broadcast = broadcast  # type: ignore[method-assign]  # watched, and passed on
        await late
        assert newcomer.items == rooms.host.answering.conversation.exchanges
        assert len(newcomer.items) == 2
        assert greeted(rooms, "someone") == []
        await rooms.close()

    simulate(scenario)


def test_who_comes_in_while_the_host_continues_its_answer_hears_what_it_would_have() -> None:
    """PROTOCOL section 7, `ai-visibility` "the host's screen only": the host wished it; nobody is named."""

    async def scenario() -> None:
        rooms = await open_rooms(workers=(1.0,), delay=0.02)
        guest = await rooms.add(gb=0, name="guest")
        await rooms.host.start()
        await rooms.host.configure(ChatSettings(visibility="host"))
        await ask(guest, QUESTION, max_tokens=4)
        task = asyncio.create_task(again(rooms.host, "continue", max_tokens=30))
        await asyncio.sleep(0.4)
        assert greeted(rooms, guest.mesh.id) == [chat.GenStart(mid=2, hidden=True)]
        await task
        await rooms.close()

    simulate(scenario)


@pytest.mark.parametrize("asker", ["host", "guest"])
@pytest.mark.parametrize("then", ["all", "asker", "host"])
@pytest.mark.parametrize("now", ["all", "asker", "host"])
def test_who_comes_in_sees_what_it_may(asker: str, then: Any, now: Any) -> None:
    """PROTOCOL section 7, `ai-visibility`: the stricter rule, of when it began and of now."""

    async def scenario() -> None:
        rooms = await open_rooms(workers=(1.0,), delay=0.02)
        guest = await rooms.add(gb=0, name="guest")
        await rooms.host.start()
        await rooms.host.configure(ChatSettings(visibility=then))
        who = guest if asker == "guest" else rooms.host
        task = asyncio.create_task(ask(who, QUESTION, max_tokens=20))
        await asyncio.sleep(0.4)
        await rooms.host.configure(ChatSettings(visibility=now))
        mine, other = greeted(rooms, guest.mesh.id), greeted(rooms, rooms.devices[0].mesh.id)
        rule = min(then, now, key=["host", "asker", "all"].index)
        assert len(other) == (2 if rule == "all" else 1)
        if rule != "all":
            assert other == [chat.GenStart(mid=1, hidden=True)]
        if asker == "host":
            assert mine == other
        elif rule == "host":
            assert len(mine) == 1
            assert isinstance(mine[0], chat.GenStart)
            assert (mine[0].hidden, mine[0].asker, mine[0].text) == (True, guest.mesh.id, None)
            assert mine[0].rid
        else:
            assert [type(m) for m in mine] == [chat.GenStart, chat.Token]
        await rooms.host.reset()
        assert greeted(rooms, guest.mesh.id) == [], "it belongs to the old chat"
        await task
        await rooms.close()

    simulate(scenario)


class Told:
    """What the host sends to one device from now on."""

    def __init__(self, rooms: Rooms, id: str) -> None:
        self.messages: list[Message] = []
        plain = rooms.host.mesh.send

        def send(to: str, message: Message) -> bool:
            if to == id:
                self.messages.append(message)
                return True
            return plain(to, message)

        rooms.host.mesh.send = send  # type: ignore[method-assign]  # watched

    def take(self) -> list[Message]:
        messages, self.messages = self.messages, []
        return messages


def test_a_question_that_is_sent_again_is_answered_once() -> None:
    """PROTOCOL section 8: running, waiting and answered ones are told apart; none is lost or made twice."""

    async def scenario() -> None:
        rooms = await open_rooms(workers=(1.0,), delay=0.02)
        await rooms.host.start()
        host, answering = rooms.host, rooms.host.answering
        told = Told(rooms, "x")
        first, second = (chat.Ask(text=f"{QUESTION} {n}", rid=f"rid{n}") for n in (1, 2))
        host.on_message("x", first)
        await asyncio.sleep(0.1)
        host.on_message("x", second)
        await asyncio.sleep(0.3)
        assert told.take() == [chat.Queued(pos=1, rid="rid2")]
        for _ in range(3):
            host.on_message("x", first)
            host.on_message("x", second)
        assert told.take() == [chat.Queued(pos=1, rid="rid2")] * 3
        assert len(answering.queue) == 1
        answering.renamed("x", "y")
        assert answering.queue.running
        assert answering.queue.running.asker == answering.queue.waiting[0].asker == "y"
        (start, _) = greeted(rooms, "y")
        assert isinstance(start, chat.GenStart)
        assert (start.asker, start.rid) == ("y", "rid1")
        told = Told(rooms, "y")
        await asyncio.sleep(20)
        assert [e.text for e in answering.conversation.exchanges] == [first.text, second.text]
        told.take()
        host.on_message("y", first)
        again_ = told.take()
        assert [type(m) for m in again_] == [chat.GenStart, chat.Token, chat.GenDone]
        assert isinstance(again_[1], chat.Token)
        assert again_[1].text == answering.conversation.exchanges[0].reply
        await host.reset()
        host.on_message("y", second)
        assert told.take() == [chat.Busy(why=NEW_CHAT, code="gone", rid="rid2")]
        assert len(answering.conversation.exchanges) == 0
        host.on_message("z", second)
        await asyncio.sleep(20)
        assert len(answering.conversation.exchanges) == 1, "another device may call its question the same"
        await rooms.close()

    simulate(scenario)


def test_a_new_chat_that_began_while_the_asker_was_away() -> None:
    """PROTOCOL section 7, `ai-reset`: who asks again for an answer that is dropped does not wait for it."""

    async def scenario() -> None:
        rooms = await open_rooms(workers=(1.0,), delay=0.5)
        await rooms.host.start()
        question = chat.Ask(text=QUESTION, rid="one")
        rooms.host.on_message("x", question)
        await asyncio.sleep(4)
        await rooms.host.reset()
        told = Told(rooms, "x")
        assert rooms.host.answering.queue.running
        rooms.host.on_message("x", question)
        assert told.take() == [chat.Busy(why=NEW_CHAT, code="gone", rid="one")]
        await asyncio.sleep(4)
        rooms.host.on_message("x", question)
        assert told.take() == [chat.Busy(why=NEW_CHAT, code="gone", rid="one")]
        assert rooms.host.answering.conversation.exchanges == []
        await rooms.close()

    simulate(scenario)


@pytest.mark.parametrize("mode", ["all", "asker"])
def test_an_asker_that_comes_back_under_another_id_goes_on_with_its_answer(mode: Any) -> None:
    """PROTOCOL section 3, seats: what it asked is its own still: it stops, continues, and sees it."""

    async def scenario() -> None:
        rooms = await open_rooms(workers=(1.0,), delay=0.02)
        await rooms.host.start()
        host, answering = rooms.host, rooms.host.answering
        await host.configure(ChatSettings(visibility=mode))
        host.on_message("x", chat.Ask(text=QUESTION, rid="one", nb=chat.NbParams(max_tokens=12)))
        await asyncio.sleep(0.3)
        answering.hold("x does not answer.")
        await asyncio.sleep(1)
        answering.renamed("x", "y")
        told = Told(rooms, "y")
        for message in answering.greet("y"):
            host.mesh.send("y", message)
        answering.online(chain_of(rooms))
        await asyncio.sleep(5)
        text = "".join(m.text for m in told.messages if isinstance(m, chat.Token))
        (want,) = await undisturbed(QUESTION, options={"max_tokens": 20})
        # Where all may see it, what comes after the greeting is broadcast, and "y" is no device of the mesh.
        assert want.text.startswith(text) if mode == "all" else text == want.text[:12]
        host.on_message("y", chat.Cmd(cmd="continue", rid="two", nb=chat.NbParams(max_tokens=8)))
        await asyncio.sleep(5)
        assert answering.conversation.exchanges[0].reply == want.text
        host.on_message("x", chat.Cmd(cmd="continue", rid="three"))
        await asyncio.sleep(5)
        assert answering.conversation.exchanges[0].reply == want.text, "whoever has the old id now"
        told.take()
        host.on_message("y", chat.Cmd(cmd="continue", rid="two", nb=chat.NbParams(max_tokens=8)))
        start, token, done = told.take()
        assert isinstance(start, chat.GenStart)
        assert isinstance(token, chat.Token)
        assert isinstance(done, chat.GenDone)
        assert (start.cont, start.of, token.text, done.reason) == (True, 1, want.text[12:], "max")
        await rooms.close()

    simulate(scenario)
