"""A host that goes on with what a process before it remembered, and hosts that end politely."""

from __future__ import annotations

import asyncio
import contextlib

import msgspec
import pytest

from pooled_nb.errors import ModelNotFound, ModelTooBig, NotReady
from pooled_nb.mesh.gatekeeper import Gatekeeper
from pooled_nb.room.core import ChatSettings
from pooled_nb.room.hostroom import HostRoom
from pooled_nb.room.memory import Memory
from tests.room.rooms import Rooms, alone, ask, open_rooms
from tests.sim.clock import simulate


async def restarted(rooms: Rooms, memory: Memory | None) -> HostRoom:
    """The host's next process: its code, its gate, its memory."""
    secrets = rooms.host._gate.keeper.secrets
    token = rooms.host.mesh.token
    await rooms.host.abandon()
    assert memory is not None
    kept = msgspec.json.decode(msgspec.json.encode(memory), type=Memory)
    keeper = Gatekeeper(rooms.host._gate.keeper.settings, saved=secrets)
    again = await open_rooms(net=rooms.net, keeper=keeper, token=token, recall=kept, delay=0.05)
    rooms.host, rooms.host_shard, rooms.notices = again.host, again.host_shard, again.notices
    return rooms.host


@pytest.mark.parametrize("missing", [0, 1])
def test_a_host_waits_for_those_who_held_layers_and_deals_again(missing: int) -> None:
    """PROTOCOL section 8, host resume: 25 s at most, less where all are back; the chat goes on as it was."""

    async def scenario() -> None:
        rooms = await open_rooms(workers=(1.0, 1.0))
        guest = await rooms.add(gb=0.0, name="mira")
        await rooms.host.start()
        await rooms.host.configure(ChatSettings(max_tokens=20))
        fixed = rooms.host._dealer.fixed
        first = await ask(guest, "one")
        loop = asyncio.get_running_loop()
        began = loop.time()
        if missing:
            rooms.net.kill(rooms.devices[1].mesh.id)
        host = await restarted(rooms, rooms.host.memory())
        going = asyncio.create_task(host.resume())
        await asyncio.sleep(6)
        assert guest.status().state != "away", "it knocked"
        asked = asyncio.create_task(ask(guest, "two"))
        await asyncio.sleep(12 if missing else 0.1)
        if missing:
            assert host.status().sentence == (
                "Going on: 1 of 2 devices that held layers are back, waiting up to 25 s."
            )
        await going
        assert (loop.time() - began < 20) == (not missing)
        assert 25 <= loop.time() - began < 30 or not missing
        status = host.status()
        assert status.state in ("online", "answering")
        assert (status.settings.max_tokens, host._dealer.fixed) == (20, fixed)
        second = await asked
        want = await alone(["one", "two"], max_tokens=20)
        assert [first.text, second.text] == [w.text for w in want]
        assert [(i.exchange.text, i.owner) for i in host.answering.conversation.items] == [
            ("one", guest.mesh.id), ("two", guest.mesh.id)
        ]  # fmt: skip
        await asyncio.sleep(1)
        assert [i.text for i in guest.transcript.items] == ["one", "two"]
        await rooms.close()

    simulate(scenario)


@pytest.mark.parametrize("turned", [False, True])
def test_who_held_layers_holds_the_same(turned: bool) -> None:
    """PROTOCOL section 3: who comes back keeps its layers, and so loads nothing, whoever knocks first."""

    async def scenario() -> None:
        rooms = await open_rooms(workers=(1.0, 1.0))
        await rooms.host.start()
        memory = rooms.host.memory()
        assert memory is not None
        if turned:  # as it would be had the second of them joined first
            seats = [msgspec.structs.replace(a, lo=b.lo, hi=b.hi) for a, b in zip(
                reversed(memory.seats), memory.seats, strict=True)]  # fmt: skip
            memory = msgspec.structs.replace(memory, seats=seats)
        want = [(seat.name, seat.lo, seat.hi) for seat in memory.seats]
        host = await restarted(rooms, memory)
        await host.resume()
        deal = host._dealer.deal
        assert deal is not None
        assert [(seat.name, seat.lo, seat.hi) for seat in deal.seats[1:]] == want
        await rooms.close()

    simulate(scenario)


def test_a_host_without_its_devices_tries_on() -> None:
    """PROTOCOL section 8: what was remembered does not fit on those who are there: it says so, and waits."""

    async def scenario() -> None:
        rooms = await open_rooms(workers=(1.0,))
        await rooms.host.start()
        memory = rooms.host.memory()
        assert memory is not None
        await rooms.devices[0].leave()
        host = await restarted(rooms, memory)
        make, fits = host._dealer.make, [False]

        def too_big(excluded: object) -> object:
            if not fits[0]:
                raise ModelTooBig("The memory lent is short by 1 GB for Toy.", "Let another device join.")
            return make(excluded)  # type: ignore[arg-type]  # as given

        host._dealer.make = too_big  # type: ignore[method-assign, assignment]  # the roster of that moment
        await host.resume()
        status = host.status()
        assert status.state == "degraded"
        assert status.sentence.startswith("The room cannot go on yet: The memory lent is short by 1 GB")
        fits[0] = True
        await rooms.add(gb=1.0, name="helper")
        await asyncio.sleep(5)
        assert host.status().state == "online"
        await rooms.close()

    simulate(scenario)


