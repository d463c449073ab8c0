"""Leaving a room: in words, within its time, and whole also where it is interrupted."""

from __future__ import annotations

import _thread
import asyncio
import threading
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

import pooled_nb
from pooled_nb import api, restarts
from pooled_nb.errors import RoomClosed
from pooled_nb.job import Budget, Job
from pooled_nb.progress import Waiting
from pooled_nb.room_view import Room
from pooled_nb.threads import mesh
from tests.front.scripted import Rooms

USES: list[Callable[[Room], Any]] = [
    Room.result,
    Room.status,
    Room.start,
    Room.stop,
    Room.reset,
    Room.wait,
    Room.__enter__,
    lambda room: room.ask("anyone?"),
    lambda room: room.stream("anyone?"),
    lambda room: room.start(wait=False),
    lambda room: asyncio.run(room._opened()),
]


def left_while_it_opens(rooms: Rooms) -> Room:
    rooms.wait_s = 60
    room = pooled_nb.host("m", wait=False)
    room.leave()
    return room


class Interrupting(Waiting):
    """Is interrupted while it waits, as by the stop button."""

    def tick(self) -> None:
        raise KeyboardInterrupt


def interrupted_while_it_opens(rooms: Rooms) -> Room:
    rooms.wait_s = 60
    room = pooled_nb.host("m", wait=False)
    with pytest.raises(KeyboardInterrupt):
        room.result(view=Interrupting())
    return room


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("ended", [left_while_it_opens, interrupted_while_it_opens])
def test_a_room_that_never_opened_says_so(
    rooms: Rooms, ended: Callable[[Rooms], Room], use: Callable[[Room], Any]
) -> None:
    """Errors say what happened and what to do next: no bare CancelledError reaches a cell."""
    room = ended(rooms)
    assert room.left
    assert not mesh.running
    with pytest.raises(RoomClosed, match="left before it was open"):
        use(room)


async def test_leaving_again_is_an_awaitable_that_is_done(rooms: Rooms) -> None:
    """DESIGN section 1: every call also awaited; leaving never fails, and may be called again."""
    never_open = await asyncio.to_thread(left_while_it_opens, rooms)
    rooms.wait_s = 0
    opened = await pooled_nb.host("m", wait=False)
    assert await opened.leave(wait=False) is opened
    for room in (never_open, opened):
        again = room.leave(wait=False)
        assert again.done()
        assert await again is room
        assert again.result(0) is room
        assert await room.close(wait=False) is room
        assert room.leave() is room


async def test_who_awaits_the_opening_is_not_cancelled_by_another(rooms: Rooms) -> None:
    """A task ends as cancelled only if somebody cancelled that very task."""
    rooms.wait_s = 60
    room = pooled_nb.host("m", wait=False)

    async def opened() -> Room:
        return await room

    impatient, patient = asyncio.create_task(opened()), asyncio.create_task(opened())
    await asyncio.sleep(0)
    impatient.cancel()
    await asyncio.wait({impatient, patient}, timeout=30)
    assert impatient.cancelled()
    assert not patient.cancelled()
    assert isinstance(patient.exception(), RoomClosed)
    await room.leave(wait=False)


async def test_work_under_way_ends_as_room_closed(rooms: Rooms) -> None:
    """What waits for a start, a stop or an answer hears that the room is over, whoever ended it."""
    room = await pooled_nb.host("m", wait=False)
    starting = room.start(devices=99, wait=False)
    blocked = asyncio.create_task(asyncio.to_thread(starting.result))
    awaited = asyncio.create_task(starting._on_other_loop())
    await asyncio.sleep(0.05)  # each waits
    await room.leave(wait=False)
    for error in await asyncio.wait_for(asyncio.gather(blocked, awaited, return_exceptions=True), 30):
        # In order (the room closed, so there is nothing to start), or cut: a sentence either way.
        assert isinstance(error, pooled_nb.PooledError)


def test_budgets_are_shared() -> None:
    now = 0.0
    budget = Budget(5.0, lambda: now)
    now = 3.0
    assert budget.left() == 2.0
    now = 30.0
    assert budget.left() == 0.0


async def resists() -> None:
    """A goodbye that will not be cancelled; it ends with its loop."""
    while True:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            continue


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Every wait for the mesh thread's end, in seconds that it would take at most."""
    seen: list[float] = []
    join = threading.Thread.join

    def recorded(thread: threading.Thread, timeout: float | None = None) -> None:
        if thread.name == "pooled-mesh":
            seen.append(float("inf") if timeout is None else timeout)
        join(thread, timeout)

    monkeypatch.setattr(threading.Thread, "join", recorded)
    return seen


