"""A fork inherits our objects and none of our threads: it refuses in words, and may open its own room."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from typing import Any

import pytest

import pooled_nb
from pooled_nb.errors import RoomClosed
from pooled_nb.threads import SWITCH_INTERVAL_S
from tests.front.scripted import Rooms

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
PATIENCE_S = 30


def in_child(check: Callable[[], None]) -> str:
    """Run it in a forked child: what it failed with. A child that hangs is ended by its own alarm."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(PATIENCE_S)
        failed = ""
        try:
            check()
        except BaseException:
            failed = traceback.format_exc()
        os.write(writing, failed.encode()[-4000:])
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        said = pipe.read().decode()
    _, status = os.waitpid(child, 0)
    return said or ("" if os.WIFEXITED(status) else "it hung")


def refused(use: Callable[[], Any]) -> None:
    with pytest.raises(RoomClosed, match="belongs to the process that opened it"):
        use()


async def whole(pieces: Any) -> list[str]:
    return [piece async for piece in pieces]


async def awaited(thing: Any) -> Any:
    return await thing


def test_a_fork_refuses_what_it_inherited(rooms: Rooms) -> None:
    """DESIGN section 3: a DataLoader forks; nothing in it waits for a thread that is not there."""
    room = pooled_nb.host("m")
    room.start()
    done = room.ask("all of it")
    rooms.core.endless = True
    live = room.ask("on", wait=False)
    job = room.start(devices=99, wait=False)

    def check() -> None:
        assert pooled_nb.current() is None
        assert abs(sys.getswitchinterval() - SWITCH_INTERVAL_S) > 1e-6
        for use in (room.status, room.result, room.start, room.stop, room.reset, room.wait):
            refused(use)
        refused(lambda: room.ask("hello"))
        refused(lambda: asyncio.run(awaited(room)))
        refused(job.result)
        refused(lambda: asyncio.run(awaited(job)))
        refused(live.result)
        refused(lambda: list(live))
        refused(lambda: asyncio.run(whole(live)))
        refused(lambda: asyncio.run(awaited(live)))
        live.stop()
        job.cancel()
        assert live.done()
        assert done.result().text == "all of it "
        assert "Room 4TK-G9P" in repr(room)
        assert room.leave() is room
        assert asyncio.run(awaited(room.leave(wait=False))) is room

    assert in_child(check) == ""
    assert not live.done()
    live.stop()
    assert live.result(30).reason == "abort"
    rooms.core.endless = False
    assert room.ask("still here").text == "still here "
    assert room.status().state == "online"


def test_a_fork_opens_a_room_of_its_own(rooms: Rooms) -> None:
    room = pooled_nb.host("m")

    def check() -> None:
        own = pooled_nb.join("ABC-234")
        assert own.ask("from the child").text == "from the child "
        assert pooled_nb.current() is own
        own.leave()
        assert pooled_nb.current() is None

    assert in_child(check) == ""
    assert pooled_nb.current() is room
    assert room.ask("and here").text == "and here "


def test_a_fork_at_the_worst_moment(rooms: Rooms) -> None:
    """Every lock of ours may be held by another thread just then."""
    from pooled_nb import api
    from pooled_nb.threads import mesh

    room = pooled_nb.host("m")
    room.start()
    rooms.core.endless = True
    live = room.ask("on", wait=False)
    held, go = threading.Event(), threading.Event()

    def hold() -> None:
        with api._lock, mesh._lock, room._lock, live._changed, live._job._ended._cond:
            held.set()
            go.wait()

    holder = threading.Thread(target=hold)
    holder.start()
    assert held.wait(30)

    def check() -> None:
        refused(room.status)
        refused(live.result)
        assert live.text.strip("on ") == ""
        with pooled_nb.join("ABC-234") as own:
            assert own.ask("fine").text == "fine "

    try:
        assert in_child(check) == ""
    finally:
        go.set()
        holder.join()
    live.stop()
    assert live.result(30).reason == "abort"
