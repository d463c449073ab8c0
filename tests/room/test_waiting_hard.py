"""What people and devices do while an answer waits (PROTOCOL sections 7 and 8)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from pooled_nb.errors import NotReady, PooledError, ShardDied, WrongNumbers
from pooled_nb.mesh.messages import chat
from pooled_nb.room.chaining import chain_of as new_chain
from pooled_nb.room.core import ChatSettings, Done, Queued, Stats
from tests.room.rooms import Heard, Rooms, again, ask, open_rooms
from tests.room.test_bad_input import break_once
from tests.room.test_interrupted import agree, render_slowly
from tests.room.test_waiting_answers import same, screens
from tests.room.waits import Losing, chain_of, hold, notices, undisturbed
from tests.room.wiretap import tap
from tests.sim.clock import simulate

QUESTION = "Why is the sky blue?"
WHY = "mira does not answer; it may come back."


async def waiting(when: float = 0.4, asker: str = "host", **room: Any) -> tuple[Rooms, asyncio.Task[Heard]]:
    """A room of three whose answer to the first question waits after some tokens, until somebody helps it."""
    rooms = await open_rooms(workers=(1.0,), delay=0.02, **room)
    guest = await rooms.add(gb=0, name="guest")
    await rooms.host.start()
    task = asyncio.create_task(ask(rooms.host if asker == "host" else guest, QUESTION))
    await asyncio.sleep(when)
    rooms.host.answering.hold(WHY)
    await asyncio.sleep(1)
    assert rooms.host.answering.waits == WHY
    assert not task.done()
    return rooms, task


async def want(**options: Any) -> Heard:
    return (await undisturbed(QUESTION, options=options))[0]


@pytest.mark.parametrize("asker", ["host", "guest"])
@pytest.mark.parametrize("stopper", ["host", "asker"])
def test_stop_ends_a_waiting_answer_at_once(asker: str, stopper: str) -> None:
    """PROTOCOL sections 7 and 8, `ai-stop`: "waiting for it (Stop gives up)". What is shown stays."""

    async def scenario() -> None:
        rooms, task = await waiting(asker=asker)
        chain = chain_of(rooms)
        stops = rooms.devices[1] if (stopper, asker) == ("asker", "guest") else rooms.host
        await stops.stop()
        await asyncio.sleep(0.05)
        heard = task.result()
        assert (heard.done.reason, bool(heard.text)) == ("abort", True)
        assert rooms.host.answering.waits == ""
        await asyncio.sleep(5)
        rooms.host.answering.online(chain)
        who = rooms.devices[1] if asker == "guest" else rooms.host
        rest = await again(who, "continue")
        assert heard.text + rest.text == (await want()).text
        await rooms.close()

    simulate(scenario)


def test_stop_before_the_first_word() -> None:
    """PROTOCOL section 7: an answer that waits in its prompt is stopped like any other."""

    async def scenario() -> None:
        rooms, task = await waiting(when=0.01)
        await rooms.host.stop()
        assert ((await task).done.reason, (await task).text) == ("abort", "")
        rooms.host.answering.online(chain_of(rooms))
        assert (await again(rooms.host, "regen")).text == (await want()).text
        await rooms.close()

    simulate(scenario)


def test_closing_the_iterator_ends_the_wait() -> None:
    """DESIGN section 7: an interrupt leaves nothing behind, also where the room waits."""

    async def scenario() -> None:
        rooms, task = await waiting()
        task.cancel()
        await asyncio.sleep(0.05)
        assert rooms.host.answering.answering == ""
        await rooms.close()

    simulate(scenario)


def test_a_new_chat_ends_a_waiting_answer() -> None:
    """PROTOCOL section 7, `ai-reset`: screens clear now; what waited is kept nowhere."""

    async def scenario() -> None:
        rooms, task = await waiting(asker="guest")
        chain = chain_of(rooms)
        await rooms.host.reset()
        assert (await task).done.reason == "abort"
        await asyncio.sleep(1)
        assert screens(rooms) == [[]] * 3
        rooms.host.answering.online(chain)
        same(await ask(rooms.host, QUESTION), await want())
        agree(rooms)
        assert rooms.host.answering.conversation.exchanges[0].mid == 2
        await rooms.close()

    simulate(scenario)


@pytest.mark.parametrize("mode", ["all", "asker"])
def test_the_asker_leaves_while_its_answer_waits(mode: Any) -> None:
    """PROTOCOL section 7: the running answer goes on, since others see it: the host at least."""

    async def scenario() -> None:
        rooms, _ = await waiting(asker="host")
        await rooms.host.stop()
        rooms.host.answering.online(chain_of(rooms))
        await rooms.host.reset()
        await rooms.host.configure(ChatSettings(visibility=mode))
        task = asyncio.create_task(ask(rooms.devices[1], QUESTION))
        await asyncio.sleep(0.4)
        hold(rooms, 10.0)
        await rooms.devices[1].leave()
        await asyncio.gather(task, return_exceptions=True)
        await asyncio.sleep(15)
        assert rooms.host.answering.conversation.exchanges[0].reply == (await want()).text
        await rooms.close()

    simulate(scenario)


def test_settings_of_the_next_answer_change_none_that_waits() -> None:
    """PROTOCOL section 7, `ai-style` and `ai-visibility`: from the next message on."""

    async def scenario() -> None:
        rooms, task = await waiting(asker="guest")
        settings = ChatSettings(style="creative", max_tokens=3, visibility="host", system="Be brief.")
        await rooms.host.configure(settings)
        rooms.host.answering.online(chain_of(rooms))
        assert (await task).text == (await want()).text
        await asyncio.sleep(0.1)
        assert rooms.devices[0].transcript.items[0].reply == (await want()).text
        await rooms.close()

    simulate(scenario)


@pytest.mark.parametrize("when", [0.01, 0.4], ids=["prompt", "answer"])
def test_the_room_closes_while_an_answer_waits(when: float) -> None:
    """PROTOCOL section 3: every wait ends, and every question with it; no task is left."""

    async def scenario() -> None:
        rooms, task = await waiting(when)
        more = asyncio.create_task(ask(rooms.host, "More?"))
        await asyncio.sleep(0.1)
        began = asyncio.get_running_loop().time()
        await rooms.host.leave()
        heard = await task
        assert heard.done.reason == "error"
        assert heard.done.why == "The answer stopped: The room is closed."
        with pytest.raises(NotReady, match="The room is closed"):
            await more
        assert asyncio.get_running_loop().time() - began < 2
        await rooms.close()

    simulate(scenario)


@pytest.mark.parametrize("when", [0.01, 0.1, 0.4])
def test_a_new_deal_takes_a_waiting_answer_along(when: float) -> None:
    """PROTOCOL section 8: over another chain the answer goes on; the old one's returns count no more."""

    async def scenario() -> None:
        rooms, task = await waiting(when)
        host, old = rooms.host, chain_of(rooms)
        await host.answering.idle()
        deal = host._dealer.deal
        assert deal
        new = new_chain(deal, dealer=host._dealer, settings=host._settings, mesh=host.mesh)
        host.answering.online(new)
        assert old.closed
        assert host.answering.chain is new
        same(await task, await want())
        agree(rooms)
        await rooms.close()

    simulate(scenario)


