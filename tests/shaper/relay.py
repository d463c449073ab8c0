"""A UDP relay: paths between two ends each, and a line for each direction (`tests.shaper.line`).

Either end of a path is told an address of the relay's as the other's. It runs in a thread of its own, meant
for a process of its own (`tests.shaper.program`), so that it does not disturb the loops under test.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

import msgspec

from tests.shaper.candidates import Address
from tests.shaper.line import Line, LineSettings
from tests.shaper.paths import Befalls, End, Path, Where

T = TypeVar("T")

LARGEST = 4_096
"""Bytes of the largest datagram: no stack of WebRTC sends more than an Ethernet frame holds."""
AT_ONCE = 64
"""Datagrams of one socket that are read before the others have their turn."""
IDLE_S = 60.0
"""A path that was used, and carried nothing for so long, is closed when another is opened: ICE's checks of
consent come every 5 s (RFC 7675)."""
LOOPBACK = "127.0.0.2"
"""Where a path listens whose end is not known yet; WebRTC stacks skip 127.0.0.1."""


class Relay:
    """Use its methods from any thread but its own; each is done when it returns."""

    def __init__(self, seed: int = 0, settings: LineSettings = LineSettings()) -> None:  # noqa: B008
        self._seed = seed
        self._told: list[Befalls] = [Befalls(where=Where(), what="settings", settings=settings)]
        self._paths: dict[int, Path] = {}
        self._opened = 0
        self._closed_paths: list[Path] = []
        """Without sockets: what they did still counts."""
        # On few sockets this one is quick, and its time-outs are finer than a millisecond.
        self._selector = selectors.SelectSelector()
        self._calls: deque[Callable[[], None]] = deque()
        self._ours, self._wake = socket.socketpair()
        self._ours.setblocking(False)
        self._selector.register(self._ours, selectors.EVENT_READ)
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="relay", daemon=True)
        self._thread.start()

    def open(
        self,
        a: Address | None,
        b: Address | None = None,
        *,
        names: tuple[str, str] = ("a", "b"),
        label: str = "",
    ) -> Path:
        """A path between two ends; where one of them is may be said later (`place`)."""
        return self._call(lambda: self._open(a, b, names, label))

    def place(self, path: Path, *, a: Address | None = None, b: Address | None = None) -> None:
        """Say where an end is."""

        def do() -> None:
            path.a.at, path.b.at = a or path.a.at, b or path.b.at

        self._call(do)

    def path(self, number: int) -> Path:
        """Raises KeyError."""
        return self._call(lambda: self._paths[number])

    def change(self, settings: LineSettings, where: Where = Where()) -> None:  # noqa: B008
        """Lines have these settings from now on, for what comes."""
        self._call(lambda: self._tell(Befalls(where=where, what="settings", settings=settings)))

    def freeze(self, seconds: float, where: Where = Where()) -> None:  # noqa: B008
        """Lines let nothing out for so long; 0 thaws them."""
        until = time.monotonic() + seconds
        self._call(lambda: self._tell(Befalls(where=where, what="freeze", until=until)))

    def swallow(self, seconds: float, where: Where = Where()) -> None:  # noqa: B008
        """Lines are black holes for so long; 0 ends it."""
        until = time.monotonic() + seconds
        self._call(lambda: self._tell(Befalls(where=where, what="swallow", until=until)))

    def counts(self, where: Where = Where()) -> list[dict[str, object]]:  # noqa: B008
        """Of each line: its path, label, who sends and who receives, and its `Counts`."""
        return self._call(lambda: self._counts(where))

    def close(self) -> None:
        """End its thread, and close every path."""
        if not self._closed:
            self._call(self._end)
            self._thread.join()

    # -- in the relay's thread ---------------------------------------------------------------------

    def _call(self, do: Callable[[], T]) -> T:
        done: Future[T] = Future()

        def run() -> None:
            try:
                done.set_result(do())
            except Exception as error:
                done.set_exception(error)

        self._calls.append(run)
        self._wake.send(b"\0")
        return done.result(10)

    def _open(self, a: Address | None, b: Address | None, names: tuple[str, str], label: str) -> Path:
        now = time.monotonic()
        for old in list(self._paths.values()):
            if (last := max(end.last for end in old.ends)) and now - last > IDLE_S:
                self._shut(old)
        number, self._opened = self._opened, self._opened + 1
        ends: list[End] = []
        for name, at in zip(names, (a, b), strict=True):
            ear = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            ear.setblocking(False)
            ear.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
            ear.bind(((at or a or (LOOPBACK, 0))[0], 0))
            ends.append(End(name, at, ear, Line(f"{self._seed} {number} {len(ends)}")))
        path = self._paths[number] = Path(number, label, *ends)
        for end in path.ends:
            self._selector.register(end.socket, selectors.EVENT_READ, end)
        for told in self._told:
            path.tell(told)
        return path

    def _tell(self, told: Befalls) -> None:
        now = time.monotonic()
        over = [old for old in self._told if old.what != "settings" and old.until <= now]
        # What is over, or said anew of the same lines, is forgotten: a long run changes its lines often.
        self._told = [
            old for old in self._told if old not in over and (old.what, old.where) != (told.what, told.where)
        ] + [told]
        for path in self._paths.values():
            path.tell(told)

    def _counts(self, where: Where) -> list[dict[str, object]]:
        return [
            {
                "path": path.number,
                "label": path.label,
                "src": end.name,
                "dst": other.name,
                **msgspec.to_builtins(end.line.counts),
            }
            for path in [*self._closed_paths, *self._paths.values()]
            for end, other in (path.ends, path.ends[::-1])
            if path.is_meant(end, where)
        ]

    def _run(self) -> None:
        while not self._closed:
            for path in self._paths.values():
                self._send(path)
            nexts = [at for p in self._paths.values() for e in p.ends if (at := e.line.next) is not None]
            wait = max(0.0, min(nexts) - time.monotonic()) if nexts else None
            for key, _ in self._selector.select(wait):
                if key.data is None:
                    self._do()
                else:
                    self._read(key.data)

    def _do(self) -> None:
        with contextlib.suppress(BlockingIOError):
            self._ours.recv(4_096)
        while self._calls:
            self._calls.popleft()()

    @staticmethod
    def _read(end: End) -> None:
        for _ in range(AT_ONCE):
            try:
                data = end.socket.recv(LARGEST)
            except OSError:  # nothing more; or what it sent to is closed by now, or it is itself
                return
            end.last = time.monotonic()
            end.line.put(data, len(data), end.last)

    @staticmethod
    def _send(path: Path) -> None:
        now = time.monotonic()
        for end, other in (path.ends, path.ends[::-1]):
            for data in end.line.take(now):
                if other.at is not None:
                    with contextlib.suppress(OSError):
                        other.socket.sendto(data, other.at)

    def _shut(self, path: Path) -> None:
        self._closed_paths.append(self._paths.pop(path.number))
        for end in path.ends:
            self._selector.unregister(end.socket)
            end.socket.close()

    def _end(self) -> None:
        self._closed = True
        for path in list(self._paths.values()):
            self._shut(path)
        self._selector.close()
        self._ours.close()
        self._wake.close()
