"""Giving ranges of the room's model to devices that ask for them (PROTOCOL section 6, ``ai-wget``).

Memory: what is read ahead for all ranges of one link together is 3 MiB at most, since each takes less the
more there are. The disk is read by `READS` jobs at a time, one for each link, so that who asks a lot, or
cancels a lot, keeps nobody else waiting.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, field

from msgspec import Struct

from pooled_nb.mesh.clock import Clock
from pooled_nb.mesh.listener import LinkFacts
from pooled_nb.mesh.messages.weights import Wack, Wget, Wpart
from pooled_nb.room.weights.grant import Disk, Grant, Out, Vouches
from pooled_nb.room.weights.hashes import Span
from pooled_nb.room.weights.runner import Runner
from pooled_nb.room.weights.urls import ModelFile, split
from pooled_nb.shard import Holdings

AT_ONCE = 8
"""Ranges that are given over one link at a time (section 6)."""
JOBS = 64
"""The same, and those that wait for their last acknowledgement, or were cancelled while they were read."""
MIN_WIN = 4_096
"""Bytes of the smallest window that is served: with less there would be more message than weights."""
READS = 4
TAKERS = 256
"""Devices that are remembered to have got something."""


class Given(Struct, frozen=True, kw_only=True):
    """What this device gave since it is in the room: bytes in all, and by the id of who got them."""

    bytes: int = 0
    to: Mapping[str, int] = {}

    def more(self, to: str, n: int) -> Given:
        """The same, and ``n`` bytes to this device."""
        all = {**self.to, to: self.to.get(to, 0) + n}
        if len(all) > TAKERS:
            del all[next(iter(all))]
        return Given(bytes=self.bytes + n, to=all)


@dataclass(eq=False)
class _Link:
    grants: dict[str | int, Grant] = field(default_factory=dict)
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    jobs: int = 0

    @property
    def busy(self) -> int:
        return sum(not grant.sent for grant in self.grants.values())


def may_cross(facts: LinkFacts | None) -> bool:
    """Whether weights may cross a link: only one that is known to be direct (section 2).

    Where only the other end has a relay, this one may not know that a path goes over it: what is not known
    carries none, whether or not this device has a relay.
    """
    return facts is not None and facts.path == "direct"


class Giving:
    """Actor: answers each ``ai-wget``, with parts in order or with a miss.

    Parameters
    ----------
    holdings
        None: this device has nothing to give.
    gives
        Whether its person, and the place it runs at, allow to give weights away.
    asks
        Whether a device may ask: it holds, or is to hold, layers of the room's deal.
    model
        ``(repo, revision)`` of the room's model now; None: there is none.
    files
        Names of the deal's files: no other of that model is given. None: they are not known here.
    vouches
        The host's.

    Attributes
    ----------
    given
        What it gave so far.
    """

    def __init__(
        self,
        *,
        out: Out,
        clock: Clock,
        holdings: Holdings | None,
        runner: Runner,
        gives: bool,
        asks: Callable[[str], bool],
        model: Callable[[], tuple[str, str] | None],
        files: Callable[[], Container[str] | None] = lambda: None,
        vouches: Vouches | None = None,
    ) -> None:
        self.given = Given()
        self._out, self._clock, self._run = out, clock, runner
        self._holdings = holdings if gives else None
        self._asks, self._model, self._files, self._vouches = asks, model, files, vouches
        self._links: dict[str, _Link] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._reads = asyncio.Semaphore(READS)
        self._closed = False

    def asked(self, sender: str, message: Wget) -> None:
        """A device asks for a range."""
        link = self._links.get(sender) or _Link()
        if message.id in link.grants:
            return  # an answer would be taken for that one's which is under way
        grant = self._grant(sender, message, link)
        if grant is None:
            self._out.send(sender, Wpart(id=message.id, miss=True))
            return
        self._links[sender] = link
        link.grants[message.id] = grant
        link.jobs += 1
        task = asyncio.get_running_loop().create_task(self._give(link, grant), name="pooled-give")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def acknowledged(self, sender: str, message: Wack) -> None:
        """A device has got on with a range, or wants no more of it."""
        link = self._links.get(sender)
        if link is not None and (grant := link.grants.get(message.id)):
            grant.acknowledged(message)
            if message.cancel:
                del link.grants[message.id]

    def look(self) -> None:
        """The deal changed: who may ask no more, or for another model, gets no more."""
        for link in list(self._links.values()):
            for grant in list(link.grants.values()):
                grant.look()

    def left(self, id: str) -> None:
        """The link to a device ended, and its ranges with it."""
        link = self._links.get(id)
        for grant in link.grants.values() if link else ():
            grant.end()

    async def close(self) -> None:
        """The room is over. What is read meanwhile is waited for: a piece of a file."""
        self._closed = True
        for id in list(self._links):
            self.left(id)
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _grant(self, sender: str, message: Wget, link: _Link) -> Grant | None:
        """What is to be given; None: nothing."""
        file, span = split(message.url), Span(message.url, message.lo, message.hi + 1)
        holdings = self._holdings
        if (
            holdings is None
            or self._closed
            or file is None
            or span.lo >= span.hi
            or not self._may(sender, file)
        ):
            return None
        if link.busy >= AT_ONCE or link.jobs >= JOBS:
            return None
        credit = self._out.credit(sender, message.win)
        if credit is None or credit.win < MIN_WIN:
            return None
        return Grant(
            sender,
            message.id,
            file=file,
            span=span,
            credit=credit,
            out=self._out,
            clock=self._clock,
            holdings=holdings,
            disk=Disk(self._run, link.lock, self._reads),
            may=lambda: self._may(sender, file),
            share=lambda: max(1, link.busy),
            on_sent=lambda n: self._count(sender, n),
            vouches=self._vouches,
        )

    def _may(self, to: str, file: ModelFile) -> bool:
        mine = self._model() == (file.repo, file.revision)
        files = self._files()
        mine = mine and (files is None or file.name in files)
        return mine and self._asks(to) and may_cross(self._out.facts(to))

    def _count(self, to: str, n: int) -> None:
        self.given = self.given.more(to, n)

    async def _give(self, link: _Link, grant: Grant) -> None:
        try:
            await grant.run()
        finally:
            link.jobs -= 1
            if link.grants.get(grant.id) is grant:
                del link.grants[grant.id]
            if not link.jobs and self._links.get(grant.to) is link:
                del self._links[grant.to]
