"""Who sees what, in virtual time (PROTOCOL section 7, ``ai-visibility``)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from pooled_nb.mesh.messages import Message, chat, write
from pooled_nb.room.audience import ELSEWHERE, sees, stricter
from pooled_nb.room.core import ChatSettings, Done, Notice, Queued, Started, Visibility
from tests.room.rooms import Rooms, again, ask, open_rooms
from tests.room.test_spoken import listen
from tests.sim.clock import simulate

MODES: list[Visibility] = ["all", "asker", "host"]
SECRET = ("mira", "Why?", "tokens")


async def watched(mode: Visibility, **options: Any) -> tuple[Rooms, list[list[Message]]]:
    """A host, a worker and a guest named mira; what both devices hear from now on."""
    rooms = await open_rooms(workers=(1.0,), end_after=10_000, **options)
    await rooms.add(gb=0.0, name="mira")
    await rooms.host.start()
    await rooms.host.configure(ChatSettings(visibility=mode))
    await asyncio.sleep(1)
    return rooms, [listen(device) for device in rooms.devices]


def told(heard: list[Message]) -> list[dict[str, Any]]:
    """Everything about the answer, as it is on the wire."""
    names = ("ai-genstart", "ai-token", "ai-gendone", "ai-regen")
    return [write(m) for m in heard if m.t in names]


def items(rooms: Rooms, device: int) -> list[tuple[str, str]]:
    return [(i.text, i.reply) for i in rooms.devices[device].transcript.items]


@pytest.mark.parametrize("mode", MODES)
def test_others_get_start_and_done_without_the_text(mode: Visibility) -> None:
    """PROTOCOL section 7, `ai-visibility`: "the others get start and done with `hidden: true`"; of ours with
    neither text, name, stats nor ctx; no token.
    """

    async def scenario() -> None:
        rooms, (worker, mira) = await watched(mode)
        guest = rooms.devices[1]
        heard = await ask(guest, "Why?", max_tokens=4)
        await asyncio.sleep(1)
        exchange = rooms.host.answering.conversation.exchanges[0]
        assert (exchange.text, len(exchange.reply)) == ("Why?", 4), "the host's own screen sees all"
        if mode == "all":
            assert told(worker) == told(mira)
            assert len(told(worker)) == 6
        else:
            assert told(worker) == [
                {"t": "ai-genstart", "mid": 1, "hidden": 1},
                {"t": "ai-gendone", "mid": 1, "hidden": 1},
            ]
            assert items(rooms, 0) == []
        if mode == "host":
            mine = [(m["t"], m.get("rid") is not None, m.get("reason")) for m in told(mira)]
            assert mine == [("ai-genstart", True, None), ("ai-gendone", False, "max")]
            assert not any(word in str(told(mira)) for word in SECRET)
            assert [type(e) for e in heard.events] == [Started, Notice, Done]
            assert heard.events[1] == Notice(ELSEWHERE)
            assert heard.done.hidden
            assert heard.done.reason == "max"
            assert items(rooms, 1) == []
        else:
            assert heard.text == exchange.reply
            assert not heard.done.hidden
            assert items(rooms, 1) == [("Why?", exchange.reply)]
        assert guest.status().state == "online", "its Send is free again"
        await rooms.close()

    simulate(scenario)


@pytest.mark.parametrize("mode", ["asker", "host"])
def test_the_hosts_own_question_is_the_hosts(mode: Visibility) -> None:
    """PROTOCOL section 7, `ai-visibility`: host and asker are one here; the host reads its answer as ever."""

    async def scenario() -> None:
        rooms, (worker, mira) = await watched(mode)
        heard = await ask(rooms.host, "Why?", max_tokens=4)
        assert len(heard.text) == 4
        assert heard.done.tokens
        await asyncio.sleep(1)
        for one in (worker, mira):
            assert [set(m) for m in told(one)] == [{"t", "mid", "hidden"}] * 2
        await rooms.close()

    simulate(scenario)


def test_a_change_counts_from_the_next_message_on() -> None:
    """PROTOCOL section 7, `ai-visibility`: "From the next message on": one that runs is shown to its end."""

    async def scenario() -> None:
        rooms, (worker, mira) = await watched("all", delay=0.01)
        first = asyncio.create_task(ask(rooms.devices[1], "first", max_tokens=20))
        await asyncio.sleep(0.2)
        await rooms.host.configure(ChatSettings(visibility="host"))
        assert len((await first).text) == 20
        await asyncio.sleep(1)
        assert [m["t"] for m in told(worker)].count("ai-token") == 20
        assert rooms.devices[0].status().settings.visibility == "host"
        worker.clear()
        hidden = asyncio.create_task(ask(rooms.devices[1], "second", max_tokens=20))
        await asyncio.sleep(0.2)
        await rooms.host.configure(ChatSettings(visibility="all"))
        assert (await hidden).text == ""
        await asyncio.sleep(1)
        assert len(told(worker)) == 2
        assert items(rooms, 0) == items(rooms, 1)
        assert [q for q, _ in items(rooms, 0)] == ["first"]
        assert mira
        await rooms.close()

    simulate(scenario)


def test_what_waits_is_shown_to_no_more_than_when_it_was_asked() -> None:
    """PROTOCOL section 7, `ai-visibility`: who asked under a stricter rule was promised that one."""

    async def scenario() -> None:
        rooms, (worker, _) = await watched("asker", delay=0.01)
        guest = rooms.devices[1]
        running = asyncio.create_task(ask(rooms.host, "first", max_tokens=20))
        await asyncio.sleep(0.1)
        waits = asyncio.create_task(ask(guest, "Why?", max_tokens=3))
        await asyncio.sleep(0.05)
        await rooms.host.configure(ChatSettings(visibility="all"))
        await asyncio.gather(running, waits)
        assert len(waits.result().text) == 3
        again_waits = asyncio.create_task(again(guest, "regen", max_tokens=3))
        assert len((await again_waits).text) == 3
        await asyncio.sleep(1)
        assert not [m for m in told(worker) if set(m) - {"t", "mid", "hidden"}]
        assert len((await ask(guest, "open", max_tokens=3)).text) == 3
        await asyncio.sleep(1)
        assert [q for q, _ in items(rooms, 0)] == ["open"], "what is asked now is shown by the rule of now"
        await rooms.close()

    simulate(scenario)


@pytest.mark.parametrize("what", ["continue", "regen"])
def test_what_was_hidden_stays_hidden(what: Any) -> None:
    """PROTOCOL section 7: a hidden answer that goes on, or is made anew, is shown to no more than it was.

    It touches no screen that shows something else last: no `ai-regen`, no text added to another's answer.
    """

    async def scenario() -> None:
        rooms, (worker, _) = await watched("all")
        await ask(rooms.devices[0], "seen", max_tokens=3)
        for mode in ("asker", "host"):
            await rooms.host.configure(ChatSettings(visibility=mode))
            await ask(rooms.devices[1], "Why?", max_tokens=3)
            await rooms.host.configure(ChatSettings(visibility="all"))
            await asyncio.sleep(1)
            before, worker_before = items(rooms, 1), items(rooms, 0)
            worker.clear()
            by_host = await again(rooms.host, what, max_tokens=3)
            by_asker = await again(rooms.devices[1], what, max_tokens=3)
            await asyncio.sleep(1)
            assert [m["t"] for m in told(worker)] == ["ai-genstart", "ai-gendone"] * 2
            assert items(rooms, 0) == worker_before == [("seen", worker_before[0][1])]
            reply = rooms.host.answering.conversation.exchanges[-1].reply
            assert len(reply) == (9 if what == "continue" else 3)
            if mode == "asker":
                assert items(rooms, 1) == [*before[:-1], ("Why?", reply)]
                assert len(by_asker.text) == 3
            else:
                assert items(rooms, 1) == before
                assert (by_asker.text, by_asker.done.hidden) == ("", True)
            assert len(by_host.text) == 3
            await rooms.host.reset()
            await ask(rooms.devices[0], "seen", max_tokens=3)
        await rooms.close()

    simulate(scenario)


def test_what_was_shown_may_go_on_hidden() -> None:
    """PROTOCOL section 7, `ai-visibility`: "From the next message on": the rest comes on fewer screens."""

    async def scenario() -> None:
        rooms, (worker, _) = await watched("all")
        part = await ask(rooms.devices[1], "Why?", max_tokens=3)
        await rooms.host.configure(ChatSettings(visibility="asker"))
        rest = await again(rooms.devices[1], "continue", max_tokens=3)
        await asyncio.sleep(1)
        assert items(rooms, 0) == [("Why?", part.text)]
        assert items(rooms, 1) == [("Why?", part.text + rest.text)]
        await rooms.host.configure(ChatSettings(visibility="all"))
        more = await again(rooms.devices[1], "continue", max_tokens=3)
        await asyncio.sleep(1)
        assert items(rooms, 0) == [("Why?", part.text)], "no gap is shown as if there were none"
        assert items(rooms, 1) == [("Why?", part.text + rest.text + more.text)]
        assert "continue" not in rooms.devices[0].status().can
        assert worker
        await rooms.close()

    simulate(scenario)


def test_a_newcomer_hears_the_rule_and_only_what_it_may_see() -> None:
    """PROTOCOL section 3: "`ai-visibility` when not `all`", "`ai-history` (when everyone may see the chat)".

    *(nb)* `ai-style` when it is not the defaults.
    """

    async def scenario() -> None:
        rooms, _ = await watched("all")
        await ask(rooms.devices[1], "open", max_tokens=2)
        await rooms.host.configure(ChatSettings(visibility="asker"))
        await ask(rooms.devices[1], "closed", max_tokens=2)
        heard: list[str] = []
        send = rooms.host.mesh.send

        def tap(to: str, message: Message) -> bool:
            heard.append(message.t)
            return send(to, message)

        rooms.host.mesh.send = tap  # type: ignore[method-assign]  # a wire tap
        late = await rooms.add(gb=0.0, name="late")
        await asyncio.sleep(1)
        assert heard == ["ai-visibility", "ai-layers", "ai-ready-all", "ai-queue"]
        assert late.status().settings.visibility == "asker"
        assert late.transcript.items == []
        await rooms.host.configure(ChatSettings(visibility="all", style="creative", max_tokens=64))
        heard.clear()
        later = await rooms.add(gb=0.0, name="later")
        await asyncio.sleep(1)
        assert heard == ["ai-style", "ai-layers", "ai-ready-all", "ai-history", "ai-queue"]
        assert [i.text for i in later.transcript.items] == ["open"]
        assert later.status().settings == ChatSettings(style="creative", max_tokens=64)
        await rooms.close()

    simulate(scenario)


def test_places_in_the_queue_are_told_as_ever() -> None:
    """PROTOCOL section 7, `ai-queued`: hidden answers take their turn; everyone knows how many wait."""

    async def scenario() -> None:
        rooms, (worker, _) = await watched("host", delay=0.01)
        running = asyncio.create_task(ask(rooms.devices[0], "one", max_tokens=20))
        await asyncio.sleep(0.1)
        waits = asyncio.create_task(ask(rooms.devices[1], "two", max_tokens=3))
        await asyncio.sleep(0.1)
        assert [d.status().waiting for d in rooms.devices] == [1, 1]
        assert rooms.devices[1].status().answering == "a question"
        assert rooms.devices[1].status().state == "answering"
        assert rooms.devices[0].status().mine
        assert "stop" in rooms.devices[0].status().can
        assert "stop" not in rooms.devices[1].status().can
        await rooms.devices[0].stop()
        assert (await running).done.reason == "abort"
        assert [type(e) for e in (await waits).events] == [Queued, Started, Notice, Done]
        assert not any(isinstance(m, chat.Token) for m in worker)
        await rooms.close()

    simulate(scenario)


def test_a_hidden_answer_that_fails_says_so_to_its_asker() -> None:
    """PROTOCOL section 7, `ai-gendone`: whoever asked hears that it failed, and why."""

    async def scenario() -> None:
        rooms, (worker, _) = await watched("host", delay=0.01)
        task = asyncio.create_task(ask(rooms.devices[1], "Why?", max_tokens=90))
        await asyncio.sleep(0.3)
        assert rooms.host.answering.chain is not None
        rooms.host.answering.chain.fail("made up")
        done = (await task).done
        assert (done.reason, done.hidden) == ("error", True)
        assert "made up" in done.why
        await asyncio.sleep(1)
        assert "made up" not in str(told(worker))
        await rooms.close()

    simulate(scenario)


def test_the_asker_leaves_while_only_it_and_the_host_see() -> None:
    """PROTOCOL section 7: "the running answer goes on if others see it": the host does."""

    async def scenario() -> None:
        rooms, (worker, _) = await watched("asker", delay=0.01)
        task = asyncio.create_task(ask(rooms.devices[1], "Why?", max_tokens=40))
        await asyncio.sleep(0.2)
        await rooms.devices[1].leave()
        await asyncio.gather(task, return_exceptions=True)
        await asyncio.sleep(3)
        assert len(rooms.host.answering.conversation.exchanges[0].reply) == 40
        assert [set(m) for m in told(worker)] == [{"t", "mid", "hidden"}] * 2
        assert (await again(rooms.host, "continue", max_tokens=2)).done.stats.tokens == 2
        await rooms.close()

    simulate(scenario)


def test_the_stricter_of_two_rules() -> None:
    """PROTOCOL section 7, `ai-visibility`: `all` shows to most, `host` to nobody else."""
    for i, one in enumerate(MODES):
        for j, other in enumerate(MODES):
            assert stricter(one, other) == MODES[max(i, j)]
        assert sees("m", "m", one) == (one != "host")
        assert sees("x", "m", one) == (one == "all")
