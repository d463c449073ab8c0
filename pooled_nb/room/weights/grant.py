"""One range that is given to one device, from the first part to the last acknowledgement (``ai-wpart``)."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from pooled_nb.errors import PooledError
from pooled_nb.mesh.clock import Clock, Timer
from pooled_nb.mesh.credit import Credit
from pooled_nb.mesh.listener import LinkFacts
from pooled_nb.mesh.messages import Message
from pooled_nb.mesh.messages.weights import Wack, Wpart
from pooled_nb.mesh.wire import Priority
from pooled_nb.room.weights.hashes import Span
from pooled_nb.room.weights.inventory import covers
from pooled_nb.room.weights.runner import Runner
from pooled_nb.room.weights.urls import ModelFile
from pooled_nb.shard import Holdings

log = logging.getLogger(__name__)

AHEAD = 1 << 20
"""Bytes that are read at a time where one range of a link is given; where more are, each reads less."""
STALL_S = 30.0
"""Seconds after which a range ends of which nothing more was acknowledged: twice what the other end waits."""


class Out(Protocol):
    """What giving needs of the mesh; see `pooled_nb.mesh.mesh.Mesh`."""

    def send(self, to: str, message: Message) -> bool:
        """One control message."""

    def facts(self, to: str) -> LinkFacts | None:
        """What is known of a link; None: there is none."""

    def credit(self, to: str, win: int | None) -> Credit | None:
        """What one range may have on its way; None: there is no link."""

    async def send_bulk(
        self, to: str, message: Message, priority: Priority, *, credit: Credit | None = None
    ) -> bool:
        """A large message, once there is room; False: its link or its range is over."""


class Vouches(Protocol):
    """The host's word for bytes that it gives."""

    def knows(self, span: Span) -> bool:
        """Whether it has said what exactly these bytes of its own are."""

    def gives(self, to: str, span: Span, sha256: str) -> None:
        """A device is about to have all of a range, which is this; empty where it `knows` it."""


@dataclass(frozen=True, slots=True)
class Disk:
    """Who may read it when: one job of each link, and few of all."""

    run: Runner
    link: asyncio.Lock
    all: asyncio.Semaphore


class Grant:
    """Actor for one range. Made by `Giving`, which runs it.

    Parameters
    ----------
    id
        The asking device's name for it.
    may
        Whether it may still be given.
    share
        Among how many ranges of this link the memory for what is read ahead is shared.
    on_sent
        Hears of bytes that were handed over.

    Attributes
    ----------
    sent
        All of it was handed over, and the last acknowledgements are waited for.
    """

    def __init__(
        self,
        to: str,
        id: str | int,
        *,
        file: ModelFile,
        span: Span,
        credit: Credit,
        out: Out,
        clock: Clock,
        holdings: Holdings,
        disk: Disk,
        may: Callable[[], bool],
        share: Callable[[], int],
        on_sent: Callable[[int], None],
        vouches: Vouches | None,
    ) -> None:
        self.to, self.id, self.sent = to, id, False
        self._file, self._span, self._credit = file, span, credit
        self._out, self._clock, self._holdings, self._disk = out, clock, holdings, disk
        self._may, self._share, self._on_sent, self._vouches = may, share, on_sent, vouches
        self._at = self._acknowledged = 0
        self._sum: hashlib._Hash | None = None
        self._sha256 = ""
        self._over = asyncio.Event()
        self._timer: Timer | None = None

    async def run(self) -> None:
        """Give it. Never raises."""
        self._watch()
        try:
            if await self._parts():
                self._vouch()
                self.sent = await self._put(Wpart(id=self.id, off=self._at, done=True))
                if self.sent and self._credit.unacknowledged:
                    await self._over.wait()
        except Exception as error:  # what a disk says, or a file that is gone: who asked goes elsewhere
            log.log(
                logging.INFO if isinstance(error, PooledError) else logging.WARNING, "no weights: %s", error
            )
        self.miss()

    def acknowledged(self, message: Wack) -> None:
        """The other end has got on, or wants no more."""
        if message.got is not None:
            self._credit.acknowledged(message.got)
        if message.cancel or (self.sent and not self._credit.unacknowledged):
            self.end()

    def look(self) -> None:
        """Something changed: end it where it may be given no more."""
        if not self._goes_on():
            self.miss()

    def miss(self) -> None:
        """End it before its end, and say so. Nothing where it has ended."""
        if not self._over.is_set():
            self.end()
            if not self.sent:
                self._out.send(self.to, Wpart(id=self.id, miss=True))

    def end(self) -> None:
        """End it. What is read for it meanwhile goes nowhere."""
        self._over.set()
        self._credit.close()
        if self._timer is not None:
            self._timer.cancel()

    # -- inside ------------------------------------------------------------------------------------

    async def _parts(self) -> bool:
        """Send all of it; False: it ended before, or is not here."""
        _, lo, hi = self._span
        part = self._credit.part
        while lo + self._at < hi:
            start = lo + self._at
            data = await self._read(start, min(hi, start + max(part, AHEAD // self._share())))
            for off in range(0, len(data), part):
                piece = data[off : off + part]
                if not await self._put(Wpart(id=self.id, off=self._at, data=piece)):
                    return False
                self._at += len(piece)
                self._on_sent(len(piece))
            if not data:
                return False
        return self._goes_on()

    async def _put(self, message: Wpart) -> bool:
        return self._goes_on() and await self._out.send_bulk(
            self.to, message, Priority.WEIGHTS, credit=self._credit
        )

    async def _read(self, lo: int, hi: int) -> bytes:
        """Bytes of the file; none where they are not here, or not wanted any more."""
        async with self._disk.link:
            if not self._goes_on():
                return b""
            hashes = self._vouches is not None and not self._vouches.knows(self._span)
            async with self._disk.all:
                data = await self._disk.run(lambda: self._look_up(lo, hi, hashes=hashes))
        return data if len(data) == hi - lo else b""

    def _look_up(self, lo: int, hi: int, *, hashes: bool) -> bytes:
        """In a thread."""
        holdings, span = self._holdings, self._span
        if lo == span.lo:
            if not covers(holdings.have(*self._file), span.lo, span.hi):
                return b""
            if hashes:
                self._sha256 = holdings.sha256(*self._file, span.lo, span.hi)
                self._sum = None if self._sha256 else hashlib.sha256()
        data = holdings.read(*self._file, lo, hi)
        if self._sum is not None:
            self._sum.update(data)
        return data

    def _goes_on(self) -> bool:
        """Whether it is wanted and may be given, over the very link that it was asked over."""
        if self._over.is_set() or self._credit.is_closed or not self._may():
            return False
        now = self._out.credit(self.to, None)
        return now is not None and now.of is self._credit.of

    def _vouch(self) -> None:
        """Before the end is said: control messages pass what is large."""
        if self._vouches is not None:
            own = self._sum.hexdigest() if self._sum is not None else self._sha256
            self._vouches.gives(self.to, self._span, own)

    def _watch(self) -> None:
        """End it where nobody acknowledges it: the memory that it holds is for others."""

        def look() -> None:
            before, self._acknowledged = self._acknowledged, self._at - self._credit.unacknowledged
            if self._credit.unacknowledged and self._acknowledged == before:
                self.miss()
            elif not self._over.is_set():
                self._watch()

        self._timer = self._clock.call_later(STALL_S, look)
