"""What counts, in this room, of what devices sent, in it or in another (DESIGN section 6).

A host vouches for hashes in its own room only: it may be wrong about a public model, by accident or on
purpose. What it let in stays in this device's cache, and counts where the host of another room says the same
of it, and nowhere else: not when this device hosts or pulls (`LoadSpec.sent` is empty then).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence

from msgspec import structs

from pooled_nb.room.weights.fetching import ASKED, Tally, of_deal
from pooled_nb.room.weights.hashes import Word
from pooled_nb.room.weights.means import Means
from pooled_nb.room.weights.others import Others
from pooled_nb.room.weights.urls import is_weights, url_of
from pooled_nb.shard import Holdings, LoadSpec, Piece, Sent


class Trust:
    """Adds to a load's ``sent`` what the room vouches for.

    Parameters
    ----------
    passes_on
        Whether this device may give it on in this room. The host may not: what it gives, it vouches for.
    """

    def __init__(self, *, means: Means, others: Others, passes_on: Callable[[], bool]) -> None:
        self._means, self._others, self._passes_on = means, others, passes_on

    async def holdings(self, spec: LoadSpec) -> Holdings | None:
        """Where pieces go; None: nothing of this model is taken from devices."""
        holdings = self._means.holdings if self._means.takes else None
        closed = holdings is not None and await self._means.runner(
            lambda: holdings.closed(spec.repo, spec.revision)
        )
        return None if closed else holdings

    async def of_old(self, spec: LoadSpec, pieces: Sequence[Piece], tally: Tally) -> LoadSpec:
        """The same load, with what of its missing pieces came before, where the room vouches for it."""
        holdings = await self.holdings(spec)
        names = {piece.name for piece in pieces if is_weights(piece.name)}
        if holdings is None or not names:
            return spec

        def look() -> set[tuple[str, Sent]]:
            return {(name, one) for name in names for one in holdings.sent(spec.repo, spec.revision, name)}

        here = await self._means.runner(look)
        here -= {(name, one) for name, known in spec.sent.items() for one in known}
        places = {(name, lo, hi) for name, (lo, hi, _) in here}
        asked = [piece for piece in pieces if (piece.name, piece.lo, piece.hi) in places]
        found: dict[Piece, str] = {}
        for piece, word in zip(asked, await self._words(spec, asked), strict=True):
            if word is not None and (piece.name, (piece.lo, piece.hi, word.sha256)) in here:
                found[piece] = word.sha256
                if word.by:
                    tally.unverified["", word.by] += piece.hi - piece.lo
        return self.taken(spec, found)

    async def still(self, spec: LoadSpec, kept: Mapping[Piece, str]) -> dict[Piece, str]:
        """Pieces that came, by their hashes, as far as the room vouches for them yet: it takes words back."""
        of_others = [piece for piece in kept if of_deal(spec.files, piece) is None]
        words = dict(zip(of_others, await self._words(spec, of_others), strict=True))
        return {
            piece: sha256
            for piece, sha256 in kept.items()
            if piece not in words or ((word := words[piece]) is not None and word.sha256 == sha256)
        }

    def taken(self, spec: LoadSpec, kept: Mapping[Piece, str]) -> LoadSpec:
        """The same load, with pieces that came and are what the room vouches for, by their hashes."""
        if not kept:
            return spec
        new: dict[str, list[Sent]] = {}
        for piece, sha256 in kept.items():
            new.setdefault(piece.name, []).append((piece.lo, piece.hi, sha256))
        holdings = self._means.holdings
        if holdings is not None and self._passes_on():
            for name in filter(is_weights, new):
                holdings.confirm(spec.repo, spec.revision, name, new[name])
        merged = {name: [*spec.sent.get(name, ()), *new.get(name, ())] for name in {**spec.sent, **new}}
        return structs.replace(spec, sent=merged)

    async def _words(self, spec: LoadSpec, pieces: Sequence[Piece]) -> list[Word | None]:
        """What the room says that they must be: a few questions at a time."""
        turns = asyncio.Semaphore(ASKED)

        async def ask(piece: Piece) -> Word | None:
            async with turns:
                url = url_of(spec.repo, spec.revision, piece.name)
                return await self._others.word(url, piece.lo, piece.hi)

        tasks = [asyncio.create_task(ask(piece), name="pooled-trust") for piece in pieces]
        try:
            return list(await asyncio.gather(*tasks))
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
