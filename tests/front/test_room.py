"""`pooled_nb.host`, `join`, and the room they return, over a scripted room."""

from __future__ import annotations

import _thread
import asyncio
import contextlib
import os
import threading
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

import pooled_nb
from pooled_nb import restarts
from pooled_nb.errors import (
    AlreadyInRoom,
    AnswerFailed,
    BadOption,
    BadQuestion,
    ModelTooBig,
    QueueFull,
    RoomClosed,
    RoomError,
    RoomNotFound,
)
from pooled_nb.room.core import AnswerEvent, AskOptions, Done, State, Stats
from pooled_nb.threads import mesh
from tests.front.scripted import Rooms


def interrupt_when(so: Callable[[], bool]) -> None:
    """Press Ctrl-C as soon as it is so."""

    def look() -> None:
        while not so():
            time.sleep(0.005)
        _thread.interrupt_main()

    threading.Thread(target=look, daemon=True).start()


def test_host_ask_leave(rooms: Rooms) -> None:
    """DESIGN section 1: host, ask, leave; the first question starts the room, the second does not."""
    room = pooled_nb.host("org/model", lend="6GB", name="laptop", split="memory", exact=False)
    kind, model, options = rooms.calls[0]
    assert (kind, model, options["lend"], options["split"]) == ("host", "org/model", "6GB", "memory")
    assert options["exact"] is False
    assert (options["kv"], options["draft"], options["speculate"]) == ("f16", None, True)
    assert options["servers"] == ["local"]
    assert (room.code, room.role, pooled_nb.current()) == ("4TK-G9P", "host", room)
    answer = room.ask("why is the sky blue", max_tokens=9, seed=3)
    assert answer.text.split() == ["why", "is", "the", "sky", "blue"]
    assert (answer.tokens, answer.reason, answer.stats.tokens) == ([0, 1, 2, 3, 4], "stop", 5)
    assert room.last is answer
    room.ask("again")
    assert rooms.core.log[0] == "start"
    assert rooms.core.log[1] == ("ask", "why is the sky blue", AskOptions(max_tokens=9, seed=3))
    assert rooms.core.log.count("start") == 1
    room.leave()
    room.leave()  # twice is fine
    assert rooms.core.log.count("leave") >= 1
    assert pooled_nb.current() is None
    assert room.status().state == "closed"
    assert not mesh.running


def test_join_takes_a_code_or_the_environment(rooms: Rooms, monkeypatch: pytest.MonkeyPatch) -> None:
    """DESIGN section 1: a full link is asked for hidden, or comes from POOLED_LINK."""
    with pooled_nb.join("4TK-G9P", role="guest", signal=["one", "two"]) as room:
        assert rooms.calls[-1][1:] == (
            "4TK-G9P",
            rooms.calls[-1][2] | {"servers": ["one", "two"], "role": "guest"},
        )
        assert room.ask("hello").text == "hello "
    monkeypatch.setenv("POOLED_LINK", "https://example.org/r/4TK-G9P")
    with pooled_nb.join() as room:
        assert rooms.calls[-1][1] == "https://example.org/r/4TK-G9P"
    monkeypatch.delenv("POOLED_LINK")
    monkeypatch.setattr("pooled_nb.api.getpass", lambda prompt: "ABC234")
    with pooled_nb.join(signal="a, b"):
        assert rooms.calls[-1][1] == "ABC234"
        assert rooms.calls[-1][2]["servers"] == ["a", "b"]


async def test_every_call_works_where_a_loop_runs_and_awaited(rooms: Rooms) -> None:
    """DESIGN section 1: every call works synchronously and awaited, also where a loop is already running."""
    room = await pooled_nb.host("m")
    assert room is await room
    answer = await room.ask("one two")
    assert (answer.text, await answer) == ("one two ", answer)
    assert (await room.status()).state == "online"
    assert await room.reset() is room
    assert await room.stop(wait=False) is room
    assert await room.leave() is room


