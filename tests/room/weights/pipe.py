"""What giving stands on, without a mesh: links with a path and a window, and all that is sent over them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from pooled_nb.mesh.credit import Credit
from pooled_nb.mesh.link import packed
from pooled_nb.mesh.listener import LinkFacts
from pooled_nb.mesh.messages import Message
from pooled_nb.mesh.messages.weights import NbHash, Wpart
from pooled_nb.mesh.network import Path
from pooled_nb.mesh.wire import Priority

T = TypeVar("T")


@dataclass
class Pipe:
    """Links by the other end's id. What is large leaves at once where its credit lets it."""

    paths: dict[str, Path] = field(default_factory=dict)
    sent: list[tuple[str, Message]] = field(default_factory=list)
    windows: dict[str, Credit] = field(default_factory=dict)
    got: dict[tuple[str, str | int], bytearray] = field(default_factory=dict)
    ends: dict[tuple[str, str | int], str] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
    """What no honest device does."""
    _free: asyncio.Event = field(default_factory=asyncio.Event)

    def link(self, *ids: str, path: Path = "direct") -> None:
        """There is a fresh link to these."""
        for id in ids:
            self.paths[id], self.windows[id] = path, Credit()

    def facts(self, to: str) -> LinkFacts | None:
        path = self.paths.get(to)
        return None if path is None else LinkFacts(rtt_s=None, path=path, quiet_s=0.0)

    def send(self, to: str, message: Message) -> bool:
        if to in self.paths:
            assert packed(message)
            self.sent.append((to, message))
            if isinstance(message, Wpart):
                self._part(to, message)
        return to in self.paths

    def broadcast(self, message: Message, *, but: str | None = None) -> None:
        raise AssertionError("nothing of weights is for everybody")

    def credit(self, to: str, win: int | None) -> Credit | None:
        return Credit(win, of=self.windows[to]) if to in self.paths else None

    async def send_bulk(
        self, to: str, message: Message, priority: Priority, *, credit: Credit | None = None
    ) -> bool:
        assert priority is Priority.WEIGHTS
        assert credit is not None
        if credit.of is not self.windows[to]:
            self.faults.append("sent over another link than it was asked over")
        assert isinstance(message, Wpart)
        size = len(message.data or b"")
        credit.on_free = self._free.set
        await asyncio.sleep(0)
        while not credit.is_closed and not credit.may(size):
            self._free.clear()
            await self._free.wait()
            self._free.set()  # everybody looks
            await asyncio.sleep(0)
        if credit.is_closed or credit.of is not self.windows[to]:  # its link is over
            return False
        credit.sent(size)
        return self.send(to, message)

    def _part(self, to: str, part: Wpart) -> None:
        key = to, part.id
        if part.data is not None:
            got = self.got.setdefault(key, bytearray())
            if part.off != len(got):
                self.faults.append("out of order")
            got += part.data
        if part.done or part.miss:
            self.ends[key] = "done" if part.done else "miss"

    # -- what somebody got -------------------------------------------------------------------------

    def parts(self, to: str, id: str | int) -> list[Wpart]:
        """What was said of one range."""
        return [m for t, m in self.sent if t == to and isinstance(m, Wpart) and m.id == id]

    def data(self, to: str, id: str | int) -> bytes:
        """Its bytes."""
        return bytes(self.got.get((to, id), b""))

    def end(self, to: str, id: str | int) -> str:
        """How it ended."""
        return self.ends.get((to, id), "")

    def hashes(self, to: str) -> list[NbHash]:
        """What it was told of ranges."""
        return [m for t, m in self.sent if t == to and isinstance(m, NbHash)]


@dataclass
class Disk:
    """A `Runner` that counts what runs at a time, and holds it up while ``stuck``."""

    jobs: int = 0
    now: int = 0
    most: int = 0
    stuck: asyncio.Event | None = None

    async def __call__(self, job: Callable[[], T], /) -> T:
        self.jobs += 1
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            if self.stuck is not None:
                await self.stuck.wait()
            await asyncio.sleep(0)
            return job()
        finally:
            self.now -= 1


async def settle(turns: int = 50) -> None:
    """Let everybody have some turns of the loop; no time passes."""
    for _ in range(turns):
        await asyncio.sleep(0)
