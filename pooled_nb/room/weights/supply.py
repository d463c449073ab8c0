"""Loads layers: from this device, from others of the room, from the hub, in this order (DESIGN section 6).

What devices give is taken first and kept; what is left then, the shard fetches from the hub as it loads. Of a
model that is in no hub nothing may be left. What devices sent counts only as far as `trust` says.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from functools import partial
from typing import Any, Protocol

from msgspec import structs

from pooled_nb.errors import ModelNotFound
from pooled_nb.mesh.clock import Clock
from pooled_nb.mesh.messages.link import Member
from pooled_nb.mesh.messages.weights import Wpart
from pooled_nb.room import sentences
from pooled_nb.room.outbox import Outbox
from pooled_nb.room.weights.ask import DownloadAsk
from pooled_nb.room.weights.consent import Consent
from pooled_nb.room.weights.fetching import Fetching, Tally
from pooled_nb.room.weights.givers import LOCAL, givers_of
from pooled_nb.room.weights.load import Load, Progress
from pooled_nb.room.weights.means import Means
from pooled_nb.room.weights.others import Others
from pooled_nb.room.weights.reaching import BACK_S, Linked, Reaching
from pooled_nb.room.weights.taking import Taking
from pooled_nb.room.weights.trust import Trust
from pooled_nb.room.weights.urls import is_weights, url_of
from pooled_nb.shard import Loaded, LoadSpec, Missing, Piece, Shard

log = logging.getLogger(__name__)

TICK_S = 1.0
"""Between two words of how far it is: also while nothing comes, so that nobody takes it for dead."""
TURN = 8
"""Hashes that the host is told of in one turn of the loop."""
ELSEWHERE_S = 60.0
"""So long a piece is waited for that another kernel of this machine fetches, and gets on with nothing."""
FORBIDDEN = "the place it runs at forbids to share files between devices"
RELAYED = "the link to its host runs over a relay, which carries no weights"
NOBODY = "no device of the room gives it"


class Room(Outbox, Linked, Protocol):
    """What this needs of the mesh."""

    @property
    def id(self) -> str:
        """This device's."""

    @property
    def creator(self) -> str:
        """The host's."""

    @property
    def roster(self) -> tuple[Member, ...]:
        """Who is here."""


