"""The loop of the mesh thread, on every system, whatever loops the process around it prefers.

On Windows a loop must start processes (the shard) and receive datagrams (the links). Only the proactor does
both, so it is made by name: Jupyter and others set a policy for the other kind, which starts no process. Two
things about it are mended here, for this loop alone; no policy is set, nor is anything of asyncio changed.
"""

from __future__ import annotations

import asyncio
import sys
import time
from asyncio import proactor_events
from typing import TYPE_CHECKING, Any

AGAIN_S = 0.01
"""Between an error and the next datagram: a socket that always fails must not take a whole core."""

if TYPE_CHECKING:
    _Datagrams = Any
else:
    _Datagrams = proactor_events._ProactorDatagramTransport


def new_loop() -> asyncio.AbstractEventLoop:
    """Make the loop; the caller runs it in a thread of its own and closes it."""
    if sys.platform == "win32":
        return _windows_loop()
    return asyncio.new_event_loop()


class Datagrams(_Datagrams):  # type: ignore[misc]  # asyncio's own has no types
    """A datagram socket that goes on after an error.

    One packet to a port where nobody listens, which looking for a path does all the time, comes back as an
    error of the next read, and the proactor's transport reads nothing more (CPython, gh-91227, gh-127057).
    """

    def _loop_reading(self, fut: Any = None) -> None:
        super()._loop_reading(fut)
        if self._read_fut is None and not self._closing and not self._conn_lost:
            self._loop.call_later(AGAIN_S, self._again)

    def _again(self) -> None:
        if self._read_fut is None and not self._closing and not self._conn_lost:
            self._loop_reading()


def _windows_loop() -> asyncio.AbstractEventLoop:
    proactor: Any = getattr(asyncio, "ProactorEventLoop")  # noqa: B009 - it exists on Windows alone

    class MeshLoop(proactor):  # type: ignore[misc]  # for the same reason
        def __init__(self) -> None:
            super().__init__()
            # A busy loop calls timers this much early: not by the 16 ms of the clock it would have had.
            self._clock_resolution = time.get_clock_info("perf_counter").resolution

        def time(self) -> float:
            # Its own clock moves every 16 ms before Python 3.13: a round trip on a local network would be 0.
            return time.perf_counter()

        def _make_datagram_transport(
            self, sock: Any, protocol: Any, address: Any = None, waiter: Any = None, extra: Any = None
        ) -> Any:
            return Datagrams(self, sock, protocol, address, waiter, extra)

    loop: asyncio.AbstractEventLoop = MeshLoop()
    return loop
