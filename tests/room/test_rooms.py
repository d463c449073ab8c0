"""Rooms of several devices, from joining to answers, in virtual time."""

from __future__ import annotations

import asyncio

import pytest

from pooled_nb.errors import BadQuestion, NotReady, QueueFull, RoomClosed
from pooled_nb.room.core import AskOptions, ChatSettings, Done, Notice, Piece, Queued, Started
from tests.room.rooms import Rooms, alone, ask, open_rooms
from tests.room.toy import LAYERS
from tests.sim.clock import simulate

QUESTIONS = ["Why is the sky blue?\nIn two lines, please.", "And at night?", "x" * 700]


@pytest.mark.parametrize("workers", [(), (1.0,), (1.0, 1.0), (1.0,) * 5])
def test_any_split_gives_the_text_of_one_device(workers: tuple[float, ...]) -> None:
    """DESIGN section 5: within one sig the text is the same, one device or six; reused prefixes included."""

    async def scenario() -> None:
        rooms = await open_rooms(workers=workers)
        await rooms.host.start()
        held = [d.layers for d in rooms.host.status().devices]
        assert sum(hi - lo for lo, hi in filter(None, held)) == LAYERS
        assert len([h for h in held if h]) == len(workers) + 1
        got = [await ask(rooms.host, q) for q in QUESTIONS]
        want = await alone(QUESTIONS)
        assert [g.text for g in got] == [w.text for w in want]
        assert all(len(g.text) == 40 for g in got)
        await rooms.close()

    simulate(scenario)


def test_the_second_turn_runs_only_its_new_tokens() -> None:
    """PROTOCOL section 7: a question prefills only what follows ``fed``. CASES: line breaks as typed."""

    async def scenario() -> None:
        rooms = await open_rooms(workers=(1.0, 1.0))
        await rooms.host.start()
        first = await ask(rooms.host, QUESTIONS[0])
        before = rooms.host_shard.columns_run
        second = await ask(rooms.host, "And at night?")
        assert first.done.stats.reused == 0
        # Everything but the end-of-turn mark, the question and its mark was there already.
        assert second.done.stats.reused == second.done.stats.prompt - 2 - len("And at night?")
        assert rooms.host_shard.columns_run - before < second.done.stats.prompt
        assert rooms.host.answering.conversation.exchanges[0].text == QUESTIONS[0]
        await rooms.close()

    simulate(scenario)


def test_generated_text_computed_again_runs_at_width() -> None:
    """PROTOCOL section 5: assistant text that is computed again travels as ``spec`` frames."""

    async def scenario() -> None:
        rooms = await open_rooms(workers=(1.0,))
        await rooms.host.start()
        await ask(rooms.host, "one")
        assert rooms.host.answering.chain is not None
        rooms.host.answering.chain.fail("made up")
        rooms.shards[0].frames.clear()
        again = await ask(rooms.host, "two")
        assert again.done.stats.reused == 0
        kinds = [(c.wide, k.spec, k.reset) for c, k in rooms.shards[0].frames]
        assert kinds[0] == (True, False, True), "the first frame after a failure resets"
        assert (False, True, False) in kinds
        assert all(spec != wide or not (spec or wide) for wide, spec, _ in kinds)
        assert again.text == (await alone(["one", "two"]))[1].text
        await rooms.close()

    simulate(scenario)


def test_a_guest_asks_and_everyone_sees_it() -> None:
    """PROTOCOL section 7: any device asks; start, tokens and done go to all."""

    async def scenario() -> None:
        rooms = await open_rooms(workers=(1.0,))
        guest = await rooms.add(gb=0.0, name="mira")
        await rooms.host.start()
        heard = await ask(guest, "hello", max_tokens=9)
        assert heard.done.reason == "max"
        assert heard.done.stats.tokens == 9
        assert heard.text == (await alone(["hello"], max_tokens=9))[0].text
        worker = rooms.devices[0]
        assert [(i.name, i.text, i.reply) for i in worker.transcript.items] == [("mira", "hello", heard.text)]
        assert guest.role == "guest"
        assert worker.role == "worker"
        assert guest.status().state == "online"
        await rooms.close()

    simulate(scenario)


def test_a_newcomer_gets_the_history() -> None:
    """PROTOCOL sections 3 and 6: who joins an online room is a guest at once and gets ``ai-history``."""

    async def scenario() -> None:
        rooms = await open_rooms(workers=(1.0,))
        await rooms.host.start()
        replies = [(await ask(rooms.host, f"q{i}", max_tokens=2)).text for i in range(22)]
        late = await rooms.add()
        await asyncio.sleep(1)
        assert [i.text for i in late.transcript.items] == [f"q{i}" for i in range(2, 22)]
        assert late.transcript.items[-1].reply == replies[-1]
        assert late.status().state == "online"
        assert late.role == "guest"
        await rooms.close()

    simulate(scenario)