class Supply:
    """Gives a shard what it loads.

    Parameters
    ----------
    means
        Where pieces go, and whether any may come from devices.
    others
        Who has which.
    on_change, say
        What is shown changed; a sentence for the person.

    Attributes
    ----------
    unverified
        What of the layers that it loaded last nobody but another device vouches for, in a sentence.
    consent
        What its person is asked.
    """

    def __init__(
        self,
        *,
        mesh: Room,
        clock: Clock,
        means: Means,
        others: Others,
        on_change: Callable[[], None],
        say: Callable[[str], None],
    ) -> None:
        self.unverified = ""
        self.consent = Consent(clock=clock, allowance_gb=means.download_gb, on_change=on_change)
        self._mesh, self._clock, self._means, self._others, self._say = mesh, clock, means, others, say
        self._taking = Taking(outbox=mesh, clock=clock, run=means.runner)
        self._reaching = Reaching(mesh=mesh, clock=clock)
        self._trust = Trust(means=means, others=others, passes_on=lambda: mesh.id != mesh.creator)
        self._refused: set[str] = set()
        """Who sent something wrong: it gives nothing more in this room."""
        self._load: Load | None = None
        """The newest; the one before may still be ending."""
        self._quiet: set[asyncio.Task[None]] = set()

    @property
    def words(self) -> str:
        """What it does now, in words; empty: it loads nothing."""
        return self._load.words if self._load else ""

    @property
    def asks(self) -> bool:
        """Whether its person is asked now."""
        return self.consent.asks is not None

    @property
    def question(self) -> str:
        """The same in words; empty: nothing is asked."""
        return self.consent.asks.text if self.consent.asks else ""

    # -- what others say ---------------------------------------------------------------------------

    def heard(self, sender: str, part: Wpart) -> None:
        """A part of a piece."""
        self._taking.heard(sender, part)

    def gone(self, id: str) -> None:
        """The link to a device ended."""
        self._taking.gone(id)

    async def close(self) -> None:
        """The room is over: every piece is let go of."""
        for task in list(self._quiet):
            task.cancel()
        await asyncio.gather(*self._quiet, return_exceptions=True)
        await self._taking.close()

    # -- loading -----------------------------------------------------------------------------------

    async def load(self, shard: Shard, spec: LoadSpec, progress: Progress) -> Loaded:
        """Fetch and load; ``progress`` hears percent of both, each second at least while it fetches.

        Whoever cancels it stops it: what came is kept for the next try.

        Raises
        ------
        ModelNotFound
            Nobody has it, its person does not want it, or it cannot be written here.
        ModelNotSupported, ModelTooBig, OutOfMemory, ShardDied
            As of `Shard.load`.
        """
        load = self._load = Load(progress)
        try:
            spec, left = await self._bring(shard, spec, load)
            load.begins_to_read()
            loaded = await shard.load(spec, load.reads)
            self.unverified = self._doubts(load.tally)
            if left:
                self._spawn(self._name(spec, left))
            return loaded
        finally:
            if self._load is load:
                self._load = None

    async def _bring(self, shard: Shard, spec: LoadSpec, load: Load) -> tuple[LoadSpec, Sequence[Piece]]:
        """Get what devices have; returns how the rest is loaded, and what of it the hub has to give."""
        asked = False
        stuck, stuck_at = -1, 0.0
        if spec.draft is not None:  # the shard fetches it from the hub, with the rest
            load.draft = (await shard.missing(spec.draft)).bytes
        while True:
            missing = await shard.missing(spec)
            if not (missing.pieces or missing.bytes or load.draft):
                return spec, ()
            before = spec
            async with self._ticking(load.checks, after=TICK_S):
                spec = await self._trust.of_old(spec, missing.pieces, load.tally)
            if spec is not before:
                continue
            load.lacks(missing.bytes, self._clock.now())
            async with self._ticking(partial(self._say_fetches, load)):
                asked = await self._consent(spec, missing, load) or asked
                if not (missing.pieces or missing.bytes):
                    return spec, ()
                round = await self._fetch(spec, missing, load)
            kept = await self._still(spec, round, load.tally) if round is not None else {}
            counted = {(name, one) for name, some in spec.sent.items() for one in some}
            spec = self._trust.taken(spec, kept)
            # What counts already and is missing all the same comes from no device: no endless rounds.
            if any((p.name, (p.lo, p.hi, sha256)) not in counted for p, sha256 in kept.items()):
                stuck = -1
                continue
            if spec.repo.startswith(LOCAL):
                if stuck != missing.bytes:
                    stuck, stuck_at = missing.bytes, self._clock.now()
                if round is None or not round.elsewhere or self._clock.now() - stuck_at >= ELSEWHERE_S:
                    raise self._nowhere(spec, missing)
                await self._clock.sleep(TICK_S)
                continue
            # What its person agreed to is no longer bounded; else the shard counts once more.
            spec = structs.replace(spec, max_download_gb=None) if asked else spec
            return spec, () if missing.again else missing.pieces

    async def _consent(self, spec: LoadSpec, missing: Missing, load: Load) -> bool:
        """Return once it may be downloaded; whether its person was asked. Raises `ModelNotFound`."""
        need = load.tally.bytes + missing.bytes + load.draft
        ask = DownloadAsk(model=spec.repo, lo=spec.lo, hi=spec.hi, gb=need / 1e9)
        if not self.consent.needed(ask):
            return self.consent.agreed(ask)
        ask = structs.replace(ask, free_gb=await self._means.runner(self._means.free_gb))
        await self.consent.may(ask)
        return True

    async def _fetch(self, spec: LoadSpec, missing: Missing, load: Load) -> Fetching | None:
        """One round over the devices; None: none can give anything."""
        holdings = await self._trust.holdings(spec)
        if holdings is None:
            return None
        mesh = self._mesh
        round = Fetching(
            spec,
            missing.pieces,
            givers_of(spec.repo, missing.pieces, self._others.have(), host=mesh.creator, me=mesh.id),
            host=mesh.creator,
            me=mesh.id,
            taking=self._taking,
            reaching=self._reaching,
            others=self._others,
            holdings=holdings,
            refused=self._refused,
            tally=load.tally,
            on_bad=self._on_bad,
        )
        await round.run()
        return round

    async def _still(self, spec: LoadSpec, round: Fetching, tally: Tally) -> dict[Piece, str]:
        """What came in a round, and is vouched for yet."""
        mesh = self._mesh
        if round.kept and mesh.id != mesh.creator and mesh.facts(mesh.creator) is None:
            await self._reaching.reach(mesh.creator, BACK_S)  # all words went with the link
        kept = await self._trust.still(spec, round.kept)
        for piece in round.kept.keys() - kept.keys():
            tally.here.pop(piece, None)
        for piece, who in round.unverified.items():
            if piece in kept:
                tally.unverified[who] += piece.hi - piece.lo
        return kept

    # -- afterwards --------------------------------------------------------------------------------

    async def _name(self, spec: LoadSpec, pieces: Sequence[Piece]) -> None:
        """What was read from the hub, others may now take from here: the host hears what it was."""
        holdings = self._means.holdings
        if holdings is None:
            return

        def known() -> list[tuple[Piece, str]]:
            where = spec.repo, spec.revision
            return [(p, holdings.sha256(*where, p.name, p.lo, p.hi)) for p in pieces if is_weights(p.name)]

        for n, (piece, sha256) in enumerate(await self._means.runner(known)):
            if n % TURN == TURN - 1:
                await asyncio.sleep(0)
            if sha256:
                self._others.read(url_of(spec.repo, spec.revision, piece.name), piece.lo, piece.hi, sha256)

    def _on_bad(self, device: str, piece: Piece, url: str, why: str) -> None:
        name = self._name_of(device)
        self._say(
            f"{name} gave wrong bytes of {piece.name} ({why}). They were thrown away, and {name} gives this "
            "device nothing more."
        )
        self._others.bad(url, piece.lo, piece.hi, device)

    def _nowhere(self, spec: LoadSpec, missing: Missing) -> ModelNotFound:
        facts = self._mesh.facts(self._mesh.creator)
        why = FORBIDDEN if not self._means.takes else NOBODY
        if facts is not None and facts.path == "relayed":
            why = RELAYED
        return ModelNotFound(
            f"{spec.repo} is in no hub, {sentences.size(missing.bytes)} of it are missing, and {why}.",
            "Copy the model's folder to the device that lacks it and name it there, or lend no memory of it.",
        )

    def _doubts(self, tally: Tally) -> str:
        """What only another device vouches for, in words."""
        if not tally.unverified:
            return ""
        size = sentences.size(sum(tally.unverified.values()))
        places = {self._name_of(giver) if giver else "another room" for giver, _ in tally.unverified}
        givers = sentences.listed(sorted(places))
        names = sorted({self._name_of(by) for _, by in tally.unverified})
        says = f"{sentences.listed(names)} {'says' if len(names) == 1 else 'say'}"
        return f"{size} of its layers came from {givers}; that they are right, only {says}."

    # -- what is shown -----------------------------------------------------------------------------

    def _say_fetches(self, load: Load) -> None:
        load.fetches(self._clock.now(), self._name_of, asks=self.asks)

    @contextlib.asynccontextmanager
    async def _ticking(self, say: Callable[[], None], *, after: float = 0.0) -> AsyncIterator[None]:
        """Say how far it is now and then, from so many seconds on, within the block."""

        async def tick() -> None:
            if after:
                await self._clock.sleep(after)
            while True:
                say()
                await self._clock.sleep(TICK_S)

        ticking = asyncio.create_task(tick(), name="pooled-fetch-words")
        try:
            yield
        finally:
            ticking.cancel()
            await asyncio.gather(ticking, return_exceptions=True)

    def _name_of(self, id: str) -> str:
        return next((m.name for m in self._mesh.roster if m.id == id), "a device that left")

    def _spawn(self, job: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(job, name="pooled-name-hashes")
        self._quiet.add(task)
        task.add_done_callback(self._quiet.discard)
