"""A device whose link to its host breaks, in a whole room (PROTOCOL sections 3, 7 and 8)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from pooled_nb.errors import NotReady, RoomClosed
from pooled_nb.mesh.messages import Message, chat
from pooled_nb.room.core import AnswerEvent, AskOptions, ChatSettings, Done, Notice, Piece, Started
from pooled_nb.room.deviceroom import DeviceRoom
from tests.room.rooms import Rooms, alone, ask, open_rooms
from tests.sim.clock import simulate


async def until(condition: Callable[[], bool]) -> None:
    """Wait for it, a minute at most."""
    for _ in range(6_000):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it never came to be")


class Reading:
    """A question that is read while other things happen."""

    def __init__(self, room: DeviceRoom, text: str, **options: Any) -> None:
        self.events: list[AnswerEvent] = []
        self.task = asyncio.create_task(self._read(room, text, options))

    async def _read(self, room: DeviceRoom, text: str, options: dict[str, Any]) -> None:
        async for event in room.ask(text, AskOptions(**options)):
            self.events.append(event)

    @property
    def text(self) -> str:
        return "".join(e.text for e in self.events if isinstance(e, Piece))

    @property
    def notices(self) -> list[str]:
        return [e.text for e in self.events if isinstance(e, Notice)]

    async def done(self) -> Done:
        await asyncio.wait_for(self.task, 120)
        ends = [e for e in self.events if isinstance(e, Done)]
        assert len(ends) == 1
        assert self.events[-1] is ends[0]
        mids = [e.mid for e in self.events if isinstance(e, Started)]
        assert len(mids) == len(set(mids)), "of one answer it is told once"
        return ends[0]

    async def until(self, letters: int) -> None:
        """So many letters are shown, and not yet all."""
        await until(lambda: len(self.text) >= letters)
        assert not self.task.done()


def break_link(rooms: Rooms, device: DeviceRoom) -> None:
    """The connection fails, and both ends notice at once."""
    here, there = device.mesh.id, rooms.host.mesh.id
    for a, b in ((here, there), (there, here)):
        for connection in rooms.net.connections(a, b):
            connection.become("failed")


async def away_for(rooms: Rooms, device: DeviceRoom, seconds: float) -> None:
    """Nothing passes between it and its host, as of now."""
    here, there = device.mesh.id, rooms.host.mesh.id
    rooms.net.partition(here, there)
    break_link(rooms, device)
    await asyncio.sleep(0.1)
    assert device.status().state == "away"
    await asyncio.sleep(seconds - 0.1)
    assert device.status().state == "away"
    rooms.net.heal(device.mesh.id, there)
    rooms.net.heal(here, there)


async def until_back(device: DeviceRoom) -> None:
    await until(lambda: device.status().state != "away")
    await asyncio.sleep(1)


def wiretap(rooms: Rooms, kind: type[Message]) -> list[Any]:
    """What the host hears of this kind, from now on."""
    heard: list[Any] = []
    take = rooms.host.on_message

    def on_message(sender: str, message: Message) -> None:
        if isinstance(message, kind):
            heard.append(message)
        take(sender, message)

    rooms.host.on_message = on_message  # type: ignore[method-assign]  # a wire tap
    return heard


def in_room(
    scenario: Callable[[Rooms, DeviceRoom], Awaitable[None]],
    *,
    workers: tuple[float, ...] = (1.0,),
    **options: Any,
) -> None:
    """A room with laps that take a moment, online, and a guest."""

    async def whole() -> None:
        rooms = await open_rooms(workers=workers, delay=0.05, **options)
        guest = await rooms.add(gb=0.0, name="guest")
        await rooms.host.start()
        await scenario(rooms, guest)
        await rooms.close()

    simulate(whole)


@pytest.mark.parametrize("seconds", [1.0, 10.0, 40.0])
@pytest.mark.parametrize("at", [1, 20])
def test_an_answer_is_read_on_over_a_new_link(at: int, seconds: float) -> None:
    """PROTOCOL section 8: "Nothing shown changes", and no question is answered twice.

    Section 3: who comes back keeps its place. Where the answer ended meanwhile, the rest of it is told.
    """

    async def scenario(rooms: Rooms, guest: DeviceRoom) -> None:
        first = Reading(guest, "Why?")
        await first.until(at)
        asks = wiretap(rooms, chat.Ask)
        shown = first.text
        await away_for(rooms, guest, seconds)
        assert first.text == shown
        done = await first.done()
        wanted = await alone(["Why?", "And?"])
        assert (first.text, done.reason) == (wanted[0].text, "stop")
        assert done.stats.tokens == wanted[0].done.stats.tokens
        assert [m.text for m in asks] == ["Why?"], "asked again, and known by its name"
        assert (await ask(guest, "And?")).text == wanted[1].text
        assert [(i.text, i.reply) for i in guest.transcript.items] == [
            ("Why?", wanted[0].text),
            ("And?", wanted[1].text),
        ]
        assert [i.exchange.text for i in rooms.host.answering.conversation.items] == ["Why?", "And?"]

    in_room(scenario)


def test_what_waits_keeps_its_place() -> None:
    """PROTOCOL section 7: 2 questions wait for each device; a new link takes none of them away."""

    async def scenario(rooms: Rooms, guest: DeviceRoom) -> None:
        readers = [Reading(guest, "one")]
        await readers[0].until(3)
        readers += [Reading(guest, text) for text in ("two", "three")]
        await asyncio.sleep(0.1)
        await away_for(rooms, guest, 3.0)
        for reader in readers:
            assert (await reader.done()).reason == "stop"
        wanted = await alone(["one", "two", "three"])
        assert [r.text for r in readers] == [h.text for h in wanted]
        assert [i.text for i in guest.transcript.items] == ["one", "two", "three"]

    in_room(scenario)


def test_its_person_sees_that_it_knocks_and_what_is_kept() -> None:
    """PROTOCOL section 3: it "knocks every 3 s for 60 s"; asking says what to do; Stop works here."""

    async def scenario(rooms: Rooms, guest: DeviceRoom) -> None:
        reader = Reading(guest, "Why?")
        await reader.until(3)
        here, there = guest.mesh.id, rooms.host.mesh.id
        changes: list[float] = []
        rooms.net.partition(here, there)
        break_link(rooms, guest)
        await asyncio.sleep(0.1)
        guest.on_change = lambda: changes.append(1)
        await asyncio.sleep(12)
        assert len(changes) >= 10, "the seconds are shown"
        status = guest.status()
        assert status.state == "away"
        assert "knocks (12 of 60 s) and keeps your question" in status.sentence
        assert status.waits_for == ["host"]
        assert [(d.silent_s, d.patience_s) for d in status.devices if d.name == "host"] == [(12, 60)]
        assert status.mine
        with pytest.raises(NotReady, match="Ask again when it is back"):
            await ask(guest, "And?")
        asks, stops = wiretap(rooms, chat.Ask), wiretap(rooms, chat.Stop)
        await guest.stop()
        assert (await reader.done()).reason == "abort"
        rooms.net.heal(here, there)
        await until_back(guest)
        assert asks == []
        assert len(stops) >= 1
        assert guest.status().state == "online"
        assert any("knocks" in line for line in rooms.heard["guest"])
        assert rooms.heard["guest"][-1] == "Back in the room."
        assert (await ask(guest, "And?")).done.reason == "stop"

    in_room(scenario, end_after=400)


def test_a_reader_that_goes_away_meanwhile_stops_its_answer() -> None:
    """PROTOCOL section 7, ``ai-stop``: a cell that was interrupted while away is not answered on."""

    async def scenario(rooms: Rooms, guest: DeviceRoom) -> None:
        reader = Reading(guest, "Why?")
        await reader.until(3)
        here, there = guest.mesh.id, rooms.host.mesh.id
        rooms.net.partition(here, there)
        break_link(rooms, guest)
        await asyncio.sleep(1)
        reader.task.cancel()
        await asyncio.gather(reader.task, return_exceptions=True)
        assert rooms.host.status().answering == "guest"
        rooms.net.heal(here, there)
        await until_back(guest)
        await asyncio.sleep(1)
        assert rooms.host.status().answering == ""
        assert rooms.host.answering.conversation.last is not None
        assert rooms.host.answering.conversation.last.reason == "abort"

    in_room(scenario, end_after=400)


def test_leaving_while_away_ends_what_it_asked() -> None:
    """PROTOCOL section 3: knocking ends with the person's word, at once."""

    async def scenario(rooms: Rooms, guest: DeviceRoom) -> None:
        reader = Reading(guest, "Why?")
        await reader.until(3)
        rooms.net.partition(guest.mesh.id, rooms.host.mesh.id)
        break_link(rooms, guest)
        await asyncio.sleep(1)
        await asyncio.wait_for(guest.leave(after_answer=True), 10.0)
        with pytest.raises(RoomClosed):
            await reader.task

    in_room(scenario, end_after=400)