def test_idle_waits_until_a_held_answer_rests() -> None:
    """PROTOCOL section 6: a load that follows finds the shard free, and the answer is not cancelled."""

    async def scenario() -> None:
        rooms = await open_rooms(workers=(1.0,), delay=0.5)
        await rooms.host.start()
        loop = asyncio.get_running_loop()
        task = asyncio.create_task(ask(rooms.host, QUESTION))
        await asyncio.sleep(0.1)
        rooms.host.answering.hold(WHY)
        began = loop.time()
        await rooms.host.answering.idle()
        assert loop.time() - began == pytest.approx(0.4), "the host's layers were half way"
        await rooms.host.answering.idle()
        rooms.host_shard.delay = 60.0
        rooms.host.answering.online(chain_of(rooms))
        await asyncio.sleep(1)
        rooms.host.answering.hold(WHY)
        began = loop.time()
        await rooms.host.answering.idle()
        assert loop.time() - began == pytest.approx(5.0), "work that does not end is not waited for"
        assert not task.done()
        rooms.host_shard.delay = 0.0
        await asyncio.sleep(60)
        rooms.host.answering.online(chain_of(rooms))
        assert (await task).text == (await want()).text
        await rooms.close()

    simulate(scenario)


def test_questions_wait_with_it() -> None:
    """PROTOCOL section 8: "Waiting questions wait on, and new ones are taken", answered in order."""

    async def scenario() -> None:
        rooms, task = await waiting()
        guest = rooms.devices[1]
        more = [asyncio.create_task(ask(guest, f"q{i}", max_tokens=3)) for i in range(2)]
        await asyncio.sleep(1)
        assert len(rooms.host.answering.queue) == 2
        assert rooms.host.status().waiting == guest.status().waiting == 2
        await guest.stop()
        await asyncio.sleep(0.1)
        assert len(rooms.host.answering.queue) == 1, "the newest was taken back"
        rooms.host.answering.online(chain_of(rooms))
        await task
        heard = await more[0]
        assert [e.place for e in heard.events if isinstance(e, Queued)] == [1]
        assert heard.done.reason == "max"
        await asyncio.gather(*more, return_exceptions=True)
        await rooms.close()

    simulate(scenario)


