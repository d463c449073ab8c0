"""Answers that go on, or are made anew, at the wrong moment, in virtual time (PROTOCOL section 7)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from pooled_nb.errors import BadQuestion, QueueFull, RoomClosed
from pooled_nb.mesh.messages import Message, chat
from pooled_nb.room.core import AskOptions, ChatSettings, Queued, Started
from tests.room.rooms import again, alone, ask
from tests.room.test_again import BOTH, online, shown
from tests.room.test_spoken import listen
from tests.sim.clock import simulate


def test_it_waits_its_turn_and_means_the_answer_of_when_it_was_asked() -> None:
    """PROTOCOL section 7: through the queue like a question; another's answer between ends the wish."""

    async def scenario() -> None:
        rooms = await online((1.0,), delay=0.01)
        worker = rooms.devices[0]
        guest = await rooms.add(gb=0.0, name="mira")
        first = asyncio.create_task(ask(guest, "first", max_tokens=30))
        await asyncio.sleep(0.1)
        with pytest.raises(BadQuestion, match="Only who asked last"):
            await again(worker, "regen")
        # Asked while its own answer runs: next, and about that answer.
        going_on = asyncio.create_task(again(guest, "continue", max_tokens=5))
        await asyncio.sleep(0.05)
        assert rooms.host.status().queue == ["mira"]
        second = asyncio.create_task(ask(worker, "second", max_tokens=5))
        await asyncio.sleep(0.05)
        late = asyncio.create_task(again(rooms.host, "continue", max_tokens=5))
        rest = await going_on
        assert [type(e) for e in rest.events[:2]] == [Queued, Started]
        assert rest.done.stats.tokens == 5
        assert (await second).done.stats.tokens == 5
        with pytest.raises(BadQuestion, match="is not the newest any more"):
            await late
        whole = (await alone(["first"], max_tokens=35))[0]
        assert (await first).text + rest.text == whole.text
        await asyncio.sleep(1)
        assert [q for q, _ in shown(rooms)] == ["first", "second"]
        await rooms.close()

    simulate(scenario)


def test_two_wishes_at_once_are_one() -> None:
    """PROTOCOL section 7, `ai-cmd`: a second press before the first began is refused in words."""

    async def scenario() -> None:
        rooms = await online((1.0,), delay=0.01)
        guest = await rooms.add(gb=0.0, name="mira")
        await ask(guest, "Why?", max_tokens=6)
        for what in BOTH:
            one, two = (asyncio.create_task(again(guest, what, max_tokens=6)) for _ in range(2))
            assert (await one).done.stats.tokens == 6
            with pytest.raises(BadQuestion, match="is not the newest any more"):
                await two
        assert len(rooms.host.answering.conversation.exchanges) == 1
        # They wait like questions: two of a device at most.
        running = asyncio.create_task(ask(guest, "long", max_tokens=50))
        await asyncio.sleep(0.1)
        waiting = [asyncio.create_task(again(guest, "continue", max_tokens=1)) for _ in range(3)]
        with pytest.raises(QueueFull):
            await waiting[2]
        await running
        assert (await waiting[0]).done.stats.tokens == 1
        with pytest.raises(BadQuestion):
            await waiting[1]
        await rooms.close()

    simulate(scenario)


def test_a_new_chat_between_leaves_nothing_to_go_on_with() -> None:
    """PROTOCOL section 7, `ai-reset`: not after it, not while it waits, and what goes on then is not kept."""

    async def scenario() -> None:
        rooms = await online((1.0,), delay=0.01)
        guest = await rooms.add(gb=0.0, name="mira")
        await ask(guest, "Why?", max_tokens=6)
        await rooms.host.reset()
        for what in BOTH:
            with pytest.raises(BadQuestion, match="There is no answer to"):
                await again(guest, what)
        running = asyncio.create_task(ask(guest, "long", max_tokens=50))
        await asyncio.sleep(0.1)
        waits = asyncio.create_task(again(guest, "continue"))
        await asyncio.sleep(0.05)
        await rooms.host.reset()
        assert (await running).done.reason == "abort"
        with pytest.raises(BadQuestion, match="There is no answer to"):
            await waits
        await ask(guest, "Why?", max_tokens=6)
        goes_on = asyncio.create_task(again(guest, "continue", max_tokens=50))
        await asyncio.sleep(0.2)
        await rooms.host.reset()
        assert (await goes_on).done.reason == "abort"
        await asyncio.sleep(1)
        assert not rooms.host.answering.conversation.exchanges
        assert not guest.transcript.items
        assert shown(rooms) == []
        fresh = await ask(guest, "Why?", max_tokens=6)
        assert fresh.text == (await alone(["Why?"], max_tokens=6))[0].text
        await rooms.close()

    simulate(scenario)


