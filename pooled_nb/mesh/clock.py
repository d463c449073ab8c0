"""Time, as everything in the mesh and the room sees it.

Monotonic seconds; wall time never enters (a clock set an hour back moves no timer).
The simulator replaces this and the network, nothing else (DESIGN section 2).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

SOON = 0.001
"""Seconds that a timer may come too early by: clocks round."""


class Timer(Protocol):
    """A callback that waits for its time."""

    def cancel(self) -> None:
        """Make it never fire. Does nothing when it has fired."""


class Clock(Protocol):
    """Monotonic seconds, and waiting for them."""

    def now(self) -> float:
        """Seconds from an arbitrary start; never goes back."""

    def call_later(self, delay: float, callback: Callable[[], None]) -> Timer:
        """Call ``callback`` on the mesh loop after ``delay`` seconds."""

    async def sleep(self, delay: float) -> None:
        """Wait ``delay`` seconds."""


class LoopClock:
    """The running asyncio loop's own clock."""

    def __init__(self, loop: asyncio.AbstractEventLoop | None = None) -> None:
        self._loop = loop or asyncio.get_running_loop()

    def now(self) -> float:
        """See `Clock.now`."""
        return self._loop.time()

    def call_later(self, delay: float, callback: Callable[[], None]) -> Timer:
        """See `Clock.call_later`."""
        return self._loop.call_later(delay, callback)

    async def sleep(self, delay: float) -> None:
        """See `Clock.sleep`."""
        await asyncio.sleep(delay)
