"""Taking a room back: from Python, a cell, a terminal (PROTOCOL section 8, host resume)."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest
from IPython.core.interactiveshell import InteractiveShell

import pooled_nb
from pooled_nb import cli, restarts
from pooled_nb.errors import AlreadyInRoom, NotReady, RoomError
from pooled_nb.magics.complete import candidates
from pooled_nb.room import roomfile
from pooled_nb.room.core import AskOptions
from pooled_nb.room.keeping import claim_gate
from pooled_nb.room.memory import Memory, SavedQuestion, SavedSeat
from pooled_nb.room.roomfile import RESUME_S, SavedRoom
from pooled_nb.room_view import Room
from pooled_nb.terminal import staying
from tests.front.scripted import LeftCore, Rooms

NOTHING = "There is no room here that can go on. Host a new one."
LEFT = [
    SavedQuestion(text="why is the sky blue", options=AskOptions(max_tokens=9, seed=4)),
    SavedQuestion(text="and the sea", options=AskOptions()),
]


@pytest.fixture(autouse=True)
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("POOLED_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("POOLED_RUNTIME_DIR", str(tmp_path / "run"))
    monkeypatch.delenv("POOLED_KEEP_SECRETS", raising=False)
    return tmp_path / "data"


def left(code: str = "4TKG9P", *, ago: float = 200) -> Path:
    """A room whose process died so long ago."""
    slot = claim_gate(code).slot
    beside = roomfile.slot_of(slot)
    assert slot
    assert beside
    seats = [SavedSeat(seat="5" * 32, name=name, lo=0, hi=1) for name in ("ana", "bo")]
    beside.write(
        SavedRoom(code=code, memory=Memory(model="org/SmolLM2", label="SmolLM2", ctx=64, seats=seats))
    )
    slot.release()
    then = time.time() - ago
    os.utime(beside.path, (then, then))
    return beside.path


def texts(room: Room) -> list[str]:
    return [answer.result(10).text for answer in room.asked_again]


def test_it_goes_on_and_asks_what_was_left(rooms: Rooms) -> None:
    """PROTOCOL section 8: one's own questions without an answer are asked again, as they were asked."""
    left()
    rooms.left = LEFT
    room = pooled_nb.resume(name="laptop", lend="2GB", process=False)
    [(kind, code, options)] = rooms.calls
    assert (kind, code) == ("resume", "")
    assert options == options | {"name": "laptop", "lend": "2GB", "process": False}
    assert pooled_nb.current() is room
    assert texts(room) == ["why is the sky blue ", "and the sea "]
    assert [entry[1:] for entry in rooms.core.log if entry[0] == "ask"] == [
        (question.text, question.options) for question in LEFT
    ]
    assert room.last is room.asked_again[-1]


def test_no_room_at_hand_is_one_sentence(rooms: Rooms) -> None:
    """PROTOCOL section 8: nothing is there, or it is over: since when; nothing was opened for it."""
    with pytest.raises(NotReady) as refused:
        pooled_nb.resume()
    assert str(refused.value) == NOTHING
    with pytest.raises(NotReady, match="Of room ABC-DEF nothing is kept here"):
        pooled_nb.resume("ABC-DEF")
    left(ago=RESUME_S + 60)
    with pytest.raises(NotReady, match="no room here that can go on"):
        pooled_nb.resume()
    since = time.strftime("%H:%M", time.localtime(time.time() - 60))
    with pytest.raises(NotReady) as refused:
        pooled_nb.resume("4tk-g9p")
    assert str(refused.value).startswith(
        f"Room 4TK-G9P is over since {since}: it could go on for 15 minutes."
    )
    assert not rooms.calls


def test_a_room_that_lives_elsewhere_is_not_taken(rooms: Rooms) -> None:
    """CASES: two kernels of one user: the second hears where the room is."""
    left()
    held = claim_gate("4TKG9P").slot
    assert held
    with pytest.raises(RoomError, match="4TK-G9P is open already in another process of this machine"):
        pooled_nb.resume("4TK-G9P")
    with pytest.raises(NotReady, match="no room here"):
        pooled_nb.resume()
    held.release()
    assert pooled_nb.resume("4TK-G9P").code == "4TK-G9P"