def test_a_host_that_sleeps_as_it_waits_gives_up_nobody_for_that() -> None:
    """PROTOCOL section 8, late timers: the 25 s of a resume are those that the host was awake."""

    async def scenario() -> None:
        rooms = await open_rooms(workers=(1.0,))
        await rooms.host.start()
        memory = rooms.host.memory()
        rooms.net.kill(rooms.devices[0].mesh.id)
        host = await restarted(rooms, memory)
        going = asyncio.create_task(host.resume())
        await asyncio.sleep(20)
        host.mesh._awake._before += 15  # so much of it was a nap
        await asyncio.sleep(15)
        assert host.resuming
        await asyncio.sleep(10)
        assert not host.resuming
        await going
        await rooms.close()

    simulate(scenario)


def test_a_host_that_dies_again_before_it_is_online_is_resumed_again() -> None:
    """PROTOCOL section 8, host resume: what died in its first load is started, however often it dies."""

    async def scenario() -> None:
        rooms = await open_rooms(workers=(1.0,))
        await rooms.host.start()
        memory = rooms.host.memory()
        assert memory is not None
        rooms.net.kill(rooms.devices[0].mesh.id)
        host = await restarted(rooms, msgspec.structs.replace(memory, fixed_dtype="", fixed_cols=0))

        def too_big(excluded: object) -> object:
            raise ModelTooBig("The memory lent is short by 1 GB for Toy.", "Let another device join.")

        host._dealer.make = too_big  # type: ignore[method-assign, assignment]  # the roster of that moment
        going = asyncio.create_task(host.resume())
        await asyncio.sleep(1)
        waits = host.memory()
        assert host.resuming
        assert waits is not None
        assert waits.started
        await going
        tries = host.memory()
        assert host.status().state == "degraded"
        assert tries is not None
        assert tries.started
        assert tries.seats == memory.seats
        await rooms.close()

    simulate(scenario)


def test_a_room_that_never_started_waits_for_nobody() -> None:
    """PROTOCOL section 8: it is open again, as it was."""

    async def scenario() -> None:
        rooms = await open_rooms(workers=(1.0,))
        host = await restarted(rooms, rooms.host.memory())
        await host.resume()
        assert host.status().state == "open"
        assert not host.answering.holding
        await rooms.close()

    simulate(scenario)


def test_what_somebody_without_a_pass_asked_is_remembered_restart_after_restart() -> None:
    """PROTOCOL section 8: what everyone may see is kept, also of who is known by no pass."""

    async def scenario() -> None:
        rooms = await open_rooms(workers=(1.0,))
        guest = await rooms.add(gb=0.0, name="mira")
        await rooms.host.start()
        heard = await ask(guest, "one")
        rooms.host._ids.clear()
        await guest.leave()  # and its pass is forgotten
        await asyncio.sleep(1)
        for _ in range(2):
            memory = rooms.host.memory()
            assert memory is not None
            assert [(e.seat, e.name, e.reply) for e in memory.chat.exchanges] == [("-", "mira", heard.text)]
            assert [turn.text for turn in memory.chat.turns] == ["one", heard.text]
            await restarted(rooms, memory)
        await rooms.close()

    simulate(scenario)


def test_a_host_that_dies_in_its_first_load_goes_on_with_it() -> None:
    """PROTOCOL section 8, host resume: it deals again by itself, over who was to hold layers then."""

    async def scenario() -> None:
        rooms = await open_rooms(workers=(1.0, 1.0))
        rooms.host_shard.delay = 5.0
        start = asyncio.create_task(rooms.host.start())
        await asyncio.sleep(1.0)
        memory = rooms.host.memory()
        assert memory is not None
        assert (memory.started, memory.fixed_dtype) == (True, "")
        assert [(s.name, s.lo, s.hi) for s in memory.seats] == [("worker", 2, 4), ("worker 2", 4, 6)]
        host = await restarted(rooms, memory)
        await asyncio.gather(start, return_exceptions=True)
        await host.resume()
        assert host.status().state == "online"
        assert [d.layers for d in host.status().devices] == [(0, 2), (2, 4), (4, 6)]
        await rooms.close()

    simulate(scenario)


def test_a_first_load_that_fails_is_not_begun_again_by_a_restart() -> None:
    """PROTOCOL section 8, host resume: only what had been started goes on by itself; its person was told."""

    async def scenario() -> None:
        rooms = await open_rooms()
        host, saved = rooms.host, list[Memory]()
        host.on_memory = lambda: saved.append(m) if (m := host.memory()) else None
        rooms.host_shard.fail_load = "No file is here."
        with pytest.raises(ModelNotFound):
            await host.start()
        assert not saved[-1].started
        await rooms.close()

    simulate(scenario)


