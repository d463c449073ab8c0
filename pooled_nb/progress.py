"""A wait that shows how far it is: one display that is updated in place in a notebook, a bar in a terminal.

The room reports from the mesh thread; what is shown is drawn by the thread that waits, so that it
lands in the cell that asked and in no other (DESIGN section 7).
"""

from __future__ import annotations

import sys
import threading
import time
from types import TracebackType
from typing import Any

from pooled_nb._notebook import in_notebook as in_notebook
from pooled_nb.counted import still
from pooled_nb.output import NOTHING, Output
from pooled_nb.plain import visible
from pooled_nb.show import line_bundle

EVERY_S = 0.1
"""A display is redrawn at most this often: the server drops all output above 1,000 messages a second."""
BYTES_PER_S = 200_000
"""A display that has grown is sent whole each time, and so the more seldom: at most this much."""


class Waiting:
    """Shows nothing. The base of what shows something; used with ``with``."""

    def __init__(self, words: str = "") -> None:
        self._words = words
        self._now: tuple[int | None, str] = (None, words)
        self._drawn: object = None
        self._due = 0.0
        self._noted = ""

    @property
    def reads(self) -> bool:
        """Whether it shows what is reported; a long text is not put together for nothing."""
        return True

    def report(self, percent: int | None, words: str) -> None:
        """Take what the room says; from any thread."""
        self._now = (percent, words or self._words)

    def tick(self) -> None:
        """Draw it if it has changed; by the thread that waits."""
        now = time.monotonic()
        if self._now != self._drawn and now >= self._due:
            self._drawn = self._now
            self._due = now + max(EVERY_S, (self.draw(*self._now) or 0) / BYTES_PER_S)

    def draw(self, percent: int | None, words: str) -> int | None:
        """Show percent (None: not known) and words; the bytes that were sent somewhere for it."""

    def note(self, words: str) -> None:
        """Say something amid text that is printed meanwhile; the same words in a row are said once.

        So are words in which only the seconds go on.
        """
        if words and still(words) != still(self._noted):
            self.remark(words)
        self._noted = words

    def remark(self, words: str) -> None:
        """Say one thing, on a line of its own."""

    def finish(self, bundle: dict[str, str]) -> bool:
        """Leave this in place of the wait; whether it could be shown."""
        return False

    def close(self) -> None:
        """Take down whatever moves."""

    def __enter__(self) -> Waiting:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class NotebookWaiting(Waiting):
    """One output of the running cell, updated in place."""

    def __init__(self, words: str = "") -> None:
        super().__init__(words)
        self.output = Output()
        self._finished = False

    def draw(self, percent: int | None, words: str) -> int:
        """See `Waiting.draw`."""
        bundle = line_bundle(words if percent is None else f"{bar(percent)} {percent:3d} %  {words}")
        self.output.show(bundle)
        return sum(len(text.encode(errors="replace")) for text in bundle.values())

    def finish(self, bundle: dict[str, str]) -> bool:
        """See `Waiting.finish`."""
        self.output.show(bundle)
        self._finished = True
        return True

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, trace)
        if error is not None and self.output.shown and not self._finished:
            # The error says why; a bar that stays would say that something still goes on.
            self.output.show(NOTHING)


class TerminalWaiting(Waiting):
    """A bar on stderr that goes away when the wait is over."""

    _progress: Any = None

    def draw(self, percent: int | None, words: str) -> None:
        """See `Waiting.draw`."""
        words = visible(words)
        if self._progress is None:
            from rich.console import Console
            from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn

            self._progress = Progress(
                SpinnerColumn(),
                TextColumn("{task.description}", markup=False),
                BarColumn(bar_width=24),
                console=Console(stderr=True),
                transient=True,
            )
            self._progress.start()
            self._task = self._progress.add_task(words, total=None)
        self._progress.update(
            self._task, description=words, total=None if percent is None else 100, completed=percent or 0
        )

    def remark(self, words: str) -> None:
        """See `Waiting.remark`."""
        self.close()
        print(f"\n[{visible(words)}]", file=sys.stderr, flush=True)

    def close(self) -> None:
        """See `Waiting.close`."""
        if self._progress is not None:
            self._progress.stop()
            self._progress = None


class PlainWaiting(Waiting):
    """A line on stderr whenever the words change, their seconds aside: for a log, or a pipe."""

    _said = ""

    def draw(self, percent: int | None, words: str) -> None:
        """See `Waiting.draw`."""
        words = visible(words)
        if still(words) != still(self._said):
            print(words, file=sys.stderr, flush=True)
        self._said = words

    def remark(self, words: str) -> None:
        """See `Waiting.remark`."""
        print(f"[{visible(words)}]", file=sys.stderr, flush=True)


def bar(percent: int, width: int = 20) -> str:
    """``████░░░░`` of a fixed width."""
    full = round(max(0, min(100, percent)) / 100 * width)
    return "█" * full + "░" * (width - full)


def waiting(words: str, *, quiet: bool = False) -> Waiting:
    """The right display for where this is called from; none from another thread than the main one."""
    if quiet or threading.current_thread() is not threading.main_thread():
        return Waiting(words)
    if in_notebook():
        return NotebookWaiting(words)
    if sys.stderr is not None and sys.stderr.isatty():
        return TerminalWaiting(words)
    return Waiting(words)
