"""A worker: load a layer range, run frames in their order, forward them (PROTOCOL sections 5 and 6)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from functools import partial

from msgspec import structs

from pooled_nb.errors import FrameRefused, ModelNotSupported, OutOfMemory, PooledError, ShardDied
from pooled_nb.mesh.clock import Clock
from pooled_nb.mesh.frame import Frame
from pooled_nb.mesh.messages import deal
from pooled_nb.room import onward, same
from pooled_nb.room.framequeue import FrameQueue
from pooled_nb.room.linking import Links, linked
from pooled_nb.room.loadspec import Own, spec_of
from pooled_nb.room.losses import FRAME, LINK, LOST
from pooled_nb.room.paces import Pace
from pooled_nb.room.same import Held
from pooled_nb.room.weights.supply import Supply
from pooled_nb.shard import Forwarded, Loaded, LoadSpec, Shard

log = logging.getLogger(__name__)

PROGRESS_S = 0.6
NO_LINK = "There is no link to the next device."
MEMORY = "This device ran out of memory. Close other programs that use it, or let it lend less."


class Worker:
    """Actor around the shard.

    Parameters
    ----------
    folder
        Where this device finds the model's files, if its person said so.
    lends_gb
        What it lends: it never holds more.
    max_download_gb
        What a deal may make it download: above that it refuses in words (PROTOCOL section 6).
    room
        What disk copies of its checkpoints are kept under; empty: none are.
    supply
        Brings what the shard lacks; None: the shard fetches all of it itself.
    on_change
        Called when `layers`, `progress`, `trouble` or `unlinked` changed.

    Attributes
    ----------
    layers
        Those that it holds for the room; None: none.
    progress
        Percent, while it loads.
    trouble
        Why it holds no layers, in words with the next step; empty: nothing went wrong.
    runs
        Where its newest layers lie and how they are computed, in words.
    unlinked
        Why its layers are not part of the chain although it holds them.
    """

    def __init__(
        self,
        *,
        links: Links,
        shard: Callable[[], Shard],
        clock: Clock,
        folder: str | None,
        lends_gb: float,
        max_download_gb: float,
        on_change: Callable[[], None],
        room: str = "",
        supply: Supply | None = None,
    ) -> None:
        self.layers: tuple[int, int] | None = None
        self.progress: int | None = None
        self.trouble = self.unlinked = self.runs = ""
        self._links, self._shard, self._clock, self._on_change = links, shard, clock, on_change
        self._own, self._supply = Own(folder, lends_gb, max_download_gb, room), supply
        self._held: Held | None = None
        """What the shard holds for sure, whether or not it is part of a chain now."""
        self._coming: deal.Load | None = None
        """The deal that is loaded or linked, or that found no link."""
        self._loads: LoadSpec | None = None
        """What is read for it, until it is held."""
        self._dirty = False
        """The shard may hold something: a load that nobody waits for any more still ends there."""
        self._asked_link = False
        """``ai-next`` came while it loads: the host waits for ``ai-linked``, too."""
        self._owed: Sequence[int] | None = None
        """Slots of the ``ai-ready`` that the host waits for; None: it waits for none."""
        self._deal: deal.Load | None = None
        """The deal that runs."""
        self._newest = 0
        self._commands: set[asyncio.Task[None]] = set()
        self._loading: asyncio.Task[None] | None = None
        self._running: asyncio.Task[None] | None = None
        self._frames = FrameQueue()
        self._pace = Pace()
        self._fresh = True
        """Discard frames until one with ``reset``: after `ai-load`, and after an error."""

    # -- what the host says ------------------------------------------------------------------------

    def load(self, message: deal.Load) -> None:
        """Take a deal; the one before is dropped. The newest command wins.

        What is held already is kept, and the same load that is under way goes on (PROTOCOL section 3: the
        host sends ``ai-load`` again to who comes back).
        """
        spec = spec_of(message, self._own)
        self.trouble = ""
        if isinstance(spec, str):
            self._command(lambda: self._refuse(spec), coming=message)
        elif spec == self._loads:
            self._coming = message
            self._tell_chain()
        elif same.holds(self._held, spec):
            self._command(lambda: self._link(()), coming=message, keep=(spec.lo, spec.hi), owed=())
        else:
            self._command(lambda: self._load(spec), coming=message, loads=spec)

    def next(self, message: deal.Next, host: str) -> None:
        """The device after this one changed, or its link is to be made anew."""
        known = self._deal or self._coming
        if known is None:
            self._links.send(host, deal.Linked(next=message.next))
            return
        coming, owed = structs.replace(known, next=message.next), self._owed
        if self._loads:
            self._coming, self._asked_link = coming, True
            self._tell_chain()
            return
        self._command(
            lambda: self._link(owed, relink=message.relink, asked=True),
            coming=coming,
            keep=self.layers,
            owed=owed,
        )

    def drop(self, why: str = "") -> None:
        """Hold nothing: what loads or runs ends, and the memory is given back.

        ``why``: for `trouble`, where this device has no words of its own for it.
        """
        self.trouble = self.trouble or why
        self._command(None, unload=self._dirty)

    def lends(self, gb: float) -> None:
        """Hold so much at most, from the next load on."""
        self._own = Own(self._own.folder, gb, self._own.max_download_gb, self._own.room)

    async def close(self) -> None:
        """Let go of everything; the shard is closed by whoever opened it."""
        self._command(None)
        while self._commands:
            await asyncio.wait(set(self._commands))

    def lost(self, why: str) -> None:
        """The shard died: its layers are gone, and the host must know (it deals again)."""
        known = self._deal or self._coming
        self._held, self._dirty = None, False
        if known:
            self._tell_lost(known, why, killed=True)
            self.trouble = why
        else:  # whoever waited for it has said more
            self.trouble = self.trouble or why
        self._command(None)

    def needs(self, id: str) -> bool:
        """Whether this device is a neighbour in the chain.

        Not the next one while its link is being made: that an older one ends is no news then.
        """
        known = self._deal or self._coming
        after = self._deal is not None and id == self._deal.next
        return after or (known is not None and known.nb is not None and id == known.nb.prev)

    def on_frame(self, sender: str, frame: Frame) -> None:
        """Queue a frame; only those from the device before count."""
        nb = self._deal.nb if self._deal else None
        if nb is None or sender != nb.prev or frame.kind.is_return:
            return
        if self._frames.full():
            self._error("frames arrive faster than this device computes them", frame)
        elif frame.enc.name.lower() != nb.enc:
            self._error(f"a frame came in {frame.enc.name.lower()}, the room's encoding is {nb.enc}", frame)
        else:
            self._frames.put_nowait(frame)

    # -- commands: one after the other, the newest wins ----------------------------------------------

    def _command(
        self,
        job: Callable[[], Coroutine[object, object, None]] | None,
        *,
        coming: deal.Load | None = None,
        keep: tuple[int, int] | None = None,
        loads: LoadSpec | None = None,
        owed: Sequence[int] | None = None,
        unload: bool = False,
    ) -> None:
        """End what loads or runs, then do this. ``keep``: layers that stay, and are shown meanwhile."""
        self._newest += 1
        mine, loading, running = self._newest, self._loading, self._running
        self._deal, self._coming, self._loads, self._asked_link = None, coming, loads, False
        self._owed = owed
        self.layers, self.progress, self.unlinked, self._fresh = keep, None, "", True
        self._loading = self._running = None
        self._frames = FrameQueue()

        # Now, not when its turn comes: what has just ended must not count as what this one asks for.
        tasks = [t for t in (loading, running) if t]
        for task in tasks:
            task.cancel()

        async def obey() -> None:
            await asyncio.gather(*tasks, return_exceptions=True)
            if mine != self._newest:
                return
            if job:
                self._loading = asyncio.create_task(job(), name="pooled-worker-load")
                return
            self._links.chain(())
            if unload:
                await self._unload()

        task = asyncio.get_running_loop().create_task(obey(), name="pooled-worker-command")
        self._commands.add(task)
        task.add_done_callback(self._commands.discard)
        self._on_change()

    async def _unload(self) -> None:
        self._held, self._dirty = None, False
        try:
            await self._shard().unload()
        except PooledError:
            log.info("the shard was gone before it was unloaded")

    # -- loading -----------------------------------------------------------------------------------

    async def _refuse(self, why: str) -> None:
        self._give_up(ModelNotSupported(why))

    async def _load(self, spec: LoadSpec) -> None:
        self._tell_chain()
        self._held, self._dirty = None, True
        try:
            loaded = await self._load_range(spec)
            self._loads, self._held = None, Held.of(spec, loaded)
            self.runs = same.runs(loaded)
        except Exception as error:  # whatever it is, the host must hear of it
            self._loads = None
            self._give_up(error)
            return
        self.layers, self._owed = (spec.lo, spec.hi), loaded.slots
        pace = self._pace.loaded(loaded.layer_ms, spec.hi - spec.lo, self._clock.now())
        self._tell_pace(pace, self._coming)
        await self._link(loaded.slots, asked=self._asked_link)

    async def _load_range(self, spec: LoadSpec) -> Loaded:
        said = 0.0

        def progress(pct: int, _words: str) -> None:
            nonlocal said
            known = self._coming
            if self._loads is not spec:
                return  # of a load that nobody waits for any more
            self.progress = pct
            if known and self._clock.now() - said >= PROGRESS_S:
                said = self._clock.now()
                pct_now = max(0, min(100, pct))
                asks = self._supply is not None and self._supply.asks
                self._links.send(known.host, deal.Progress(pct=pct_now, deal=_number(known), asks=asks))
            self._on_change()

        progress(0, "")
        load = self._shard().load if self._supply is None else partial(self._supply.load, self._shard())
        return await load(spec, progress)

    async def _link(
        self, slots: Sequence[int] | None = None, *, relink: bool = False, asked: bool = False
    ) -> None:
        """Prove the link to the next device; from then on frames count.

        Parameters
        ----------
        slots
            What was read back from disk, for the ``ai-ready`` that is due; None: none is.
        relink
            Over a fresh connection.
        asked
            The host asked for the link: it hears ``ai-linked``.
        """
        known = self._coming
        if known is None:
            return
        self._tell_chain()
        self.progress = None
        self._on_change()
        stands = known.next == "host" or await linked(self._links, self._clock, known.next, relink=relink)
        self._owed = None
        if asked or not stands:
            self._links.send(known.host, deal.Linked(next=known.next, ok=stands))
        if stands:
            self._deal, self._coming, self.trouble = known, None, ""
            self._running = asyncio.create_task(self._run(known), name="pooled-worker-run")
            if slots is not None:
                self._links.send(known.host, deal.Ready(slots=list(slots), ckpt=True, deal=_number(known)))
        else:
            self.unlinked = NO_LINK
        self._on_change()

    def _tell_chain(self) -> None:
        """Whose frames count, and whose links are kept, before either is dialed."""
        known = self._coming
        if known and known.nb:
            self._links.chain([known.nb.prev, known.host if known.next == "host" else known.next])

    # -- what goes wrong ---------------------------------------------------------------------------

    def _give_up(self, error: Exception) -> None:
        """The layers are not here, or not any more: the host hears why, and deals without them."""
        if not isinstance(error, PooledError | MemoryError):
            log.exception("a job of the shard failed", exc_info=error)
        killed = isinstance(error, ShardDied | OutOfMemory | MemoryError)
        why = MEMORY if isinstance(error, MemoryError) else str(error) or type(error).__name__
        known, self._coming = self._deal or self._coming, None
        self.trouble, self.progress, self.layers = why, None, None
        if known:
            self._tell_lost(known, why, killed=killed)
        self._on_change()

    def _tell_lost(self, known: deal.Load, why: str, *, killed: bool) -> None:
        error = deal.Error(message=why[:2_000], load=True, killed=killed, deal=_number(known))
        self._links.send(known.host, error)

    def _lost(self, what: str, frame: Frame) -> None:
        """Nothing is wrong with a frame, and it is not computed: `losses.LOST`."""
        self._error(LOST[what], frame, lost=what)

    def _error(self, why: str, frame: Frame, *, lost: str | None = None) -> None:
        self._fresh = True
        if known := self._deal:
            number = _number(known)
            error = deal.Error(message=why[:2_000], pos=frame.pos, epoch=frame.epoch, deal=number, lost=lost)
            self._links.send(known.host, error)

    # -- running -----------------------------------------------------------------------------------

    async def _run(self, message: deal.Load) -> None:
        frames = self._frames
        before: Frame | None = None
        while True:
            frame = await frames.get()
            if self._fresh and not frame.reset:
                continue
            self._fresh = False
            if onward.missed(frame, before):
                self._lost(FRAME, frame)
                continue
            before = frame
            try:
                ran = await self._forward(message, frame)
                self._forward_on(message, frame, ran)
                self._tell_pace(self._pace.ran(onward.kind_of(frame), ran.ms, self._clock.now()), message)
            except (ShardDied, OutOfMemory, MemoryError) as error:
                # The next frame would fail as this one did: what is held is given back, and dealt anew.
                self._give_up(error)
                died, self._held = isinstance(error, ShardDied), None
                self._dirty = not died
                self._command(None, unload=not died)
                return
            except Exception as error:  # a frame that cannot be run must not end the worker
                if not isinstance(error, PooledError):
                    log.exception("a frame failed")
                # What to do about a frame that was refused is the host's affair, not its person's.
                self._error(error.what if isinstance(error, FrameRefused) else str(error), frame)

    async def _forward(self, message: deal.Load, frame: Frame) -> Forwarded:
        last = frame.last and message.next == "host"
        return await self._shard().forward(
            onward.columns_of(frame), onward.control_of(frame), data=frame.payload, last=last
        )

    def _tell_pace(self, told: deal.Telemetry | None, message: deal.Load | None) -> None:
        if told and message:
            self._links.send(message.host, told)

    def _forward_on(self, message: deal.Load, frame: Frame, ran: Forwarded) -> None:
        if message.next != "host":
            if not self._links.send_frame(message.next, onward.onward(frame, ran)):
                self._lost(LINK, frame)
        elif not self._links.send_frame(message.host, onward.back(frame, ran)):
            log.info("a return found no link to the host: it loads again when it is back")


def _number(message: deal.Load) -> int:
    """Of the deal, echoed by what is said of it."""
    return message.nb.deal if message.nb else 0