async def test_without_waiting_the_callers_loop_stays_free(rooms: Rooms) -> None:
    """wait=False returns a live object at once; the loop goes on meanwhile."""
    rooms.wait_s = 0.2
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            await asyncio.sleep(0.01)
            ticks += 1

    ticking = asyncio.create_task(tick())
    room = pooled_nb.host("m", wait=False)
    assert not room.done()
    assert room.code == ""
    assert "not open" in repr(room)
    async with room:
        assert ticks > 3
        await room.start(wait=False)
        rooms.core.gap_s = 0.02
        live = room.ask("a b c d e", wait=False)
        assert not live.done()
        assert (await live).text == "a b c d e "
        assert [piece async for piece in room.stream("x y z")] == ["x ", "y ", "z "]
    ticking.cancel()
    assert room.left


def test_from_threads(rooms: Rooms) -> None:
    """DESIGN section 1: the same from any thread."""
    room = pooled_nb.host("m")
    texts: list[str] = []
    threads = [threading.Thread(target=lambda: texts.append(room.ask("a b").text)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert texts == ["a b "] * 8


def test_pieces_come_in_the_callers_thread(rooms: Rooms) -> None:
    """DESIGN section 7: nothing of our threads lands in a user's cell; on_text runs where ask was called."""
    room = pooled_nb.host("m")
    seen: list[tuple[str, str]] = []
    room.ask("a b c", on_text=lambda text: seen.append((text, threading.current_thread().name)))
    assert seen == [(piece, "MainThread") for piece in ("a ", "b ", "c ")]
    assert list(room.stream("a b c")) == ["a ", "b ", "c "]


def test_an_interrupt_stops_the_answer_and_keeps_the_room(rooms: Rooms) -> None:
    """DESIGN section 7: KeyboardInterrupt stops that answer and leaves the room as it is."""
    room = pooled_nb.host("m")
    rooms.core.endless = True
    interrupt_when(lambda: room.last is not None and "on and on" in room.last.text)
    with pytest.raises(KeyboardInterrupt):
        room.ask("on and on")
    assert "stop" in rooms.core.log
    assert room.last is not None
    assert room.last.reason == "abort"
    assert room.last.text.startswith("on and on")
    assert room.last.tokens  # it ended in order, with what it took
    rooms.core.endless = False
    assert room.ask("still here").text == "still here "


def test_an_interrupted_question_that_waits_is_taken_back(rooms: Rooms) -> None:
    """PROTOCOL section 7: stopping takes back a waiting question; another's running answer is not touched."""
    room = pooled_nb.host("m")
    room.start()
    stuck = asyncio.Event()

    async def wait_forever(text: str, options: AskOptions):  # type: ignore[no-untyped-def]
        yield pooled_nb.room.core.Queued(place=2)
        try:
            await stuck.wait()
        finally:
            rooms.core.log.append("taken back")

    rooms.core.ask = wait_forever  # type: ignore[method-assign, assignment]
    rooms.core.log.clear()
    waiting = room.ask("second", wait=False)
    while waiting.place != 2:
        assert not waiting.done()
    waiting.stop()
    assert waiting.result(5).reason == "abort"
    assert rooms.core.log == ["taken back"]


@pytest.mark.parametrize("state", ["loading", "online"])
def test_a_question_that_waits_for_the_start_says_so(rooms: Rooms, state: State) -> None:
    """Nobody is ahead of it: its first place is no queue, but a room that loads."""
    room = pooled_nb.join("4TK-G9P")
    rooms.core.state = state
    stuck = asyncio.Event()

    async def waits(text: str, options: AskOptions) -> AsyncIterator[AnswerEvent]:
        yield pooled_nb.room.core.Queued(place=1)
        await stuck.wait()

    rooms.core.ask = waits  # type: ignore[method-assign, assignment]
    answer = room.ask("first", wait=False)
    while answer.place != 1:
        assert not answer.done()
    loads = answer.loading is not None and "loading" in answer.loading[1]
    assert loads is (state == "loading")
    answer.stop()
    answer.result(5)


async def test_leaving_a_stream_early_stops_it(rooms: Rooms) -> None:
    room = await pooled_nb.host("m", wait=False)
    await room.start(wait=False)
    rooms.core.endless = True
    async with contextlib.aclosing(room.stream("a b").__aiter__()) as pieces:  # type: ignore[type-var]
        async for _ in pieces:
            break
    assert room.last is not None
    await room.last
    assert room.last.reason == "abort"
    for _ in room.stream("a b"):
        break
    assert room.last.result(5).reason == "abort"
    await room.leave(wait=False)


@pytest.mark.parametrize(
    ("text", "options", "words"),
    [
        ("", {}, "empty"),
        (" \n\t", {}, "empty"),
        ("x" * 8001, {}, "8,001 characters"),
        ("x", {"max_tokens": 0}, "max_tokens is 0"),
        ("x", {"temperature": -1.0}, "temperature is -1.0"),
        ("x", {"temperature": float("nan")}, "temperature is nan"),
        ("x", {"top_p": 0}, "top_p is 0"),
        ("x", {"top_p": 1.5}, "top_p is 1.5"),
        ("x", {"top_k": -2}, "top_k is -2"),
        ("x", {"seed": -1}, "seed is -1"),
        ("x", {"min_p": 2}, "min_p is 2"),
        ("x", {"repetition_penalty": 0}, "repetition_penalty is 0"),
        ("x", {"presence_penalty": 3}, "presence_penalty is 3"),
        ("x", {"logit_bias": {"the": 1}}, "logit_bias is {'the': 1}"),
        ("x", {"stop": ""}, r"stop is \[''\]"),
    ],
)
def test_a_bad_question_is_refused_before_anything_is_sent(
    rooms: Rooms, text: str, options: dict[str, Any], words: str
) -> None:
    """PROTOCOL section 7: 8,000 characters; an empty prompt and nonsense options get one clear sentence."""
    room = pooled_nb.host("m")
    with pytest.raises(BadQuestion, match=words):
        room.ask(text, **options)
    assert rooms.core.log == []
    assert room.status().state == "open"
    assert room.ask("x" * 8000).reason == "stop"


def test_one_room_in_a_process(rooms: Rooms) -> None:
    """A second host in one kernel is refused, says which room is there, and leaves it as it was."""
    room = pooled_nb.host("m")
    for again in (lambda: pooled_nb.host("other"), lambda: pooled_nb.join("ABC234")):
        with pytest.raises(AlreadyInRoom, match=r"hosts room 4TK-G9P.*leave"):
            again()
    assert len(rooms.calls) == 1
    assert room.ask("still").text == "still "
    room.leave()
    assert pooled_nb.join("ABC234").code == "ABC-234"


def test_a_room_that_does_not_open_leaves_nothing(rooms: Rooms) -> None:
    """Bad input leaves everything as it was: no thread, no room in the way of the next try."""
    rooms.fail = RoomNotFound("No room answers to 4TK-G9P.", "Check the code with the host.")
    with pytest.raises(RoomNotFound, match="Check the code"):
        pooled_nb.join("4TK-G9P")
    assert pooled_nb.current() is None
    assert not mesh.running
    rooms.fail = None
    assert pooled_nb.join("4TK-G9P").code == "4TK-G9P"


def test_an_interrupt_while_it_opens_gives_up(rooms: Rooms) -> None:
    rooms.wait_s = 60
    interrupt_when(lambda: rooms.calls != [])
    with pytest.raises(KeyboardInterrupt):
        pooled_nb.host("m")
    assert rooms.cancelled == 1
    assert pooled_nb.current() is None
    assert not mesh.running


def test_leave_while_it_opens(rooms: Rooms) -> None:
    rooms.wait_s = 60
    room = pooled_nb.host("m", wait=False)
    room.leave()
    assert room.left
    assert not mesh.running


def test_errors_of_the_room_reach_the_asker(rooms: Rooms) -> None:
    room = pooled_nb.host("m")
    rooms.core.refuse = QueueFull("Ten questions wait.", "Try again in a minute.")
    with pytest.raises(QueueFull, match="Try again"):
        room.ask("x")
    rooms.core.refuse = None
    rooms.core.done = Done(reason="error", stats=Stats(), why="A device left. Start the room again.")
    with pytest.raises(AnswerFailed, match="A device left"):
        room.ask("some words")
    assert room.last is not None
    assert room.last.text == "some words "

    async def too_big(progress: object = None, *, fast: bool = False) -> None:
        raise ModelTooBig("Short by 2 GB for m.", "laptop could give 3.")

    rooms.core.state, rooms.core.start = "open", too_big  # type: ignore[method-assign, assignment]
    with pytest.raises(ModelTooBig, match="Short by 2 GB"):
        room.ask("x")
    with pytest.raises(ModelTooBig):
        room.start()


def test_a_room_closed_by_its_host_is_over_here_too(rooms: Rooms) -> None:
    """PROTOCOL section 3: bye with closed: the room is over. The next one may be joined at once."""
    room = pooled_nb.join("4TK-G9P")

    async def closed() -> None:
        rooms.core._set("closed")

    mesh.run(closed())
    while not room.left:  # the goodbye runs on the mesh thread; a test that hangs here has failed
        time.sleep(0.01)
    mesh.join()
    assert pooled_nb.current() is None
    with pytest.raises(RoomClosed):
        room.ask("anyone?")
    assert room.status().state == "closed"
    assert pooled_nb.join("4TK-G9P").ask("again").text == "again "


def test_leaving_ends_a_running_answer(rooms: Rooms) -> None:
    room = pooled_nb.host("m")
    rooms.core.endless = True
    live = room.ask("a", wait=False)
    while not live.text:
        assert not live.done()
    room.leave()
    assert live.done()
    assert live.reason == "abort"


def test_only_the_host_closes(rooms: Rooms) -> None:
    with pooled_nb.join("4TK-G9P") as room, pytest.raises(RoomError, match="Only the host"):
        room.close()
    host = pooled_nb.host("m")
    assert host.close() is host
    assert host.left


def test_notices_are_kept(rooms: Rooms) -> None:
    room = pooled_nb.host("m")
    assert rooms.core.on_notice is not None
    for n in range(60):
        rooms.core.on_notice(f"{n}")
    assert room.notices == [f"{n}" for n in range(10, 60)]


def test_at_exit_only_the_process_that_opened_it_leaves(rooms: Rooms) -> None:
    """DESIGN section 3: a dying kernel closes its own room and nobody else's; a fork leaves it alone."""
    room = pooled_nb.host("m")
    restarts._told(os.getpid() + 1)
    assert not room.left
    restarts._told(os.getpid())
    assert room.left


def test_leaving_at_exit_is_bounded(rooms: Rooms) -> None:
    """A kernel that shuts down has a second: a room that does not let go is cut off."""
    room = pooled_nb.host("m")

    async def never() -> None:
        await asyncio.Event().wait()

    rooms.core.leave = never  # type: ignore[method-assign]
    room.leave(timeout=0.1)
    assert room.left
    assert not mesh.running


def test_wait_ends_with_the_room(rooms: Rooms) -> None:
    """What a script that only lends does: it stays until the host closes the room."""
    room = pooled_nb.join("4TK-G9P")

    async def close() -> None:
        await asyncio.sleep(0.2)
        rooms.core._set("closed")

    closing = mesh.submit(close())
    assert room.wait() is room
    assert room.left
    assert closing.done()


def test_start_waits_for_devices(rooms: Rooms) -> None:
    room = pooled_nb.host("m")
    starting = room.start(devices=3, wait=False)
    while "2 of 3" not in room.progress[1]:
        assert not starting.done()
    assert rooms.core.log == []
    starting.cancel()
    assert room.start(devices=2).status().state == "online"


def test_start_refuses_what_would_never_be(rooms: Rooms) -> None:
    """Bad input: no room has 0 devices; and who may not start it waits for nobody before being told so."""
    room = pooled_nb.host("m")
    for devices in (0, -1):
        with pytest.raises(BadOption, match="1 or more"):
            room.start(devices=devices)
    assert rooms.core.log == []
    room.leave()
    with pooled_nb.join("4TK-G9P") as room:
        room.start(devices=9)
        assert rooms.core.log == ["start"]  # and the real one then refuses
