"""Hashes of what a host holds, for devices that ask before they take it elsewhere (``nb-hash``)."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections import deque
from collections.abc import Callable
from functools import partial

from pooled_nb.errors import PooledError
from pooled_nb.room.weights.hashes import MOST_BY_ONE, Span
from pooled_nb.room.weights.inventory import covers
from pooled_nb.room.weights.runner import Runner
from pooled_nb.room.weights.urls import split
from pooled_nb.shard import Holdings

log = logging.getLogger(__name__)

STEP = 4 << 20
"""Bytes that are read and hashed at a time."""
JOBS = 2
"""Ranges that are hashed at a time, of one device one."""


class Hashing:
    """Actor: hashes ranges that are here, one after the other for each device that asks.

    Parameters
    ----------
    holdings
        None: there is nothing.
    most
        Bytes that are read for one device in all.
    told
        Hears who asked for what, and what it is; empty: it is `known` by now, or not here; None: it is
        not looked up, since that device asked for so much.
    """

    def __init__(
        self,
        *,
        holdings: Holdings | None,
        runner: Runner,
        most: int,
        known: Callable[[Span], bool],
        told: Callable[[str, Span, str | None], None],
    ) -> None:
        self._holdings, self._run, self._most = holdings, runner, most
        self._known, self._told = known, told
        self._waiting: dict[str, deque[Span]] = {}
        self._asked: dict[str, int] = {}
        self._bytes: dict[str, int] = {}
        self._turns = asyncio.Semaphore(JOBS)
        self._tasks: set[asyncio.Task[None]] = set()

    def asked(self, sender: str, span: Span) -> None:
        """A device wants to know what a range is."""
        asked = self._asked[sender] = self._asked.get(sender, 0) + 1
        read = self._bytes.get(sender, 0) + span.hi - span.lo
        if self._holdings is None:
            self._told(sender, span, "")
            return
        if asked > MOST_BY_ONE or read > self._most:
            self._told(sender, span, None)
            return
        self._bytes[sender] = read
        if (line := self._waiting.get(sender)) is not None:
            line.append(span)
            return
        self._waiting[sender] = deque([span])
        task = asyncio.get_running_loop().create_task(self._work(sender), name="pooled-hash")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def left(self, id: str) -> None:
        """A device is gone: nothing is hashed for it any more."""
        if line := self._waiting.get(id):
            line.clear()
        self._asked.pop(id, None)
        self._bytes.pop(id, None)

    async def close(self) -> None:
        """The room is over. A piece of a file that is read is waited for."""
        for id in list(self._waiting):
            self.left(id)
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _work(self, sender: str) -> None:
        line = self._waiting[sender]
        try:
            while line:
                span = line[0]
                async with self._turns:
                    sha256 = "" if not line or self._known(span) else await self._sum(span, line)
                if line and line[0] is span:
                    line.popleft()
                    self._told(sender, span, sha256)
        finally:
            del self._waiting[sender]

    async def _sum(self, span: Span, line: deque[Span]) -> str:
        """The hash of a range; empty where it is not here, or nobody waits for it any more."""
        holdings, file = self._holdings, split(span.url)
        if holdings is None or file is None:
            return ""
        found = hashlib.sha256()

        def begin() -> str | None:
            here = covers(holdings.have(*file), span.lo, span.hi)
            return holdings.sha256(*file, span.lo, span.hi) if here else None

        def step(lo: int, hi: int) -> None:
            found.update(holdings.read(*file, lo, hi))

        try:
            known = await self._run(begin)
            if known is None or known:
                return known or ""
            for lo in range(span.lo, span.hi, STEP):
                if not line:
                    return ""
                await self._run(partial(step, lo, min(lo + STEP, span.hi)))
        except Exception as error:  # what a disk says, or a file that is gone: who asked is answered
            log.log(logging.INFO if isinstance(error, PooledError) else logging.WARNING, "no hash: %s", error)
            return ""
        return found.hexdigest()
