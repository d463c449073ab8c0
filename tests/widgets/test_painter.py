"""The one thread that speaks to the browser: it starts with the first panel and ends with the last."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from pooled_nb.widgets.painter import NAME, Painter

WAIT_S = 20.0


class Dot:
    """A panel that says one thing a paint."""

    def __init__(self, do: Callable[[], None] = lambda: None) -> None:
        self.painted: list[tuple[float, str]] = []
        self.orphaned = False
        self.again: float | None = None
        self.new = threading.Event()
        self._do = do

    def paint(self, now: float) -> tuple[int, float | None]:
        self.painted.append((now, threading.current_thread().name))
        self.new.set()
        self._do()
        return 1, None if self.again is None else now + self.again

    def orphan(self) -> None:
        self.orphaned = True

    def wait(self) -> None:
        assert self.new.wait(WAIT_S)
        self.new.clear()


@pytest.fixture
def painter() -> Iterator[Painter]:
    painter = Painter()
    yield painter
    for panel in list(painter._panels):
        painter.remove(panel)
    assert painter.join(WAIT_S)


def test_one_thread_from_the_first_panel_to_the_last(painter: Painter) -> None:
    """DESIGN section 7: all of it leaves from one thread, whose prints land in no cell."""
    assert not painter.running
    one, two = Dot(), Dot()
    painter.add(one)
    painter.add(two)
    one.wait()
    two.wait()
    assert {name for _, name in one.painted + two.painted} == {NAME}
    assert sum(thread.name == NAME for thread in threading.enumerate()) == 1
    assert not painter.here()
    painter.remove(one)
    painter.wake(two)
    two.wait()
    painter.remove(two)
    assert painter.join(WAIT_S)
    assert not painter.running
    painter.wake(two)  # it is gone: nothing happens
    third = Dot()
    painter.add(third)  # and it starts anew
    third.wait()


def test_a_woken_panel_is_painted_and_a_quiet_one_is_not(painter: Painter) -> None:
    """It is woken by changes, and sleeps without a timer."""
    quiet, busy = Dot(), Dot()
    painter.add(quiet)
    painter.add(busy)
    quiet.wait()
    for _ in range(3):
        busy.wait()
        painter.wake(busy)
    busy.wait()
    assert len(quiet.painted) == 1
    busy.again = 0.01
    painter.wake(busy)
    for _ in range(3):
        busy.wait()  # by itself


def test_a_panel_that_fails_takes_no_other_one_down(
    painter: Painter, caplog: pytest.LogCaptureFixture
) -> None:
    """An exception in one panel is logged, and the thread goes on."""

    def fail() -> None:
        raise ZeroDivisionError("of this panel")

    bad, good = Dot(fail), Dot()
    with caplog.at_level(logging.ERROR, logger="pooled_nb.widgets"):
        painter.add(bad)
        painter.add(good)
        bad.wait()
        good.wait()
        painter.wake(bad)
        painter.wake(good)
        bad.wait()
        good.wait()
    assert "of this panel" in caplog.text


@pytest.mark.parametrize("error", [ZeroDivisionError, SystemExit, KeyboardInterrupt])
def test_a_panel_that_fails_is_tried_again_and_fills_no_log(
    painter: Painter,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    error: type[BaseException],
) -> None:
    """It may have missed its last change; what would end the thread in silence does not."""
    monkeypatch.setattr("pooled_nb.widgets.painter.RETRY_S", 0.01)

    def fail() -> None:
        if len(dot.painted) in (1, 2, 3, 5):
            raise error("of this panel")

    dot = Dot(fail)
    with caplog.at_level(logging.ERROR, logger="pooled_nb.widgets"):
        painter.add(dot)
        while len(dot.painted) < 4:  # by itself
            dot.wait()
        assert len(caplog.records) == 1
        painter.wake(dot)
        while len(dot.painted) < 6:
            dot.wait()
    assert len(caplog.records) == 2  # it had been painted meanwhile
    assert painter.running


def test_an_interrupt_while_the_thread_begins(painter: Painter, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next panel begins it again, and two threads never paint."""
    start = threading.Thread.start

    def interrupted(thread: threading.Thread) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(threading.Thread, "start", interrupted)
    one = Dot()
    with pytest.raises(KeyboardInterrupt):
        painter.add(one)

    def late(thread: threading.Thread) -> None:
        start(thread)
        thread._started.clear()  # type: ignore[attr-defined] # as if nobody had heard of it yet

    monkeypatch.setattr(threading.Thread, "start", late)
    painter.add(one)
    one.wait()
    first = painter._thread
    monkeypatch.setattr(threading.Thread, "start", start)
    two = Dot()
    painter.add(two)
    two.wait()
    assert painter._thread is not first
    assert first is not None
    first._started.set()  # type: ignore[attr-defined] # to join it
    first.join(WAIT_S)
    assert not first.is_alive()
    painter.wake(one)
    while len(one.painted) < 2:
        one.wait()


