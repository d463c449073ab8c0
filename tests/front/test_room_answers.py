"""Answers that end in unusual ways wake whoever waits; what is shown of them stays, and is sent sparingly."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

import pooled_nb
from pooled_nb.answer import Answer
from pooled_nb.errors import PooledError
from pooled_nb.output import Output
from pooled_nb.progress import NotebookWaiting, PlainWaiting, TerminalWaiting
from pooled_nb.threads import mesh
from tests.front.scripted import Rooms


@pytest.fixture
def busy() -> Iterator[threading.Event]:
    """Set it to let the mesh loop go on: until then nothing begins there."""
    go = threading.Event()
    yield go
    go.set()


def block_mesh(go: threading.Event) -> None:
    entered = threading.Event()

    async def stand_still() -> None:
        entered.set()
        go.wait()

    mesh.submit(stand_still())
    assert entered.wait(30)


async def read(answer: Answer) -> str:
    return "".join([piece async for piece in answer])


async def all_readers(answer: Answer) -> list[Any]:
    async def awaited() -> Answer:
        return await answer

    readers = [
        asyncio.create_task(read(answer)),
        asyncio.create_task(awaited()),
        asyncio.create_task(asyncio.to_thread(lambda: "".join(answer))),
        asyncio.create_task(asyncio.to_thread(answer.result)),
    ]
    await asyncio.sleep(0.05)  # each has begun to wait
    return readers


async def test_stopped_before_it_began_every_reader_wakes(rooms: Rooms, busy: threading.Event) -> None:
    """PROTOCOL section 7: a question that is taken back ends, for whoever reads its answer and however."""
    room = await pooled_nb.host("m", wait=False)
    await room.start(wait=False)
    block_mesh(busy)
    answer = room.stream("a b")
    readers = await all_readers(answer)
    answer.stop()
    busy.set()
    got = await asyncio.wait_for(asyncio.gather(*readers), 30)
    assert got == ["", answer, "", answer]
    assert (answer.done(), answer.reason, answer.text) == (True, "abort", "")
    assert "stopped" in answer.summary()
    assert [entry for entry in rooms.core.log if entry[0] == "ask"] == []
    await room.leave(wait=False)


async def test_the_room_left_before_it_began_every_reader_wakes(rooms: Rooms, busy: threading.Event) -> None:
    """A room that is over ends every answer, also one that its loop never came to."""
    room = await pooled_nb.host("m", wait=False)
    await room.start(wait=False)
    block_mesh(busy)
    answer = room.stream("a b")
    readers = await all_readers(answer)
    await asyncio.to_thread(room.leave, timeout=0.0)
    busy.set()
    for got in await asyncio.wait_for(asyncio.gather(*readers, return_exceptions=True), 30):
        assert isinstance(got, str | Answer | PooledError)
    assert answer.done()
    assert answer.reason in ("abort", "error")


async def test_who_gives_up_reading_is_cancelled_alone(rooms: Rooms) -> None:
    """One reader's own cancellation stops the answer; the others read what came, and end in order."""
    room = await pooled_nb.host("m", wait=False)
    await room.start(wait=False)
    rooms.core.endless = True
    answer = room.stream("a b")
    one, two = asyncio.create_task(read(answer)), asyncio.create_task(read(answer))
    await asyncio.sleep(0.05)  # both read
    one.cancel()
    await asyncio.wait({one, two}, timeout=30)
    assert one.cancelled()
    assert two.result() == answer.text
    assert answer.reason == "abort"
    await room.leave(wait=False)


def test_a_growing_text_is_not_sent_ever_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    """DESIGN section 7: a display is sent whole each time; what goes to the page per second stays bounded."""
    now = 0.0
    sent: list[tuple[float, str, int]] = []

    def show(self: Output, bundle: dict[str, str]) -> None:
        sent.append((now, bundle["text/plain"], sum(len(text.encode()) for text in bundle.values())))

    monkeypatch.setattr(Output, "show", show)
    monkeypatch.setattr("pooled_nb.progress.time", SimpleNamespace(monotonic=lambda: now))
    view = NotebookWaiting("asking")
    text = ""
    for step in range(600):
        now = 0.03 * step
        text += "wörd <" * 100
        view.report(None, text)
        view.tick()
    for second in range(18):
        assert sum(size for at, _, size in sent if at < second) <= 200_000 * second + sent[-1][2]
    assert sum(at < 0.5 for at, _, _ in sent) >= 3  # small texts still run smoothly
    assert view.finish({"text/plain": text, "text/html": ""})
    assert sent[-1][1] == text  # and the end is never left out


def test_a_host_takes_the_environments_servers(rooms: Rooms, monkeypatch: pytest.MonkeyPatch) -> None:
    """PROTOCOL section 2: POOLED_SIGNAL is for both ends; what is written in the call goes before it."""
    monkeypatch.setenv("POOLED_SIGNAL", "wss://a.example, wss://b.example")
    with pooled_nb.host("m"):
        assert rooms.calls[-1][2]["servers"] == ["wss://a.example", "wss://b.example"]
    with pooled_nb.host("m", signal="local"):
        assert rooms.calls[-1][2]["servers"] == ["local"]
    monkeypatch.setenv("POOLED_SIGNAL", " ")
    with pooled_nb.host("m"):
        assert rooms.calls[-1][2]["servers"] == ["local"]


def test_progress_is_on_or_off() -> None:
    """No option has two values that mean the same."""
    for call in (pooled_nb.host, pooled_nb.join):
        progress = inspect.signature(call).parameters["progress"]
        assert (progress.default, progress.annotation) == (True, "bool")


def test_a_terminal_takes_no_commands_from_others(capsys: pytest.CaptureFixture[str]) -> None:
    """What a model or a device wrote is text: the waits drop what a terminal would obey."""
    for view in (PlainWaiting("asking"), TerminalWaiting("asking")):
        with view:
            view.report(None, "laptop\x1b]0;taken\x07 loads")
            view.tick()
            view.note("desk\x1b[2Jtop left\x9b1m")
    said = capsys.readouterr().err
    assert "\x1b]0" not in said
    assert "\x1b[2J" not in said
    assert not {"\x07", "\x9b"} & set(said)
    assert "desk[2Jtop left" in said
