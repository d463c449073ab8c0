"""This device's person is asked whether the host is the one they mean (PROTOCOL section 4, Device)."""

from __future__ import annotations

import asyncio
import builtins
import functools
import io
import sys
import threading
from typing import Any

import pytest

import pooled_nb
from pooled_nb import confirming
from pooled_nb.errors import NotReady, RoomClosed, RoomRefused
from pooled_nb.room.doorfacts import Doubt
from tests.front.scripted import Rooms
from tests.front.test_room import interrupt_when

DOUBT = Doubt(digits="482 019", text="The host did not recognise your link.")


@pytest.fixture
def doubted(rooms: Rooms, monkeypatch: pytest.MonkeyPatch) -> Rooms:
    rooms.doubt = DOUBT
    monkeypatch.setattr(confirming, "GRACE_S", 0.3)
    return rooms


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def typed(monkeypatch: pytest.MonkeyPatch, *answers: str) -> list[str]:
    """A person at a terminal who types these; the prompts of ``input``."""
    asked: list[str] = []
    left = list(answers)

    def answer(prompt: str = "") -> str:
        assert threading.current_thread() is threading.main_thread()
        asked.append(prompt)
        if not left:
            raise EOFError
        return left.pop(0)

    monkeypatch.setattr(sys, "stdin", Terminal())
    monkeypatch.setattr(builtins, "input", answer)
    return asked


@pytest.mark.parametrize(
    ("said", "joins"), [("y", True), (" Yes ", True), ("n", False), ("", False), ("maybe", False)]
)
def test_a_person_at_a_terminal_is_asked(
    doubted: Rooms,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    said: str,
    joins: bool,
) -> None:
    """PROTOCOL section 4: it waits for its person to confirm; whatever is no yes is no."""
    asked = typed(monkeypatch, said)
    if joins:
        with pooled_nb.join("4TK-G9P") as room:
            assert room.status().trust == "confirmed"
            assert room.doubt is None
            assert room.notices == []
    else:
        with pytest.raises(RoomRefused):
            pooled_nb.join("4TK-G9P")
        assert pooled_nb.current() is None
    assert len(asked) == 1
    out, err = capsys.readouterr()
    assert "Does the host's screen show 482 019? [y/N]" in err  # standard output may be a file of answers
    assert out == ""


def test_nobody_is_there(doubted: Rooms, monkeypatch: pytest.MonkeyPatch) -> None:
    """DESIGN section 1: a script, which nobody can answer for, ends in words that name what would do it."""
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))
    with pytest.raises(RoomRefused, match=r"nobody is here to compare.*confirm=, a function"):
        pooled_nb.join("4TK-G9P")
    assert doubted.core.log == []
    assert pooled_nb.current() is None
    typed(monkeypatch)  # Ctrl-D
    with pytest.raises(RoomRefused, match="nobody is here"):
        pooled_nb.join("4TK-G9P")
    caught: list[BaseException] = []

    def elsewhere() -> None:
        try:
            pooled_nb.join("4TK-G9P")
        except RoomRefused as error:
            caught.append(error)

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert len(caught) == 1


def by_gift(answers: Any, doubt: Doubt) -> Any:
    """A function that gives a coroutine, and is none itself."""
    return answers(doubt)


@pytest.mark.parametrize("how", ["function", "async", "gives a coroutine"])
@pytest.mark.parametrize("same", [True, False])
def test_a_function_answers(doubted: Rooms, how: str, same: bool) -> None:
    """The front door's ``confirm=``, sync or async; it sees the digits."""
    seen: list[tuple[Doubt, str]] = []

    def by_function(doubt: Doubt) -> bool:
        seen.append((doubt, threading.current_thread().name))
        return same

    async def by_coroutine(doubt: Doubt) -> bool:
        await asyncio.sleep(0)
        return by_function(doubt)

    confirm: Any = {
        "function": by_function,
        "async": by_coroutine,
        "gives a coroutine": functools.partial(by_gift, by_coroutine),
    }[how]
    if same:
        pooled_nb.join("4TK-G9P", confirm=confirm).leave()
    else:
        with pytest.raises(RoomRefused):
            pooled_nb.join("4TK-G9P", confirm=confirm)
    assert [doubt for doubt, _ in seen] == [DOUBT]
    assert seen[0][1] == ("MainThread" if how == "function" else "pooled-mesh")


