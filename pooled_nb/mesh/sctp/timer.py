"""A timer that is put off again and again, as those of an association are with each packet."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Timer:
    """Calls once when it is due. To put it off costs a store: asyncio would keep each handle in its heap.

    Attributes
    ----------
    due
        Loop time when it calls; None while it is off.
    """

    __slots__ = ("_call", "_handle", "_loop", "due")

    def __init__(self, loop: asyncio.AbstractEventLoop, call: Callable[[], None]) -> None:
        self._loop = loop
        self._call = call
        self._handle: asyncio.TimerHandle | None = None
        self.due: float | None = None

    def set(self, due: float) -> None:
        """Call at this loop time, and at no other."""
        self.due = due
        if self._handle is None:
            self._handle = self._loop.call_at(due, self._rang)
        elif due < self._handle.when():
            self._handle.cancel()
            self._handle = self._loop.call_at(due, self._rang)

    def off(self) -> None:
        """Do not call."""
        self.due = None

    def stop(self) -> None:
        """Do not call, and leave nothing in the loop."""
        self.due = None
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _rang(self) -> None:
        self._handle = None
        if self.due is None:
            return
        if self.due > self._loop.time():
            self._handle = self._loop.call_at(self.due, self._rang)
            return
        self.due = None
        self._call()