def test_secrets_that_are_not_kept_are_named(rooms: Rooms, monkeypatch: pytest.MonkeyPatch) -> None:
    """DESIGN section 7: whoever switched that off hears why there is nothing."""
    left()
    monkeypatch.setenv("POOLED_KEEP_SECRETS", "0")
    with pytest.raises(NotReady, match="where POOLED_KEEP_SECRETS is 0"):
        pooled_nb.resume()


def test_a_room_that_nobody_used_gives_way(rooms: Rooms) -> None:
    """PROTOCOL section 8: %pooled host offered it, and that room is still empty: it is closed first."""
    empty = pooled_nb.host("m", code="ABC-DEF")
    core: Any = rooms.core
    core.others = False
    with pytest.raises(NotReady):
        pooled_nb.resume()
    assert not empty.left, "nothing goes on, so nothing is closed"
    left()
    room = pooled_nb.resume()
    assert empty.left
    assert core.log[-1] == "leave"
    assert pooled_nb.current() is room


@pytest.mark.parametrize("used", ["by another device", "by a question", "by who waits", "as a guest"])
def test_a_room_that_is_used_stays(rooms: Rooms, used: str) -> None:
    """DESIGN section 3: a process is in one room, and no verb ends one that somebody uses."""
    left()
    if used == "as a guest":
        room = pooled_nb.join("ABC-DEF", role="guest")
    else:
        room = pooled_nb.host("m", code="ABC-DEF")
        rooms.core.others = used == "by another device"
        if used == "by a question":
            room.ask("why")
        if used == "by who waits":
            rooms.core.ask_to_join("leo")
    with pytest.raises(AlreadyInRoom):
        pooled_nb.resume()
    assert not room.left


def test_the_room_one_is_in_is_not_closed_for_itself(rooms: Rooms) -> None:
    """DESIGN section 3: run twice, the cell says where one is; no other process has it."""
    left()
    room = pooled_nb.resume()
    rooms.core.others = False
    for code in ("4TK-G9P", "4tkg9p"):
        with pytest.raises(AlreadyInRoom, match="already hosts"):
            pooled_nb.resume(code)
    assert not room.left


@pytest.mark.parametrize("ends", ["well", "badly"])
def test_a_question_that_starts_a_room_is_kept_while_it_loads(rooms: Rooms, ends: str) -> None:
    """PROTOCOL section 8: no question is lost, the one that the first load is for neither."""
    left()
    room = pooled_nb.resume()
    core: Any = rooms.core
    kept: list[list[str]] = []
    core.on_memory = lambda: kept.append([question.text for question in core.asked])
    core.state = "open"
    start = core.start

    async def starts(*args: Any, **more: Any) -> None:
        core.on_memory()
        if ends == "badly":
            raise NotReady("The room did not start.", "Start it again.")
        await start(*args, **more)

    core.start = starts
    answer = room.ask("why", wait=False)
    if ends == "badly":
        with pytest.raises(NotReady):
            answer.result(10)
    else:
        assert answer.result(10).text == "why "
    assert kept == [["why"], []]


def test_a_kernel_that_starts_again_closes_nothing(rooms: Rooms) -> None:
    """PROTOCOL section 8: the room is kept for the kernel to come; a device that hosts none just leaves."""
    left()
    room = pooled_nb.resume()
    core = rooms.core
    assert isinstance(core, LeftCore)
    restarts._told(os.getpid(), True)
    assert room.left
    assert core.log == ["abandon"]
    guest = pooled_nb.join("ABC-DEF", role="guest")
    restarts._told(os.getpid(), True)
    assert guest.left
    assert rooms.core.log == ["leave"]


def test_a_kernel_that_ends_closes_it(rooms: Rooms) -> None:
    """DESIGN section 3: shut down, or at the end of a script, the room is closed."""
    left()
    pooled_nb.resume()
    restarts._told(os.getpid())
    assert rooms.core.log == ["leave"]


