"""Takes pieces of the model from other devices, as an actor (PROTOCOL section 6, ``ai-wget``).

Of each piece there is one request at a time. What comes is written by a thread and then acknowledged, so
that no more waits in memory than the window allows. A request that ends before all of it is here leaves what
came for the next source; what is wrong is thrown away.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from itertools import count

from pooled_nb.mesh.clock import Clock, Timer
from pooled_nb.mesh.liveness import LATE_S
from pooled_nb.mesh.messages.weights import Wack, Wget, Wpart
from pooled_nb.room.outbox import Outbox
from pooled_nb.room.weights.parts import Parts
from pooled_nb.room.weights.runner import Runner
from pooled_nb.shard import Incoming, Piece

log = logging.getLogger(__name__)

STALL_S = 15.0
"""Seconds without a byte after which another source is asked (PROTOCOL section 6)."""
WIN = 4 << 20
"""Bytes of one piece that may come unacknowledged: two of them fill what a link carries (`credit.WINDOW`),
and one keeps a link of 40 MB/s and 100 ms busy."""
ACK = 1 << 20
"""Bytes after which the other end is told what was taken."""
ACK_S = 5.0
"""Seconds after which it is told all the same: over a slow link it would take this device for gone."""
WRONG = "its bytes are not those that the room's host knows"


class How(Enum):
    """How taking a piece ended."""

    HERE = "here"
    """Whole, checked, kept."""
    ELSEWHERE = "elsewhere"
    """It came otherwise meanwhile, or another kernel of this machine is fetching it."""
    MISS = "miss"
    """The device has it not, or gives it not."""
    STALLED = "stalled"
    GONE = "gone"
    """The link broke, or there is none."""
    BAD = "bad"
    """What came was wrong: the device is to give nothing more."""


@dataclass(frozen=True, slots=True)
class Taken:
    """How it ended, and ``why`` where something was wrong."""

    how: How
    why: str = ""


@dataclass(frozen=True, slots=True)
class Order:
    """One piece, and all that has to be known to take it.

    Attributes
    ----------
    begin
        Opens where it goes (`Holdings.take`); called in a thread.
    sha256
        Gives the hash of the whole piece, once it is here; empty: nobody vouches for it. What a host gives it
        vouches for while it gives it.
    on_bytes
        Hears how many bytes of it are here now.
    """

    device: str
    url: str
    piece: Piece
    sha256: Callable[[], Awaitable[str]]
    begin: Callable[[], Incoming | None]
    on_bytes: Callable[[int], None]


@dataclass(slots=True, eq=False)
class _Request:
    """One piece that is being taken; ``parts`` of the request that runs, if one does."""

    order: Order
    parts: Parts | None = None
    came: asyncio.Event = field(default_factory=asyncio.Event)
    waiting: list[bytes] = field(default_factory=list)
    ended: How | None = None
    """Why no more is waited for, apart from what the device says."""
    stopped: bool = False
    writes: bool = False
    """This device is the one that is slow now: nobody is judged meanwhile."""
    timer: Timer | None = None


class Taking:
    """Requests of this device, by their number.

    Parameters
    ----------
    outbox
        The mesh.
    run
        Calls what reads or writes the disk, off the loop.
    """

    def __init__(self, *, outbox: Outbox, clock: Clock, run: Runner) -> None:
        self._outbox, self._clock, self._run = outbox, clock, run
        self._requests: dict[int, _Request] = {}
        self._numbers = count(1)
        self._jobs: set[asyncio.Task[Taken]] = set()

    # -- what others say ---------------------------------------------------------------------------

    def heard(self, sender: str, part: Wpart) -> None:
        """A part of something; one of a request that is over, or from another device, is nothing."""
        request = self._requests.get(part.id) if isinstance(part.id, int) else None
        parts = request.parts if request else None
        if request is None or parts is None or request.order.device != sender:
            return
        before = parts.got
        if data := parts.heard(part):
            request.waiting.append(data)
        if parts.over or parts.got > before:
            self._watch(request)
            request.came.set()

    def gone(self, device: str) -> None:
        """The link to a device ended: what it was asked for comes no more."""
        for request in list(self._requests.values()):
            if request.order.device == device:
                self._end(request, How.GONE)

    # -- taking ------------------------------------------------------------------------------------

    async def take(self, order: Order) -> Taken:
        """Take a piece; whoever cancels it keeps what came for the next try.

        Raises
        ------
        ModelNotFound
            It cannot be written, in words.
        """
        request = _Request(order)
        job = asyncio.create_task(self._take(request), name="pooled-take")
        self._jobs.add(job)
        job.add_done_callback(self._jobs.discard)
        try:
            return await asyncio.shield(job)
        except asyncio.CancelledError:
            # A thread that writes cannot be stopped: the piece is let go of once it is through.
            request.stopped = True
            request.came.set()
            await asyncio.wait([job])
            raise

    async def close(self) -> None:
        """Wait until every piece was let go of."""
        if self._jobs:
            await asyncio.wait(set(self._jobs))

    async def _take(self, request: _Request) -> Taken:
        order, anew = request.order, False
        while True:
            incoming = await self._run(order.begin)
            if incoming is None:
                return Taken(How.ELSEWHERE)
            try:
                if anew and incoming.at:
                    await self._run(incoming.begin_again)
                begun = incoming.at
                taken = await self._fill(request, incoming)
            except BaseException:
                await self._run(incoming.keep)
                raise
            if taken.how is not How.HERE:
                await self._run(incoming.drop if taken.how is How.BAD else incoming.keep)
                return taken
            sha256 = await self._hash(request, incoming)
            if not sha256:
                return Taken(How.MISS)
            if await self._run(partial(incoming.finish, sha256)):
                return taken
            if not begun:
                return Taken(How.BAD, WRONG)
            anew = True  # two sources are in it: nobody is blamed before it is all of one

    async def _hash(self, request: _Request, incoming: Incoming) -> str:
        """What the piece must be; empty: nobody says it, and what came is of no use."""
        sha256 = ""
        try:
            sha256 = await request.order.sha256()
        finally:
            if not sha256:
                await self._run(incoming.drop)
        return sha256

    async def _fill(self, request: _Request, incoming: Incoming) -> Taken:
        """Ask for the rest of a piece, and write what comes."""
        order, begun = request.order, incoming.at
        piece = order.piece
        order.on_bytes(begun)
        size = piece.hi - piece.lo - begun
        if size <= 0:
            return Taken(How.HERE)
        parts = request.parts = Parts(size, WIN)
        request.waiting, request.ended = [], None
        number = next(self._numbers)
        self._requests[number] = request
        wget = Wget(id=number, url=order.url, lo=piece.lo + begun, hi=piece.hi - 1, win=WIN)
        written = told = 0
        told_at = self._clock.now()
        try:
            if request.stopped or not self._outbox.send(order.device, wget):
                return Taken(How.GONE)
            self._watch(request)
            while True:
                if request.waiting and parts.over != "bad" and not request.stopped:
                    data, request.waiting = b"".join(request.waiting), []
                    await self._write(request, incoming, data)
                    written += len(data)
                    order.on_bytes(begun + written)
                    if written - told >= ACK or self._clock.now() - told_at >= ACK_S:
                        told, told_at = written, self._clock.now()
                        parts.acknowledged(told)
                        self._outbox.send(order.device, Wack(id=number, got=told))
                    continue
                if parts.over or request.stopped or request.ended:
                    return _outcome(request, parts)
                request.came.clear()
                await request.came.wait()
        finally:
            del self._requests[number]
            request.parts = None
            if request.timer is not None:
                request.timer.cancel()
            over = Wack(id=number, got=size) if parts.over == "done" else Wack(id=number, cancel=True)
            if parts.over != "miss":
                self._outbox.send(order.device, over)

    async def _write(self, request: _Request, incoming: Incoming, data: bytes) -> None:
        request.writes = True
        try:
            await self._run(partial(incoming.write, data))
        finally:
            request.writes = False
            self._watch(request)

    # -- stalls ------------------------------------------------------------------------------------

    def _watch(self, request: _Request) -> None:
        """Something came: it counts from now on again how long nothing does."""
        if request.timer is not None:
            request.timer.cancel()
        due = self._clock.now() + STALL_S

        def silent() -> None:
            late = self._clock.now() - due > LATE_S
            if late or request.writes:  # this device stalled, not the other one
                self._watch(request)
            else:
                self._end(request, How.STALLED)

        request.timer = self._clock.call_later(STALL_S, silent)

    @staticmethod
    def _end(request: _Request, how: How) -> None:
        request.ended = request.ended or how
        request.came.set()


def _outcome(request: _Request, parts: Parts) -> Taken:
    if parts.over == "done":
        return Taken(How.HERE)
    if parts.over == "bad":
        return Taken(How.BAD, parts.why)
    if parts.over == "miss":
        return Taken(How.MISS)
    return Taken(request.ended or How.GONE)