@pytest.mark.parametrize("what", ["continue", "regen"])
def test_a_new_chat_while_the_prompt_is_written(what: Any) -> None:
    """PROTOCOL section 7, `ai-reset`: between any two steps: nothing of the old chat is shown then."""

    async def scenario() -> None:
        rooms = await online((1.0,))
        await ask(rooms.host, "Why?", max_tokens=6)
        render = rooms.host_shard.render

        async def slow(*args: Any, **more: Any) -> Any:
            await asyncio.sleep(0.2)
            return await render(*args, **more)

        rooms.host_shard.render = slow  # type: ignore[method-assign]  # timing of one call
        task = asyncio.create_task(again(rooms.host, what))
        await asyncio.sleep(0.1)
        heard = listen(rooms.devices[0])
        await rooms.host.reset()
        with pytest.raises(BadQuestion, match="A new chat began"):
            await task
        await asyncio.sleep(1)
        assert not {"ai-genstart", "ai-regen"} & {m.t for m in heard}
        await rooms.close()

    simulate(scenario)


def test_a_room_that_breaks_before_it_begins_keeps_the_answer() -> None:
    """PROTOCOL section 8: "Nothing shown changes": what cannot be made anew takes nothing's place."""

    async def scenario() -> None:
        rooms = await online((1.0, 1.0))
        await rooms.host.configure(ChatSettings(redeal=False))
        whole = await ask(rooms.host, "Why?", max_tokens=6)
        render = rooms.host_shard.render

        async def slow(*args: Any, **more: Any) -> Any:
            await asyncio.sleep(2)
            return await render(*args, **more)

        rooms.host_shard.render = slow  # type: ignore[method-assign]  # timing of one call
        task = asyncio.create_task(again(rooms.host, "regen"))
        await asyncio.sleep(0.1)
        await rooms.devices[1].leave()
        await asyncio.sleep(10)
        rooms.host_shard.render = render  # type: ignore[method-assign]  # as it was
        assert not task.done()
        assert [e.reply for e in rooms.host.answering.conversation.exchanges] == [whole.text]
        assert shown(rooms) == [("Why?", whole.text)]
        await rooms.host.start()
        assert (await task).text == whole.text
        await asyncio.sleep(1)
        assert shown(rooms) == [("Why?", whole.text)]
        await rooms.close()

    simulate(scenario)


def test_a_wish_of_the_old_chat_means_nothing_of_the_new() -> None:
    """PROTOCOL section 7, `ai-cmd`: `mid` names an answer that is gone, while the next is being prepared."""

    async def scenario() -> None:
        rooms = await online((1.0,))
        guest = await rooms.add(gb=0.0, name="mira")
        await ask(guest, "Why?", max_tokens=6)
        await rooms.host.reset()
        render = rooms.host_shard.render

        async def slow(*args: Any, **more: Any) -> Any:
            await asyncio.sleep(0.2)
            return await render(*args, **more)

        rooms.host_shard.render = slow  # type: ignore[method-assign]  # timing of one call
        heard = listen(guest)
        fresh = asyncio.create_task(ask(guest, "And?", max_tokens=6))
        await asyncio.sleep(0.1)
        assert rooms.host.answering.answering == "mira"
        for mid in (1, 2):
            rooms.host.on_message(guest.mesh.id, chat.Cmd(cmd="continue", mid=mid, rid=f"old{mid}"))
        await fresh
        await asyncio.sleep(1)
        assert [m.code for m in heard if isinstance(m, chat.Busy)] == ["bad", "bad"]
        assert [len(i.reply) for i in guest.transcript.items] == [6]
        await rooms.close()

    simulate(scenario)