@pytest.mark.parametrize("mode", ["asker", "host"])
def test_what_others_may_not_see_comes_back_to_its_asker_alone(mode: Any) -> None:
    """PROTOCOL section 7, ``ai-visibility``: over a new link as over the old one."""

    async def scenario(rooms: Rooms, guest: DeviceRoom) -> None:
        await rooms.host.configure(ChatSettings(visibility=mode))
        await asyncio.sleep(1)
        other = await rooms.add(gb=0.0, name="other")
        reader = Reading(guest, "Why?")
        await until(lambda: any(isinstance(e, Started) for e in reader.events))
        await asyncio.sleep(0.5)
        await away_for(rooms, guest, 2.0)
        break_link(rooms, other)
        done = await reader.done()
        assert done.reason == "stop"
        assert done.hidden == (mode == "host")
        assert reader.text == ((await alone(["Why?"]))[0].text if mode == "asker" else "")
        await asyncio.sleep(5)
        assert other.transcript.items == []
        assert [i.text for i in guest.transcript.items] == (["Why?"] if mode == "asker" else [])
        assert other.status().answering == guest.status().answering == ""

    in_room(scenario)


def test_a_guest_that_only_watched_sees_the_answer_to_its_end() -> None:
    """PROTOCOL section 7: who sees the chat hears an answer under way again from its beginning."""

    async def scenario(rooms: Rooms, guest: DeviceRoom) -> None:
        watcher = await rooms.add(gb=0.0, name="watcher")
        reader = Reading(guest, "Why?", max_tokens=200)
        await reader.until(5)
        await asyncio.sleep(0.2)
        before = watcher.transcript.text
        assert before
        break_link(rooms, watcher)
        await asyncio.sleep(0.1)
        await until_back(watcher)
        assert watcher.transcript.text.startswith(before)
        assert watcher.status().answering == "guest"
        await reader.done()
        await asyncio.sleep(1)
        assert [(i.text, i.reply) for i in watcher.transcript.items] == [("Why?", reader.text)]
        assert watcher.status().answering == ""

    in_room(scenario, end_after=200)