def test_many_busy_panels_stay_far_below_the_servers_limit(painter: Painter) -> None:
    """DESIGN section 7: 1,000 messages a second are never reached, and every panel has its turns."""
    dots = [Dot() for _ in range(60)]
    for dot in dots:
        dot.again = 0.0
        painter.add(dot)
    time.sleep(1.5)
    for dot in dots:
        painter.remove(dot)
    assert painter.join(WAIT_S)
    times = sorted(at for dot in dots for at, _ in dot.painted)
    assert max(sum(at <= when < at + 1 for when in times) for at in times) <= 363
    counts = [len(dot.painted) for dot in dots]
    assert min(counts) >= 1
    assert max(counts) - min(counts) <= 3


def test_a_panel_may_be_taken_away_from_inside_its_paint(painter: Painter) -> None:
    """A command may close the panel that it came from."""
    dot = Dot(lambda: painter.remove(dot))
    painter.add(dot)
    dot.wait()
    assert painter.join(WAIT_S)
    assert len(dot.painted) == 1


def test_one_that_rests_is_forgotten_unless_it_was_just_woken(painter: Painter) -> None:
    """A panel of something that is over keeps no thread; a change that comes meanwhile is not lost."""
    dot = Dot(lambda: (len(dot.painted) == 1 and painter.wake(dot)) or painter.rest(dot))
    painter.add(dot)
    assert painter.join(WAIT_S)
    assert len(dot.painted) == 2
    painter.add(dot)
    assert painter.join(WAIT_S)
    assert len(dot.painted) == 3


def test_woken_from_many_threads(painter: Painter) -> None:
    """Whoever wakes it only posts; the last wake is never lost."""
    dot = Dot()
    painter.add(dot)
    threads = [threading.Thread(target=lambda: [painter.wake(dot) for _ in range(2_000)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    at = time.monotonic()
    painter.wake(dot)
    while dot.painted[-1][0] < at:
        dot.wait()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_forked_child_has_none_of_it(painter: Painter) -> None:
    """A fork copies locks and panels, and not the thread: the child says nothing, and may begin anew."""
    dot = Dot()
    painter.add(dot)
    dot.wait()
    read, write = os.pipe()
    with painter._changed:  # held by a thread that is not in the child
        pid = os.fork()
        if pid == 0:
            ok = b"n"
            try:
                painter.orphan()
                fresh = Dot()
                painter.wake(dot)
                painter.add(fresh)
                fresh.wait()
                painter.remove(fresh)
                clean = painter.join(WAIT_S) and dot.orphaned and len(dot.painted) == 1
                ok = b"y" if clean else b"n"
            finally:
                os.write(write, ok)
                os._exit(0)
    os.close(write)
    os.waitpid(pid, 0)
    assert os.read(read, 1) == b"y"
    os.close(read)
    painter.wake(dot)
    dot.new.clear()
    dot.wait()  # the parent's goes on