def test_stop_that_comes_late_hits_nothing_else() -> None:
    """PROTOCOL section 7, `ai-stop {rid}` *(nb)*: the answer it means ended on its way; the next goes on."""

    async def scenario() -> None:
        rooms = await online((1.0,), delay=0.01)
        guest = await rooms.add(gb=0.0, name="mira")
        first = asyncio.create_task(ask(guest, "first", max_tokens=10))
        await asyncio.sleep(0.1)
        second = asyncio.create_task(ask(guest, "second", max_tokens=10))
        on_way: list[tuple[str, Message]] = []
        send = guest.mesh.send

        def slow(to: str, message: Message) -> bool:
            on_way.append((to, message))
            return True

        guest.mesh.send = slow  # type: ignore[method-assign]  # a slow link
        await guest.stop()
        guest.mesh.send = send  # type: ignore[method-assign]  # as it was
        assert (await first).done.reason == "max"
        await asyncio.sleep(0.05)
        assert rooms.host.status().answering == "mira"
        for to, message in on_way:
            send(to, message)
        assert (await second).done.stats.tokens == 10
        await rooms.close()

    simulate(scenario)


def test_it_goes_on_over_another_deal() -> None:
    """DESIGN section 5: a worker leaves between; the room says so, deals anew, and the text is the same."""

    async def scenario() -> None:
        rooms = await online((1.0, 1.0))
        whole = await ask(rooms.host, "Why?", max_tokens=40, temperature=0.8, seed=4)
        await rooms.host.reset()
        part = await ask(rooms.devices[0], "Why?", max_tokens=20, temperature=0.8, seed=4)
        await rooms.devices[1].leave()
        await asyncio.sleep(1)
        assert {"continue", "regen"}.isdisjoint(rooms.host.status().can)
        began = asyncio.get_running_loop().time()
        rest = await again(rooms.devices[0], "continue", max_tokens=20)
        assert part.text + rest.text == whole.text
        assert asyncio.get_running_loop().time() - began < 10, "nobody comes back: it deals at once"
        await rooms.close()

    simulate(scenario)


def test_what_goes_on_and_fails_keeps_what_is_shown() -> None:
    """PROTOCOL section 8: "Nothing shown changes": the part that came is kept on screens and read on."""

    async def scenario() -> None:
        rooms = await online((1.0,), delay=0.01)
        whole = await ask(rooms.host, "Why?", max_tokens=60)
        await rooms.host.reset()
        part = await ask(rooms.host, "Why?", max_tokens=6)
        task = asyncio.create_task(again(rooms.host, "continue", max_tokens=54))
        await asyncio.sleep(0.3)
        assert rooms.host.answering.chain is not None
        rooms.host.answering.chain.fail("made up")
        rest = await task
        assert rest.done.reason == "error"
        assert rest.text
        assert whole.text.startswith(part.text + rest.text)
        await asyncio.sleep(1)
        assert shown(rooms) == [("Why?", part.text + rest.text)]
        assert rooms.host.answering.conversation.exchanges[0].reply == part.text + rest.text
        await rooms.close()

    simulate(scenario)


def test_the_asker_leaves_while_it_goes_on() -> None:
    """PROTOCOL section 7: "the running answer goes on if others see it"; what waited goes."""

    async def scenario() -> None:
        rooms = await online((1.0,), delay=0.01)
        guest = await rooms.add(gb=0.0, name="mira")
        await ask(guest, "Why?", max_tokens=6)
        running = asyncio.create_task(again(guest, "continue", max_tokens=30))
        await asyncio.sleep(0.1)
        waits = asyncio.create_task(again(guest, "continue", max_tokens=30))
        await asyncio.sleep(0.05)
        await guest.leave()
        for task in (running, waits):
            with pytest.raises(RoomClosed):
                await task
        await asyncio.sleep(3)
        assert [len(reply) for _, reply in shown(rooms)] == [36]
        assert rooms.host.status().waiting == 0
        await rooms.close()

    simulate(scenario)