def test_a_seed_gives_the_same_text_again() -> None:
    """DESIGN section 5: seeded text is the same bit for bit, one device or five."""

    async def scenario() -> None:
        rooms = await open_rooms(workers=(1.0, 1.0))
        await rooms.host.start()
        options = {"temperature": 0.8, "seed": 11, "max_tokens": 12}
        got = await ask(rooms.host, "q", **options)
        assert got.text == (await alone(["q"], **options))[0].text
        assert got.text != (await alone(["q"], **{**options, "seed": 12}))[0].text
        await rooms.close()

    simulate(scenario)


def test_questions_wait_their_turn() -> None:
    """PROTOCOL section 7: ``ai-queued`` says the place; 2 waiting per device; others refused in words."""

    async def scenario() -> None:
        rooms = await open_rooms(delay=0.01)
        guest = await rooms.add(gb=0.0)
        await rooms.host.start()
        running = asyncio.create_task(ask(rooms.host, "first"))
        await asyncio.sleep(0.05)
        waiting = [asyncio.create_task(ask(guest, f"w{i}", max_tokens=3)) for i in range(2)]
        await asyncio.sleep(0.2)
        with pytest.raises(QueueFull, match="2 of your questions"):
            await ask(guest, "w3")
        assert rooms.host.status().waiting == 2
        assert rooms.host.status().state == "answering"
        first, *others = [await t for t in (running, *waiting)]
        assert first.done.reason == "stop"
        places = [[e.place for e in o.events if isinstance(e, Queued)] for o in others]
        assert places[0] == [1]
        assert places[1] == [2, 1]
        assert [i.text for i in guest.transcript.items] == ["first", "w0", "w1"]
        await rooms.close()

    simulate(scenario)


def test_stop_ends_after_the_lap_in_flight() -> None:
    """PROTOCOL section 7, ``ai-stop``: from asker or host; the room goes on, the text so far is kept."""

    async def scenario() -> None:
        rooms = await open_rooms(workers=(1.0,), delay=0.02)
        guest = await rooms.add(gb=0.0)
        await rooms.host.start()
        whole = (await alone(["q"]))[0].text
        for stopper in (guest, rooms.host):
            task = asyncio.create_task(ask(guest, "q"))
            await asyncio.sleep(0.6)
            await stopper.stop()
            heard = await task
            assert heard.done.reason == "abort"
            assert 0 < len(heard.text) < 40
            assert whole.startswith(heard.text)
            await rooms.host.reset()
        await rooms.close()

    simulate(scenario)


def test_closing_the_iterator_stops_the_answer() -> None:
    """The door's promise: an asker that stops reading stops the answer, and nobody else's."""

    async def scenario() -> None:
        rooms = await open_rooms(workers=(1.0,), delay=0.02)
        guest = await rooms.add(gb=0.0)
        await rooms.host.start()
        for room in (rooms.host, guest):
            stream = room.ask("q", AskOptions())
            async for event in stream:
                if isinstance(event, Piece):
                    break
            await stream.aclose()  # type: ignore[attr-defined]  # an async generator
            await asyncio.sleep(1)
            assert rooms.host.status().state == "online"
            assert rooms.host.answering.conversation.exchanges[-1].stats.endswith("stopped")
        await rooms.close()

    simulate(scenario)


def test_a_waiting_question_is_taken_back() -> None:
    """PROTOCOL section 7: stop takes back the asker's newest waiting question."""

    async def scenario() -> None:
        rooms = await open_rooms(delay=0.02)
        guest = await rooms.add(gb=0.0)
        await rooms.host.start()
        running = asyncio.create_task(ask(rooms.host, "first"))
        await asyncio.sleep(0.1)
        waiting = asyncio.create_task(ask(guest, "second"))
        await asyncio.sleep(0.1)
        await guest.stop()
        with pytest.raises(NotReady, match="taken back"):
            await waiting
        assert (await running).done.reason == "stop"
        await rooms.close()

    simulate(scenario)


