"""The mesh thread: one loop for all threads, interrupts that clean up, and nothing left behind."""

from __future__ import annotations

import _thread
import asyncio
import concurrent.futures
import contextlib
import sys
import threading
import time
from collections.abc import Iterator

import pytest

from pooled_nb.errors import RoomClosed, RoomError
from pooled_nb.job import Budget
from pooled_nb.threads import SWITCH_INTERVAL_S, MeshThread


@pytest.fixture
def mesh() -> Iterator[MeshThread]:
    thread = MeshThread()
    thread.hold()
    yield thread
    if thread.running:
        thread.release()


async def name_of_thread() -> str:
    return threading.current_thread().name


def test_runs_on_its_own_daemon_thread(mesh: MeshThread) -> None:
    """DESIGN section 3: one daemon thread, never the caller's loop."""
    assert mesh.run(name_of_thread()) == "pooled-mesh"
    [thread] = [t for t in threading.enumerate() if t.name == "pooled-mesh"]
    assert thread.daemon


async def test_blocks_where_a_loop_already_runs(mesh: MeshThread) -> None:
    """DESIGN section 1: every call works synchronously also where a loop is already running, and awaited."""
    assert mesh.run(name_of_thread()) == "pooled-mesh"
    assert await mesh.submit(name_of_thread()) == "pooled-mesh"


def test_starts_with_the_first_and_ends_with_the_last() -> None:
    """DESIGN section 3: the switch interval is shorter while a room is open, and restored after the last."""
    before = sys.getswitchinterval()
    mesh = MeshThread()
    mesh.hold()
    mesh.hold()
    assert sys.getswitchinterval() == pytest.approx(SWITCH_INTERVAL_S)
    mesh.release()
    assert mesh.run(name_of_thread()) == "pooled-mesh"
    mesh.release()
    assert sys.getswitchinterval() == pytest.approx(before)
    assert not [t for t in threading.enumerate() if t.name == "pooled-mesh"]
    with pytest.raises(RoomClosed):
        mesh.run(name_of_thread())
    mesh.hold()  # and again
    assert mesh.run(name_of_thread()) == "pooled-mesh"
    mesh.release()


def test_a_switch_interval_set_meanwhile_is_left_alone() -> None:
    before = sys.getswitchinterval()
    mesh = MeshThread()
    mesh.hold()
    try:
        sys.setswitchinterval(0.02)
        mesh.release()
        assert sys.getswitchinterval() == pytest.approx(0.02)
    finally:
        sys.setswitchinterval(before)


def test_an_interrupt_cancels_and_waits_for_the_clean_up(mesh: MeshThread) -> None:
    """DESIGN section 7: a wait can be interrupted; what it waited for has ended when that is raised."""
    log: list[str] = []

    async def work() -> None:
        try:
            log.append("began")
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            await asyncio.sleep(0.1)
            log.append("cleaned up")
            raise

    def press() -> None:
        if log == ["began"]:
            _thread.interrupt_main()

    with pytest.raises(KeyboardInterrupt):
        mesh.run(work(), tick=press)
    assert log == ["began", "cleaned up"]
    assert mesh.run(name_of_thread()) == "pooled-mesh"


def test_errors_and_time_outs_of_the_work_are_its_own(mesh: MeshThread) -> None:
    async def fail(error: BaseException) -> None:
        raise error

    with pytest.raises(RoomError, match=r"What\. Next\."):
        mesh.run(fail(RoomError("What.", "Next.")))
    with pytest.raises(TimeoutError, match="inner"):
        mesh.run(fail(TimeoutError("inner")))

    async def long() -> str:
        await asyncio.sleep(0.3)
        return "whole"

    job = mesh.submit(long())
    with pytest.raises(TimeoutError, match="still running"):
        job.result(0.05)
    assert job.result() == "whole"


def test_cancel_before_and_after_it_began(mesh: MeshThread) -> None:
    """Errors say what happened: a bare CancelledError would end a task that awaits it as cancelled, too."""

    async def work() -> None:
        await asyncio.sleep(60)

    for pause in (0.0, 0.05):
        job = mesh.submit(work())
        time.sleep(pause)
        job.cancel()
        with pytest.raises(RoomError, match="was cancelled"):
            job.result(5)


async def test_cancelling_who_awaits_cancels_the_work(mesh: MeshThread) -> None:
    ended = threading.Event()

    async def work() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            ended.set()

    job = mesh.submit(work())
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(job._on_other_loop(), 0.1)
    assert await asyncio.to_thread(ended.wait, 5)


def test_a_blocking_call_on_its_own_thread_is_refused(mesh: MeshThread) -> None:
    """DESIGN section 3: nothing of ours blocks the mesh loop."""

    async def inside() -> None:
        mesh.run(name_of_thread())

    with pytest.raises(RoomError, match="network thread"):
        mesh.run(inside())


def test_many_threads_at_once(mesh: MeshThread) -> None:
    async def double(n: int) -> int:
        await asyncio.sleep(0.001 * (n % 5))
        return 2 * n

    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        got = list(pool.map(lambda n: mesh.run(double(n)), range(200)))
    assert got == [2 * n for n in range(200)]


async def test_work_left_over_is_cancelled_at_the_end() -> None:
    """CASES: tasks and threads are at their baseline after a room."""
    mesh = MeshThread()
    mesh.hold()
    ended: list[str] = []

    async def forever() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("forever")

    job = mesh.submit(forever())
    mesh.run(asyncio.sleep(0.01))
    mesh.release()
    assert ended == ["forever"]
    with pytest.raises(RoomClosed):
        job.result(1)
    with pytest.raises(RoomClosed):
        await job


async def test_nobody_waits_for_a_loop_that_has_ended() -> None:
    """A job that resists being cancelled is given up with its loop; who waits hears that the room is over."""
    mesh = MeshThread()
    mesh.hold()

    async def resists() -> None:
        while True:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.Event().wait()

    job = mesh.submit(resists())
    mesh.run(asyncio.sleep(0))
    waiting = asyncio.create_task(job._on_other_loop())
    await asyncio.sleep(0)
    mesh.release(Budget(0.05))
    await asyncio.wait({waiting}, timeout=30)
    assert isinstance(waiting.exception(), RoomClosed)


def test_released_from_its_own_thread_it_still_delivers() -> None:
    """A room that ends by itself releases the thread from inside; whoever waits still hears the result."""
    mesh = MeshThread()
    mesh.hold()

    async def last() -> str:
        mesh.release()
        await asyncio.sleep(0.01)
        return "heard"

    assert mesh.run(last()) == "heard"
    mesh.join()
    assert not [t for t in threading.enumerate() if t.name == "pooled-mesh"]