def test_what_a_host_remembers_follows_what_happens() -> None:
    """PROTOCOL section 8: saved after every answer; who held what by pass; nothing once it is closed."""

    async def scenario() -> None:
        rooms = await open_rooms(workers=(1.0, 1.0))
        host, saved = rooms.host, list[Memory]()
        host.on_memory = lambda: saved.append(m) if (m := host.memory()) else None
        before = host.memory()
        assert before is not None
        assert (before.started, before.fixed_dtype, before.seats) == (False, "", [])
        await host.start()
        assert saved[-1].started
        assert [(s.name, s.lo, s.hi) for s in saved[-1].seats] == [("worker", 2, 4), ("worker 2", 4, 6)]
        assert [s.seat for s in saved[-1].seats] == [host.mesh.seat(d.mesh.id) for d in rooms.devices]
        task = asyncio.create_task(ask(host, "q", max_tokens=4))
        await asyncio.sleep(0.01)
        assert [q.text for q in saved[-1].asked] == ["q"]
        heard = await task
        assert [e.reply for e in saved[-1].chat.exchanges] == [heard.text]
        assert saved[-1].asked == []
        await host.configure(ChatSettings(style="creative"))
        assert saved[-1].settings.style == "creative"
        await host.reset()
        assert saved[-1].chat.exchanges == []
        await rooms.close()
        assert host.memory() is None

    simulate(scenario)


def test_a_host_leaves_after_the_running_answer() -> None:
    """``leave --after-answer``: the answer ends, those that wait are told, then the room is closed."""

    async def scenario() -> None:
        rooms = await open_rooms(workers=(1.0,), delay=0.05)
        guest = await rooms.add(gb=0.0)
        await rooms.host.start()
        running = asyncio.create_task(ask(guest, "q"))
        await asyncio.sleep(0.5)
        waiting = asyncio.create_task(ask(rooms.devices[0], "w"))
        await asyncio.sleep(0.2)
        leaving = asyncio.create_task(rooms.host.leave(after_answer=True))
        with pytest.raises(NotReady, match="closes after the answer"):
            await waiting
        for room in (guest, rooms.host):
            with pytest.raises(NotReady, match="closes after the answer"):
                await ask(room, "late")
        assert (await running).text == (await alone(["q"]))[0].text
        await leaving
        assert rooms.host.status().state == "closed"
        await rooms.close()

    simulate(scenario)


def test_a_host_that_leaves_again_leaves_at_once() -> None:
    """``leave`` after ``leave --after-answer``: nobody waits any more."""

    async def scenario() -> None:
        rooms = await open_rooms(delay=0.05)
        await rooms.host.start()
        running = asyncio.create_task(ask(rooms.host, "q"))
        await asyncio.sleep(0.5)
        leaving = asyncio.create_task(rooms.host.leave(after_answer=True))
        await asyncio.sleep(0.1)
        assert not leaving.done()
        await rooms.host.leave()
        await leaving
        assert (await running).done.reason == "error"

    simulate(scenario)


def test_a_host_that_thinks_better_of_it_goes_on() -> None:
    """``leave --after-answer`` that is cancelled closes nothing, and questions are taken again."""

    async def scenario() -> None:
        rooms = await open_rooms(delay=0.05)
        await rooms.host.start()
        running = asyncio.create_task(ask(rooms.host, "q"))
        await asyncio.sleep(0.5)
        leaving = asyncio.create_task(rooms.host.leave(after_answer=True))
        await asyncio.sleep(0.1)
        assert rooms.host.status().sentence.startswith("Closing once the running answer has ended.")
        leaving.cancel()
        await asyncio.gather(leaving, return_exceptions=True)
        assert not rooms.host.status().sentence.startswith("Closing")
        assert (await ask(rooms.host, "more")).done.reason == "stop"
        assert (await running).done.reason == "stop"
        await rooms.host.leave()

    simulate(scenario)


def test_a_host_that_has_a_second_says_that_the_room_is_over() -> None:
    """PROTOCOL section 3, ``bye {closed: 1}``: whatever computes then. Else all would knock for long."""

    async def scenario() -> None:
        rooms = await open_rooms(workers=(1.0,))
        await rooms.host.start()
        rooms.host_shard.delay = 30.0  # a long prompt, on a slow device
        asked = asyncio.create_task(ask(rooms.devices[0], "one"))
        await asyncio.sleep(1)
        host = rooms.host.mesh.id
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(rooms.host.leave(), 0.8)
        rooms.net.kill(host)
        await asyncio.sleep(1)
        status = rooms.devices[0].status()
        assert (status.state, status.sentence) == ("closed", "The room is over.")
        await asyncio.gather(asked, return_exceptions=True)
        await rooms.close()

    simulate(scenario)
