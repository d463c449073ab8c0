"""Leaving after the answer (`Room.leave`, ``after_answer``): it waits, is awaited, and may be interrupted."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any, ClassVar

import pytest
from IPython.core.interactiveshell import InteractiveShell

import pooled_nb
from pooled_nb import room_view
from pooled_nb.progress import Waiting
from pooled_nb.room_view import Room
from pooled_nb.terminal import deeds
from pooled_nb.threads import mesh
from tests.front.scripted import Rooms


def when(rooms: Rooms, do: Callable[[], None]) -> None:
    """Once it waits politely, do this on the mesh loop."""

    async def wait() -> None:
        await rooms.core.politely.wait()
        do()

    mesh.submit(wait())


@pytest.mark.parametrize("opened", [lambda: pooled_nb.host("m"), lambda: pooled_nb.join("4TK-G9P")])
def test_it_is_left_when_the_room_can_do_without_it(rooms: Rooms, opened: Callable[[], Room]) -> None:
    """A device may leave politely: it waits for the answer, then says goodbye as ever; again does nothing."""
    room = opened()
    when(rooms, rooms.core.may_go.set)
    assert room.leave(after_answer=True) is room
    assert rooms.core.log[:2] == ["leave politely", "leave"]
    assert (room.left, room.status().state) == (True, "closed")
    assert not mesh.running
    assert room.leave(after_answer=True) is room
    assert rooms.core.log.count("leave politely") == 1


async def test_it_can_be_awaited(rooms: Rooms) -> None:
    """DESIGN section 1: every call also awaited; until then the room goes on."""
    room = await pooled_nb.host("m", wait=False)
    leaving = room.leave(after_answer=True, wait=False)
    await asyncio.sleep(0.02)
    assert not leaving.done()
    assert not room.left
    mesh.submit(_set(rooms))
    assert await leaving is room
    assert room.left


async def _set(rooms: Rooms) -> None:
    rooms.core.may_go.set()


async def test_leaving_at_once_ends_a_polite_one(rooms: Rooms) -> None:
    """Calling again without it leaves at once, and who waited politely hears of it."""
    room = await pooled_nb.host("m", wait=False)
    politely = room.leave(after_answer=True, wait=False)
    await asyncio.sleep(0.02)
    await room.leave(wait=False)
    assert room.left
    assert await asyncio.wait_for(politely._on_other_loop(), 30) is room


class Interrupted(Waiting):
    """As by the stop button, once it has shown something."""

    shown: ClassVar[list[str]] = []

    def tick(self) -> None:
        self.shown.append(self._now[1])
        if len(self.shown) > 3:
            raise KeyboardInterrupt


@pytest.mark.parametrize("role", ["host", "worker", "guest"])
def test_an_interrupt_leaves_at_once(rooms: Rooms, monkeypatch: pytest.MonkeyPatch, role: Any) -> None:
    """It blocks with words about what it waits for; an interrupt does not keep the device in the room."""
    room = pooled_nb.host("m") if role == "host" else pooled_nb.join("4TK-G9P", role=role)
    Interrupted.shown.clear()
    monkeypatch.setattr(room_view, "waiting", lambda words, quiet: Interrupted(words))
    with pytest.raises(KeyboardInterrupt):
        room.leave(after_answer=True)
    assert (room.left, room.status().state) == (True, "closed")
    assert rooms.core.log[0] == "leave politely"
    assert rooms.core.log[-1] == "leave"
    assert not mesh.running
    want = "closes" if role == "host" else "hands its layers over" if role == "worker" else "its answer"
    assert all(want in words for words in Interrupted.shown)


def test_before_it_is_open_there_is_nothing_to_wait_for(rooms: Rooms) -> None:
    rooms.wait_s = 60
    room = pooled_nb.host("m", wait=False)
    assert room.leave(after_answer=True).left
    assert not mesh.running


def test_a_polite_goodbye_that_fails_still_leaves(rooms: Rooms) -> None:
    """Leaving never fails."""
    room = pooled_nb.host("m")
    leave = rooms.core.leave

    async def fails(*, after_answer: bool = False) -> None:
        if after_answer:
            raise ValueError("no")
        await leave()

    rooms.core.leave = fails  # type: ignore[method-assign]
    assert room.leave(after_answer=True).left
    assert rooms.core.log == ["leave"]


def test_by_magic(shell: InteractiveShell, rooms: Rooms, capsys: pytest.CaptureFixture[str]) -> None:
    """``%pooled leave --after-answer``; its help and tab know it."""
    shell.run_line_magic("pooled", "host m")
    when(rooms, rooms.core.may_go.set)
    capsys.readouterr()
    shell.run_line_magic("pooled", "leave --after-answer")
    assert capsys.readouterr().out == "Closed room 4TK-G9P.\n"
    assert rooms.core.log[:2] == ["leave politely", "leave"]
    shell.run_line_magic("pooled", "leave --help")
    assert "--after-answer" in capsys.readouterr().out


def test_an_interrupted_magic_says_that_it_was_left(
    shell: InteractiveShell, rooms: Rooms, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The cell fails, so that what is queued behind it does not run; the room was left all the same."""
    shell.run_line_magic("pooled", "join 4TK-G9P")
    monkeypatch.setattr(room_view, "waiting", lambda words, quiet: Interrupted(words))
    Interrupted.shown.clear()
    capsys.readouterr()
    result = shell.run_cell("%pooled leave --after-answer")
    assert isinstance(result.error_in_exec, KeyboardInterrupt)
    assert "Left room 4TK-G9P." in capsys.readouterr().out
    assert pooled_nb.current() is None


def test_at_a_terminal(rooms: Rooms, capsys: pytest.CaptureFixture[str]) -> None:
    """``/leave --after-answer``: Ctrl-C then leaves at once, and the program ends in order."""
    room = pooled_nb.host("m")
    when(rooms, rooms.core.may_go.set)
    deeds.leave_politely(room)
    assert room.left
    assert "Ctrl-C leaves at once." in capsys.readouterr().err


def test_at_a_terminal_interrupted(
    rooms: Rooms, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    room = pooled_nb.host("m")
    Interrupted.shown.clear()
    monkeypatch.setattr(room_view, "waiting", lambda words, quiet: Interrupted(words))
    deeds.leave_politely(room)
    assert room.left
    assert "Left at once." in capsys.readouterr().err
    assert threading.current_thread() is threading.main_thread()
