"""Gets what devices of the room have of the pieces that a load lacks: an actor for one look at them.

`plan` says whom to ask for what; here links are looked for, hashes asked for, and pieces taken, all at once.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from pooled_nb.room.weights.givers import Giver
from pooled_nb.room.weights.hashes import Word
from pooled_nb.room.weights.others import Others
from pooled_nb.room.weights.plan import Plan
from pooled_nb.room.weights.reaching import BACK_S, REACH_S, Reaching
from pooled_nb.room.weights.taking import WRONG, How, Order, Taken, Taking
from pooled_nb.room.weights.urls import url_of
from pooled_nb.shard import FileFact, Holdings, LoadSpec, Piece

ASKED = 16
"""Hashes that the host is asked for at a time."""
TRIES = 3
"""So often a link that breaks is looked for anew."""


@dataclass(slots=True)
class Tally:
    """What one load has got from devices so far.

    Attributes
    ----------
    here
        Bytes of each piece.
    givers
        Devices that gave, or are asked now, in order.
    unverified
        Bytes of pieces whose hash only another device vouches for, by the device that gave them and that one.
    hub
        Something is left that no device gives.
    """

    here: dict[Piece, int] = field(default_factory=dict)
    givers: dict[str, None] = field(default_factory=dict)
    unverified: Counter[tuple[str, str]] = field(default_factory=Counter)
    hub: bool = False

    @property
    def bytes(self) -> int:
        """Of all pieces."""
        return sum(self.here.values())


class Fetching:
    """One look at what is missing.

    Parameters
    ----------
    spec
        What is to be loaded.
    pieces
        What is missing for it, in the order it is wanted.
    givers
        Who has what, by id.
    host, me
        Ids.
    refused
        Who gives nothing any more; whoever sends something wrong is added.
    tally
        Goes on from round to round.
    on_bad
        Told of a device that sent something wrong: the piece, its url, and what was wrong.
    """

    def __init__(
        self,
        spec: LoadSpec,
        pieces: Sequence[Piece],
        givers: Mapping[str, Giver],
        *,
        host: str,
        me: str,
        taking: Taking,
        reaching: Reaching,
        others: Others,
        holdings: Holdings,
        refused: set[str],
        tally: Tally,
        on_bad: Callable[[str, Piece, str, str], None],
    ) -> None:
        self.got = 0
        """Pieces that came."""
        self.kept: dict[Piece, str] = {}
        """Their hashes, which somebody vouched for as they came."""
        self.unverified: dict[Piece, tuple[str, str]] = {}
        """Those that only another device vouches for: who gave it, and whose word it is."""
        self.elsewhere = False
        """Another kernel of this machine is fetching some of it."""
        self._spec, self._host, self._taking, self._reaching = spec, host, taking, reaching
        self._others, self._holdings, self._refused = others, holdings, refused
        self._tally, self._on_bad = tally, on_bad
        self._urls: dict[str, str] = {}
        self._deal: dict[Piece, Word] = {p: w for p in pieces if (w := of_deal(spec.files, p))}
        """Of all others it is asked each time, and never kept: a word may be taken back."""
        self._used: dict[Piece, Word] = {}
        """What each piece was last held against."""
        self._plan = Plan(pieces, givers, host=host, me=me, vouched=self._vouched, refused=refused)
        self._alone = len(givers) == 1 and host in givers
        self._tried: Counter[str] = Counter()
        self._reached: set[str] = set()
        """Devices whose link is being looked for."""
        self._jobs: set[asyncio.Task[None]] = set()
        self._asked: set[Piece] = set()

    async def run(self) -> None:
        """Return once no device can give more of it; whoever cancels it keeps what came.

        Raises
        ------
        ModelNotFound
            It cannot be written here, in words.
        """
        try:
            self._go_on()
            while self._jobs and not self._plan.is_over:
                done, _ = await asyncio.wait(self._jobs, return_when=asyncio.FIRST_COMPLETED)
                self._jobs -= done
                for job in done:
                    job.result()
                self._go_on()
        finally:
            for job in self._jobs:
                job.cancel()
            await asyncio.gather(*self._jobs, return_exceptions=True)

    def _go_on(self) -> None:
        """Begin all that can be done now."""
        plan = self._plan
        for id in sorted(plan.unlinked - self._reached):
            self._reached.add(id)
            self._do(self._reach(id))
        for piece in [p for p in plan.unknown if p not in self._asked][: ASKED - len(self._asked)]:
            self._asked.add(piece)
            self._do(self._ask(piece))
        for ask in plan.next():
            self._tally.givers.setdefault(ask.device)
            self._do(self._take(ask.piece, ask.device))
        self._tally.hub = bool(plan.left)

    def _do(self, job: Coroutine[Any, Any, None]) -> None:
        self._jobs.add(asyncio.create_task(job, name="pooled-fetch"))

    async def _reach(self, id: str) -> None:
        self._tried[id] += 1
        # The hub is no worse a source than a device that is not here; without a hub there is nothing else.
        waits = BACK_S if self._alone else REACH_S
        direct = self._tried[id] <= TRIES and await self._reaching.reach(id, waits)
        self._reached.discard(id)
        if direct:
            self._plan.linked(id)
        else:
            self._plan.without(id)

    async def _ask(self, piece: Piece) -> None:
        word = await self._others.word(self._url(piece), piece.lo, piece.hi)
        self._asked.discard(piece)
        if word is None:
            self._plan.unvouched(piece)

    async def _take(self, piece: Piece, device: str) -> None:
        spec = self._spec

        async def sha256() -> str:
            word = self._deal.get(piece) or await self._others.word(self._url(piece), piece.lo, piece.hi)
            if word is None:
                return ""
            self._used[piece] = word
            return word.sha256

        order = Order(
            device=device,
            url=self._url(piece),
            piece=piece,
            sha256=sha256,
            begin=partial(self._holdings.take, spec.repo, spec.revision, piece),
            on_bytes=partial(self._tally.here.__setitem__, piece),
        )
        self._ended(piece, device, await self._taking.take(order))

    def _ended(self, piece: Piece, device: str, taken: Taken) -> None:
        plan = self._plan
        gone = taken.how is How.GONE
        plan.ended(piece, here=taken.how in (How.HERE, How.ELSEWHERE), again=gone)
        if taken.how is How.HERE:
            self.got += 1
            self.kept[piece] = self._used[piece].sha256
            self._tally.here[piece] = piece.hi - piece.lo
            if by := self._used[piece].by:
                self.unverified[piece] = device, by
        elif taken.how is How.ELSEWHERE:
            self.elsewhere = True
        elif gone:
            plan.unlink(device)
        elif taken.how is How.BAD:
            self._tally.here.pop(piece, None)
            word = self._used.get(piece)
            if taken.why == WRONG and word is not None and word.by:
                plan.unvouched(piece)  # one of two devices lies, and it may be the one that named the hash
                return
            plan.without(device)
            if device not in self._refused:
                self._refused.add(device)
                self._on_bad(device, piece, self._url(piece), taken.why)
            self._taking.gone(device)

    def _vouched(self, piece: Piece) -> bool:
        """Whether it is known by now what a piece must be: all but the host may give it then."""
        return piece in self._deal or self._others.known(self._url(piece), piece.lo, piece.hi) is not None

    def _url(self, piece: Piece) -> str:
        if piece.name not in self._urls:
            self._urls[piece.name] = url_of(self._spec.repo, self._spec.revision, piece.name)
        return self._urls[piece.name]


def of_deal(files: Mapping[str, FileFact], piece: Piece) -> Word | None:
    """What a whole file must be, as the deal says it: the host vouches for what it deals."""
    fact = files.get(piece.name)
    whole = fact is not None and (piece.lo, piece.hi) == (0, fact.size)
    return Word(fact.sha256) if fact is not None and whole and fact.sha256 else None