@pytest.mark.parametrize("confirm", [lambda doubt: "yes", lambda doubt: 1 / 0])
async def test_what_is_no_true_is_no(doubted: Rooms, confirm: Any) -> None:
    """Bad input: nothing but True lets this device believe a host; a function that fails does not."""
    with pytest.raises(RoomRefused):
        await pooled_nb.join("4TK-G9P", confirm=confirm, wait=False)


def test_a_function_that_fails_ends_the_wait(doubted: Rooms) -> None:
    with pytest.raises(ZeroDivisionError):
        pooled_nb.join("4TK-G9P", confirm=lambda doubt: bool(1 / 0))
    assert pooled_nb.current() is None


async def in_doubt(room: pooled_nb.Room) -> None:
    async with asyncio.timeout(20):
        while room.doubt is None:  # noqa: ASYNC110 - another thread's
            await asyncio.sleep(0.005)


async def test_a_program_that_does_not_block_answers_later(doubted: Rooms) -> None:
    """``wait=False``: `Room.doubt` tells, `Room.confirm` answers, from any thread."""
    room = pooled_nb.join("4TK-G9P", wait=False)
    await in_doubt(room)
    assert room.doubt == DOUBT
    assert not room.done()
    async with asyncio.timeout(20):
        while not room.notices:  # noqa: ASYNC110 - another thread's
            await asyncio.sleep(0.005)
    assert "room.confirm(True)" in room.notices[-1]
    assert room.confirm(True) is room
    assert await room is room
    with pytest.raises(NotReady, match="nothing to confirm"):
        room.confirm(True)


async def test_a_function_answers_where_nobody_waits(doubted: Rooms) -> None:
    """A plain function may block, so it runs in a thread of its own, and not on the mesh loop."""
    names: list[str] = []

    def confirm(doubt: Doubt) -> bool:
        names.append(threading.current_thread().name)
        return True

    room = await pooled_nb.join("4TK-G9P", confirm=confirm, wait=False)
    assert room.status().trust == "confirmed"
    assert names == ["confirm"]


async def test_an_answer_about_a_link_that_broke_counts_for_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """PROTOCOL section 4: who stands between two people could else break the link that one compared, and be
    let through by the answer. The next link's digits are asked about anew.
    """
    other = Doubt(digits="777 777", text="Another link.")
    person: Any = confirming.Confirming()
    first = asyncio.create_task(person(DOUBT))
    await asyncio.sleep(0)
    later: list[asyncio.Task[bool]] = []
    asked: list[Doubt] = []

    def meanwhile(doubt: Doubt) -> bool:
        """While this one is typed at, the link breaks and another one comes."""
        asked.append(doubt)
        if doubt is DOUBT:
            first.cancel()
            asyncio.run_coroutine_threadsafe(again(), loop).result(10)
        return doubt is DOUBT

    async def again() -> None:
        later.append(asyncio.create_task(person(other)))
        await asyncio.sleep(0.01)

    loop = asyncio.get_running_loop()
    monkeypatch.setattr(confirming, "_asked", meanwhile)
    await asyncio.to_thread(person.ask, confirming.Waiting())
    await asyncio.sleep(0.01)
    assert first.cancelled()
    assert not later[0].done()
    assert person.doubt == other
    await asyncio.to_thread(person.ask, confirming.Waiting())
    assert await later[0] is False
    assert asked == [DOUBT, other]


async def test_an_async_function_ends_with_its_question() -> None:
    ended: list[str] = []

    async def confirm(doubt: Doubt) -> bool:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(doubt.digits)
        return True

    person: Any = confirming.Confirming(confirm)
    asking = asyncio.create_task(person(DOUBT))
    await asyncio.sleep(0.01)
    asking.cancel()
    await asyncio.wait({asking})
    await asyncio.sleep(0.01)
    assert ended == ["482 019"]
    assert person.doubt is None


async def test_whoever_leaves_answers_nothing(doubted: Rooms) -> None:
    room = pooled_nb.join("4TK-G9P", wait=False)
    await in_doubt(room)
    await room.leave(wait=False)
    assert room.doubt is None
    with pytest.raises(RoomClosed):
        room.result()


def test_an_interrupt_gives_up(rooms: Rooms) -> None:
    """DESIGN section 1: this wait has no end of its own; an interrupt frees the place."""
    rooms.wait_s = 60
    interrupt_when(lambda: bool((room := pooled_nb.current()) and "model" in room.progress[1]))
    with pytest.raises(KeyboardInterrupt):
        pooled_nb.join("4TK-G9P")
    assert rooms.cancelled == 1  # cut off, not waited out
    assert pooled_nb.current() is None
