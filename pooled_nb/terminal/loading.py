"""A wait in a terminal: how far the room is, and below it a bar for each device that loads."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct
from rich.cells import set_cell_size

from pooled_nb.plain import visible
from pooled_nb.progress import EVERY_S, PlainWaiting, Waiting
from pooled_nb.room.core import DeviceLine
from pooled_nb.room.sentences import layer_range

NAME = 24
"""Columns of a device's name."""
MAX_BARS = 12
"""Devices with a bar of their own: a terminal has few lines."""

Devices = Callable[[], Sequence[DeviceLine]]
Own = Callable[[], str]
"""What this device's own load does, in words; empty: nothing."""


class Bar(Struct, frozen=True):
    """One line. ``percent`` None: not known."""

    words: str
    percent: int | None


def bars(percent: int | None, words: str, devices: Sequence[DeviceLine], own: str = "") -> list[Bar]:
    """The room's own line, then its devices where more than one of them loads; ``own``: see `Own`."""
    devices = [device for device in devices if not device.gone]
    loading = [device for device in devices if device.progress is not None]
    lines = [Bar(visible(words), percent)]
    if not loading:
        return lines
    # Who is done already stays on the screen beside those who are not.
    loading = [device for device in devices if device.progress is not None or device.layers is not None]
    if len(loading) < 2:
        return [Bar(visible(own), percent)] if own else lines
    lines = [Bar("loading", percent)]  # the room's words name the same devices
    for device in loading[:MAX_BARS]:
        name = set_cell_size(visible(device.name), NAME)
        held = f"  layers {layer_range(*device.layers)}" if device.layers else ""
        held += f"  {visible(own)}" if own and device.me else ""
        lines.append(Bar(f"  {name}{held}", 100 if device.progress is None else device.progress))
    if len(loading) > MAX_BARS:
        lines.append(Bar(f"  and {len(loading) - MAX_BARS} more", None))
    return lines


class RoomWaiting(Waiting):
    """Bars on stderr, which go away when the wait is over."""

    def __init__(self, words: str, devices: Devices, own: Own) -> None:
        super().__init__(words)
        self._devices, self._own = devices, own
        self._said: tuple[int | None, str] = (None, words)
        self._next = 0.0
        self._progress: Any = None
        self._tasks: list[Any] = []

    def report(self, percent: int | None, words: str) -> None:
        """See `Waiting.report`."""
        self._said = (percent, words or self._said[1])

    def tick(self) -> None:
        """See `Waiting.tick`. A device may have got further while the words are the same."""
        now = time.monotonic()
        if now >= self._next:
            self._next = now + EVERY_S
            self._draw(bars(*self._said, self._devices(), self._own()))

    def _draw(self, wanted: Sequence[Bar]) -> None:
        progress = self._started()
        while len(self._tasks) > len(wanted):
            progress.remove_task(self._tasks.pop())
        for at, line in enumerate(wanted):
            if at == len(self._tasks):
                self._tasks.append(progress.add_task(line.words, total=None, share=""))
            progress.update(
                self._tasks[at],
                description=line.words,
                total=None if line.percent is None else 100,
                completed=line.percent or 0,
                share="" if line.percent is None else f"{line.percent:3d} %",
            )

    def _started(self) -> Any:
        if self._progress is None:
            from rich.console import Console
            from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn

            self._progress = Progress(
                SpinnerColumn(),
                TextColumn("{task.description}", markup=False),
                BarColumn(bar_width=24),
                TextColumn("{task.fields[share]}", markup=False),
                console=Console(stderr=True),
                transient=True,
            )
            self._progress.start()
        return self._progress

    def remark(self, words: str) -> None:
        """See `Waiting.remark`."""
        self.close()
        print(f"\n[{visible(words)}]", file=sys.stderr, flush=True)

    def close(self) -> None:
        """See `Waiting.close`."""
        if self._progress is not None:
            self._progress.stop()
            self._progress, self._tasks = None, []


def wait(words: str, devices: Devices = list, own: Own = str) -> Waiting:
    """The right one for where standard error goes."""
    bars = sys.stderr is not None and sys.stderr.isatty()
    return RoomWaiting(words, devices, own) if bars else PlainWaiting(words)