@pytest.mark.parametrize(
    ("text", "match"),
    [("", "empty"), (" \n", "empty"), ("x" * 8_001, "8,001 characters"), ("refuse me", "refuses")],
)
def test_bad_questions_leave_everything_as_it_was(text: str, match: str) -> None:
    """PROTOCOL section 7: an empty question, 8,001 characters, a template that refuses: a sentence each."""

    async def scenario() -> None:
        rooms = await open_rooms(workers=(1.0,))
        guest = await rooms.add(gb=0.0)
        await rooms.host.start()
        before = rooms.host.status()
        for room in (rooms.host, guest):
            with pytest.raises(BadQuestion, match=match):
                await ask(room, text)
        after = rooms.host.status()
        assert (after.state, after.waiting, after.used) == (before.state, before.waiting, before.used)
        assert not rooms.host.answering.conversation.exchanges
        await rooms.close()

    simulate(scenario)


def test_the_context_ends_an_answer_and_then_refuses() -> None:
    """CASES: context of 64, prompt of 30, 400 tokens asked: stops exactly at 64 and says so; then refused."""

    async def scenario() -> None:
        rooms = await open_rooms(workers=(1.0,), ctx=64, end_after=10_000)
        await rooms.host.start()
        heard = await ask(rooms.host, "x" * 29, max_tokens=400)
        assert heard.done.reason == "ctx"
        assert heard.done.why == "context full (64 tokens)"
        assert heard.done.stats.prompt == 30
        assert heard.done.stats.tokens == 34
        with pytest.raises(BadQuestion, match="context is 64"):
            await ask(rooms.host, "more")
        await rooms.host.reset()
        assert (await ask(rooms.host, "more", max_tokens=3)).done.reason == "max"
        await rooms.close()

    simulate(scenario)


def test_a_worker_that_leaves_holds_the_answer_until_a_new_deal() -> None:
    """PROTOCOL section 6, ``ai-degraded``: laps fail, everyone hears; a new start deals over those here."""

    async def scenario() -> None:
        rooms = await open_rooms(workers=(1.0, 1.0), delay=0.05)
        await rooms.host.start()
        await rooms.host.configure(ChatSettings(redeal=False))
        task = asyncio.create_task(ask(rooms.host, "q"))
        await asyncio.sleep(1)
        await rooms.devices[1].leave()
        await asyncio.sleep(1)
        for room in (rooms.host, rooms.devices[0]):
            status = room.status()
            assert status.state == "degraded"
            assert status.sentence.startswith("worker 2 left; layers 5–6 are missing.")
        again = asyncio.create_task(ask(rooms.devices[0], "again", max_tokens=3))
        await asyncio.sleep(1)
        assert rooms.host.status().waiting == 1
        await rooms.host.start()
        heard = await task
        assert any(isinstance(e, Notice) and "worker 2 left" in e.text for e in heard.events)
        want = await alone(["q", "again"])
        assert heard.text == want[0].text
        assert want[1].text.startswith((await again).text)
        await rooms.close()

    simulate(scenario)


def test_a_lap_that_never_returns_times_out() -> None:
    """PROTOCOL section 8: 90 s for a prompt, and 4 tries: a device that lives and never answers."""

    async def scenario() -> None:
        rooms = await open_rooms(workers=(1.0,))
        await rooms.host.start()
        loop = asyncio.get_running_loop()
        rooms.shards[0].delay = 10_000.0
        began = loop.time()
        heard = await ask(rooms.host, "q")
        assert heard.done.reason == "error"
        assert "within 90 s" in heard.done.why
        assert 5 * 90 < loop.time() - began < 5 * 90 + 20, "once, and four times more"
        await rooms.close()

    simulate(scenario)


def test_the_end_of_a_room_reaches_everyone() -> None:
    """PROTOCOL section 3: ``bye {closed: 1}``; waiting askers hear it, memory is given back."""

    async def scenario() -> None:
        rooms = await open_rooms(workers=(1.0,), delay=0.05)
        await rooms.host.start()
        device = rooms.devices[0]
        task = asyncio.create_task(ask(device, "q"))
        await asyncio.sleep(1)
        await rooms.host.leave()
        heard = await task
        assert heard.done.reason == "error"
        assert "The room is closed" in heard.done.why
        await asyncio.sleep(1)
        assert device.status().state == "closed"
        assert rooms.shards[0].closed
        assert rooms.host_shard.closed
        with pytest.raises(RoomClosed):
            await ask(device, "q")
        await rooms.close()

    simulate(scenario)


def test_the_events_of_an_answer_come_in_order() -> None:
    """The door's promise: started, pieces, done; the last is always `Done`."""

    async def scenario() -> Rooms:
        rooms = await open_rooms(workers=(1.0,))
        await rooms.host.start()
        for room in (rooms.host, rooms.devices[0]):
            events = (await ask(room, "q", max_tokens=3)).events
            assert [type(e) for e in events] == [Started, Piece, Piece, Piece, Done]
        await rooms.close()
        return rooms

    simulate(scenario)
