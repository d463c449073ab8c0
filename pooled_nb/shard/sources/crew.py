"""A few threads that do tasks side by side, until all are done, one fails, or somebody stops them."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

HANDS = 4
"""Requests that are on their way at once."""
_LOOK_S = 0.1
_END_S = 2.0
"""Seconds that threads have to end; a look-up of a name cannot be broken off, and ends by itself."""

Task = Callable[[], None]


class Over(Exception):
    """The crew ends: some other task failed, or somebody stopped it. What came is kept."""


class Crew:
    """Runs tasks; the thread that calls `run` tells what they do, and hears whether it is to stop."""

    def __init__(self, stop: Callable[[], None] = lambda: None) -> None:
        self._stop = stop
        self._over = threading.Event()
        self._tasks: deque[Task] = deque()
        self._lock = threading.Lock()
        self._sockets: set[socket.socket] = set()
        self._failed: BaseException | None = None
        self._busy = 0
        self._idle = threading.Event()

    def check(self) -> None:
        """Called by tasks at every chunk.

        Raises
        ------
        Over
        """
        if self._over.is_set():
            raise Over

    def sleep(self, seconds: float) -> None:
        """Wait, or be over.

        Raises
        ------
        Over
        """
        if self._over.wait(seconds):
            raise Over

    @contextlib.contextmanager
    def reading(self, response: Any) -> Iterator[None]:
        """While a task reads a response: where the crew ends, reading ends, too, however slow the server."""
        stream = getattr(response, "extensions", {}).get("network_stream")
        found = stream.get_extra_info("socket") if stream is not None else None
        if not isinstance(found, socket.socket):
            yield
            return
        with self._lock:
            self._sockets.add(found)
        try:
            self.check()
            yield
        finally:
            with self._lock:
                self._sockets.discard(found)

    def add(self, task: Task) -> None:
        """Put a task at the end; tasks may do so, too."""
        with self._lock:
            self._tasks.append(task)

    def run(self, tasks: Iterable[Task], tell: Callable[[], None] = lambda: None) -> None:
        """Do all of them.

        Raises
        ------
        BaseException
            What ``stop`` raised, or the first task that failed; all threads have ended, or end soon.
        """
        self._tasks.extend(tasks)
        count = min(HANDS, max(1, len(self._tasks)))
        threads = [
            threading.Thread(target=self._work, name=f"pooled-fetch-{i}", daemon=True) for i in range(count)
        ]
        self._busy = count
        try:
            self._stop()
            for thread in threads:
                thread.start()
            while not self._idle.wait(_LOOK_S):
                self._stop()
                tell()
        finally:
            self._end(threads)
        if self._failed is not None:
            raise self._failed

    def _end(self, threads: list[threading.Thread]) -> None:
        self._over.set()
        with self._lock:
            self._tasks.clear()
            for one in self._sockets:
                with contextlib.suppress(OSError):
                    # An SSLSocket's own would also take TLS off: whoever reads it would then get ciphertext.
                    socket.socket.shutdown(one, socket.SHUT_RDWR)
        end = time.monotonic() + _END_S
        for thread in threads:
            if thread.ident is not None:
                thread.join(max(0.0, end - time.monotonic()))

    def _work(self) -> None:
        try:
            while not self._over.is_set() and (task := self._next()) is not None:
                task()
        except BaseException as error:
            with self._lock:
                if not self._over.is_set():  # what comes after is of sockets that were cut
                    self._failed = error
                    self._over.set()
        with self._lock:
            self._busy -= 1
            if not self._busy or self._over.is_set():
                self._idle.set()

    def _next(self) -> Task | None:
        with self._lock:
            return self._tasks.popleft() if self._tasks else None