@pytest.mark.parametrize("at_exit", [False, True])
def test_leaving_has_one_budget(
    rooms: Rooms, waits: list[float], monkeypatch: pytest.MonkeyPatch, at_exit: bool
) -> None:
    """DESIGN section 3: a dying kernel has a second; goodbye, clean-up and thread share what it is given."""
    given = 0.25
    monkeypatch.setattr(api, "EXIT_S", given)
    room = pooled_nb.host("m")
    rooms.core.leave = resists  # type: ignore[method-assign]
    if at_exit:
        assert restarts._pid is not None
        restarts._told(restarts._pid)
    else:
        room.leave(timeout=given)
    assert waits
    assert max(waits) <= given
    assert (room.left, room.status().state) == (True, "closed")
    assert not mesh.running


def test_the_thread_itself_ends_within_the_budget(rooms: Rooms) -> None:
    """What resists is given up: the thread does not stay behind the room."""
    before = set(threading.enumerate())  # the thread of an earlier room may still be ending
    room = pooled_nb.host("m")
    [thread] = [t for t in threading.enumerate() if t.name == "pooled-mesh" and t not in before]
    rooms.core.leave = resists  # type: ignore[method-assign]
    room.leave(timeout=0.1)
    thread.join(4.0)  # far below the time that a clean-up has where nobody waits
    assert not thread.is_alive()


def test_leaving_without_waiting_keeps_its_time_too(rooms: Rooms) -> None:
    """wait=False does not make the timeout go away."""
    room = pooled_nb.host("m")
    rooms.core.leave = resists  # type: ignore[method-assign]
    assert room.leave(wait=False, timeout=0.1).result(3.0) is room
    assert (room.left, room.status().state) == (True, "closed")


def test_an_interrupt_lets_the_goodbye_be_said(rooms: Rooms) -> None:
    """DESIGN section 7: an interrupt while leaving is raised, and the others still hear that we left."""
    room = pooled_nb.host("m")
    log: list[str] = []

    async def goodbye() -> None:
        _thread.interrupt_main()
        try:
            await asyncio.sleep(0.3)
            log.append("said")
        except asyncio.CancelledError:
            log.append("cut")
            raise

    rooms.core.leave = goodbye  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        room.leave()
    assert log == ["said"]
    assert (room.left, room.status().state) == (True, "closed")
    assert pooled_nb.current() is None


def test_a_second_interrupt_cuts_it(rooms: Rooms, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who insists gets the cell back; the room is over all the same."""
    room = pooled_nb.host("m")
    log: list[str] = []
    begun = threading.Event()

    async def goodbye() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            log.append("cut")

    def interrupted(job: Job[Any], timeout: float) -> bool:
        assert begun.wait(30)
        log.append("interrupt")
        raise KeyboardInterrupt

    rooms.core.leave = goodbye  # type: ignore[method-assign]
    monkeypatch.setattr(Job, "wait", interrupted)
    with pytest.raises(KeyboardInterrupt):
        room.leave()
    assert log == ["interrupt", "interrupt", "cut"]
    assert (room.left, room.status().state) == (True, "closed")


def test_a_status_asked_for_meanwhile_does_not_reopen_it(rooms: Rooms) -> None:
    """What the room still says after it was left is not what its person is shown."""
    room = pooled_nb.join("4TK-G9P")
    core = rooms.core
    room.leave()
    core.state = "online"
    assert core.on_change is not None
    core.on_change()
    assert room.status().state == "closed"


def test_an_interrupt_once_it_is_open_gives_it_up_too(rooms: Rooms, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who interrupts the cell that opens a room has none: there is no variable to leave it by."""

    class Late(Waiting):
        def finish(self, bundle: dict[str, str]) -> bool:
            raise KeyboardInterrupt

    monkeypatch.setattr(api, "waiting", lambda words, quiet: Late(words))
    with pytest.raises(KeyboardInterrupt):
        pooled_nb.host("m")
    assert "leave" in rooms.core.log
    assert pooled_nb.current() is None
    assert not mesh.running


def test_what_is_kept_of_a_room_names_whom_it_had(rooms: Rooms, monkeypatch: pytest.MonkeyPatch) -> None:
    """DESIGN section 7: a saved notebook; a host that leaves loses its devices one after the other."""
    room = pooled_nb.host("m")
    room.start()
    core, status = rooms.core, rooms.core.status

    def alone() -> pooled_nb.room.core.Status:
        now = status()
        return msgspec.structs.replace(now, devices=now.devices[:1]) if core.state == "closed" else now

    monkeypatch.setattr(core, "status", alone)
    room.leave()
    kept = room.status()
    assert kept.state == "closed"
    assert [device.id for device in kept.devices] == ["a", "b"]