def test_a_wish_that_waits_is_taken_back() -> None:
    """PROTOCOL section 7, `ai-stop`: by its `rid`, like a question; the answer stays as it is."""

    async def scenario() -> None:
        rooms = await online((1.0,), delay=0.01)
        guest = await rooms.add(gb=0.0, name="mira")
        running = asyncio.create_task(ask(guest, "Why?", max_tokens=30))
        await asyncio.sleep(0.1)
        wish = guest.again("continue", AskOptions(max_tokens=5))
        assert isinstance(await anext(wish), Queued)
        await wish.aclose()  # type: ignore[attr-defined]  # an async generator
        assert (await running).done.stats.tokens == 30
        await asyncio.sleep(1)
        assert len(shown(rooms)[0][1]) == 30
        await rooms.close()

    simulate(scenario)


def test_it_waits_for_a_start_that_is_under_way() -> None:
    """PROTOCOL section 7: while the room loads, what is asked waits for it."""

    async def scenario() -> None:
        rooms = await online((1.0,))
        part = await ask(rooms.host, "Why?", max_tokens=6)
        rooms.shards[0].delay = 1.0
        starting = asyncio.create_task(rooms.host.start())
        await asyncio.sleep(0.5)
        goes_on = asyncio.create_task(again(rooms.host, "continue", max_tokens=6))
        await starting
        rooms.shards[0].delay = 0.0
        assert part.text + (await goes_on).text == (await alone(["Why?"], max_tokens=12))[0].text
        await rooms.close()

    simulate(scenario)


def test_the_host_means_what_it_sees() -> None:
    """PROTOCOL section 7, `ai-cmd`: pressed as another's answer begins, it does not go on with that one."""

    async def scenario() -> None:
        rooms = await online((1.0,), delay=0.01)
        await ask(rooms.host, "mine", max_tokens=5)
        running = asyncio.create_task(ask(rooms.devices[0], "theirs", max_tokens=20))
        await asyncio.sleep(0.1)
        for what in BOTH:
            with pytest.raises(BadQuestion, match="is not the newest any more"):
                await again(rooms.host, what)
        await running
        # A device that names an answer of before, or none there ever was, is refused as well.
        await asyncio.sleep(1)
        heard = listen(rooms.devices[0])
        for mid in (1, 99):
            rooms.host.on_message(rooms.devices[0].mesh.id, chat.Cmd(cmd="regen", mid=mid))
        await asyncio.sleep(1)
        busy = [m for m in heard if isinstance(m, chat.Busy)]
        assert [m.code for m in busy] == ["bad", "bad"]
        assert len(heard) == 2
        # One that names none, as public ones do, means the newest.
        rooms.host.on_message(rooms.devices[0].mesh.id, chat.Cmd(cmd="continue"))
        await asyncio.sleep(2)
        assert len(shown(rooms)[-1][1]) == 40
        await rooms.close()

    simulate(scenario)


@pytest.mark.parametrize("cmd", ["", "stop", "CONTINUE", "continue ", "regenerate"])
def test_an_unknown_command_is_ignored(cmd: str) -> None:
    """PROTOCOL section 3: what is not known is ignored; nothing runs, nobody hears."""

    async def scenario() -> None:
        rooms = await online((1.0,))
        await ask(rooms.devices[0], "Why?", max_tokens=6)
        await asyncio.sleep(1)
        heard = listen(rooms.devices[0])
        rooms.host.on_message(rooms.devices[0].mesh.id, chat.Cmd(cmd=cmd))
        await asyncio.sleep(1)
        assert not heard
        with pytest.raises(BadQuestion, match="cannot be"):
            await again(rooms.host, cmd)  # type: ignore[arg-type]  # what a person may type
        await rooms.close()

    simulate(scenario)