@pytest.mark.parametrize("job", ["render", "forward", "sample"])
@pytest.mark.parametrize("after", [0, 4])
def test_a_shard_that_dies_on_the_host_costs_no_answer(job: str, after: int) -> None:
    """PROTOCOL section 8: what a process took along is computed again by the next one."""

    async def scenario() -> None:
        rooms = await open_rooms(workers=(1.0,))
        await rooms.host.start()
        await rooms.host.configure(ChatSettings(system="Be brief."))
        question = await undisturbed(QUESTION, options={"system": "Be brief."})
        break_once(rooms.host_shard, job, ShardDied("It was killed.", "Lend less."), after=after)
        heard = await ask(rooms.host, QUESTION)
        same(heard, question[0])
        if not (job == "render" and after):
            assert notices(heard)[0] == "Host says: It was killed. The answer tries again."
        await rooms.close()

    simulate(scenario)


@pytest.mark.parametrize("where", ["host", "worker"])
def test_a_wrong_number_after_a_loss_still_costs_the_answer(where: str) -> None:
    """PROTOCOL section 8: "A wrong number (NaN) is not recoverable and says so"."""

    async def scenario() -> None:
        rooms = await open_rooms(workers=(1.0,))
        await rooms.host.start()
        shard = rooms.host_shard if where == "host" else rooms.shards[0]
        error = WrongNumbers("NaN or infinity was produced here, in layer 4.", "Start in another dtype.")
        with Losing(rooms, (4,), "flight"):
            break_once(shard, "forward", error, after=9)
            heard = await ask(rooms.host, QUESTION)
        assert heard.done.reason == "error"
        assert "NaN or infinity was produced here, in layer 4. Start in another dtype." in heard.done.why
        assert (await want()).text.startswith(heard.text)
        assert len(heard.text) > 4
        assert len(notices(heard)) == 2, "the loss before it alone"
        await rooms.host.reset()
        same(await ask(rooms.host, QUESTION), await want())
        await rooms.close()

    simulate(scenario)


@pytest.mark.parametrize("ends", ["online", "stop", "reset", "time"])
def test_a_room_that_is_held_before_an_answer_is_made_anew_keeps_the_old_one(ends: str) -> None:
    """PROTOCOL section 7, `ai-regen`: the exchange gives way when there is something to make another on."""

    async def scenario() -> None:
        rooms = await open_rooms(workers=(1.0,))
        await rooms.host.start()
        first = await ask(rooms.host, QUESTION, max_tokens=6)
        render_slowly(rooms)
        task = asyncio.create_task(again(rooms.host, "regen", max_tokens=9))
        await asyncio.sleep(0.5)
        rooms.host.answering.hold(WHY)
        await asyncio.sleep(5)
        assert screens(rooms) == [[(QUESTION, first.text)]] * 2
        if ends == "online":
            rooms.host.answering.online(chain_of(rooms))
            assert (await task).text == (await want(max_tokens=9)).text
        elif ends == "stop":
            await rooms.host.stop()
            assert (await task).done == Done("abort", Stats(), "taken back before it began", [])
            assert screens(rooms) == [[(QUESTION, first.text)]] * 2
        elif ends == "reset":
            await rooms.host.reset()
            with pytest.raises(PooledError, match="A new chat began"):
                await task
        else:
            with pytest.raises(NotReady, match="mira does not answer; it may come back"):
                await task
            assert screens(rooms) == [[(QUESTION, first.text)]] * 2
        await rooms.close()

    simulate(scenario)


def test_after_a_loss_no_device_keeps_a_state() -> None:
    """PROTOCOL section 7: "Any failed lap … drops all": also those that the answer before it saved."""

    async def scenario() -> None:
        rooms = await open_rooms(workers=(1.0, 1.0))
        await rooms.host.start()
        for question in ("one", "two"):
            await ask(rooms.host, question)
        frames = tap(rooms)[0]
        with Losing(rooms, (3,), "flight"):
            await ask(rooms.host, "three")
        kept = chain_of(rooms).kept
        resets = [frame for frame in frames if frame.reset]
        assert [(frame.dp, frame.sv, frame.ld) for frame in resets] == [((0xFFFF,), 0, 0)]
        assert len(kept.kept) == 1, "the answer that is over now"
        agree(rooms)
        await rooms.close()

    simulate(scenario)


def test_what_an_answer_took_counts_all_of_it() -> None:
    """PROTOCOL section 7, `ai-gendone`: tokens of before and after the loss; the wait is said, no more."""

    async def scenario() -> None:
        rooms, task = await waiting(asker="guest")
        done: list[chat.GenDone] = []
        plain = rooms.host.mesh.broadcast

        def broadcast(message: Any, *, but: str | None = None) -> None:
            if isinstance(message, chat.GenDone):
                done.append(message)
            plain(message, but=but)

        rooms.host.mesh.broadcast = broadcast  # type: ignore[method-assign]  # watched, and passed on
        await asyncio.sleep(59)
        rooms.host.answering.online(chain_of(rooms))
        stats = (await task).done.stats
        assert (stats.tokens, stats.prompt, stats.reused) == (40, len(QUESTION) + 1, 0)
        assert stats.ms < 3_000
        assert stats.tps > 10
        assert done[0].stats
        assert "40 tokens" in done[0].stats
        assert "waited 60 s" in done[0].stats
        await rooms.close()

    simulate(scenario)