# -- in a cell, in a terminal ----------------------------------------------------------------------


def test_the_magic(shell: InteractiveShell, rooms: Rooms, capsys: pytest.CaptureFixture[str]) -> None:
    """DESIGN section 1: %pooled resume; what was left is answered in the cell that took the room back."""
    left()
    rooms.left = LEFT
    shell.run_cell("%pooled resume 4TK-G9P --name laptop -o room").raise_error()
    kind, code, options = rooms.calls[0]
    assert (kind, code, options["name"], options["process"]) == ("resume", "4TK-G9P", "laptop", True)
    said = capsys.readouterr().out
    assert said.index("Room 4TK-G9P") < said.index("why is the sky blue") < said.index("and the sea")
    assert shell.user_ns["room"] is pooled_nb.current()


@pytest.fixture
def first_fails(rooms: Rooms, monkeypatch: pytest.MonkeyPatch) -> Rooms:
    """The first of the questions that were left is not answered."""
    left()
    rooms.left, ask = LEFT, LeftCore.ask

    async def asks(core: LeftCore, text: str, options: AskOptions) -> Any:
        if text == LEFT[0].text:
            raise NotReady("The room cannot go on yet.", "Lend more.")
        async for event in ask(core, text, options):
            yield event

    monkeypatch.setattr(LeftCore, "ask", asks)
    return rooms


def test_the_magic_shows_each_though_one_failed(
    shell: InteractiveShell, first_fails: Rooms, capsys: pytest.CaptureFixture[str]
) -> None:
    """PROTOCOL section 8: no question is lost; the cell says what went wrong, and the room goes on."""
    result = shell.run_cell("%pooled resume")
    assert isinstance(result.error_in_exec, NotReady)
    assert "and the sea" in capsys.readouterr().out
    assert pooled_nb.current() is not None


def test_a_terminal_keeps_the_room_though_one_failed(
    first_fails: Rooms, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """PROTOCOL section 8: a question that is not answered closes no room that others are in."""
    stayed: list[bool] = []
    monkeypatch.setattr(staying, "_stay", lambda room, news, args: stayed.append(room.left) or 0)
    assert cli.main(["resume"]) == 0
    assert stayed == [False]
    said = capsys.readouterr()
    assert "and the sea" in said.out
    assert "cannot go on yet. Lend more." in said.err


def test_the_magic_with_nothing_to_resume(
    shell: InteractiveShell, rooms: Rooms, capsys: pytest.CaptureFixture[str]
) -> None:
    """DESIGN section 1: one sentence, and the cell has failed."""
    result = shell.run_cell("%pooled resume")
    assert isinstance(result.error_in_exec, NotReady)
    assert NOTHING in capsys.readouterr().out
    result = shell.run_cell("%pooled resume 4TK-G9P#k=PLANTEDkeyPLANTEDkeyPL")
    assert result.error_in_exec is not None
    assert "PLANTED" not in capsys.readouterr().out


def test_tab_offers_what_can_go_on(rooms: Rooms) -> None:
    """DESIGN section 1: codes of rooms that can be taken back, and no others."""
    left("4TKG9P", ago=30)
    left("ABCDEF", ago=10)
    left("GHJKMN", ago=RESUME_S + 60)
    assert candidates("%pooled resume ", "")[:2] == ["ABC-DEF", "4TK-G9P"]
    assert "GHJ-KMN" not in candidates("%pooled resume ", "")


def test_in_a_terminal(rooms: Rooms, capsys: pytest.CaptureFixture[str]) -> None:
    """DESIGN section 1: pooled-nb resume, for a host that a terminal ran."""
    assert cli.main(["resume"]) != 0
    assert "There is no room here that can go on." in capsys.readouterr().err
    left()
    rooms.left = LEFT[:1]
    assert cli.main(["resume", "--ask", "and now"]) == 0
    said = capsys.readouterr().out
    assert said.index("> why is the sky blue") < said.index("and now")
    assert pooled_nb.current() is None
