"""What a host does about weights, besides loading its own (PROTOCOL section 6, ``ai-inv`` to ``nb-bad``)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from functools import partial

from pooled_nb.mesh.mesh import Mesh
from pooled_nb.mesh.messages import Message
from pooled_nb.mesh.messages.deal import Inv
from pooled_nb.mesh.messages.weights import NbBad, NbHash, Wack, Wget
from pooled_nb.room.dealing import Deal, can_hold
from pooled_nb.room.weights.giving import Given, Giving
from pooled_nb.room.weights.hashes import Span, Word
from pooled_nb.room.weights.inventory import Ranges
from pooled_nb.room.weights.runner import Runner
from pooled_nb.room.weights.stock import ANSWER_S, Stock
from pooled_nb.room.weights.urls import ModelFile, is_weights, split
from pooled_nb.room.weights.vouching import Vouching
from pooled_nb.shard import Holdings, ModelFacts

log = logging.getLogger(__name__)


class HostWeights:
    """Asks who has what, lists it, gives and vouches. `Others` of the host's own load.

    Parameters
    ----------
    holdings
        What this device has of models' files; None: nothing.
    gives
        Whether its person, and the place it runs at, allow to give weights away.
    deal
        The deal as it is.
    say
        Tells this device's person.
    """

    def __init__(
        self,
        *,
        mesh: Mesh,
        model: ModelFacts,
        holdings: Holdings | None,
        runner: Runner,
        gives: bool,
        deal: Callable[[], Deal | None],
        say: Callable[[str], None],
    ) -> None:
        self._mesh, self._deal = mesh, deal
        self._holdings, self._run = holdings if gives else None, runner
        sizes = _sizes(model)
        self._sizes = {url: size for url, size in sizes.items() if is_weights(url.rpartition("/")[2])}
        self._looking: asyncio.Task[None] | None = None
        self._stock = Stock(outbox=mesh, clock=mesh.clock, sizes=self._sizes)
        self._word = Vouching(
            mesh=mesh,
            sizes=sizes,
            holdings=holdings,
            runner=runner,
            workers=self._workers,
            strike=self._stock.strike,
            say=say,
        )
        self._giving = Giving(
            out=mesh,
            clock=mesh.clock,
            holdings=holdings,
            runner=runner,
            gives=gives,
            asks=lambda id: id in self._workers(),
            model=lambda: (model.repo, model.revision),
            files=lambda: model.files,
            vouches=self._word,
        )

    @property
    def given(self) -> Given:
        """What this device gave so far."""
        return self._giving.given

    # -- before a deal -----------------------------------------------------------------------------

    async def prepare(self) -> None:
        """Before the deal is sent: ask who has what, and tell its devices what is known of hashes."""
        self._giving.look()
        if not self._sizes:
            return
        here = [m.id for m in self._mesh.roster if m.id != self._mesh.id and can_hold(m)]
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look(), name="pooled-inventory")
        # A disk that hangs holds up no deal.
        limit = asyncio.create_task(self._mesh.clock.sleep(ANSWER_S))
        try:
            await self._stock.ask(here)
            await asyncio.wait({self._looking, limit}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            limit.cancel()
        await self._word.tell(self._workers())

    def listing(self, to: str) -> dict[str, dict[str, list[str]]] | None:
        """What a device of the deal is told that the others of it have (``inv``): those it may ask."""
        return self._stock.listing([id for id in (self._mesh.id, *self._workers()) if id != to])

    def remind(self, id: str) -> None:
        """Tell a device what is known of hashes, before it is told to load: its process may be another."""
        self._word.remind(id)

    async def _look(self) -> None:
        """What is here itself. Of what is not, or may not be given, nothing is said."""
        if self._holdings is None:
            return
        for url in self._sizes:
            if file := split(url):
                try:
                    ranges = await self._run(partial(self._holdings.have, *file))
                except Exception:  # whatever it is, a room starts without it
                    log.warning("what is here of a file is not known", exc_info=True)
                    ranges = []
                self._stock.put(self._mesh.id, url, ranges)

    # -- what devices say and do -------------------------------------------------------------------

    def heard(self, sender: str, message: Message) -> None:
        """What a device says of weights; anything else is nothing to this."""
        match message:
            case Wget():
                self._giving.asked(sender, message)
            case Wack():
                self._giving.acknowledged(sender, message)
            case Inv():
                self._stock.heard(sender, message)
            case NbHash() | NbBad():
                self._word.heard(sender, message)
            case _:
                pass

    def away(self, id: str) -> None:
        """The link to a device broke."""
        self._giving.left(id)

    def back(self, was: str, id: str) -> None:
        """A device is in again, over another link, maybe under another id."""
        self._giving.left(was)
        if was != id:
            self._stock.renamed(was, id)
            self._word.renamed(was, id)

    def left(self, id: str) -> None:
        """A device is gone."""
        self._giving.left(id)
        self._word.left(id)
        self._stock.left(id)

    async def close(self) -> None:
        """The room is over."""
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.gather(self._looking, return_exceptions=True)
        await self._giving.close()
        await self._word.close()

    # -- of its own load: `Others` -----------------------------------------------------------------

    def have(self) -> Mapping[str, Mapping[str, Ranges]]:
        """See `Others.have`. The host may also ask devices that hold no layers."""
        return self._stock.have([m.id for m in self._mesh.roster if m.id != self._mesh.id])

    def known(self, url: str, lo: int, hi: int) -> Word | None:
        """See `Others.known`."""
        return self._word.of(Span(url, lo, hi))

    async def word(self, url: str, lo: int, hi: int) -> Word | None:
        """See `Others.word`."""
        return self.known(url, lo, hi)

    def read(self, url: str, lo: int, hi: int, sha256: str) -> None:
        """See `Others.read`."""
        self._word.read(Span(url, lo, hi), sha256)

    def bad(self, url: str, lo: int, hi: int, id: str) -> None:
        """See `Others.bad`."""
        self._word.bad(id)

    def _workers(self) -> list[str]:
        deal = self._deal()
        return [seat.id for seat in deal.seats if seat.id != self._mesh.id] if deal else []


def _sizes(model: ModelFacts) -> dict[str, int]:
    """The model's files, in bytes, by url."""
    files = [(ModelFile(model.repo, model.revision, name), fact) for name, fact in model.files.items()]
    urls = {f"{file.repo}@{file.revision}/{file.name}": (file, fact.size) for file, fact in files}
    return {url: size for url, (file, size) in urls.items() if split(url) == file}