@pytest.mark.parametrize("delay", [0.0, 0.4])
def test_a_question_into_a_dead_link_is_asked_when_it_is_back(delay: float) -> None:
    """PROTOCOL section 3: what is sent over a link before it is known to be dead is lost."""

    async def scenario(rooms: Rooms, guest: DeviceRoom) -> None:
        here, there = guest.mesh.id, rooms.host.mesh.id
        rooms.net.partition(here, there)
        reader = Reading(guest, "Why?")
        await asyncio.sleep(1 + delay)
        break_link(rooms, guest)
        await asyncio.sleep(1)
        rooms.net.heal(here, there)
        assert (await reader.done()).reason == "stop"
        assert reader.text == (await alone(["Why?"]))[0].text
        assert [i.text for i in guest.transcript.items] == ["Why?"]

    in_room(scenario)


def test_a_worker_keeps_its_layers_while_it_knocks() -> None:
    """PROTOCOL section 3: "a device that still holds exactly that answers ``ai-ready`` at once"; section 8:
    the answer goes on, and its text is that of one device.
    """

    async def scenario(rooms: Rooms, guest: DeviceRoom) -> None:
        worker, shard = rooms.devices[0], rooms.shards[0]
        load, loads = shard.load, list[int]()

        async def counted(*args: Any, **kwargs: Any) -> Any:
            loads.append(1)
            return await load(*args, **kwargs)

        shard.load = counted  # type: ignore[method-assign]  # what is read is looked at
        reader = Reading(guest, "Why?")
        await reader.until(5)
        await away_for(rooms, worker, 6.0)
        assert worker._lending.holds
        assert (await reader.done()).reason == "stop"
        assert reader.text == (await alone(["Why?"]))[0].text
        assert loads == []
        assert worker.status().state == "online"
        assert "holds layers" in worker.status().sentence
        assert worker.role == "worker"

    in_room(scenario)
