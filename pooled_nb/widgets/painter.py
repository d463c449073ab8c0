"""The thread that speaks to the browser for every panel of this process.

Neither the mesh loop nor a cell that waits serializes JSON: they only post `Painter.wake`. One thread, so
the order of what a panel says is the order in which it was said, and one budget for all panels. It starts
with the first panel and ends with the last; a forked child has none of them.
"""

from __future__ import annotations

import logging
import os
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any, Protocol

from pooled_nb.widgets.budget import Budget
from pooled_nb.widgets.turns import Turns

NAME = "pooled-panels"
"""What threads named ``pooled-…`` print lands in no cell (DESIGN section 7)."""

RETRY_S = 1.0
"""A panel that could not be painted is tried again after this: it may have missed its last change."""

log = logging.getLogger("pooled_nb.widgets")


class Painted(Protocol):
    """A panel, as the painter sees it."""

    def paint(self, now: float) -> tuple[int, float | None]:
        """Send what has changed: how many messages, and when to come again by itself (None: when woken)."""

    def orphan(self) -> None:
        """In a forked child: it is the parent's, and says nothing more here."""

    def __hash__(self) -> int:
        """By identity."""


class Painter:
    """Paints panels, each when it is due."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._kept: list[Any] = []
        self._failing: weakref.WeakSet[Painted] = weakref.WeakSet()  # of these the log has heard
        self._fresh()

    def _fresh(self) -> None:
        self._changed = threading.Condition()
        self._panels: set[Painted] = set()
        self._known: weakref.WeakSet[Painted] = weakref.WeakSet()  # also those that rest
        self._turns: Turns[Painted] = Turns()
        self._budget = Budget(self._clock())
        self._until: float | None = None  # when the thread looks again; None: when told
        self._not_before = 0.0
        self._thread: threading.Thread | None = None

    def here(self) -> bool:
        """Whether this is the painter's thread."""
        return threading.current_thread() is self._thread

    @property
    def running(self) -> bool:
        """Whether there is a panel to paint, and so a thread."""
        return self._thread is not None

    def add(self, panel: Painted) -> None:
        """Paint it from now on; the first time at once. One that is here already is woken."""
        with self._changed:
            if panel not in self._panels:
                self._panels.add(panel)
                self._known.add(panel)
            if (
                self._thread is None or not self._thread.is_alive()
            ):  # an interrupt may have come before it began
                self._begin()
        self.wake(panel)

    def _begin(self) -> None:
        thread = self._thread = threading.Thread(target=self._main, name=NAME, daemon=True)
        try:
            thread.start()
        except RuntimeError:  # the interpreter ends, and nobody will see it
            self._thread = None

    def remove(self, panel: Painted) -> None:
        """Paint it no more. A paint that runs at this moment goes on to its end."""
        with self._changed:
            self._panels.discard(panel)
            self._turns.drop(panel)
            self._changed.notify()

    def rest(self, panel: Painted) -> None:
        """Nothing more will change by itself: forget it until it is added again, unless it was just woken."""
        with self._changed:
            if not self._turns.wants(panel):
                self.remove(panel)

    def wake(self, panel: Painted) -> None:
        """It has changed. From any thread; returns at once."""
        with self._changed:
            if panel not in self._panels:
                return
            due = max(self._turns.wake(panel, self._clock()), self._not_before)
            if self._until is None or due < self._until:
                self._until = due  # whoever else wakes it before it has looked need not
                self._changed.notify()

    def _main(self) -> None:
        me = threading.current_thread()
        while True:
            with self._changed:
                panel = self._wait()
                if panel is None:
                    if self._thread is me:
                        self._thread = None
                    else:
                        self._changed.notify()  # it was meant for the thread of now
                    return
            messages, again = self._paint(panel)
            with self._changed:
                now = self._clock()
                self._budget.spend(messages, now)
                if panel in self._panels:
                    self._turns.painted(panel, messages, again, now)

    def _wait(self) -> Painted | None:
        """Until some panel is due and all together may send; None: there is no panel any more."""
        while self._panels and self.here():
            now = self._clock()
            pause = self._budget.wait(now)
            self._not_before = now + pause
            if not pause and (panel := self._turns.next(now)) is not None:
                self._until = now
                return panel
            due = self._turns.wait(now)
            seconds = None if due is None else max(due, pause)
            self._until = None if seconds is None else now + seconds
            self._changed.wait(seconds)
        return None

    def _paint(self, panel: Painted) -> tuple[int, float | None]:
        now = self._clock()
        try:
            painted = panel.paint(now)
        except BaseException:  # also what would end this thread in silence
            # One panel that cannot be painted takes no other one down, and fills no log.
            if panel not in self._failing:
                self._failing.add(panel)
                log.exception("a panel could not be painted")
            return 1, now + RETRY_S
        self._failing.discard(panel)
        return painted

    def join(self, timeout: float) -> bool:
        """Wait for the thread's end after the last panel has gone; whether it has ended."""
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout)
        return self._thread is None

    def orphan(self) -> None:
        """In a forked child: the thread is not here, and its locks may be held by it."""
        # Kept: collecting what the parent still uses would close it from here.
        panels = list(self._known)
        self._kept += [*panels, self._thread, self._changed]
        self._fresh()
        for panel in panels:
            panel.orphan()


painter = Painter()
"""The one of this process."""

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=painter.orphan)
