"""Stopping a job that nobody waits for any more: loading and fetching look whether they are to go on.

Only jobs that leave nothing half done may be stopped: `Shard.inspect`, `Shard.missing` and `Shard.load`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

Stop = Callable[[], None]
"""Called often by what takes long, a few times a second at least: it raises `Stopped` where the job is to
end. What was fetched so far is kept."""


class Stopped(BaseException):
    """A job was stopped. No `Exception`: libraries that try again, or go on without, must not take it."""


class Stops:
    """Which jobs are to end. Asked for by one thread, looked at by the one that works."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._asked: set[int] = set()
        self._ended = 0
        """Number of the job that ended last: they run in the order of their numbers."""

    def ask(self, number: int) -> None:
        """Let a job end, whether it runs or waits; one that has ended is left alone."""
        with self._lock:
            if number > self._ended:
                self._asked.add(number)

    def of(self, number: int) -> Stop:
        """What the job of this number calls."""

        def stop() -> None:
            if number in self._asked:
                raise Stopped

        return stop

    def ended(self, number: int) -> None:
        """Note that a job has ended."""
        with self._lock:
            self._ended = number
            self._asked.discard(number)


def never() -> None:
    """Go on: for jobs that nobody stops."""
