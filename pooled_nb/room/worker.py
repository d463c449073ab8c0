"""A worker: load a layer range, run frames in their order, forward them (PROTOCOL sections 5 and 6)."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
from collections.abc import Callable, Coroutine, Sequence
from typing import Protocol

import msgspec

from pooled_nb.errors import FrameRefused, ModelNotSupported, PooledError
from pooled_nb.mesh.clock import Clock
from pooled_nb.mesh.frame import Frame, Kind
from pooled_nb.mesh.messages import Message, deal
from pooled_nb.mesh.versions import PROTOCOL
from pooled_nb.room.chain import ENCODING
from pooled_nb.shard import KV_FORMS, KVQ, Columns, Control, FileFact, Forwarded, Loaded, LoadSpec, Shard

log = logging.getLogger(__name__)

PROGRESS_S = 0.6
QUEUED_FRAMES = 256
"""Frames that may wait for the shard: what a wire may hand over at once (PROTOCOL section 5)."""


def room_key(code: str) -> str:
    """What disk copies of a room's checkpoints are kept under: never its code, which lets people in.

    Empty, so that none are kept, unless this device's person asked for them (``POOLED_KEEP_CHECKPOINTS``):
    they hold what others said in the room.
    """
    if os.environ.get("POOLED_KEEP_CHECKPOINTS", "").strip().lower() not in ("1", "true", "yes", "on"):
        return ""
    return hashlib.sha256(f"pooled-copies-v1\n{code}".encode()).hexdigest()[:32]


class Links(Protocol):
    """What a worker needs of the mesh."""

    def send(self, to: str, message: Message) -> bool:
        """One control message."""

    def send_frame(self, to: str, frame: Frame) -> bool:
        """One frame."""

    def chain(self, ids: Sequence[str]) -> None:
        """Whose frames count."""

    async def connect(self, to: str) -> None:
        """A link to a device of the roster."""


class Worker:
    """Actor around the shard.

    Parameters
    ----------
    me
        This device's id.
    folder
        Where this device finds the model's files, if its person said so.
    lends_gb
        What it lends: it never holds more.
    max_download_gb
        What a deal may make it download: above that it refuses in words (PROTOCOL section 6).
    room
        See `room_key`; empty: no checkpoint is kept on disk.
    on_change
        Called when `layers`, `progress` or `trouble` changed.
    """

    def __init__(
        self,
        *,
        me: str,
        links: Links,
        shard: Callable[[], Shard],
        clock: Clock,
        folder: str | None,
        lends_gb: float,
        max_download_gb: float,
        on_change: Callable[[], None],
        room: str = "",
    ) -> None:
        self.layers: tuple[int, int] | None = None
        self.progress: int | None = None
        self.trouble = ""
        self._me, self._links, self._shard, self._clock = me, links, shard, clock
        self._folder, self._lends_gb, self._on_change = folder, lends_gb, on_change
        self._max_download_gb, self._room = max_download_gb, room
        self._deal: deal.Load | None = None
        self._number = 0
        self._newest = 0
        self._commands: set[asyncio.Task[None]] = set()
        self._loading: asyncio.Task[None] | None = None
        self._running: asyncio.Task[None] | None = None
        self._frames: asyncio.Queue[Frame] = asyncio.Queue(QUEUED_FRAMES)
        self._fresh = True
        """Discard frames until one with ``reset``: after `ai-load`, and after an error."""

    def load(self, message: deal.Load) -> None:
        """Take a deal; the one before is dropped. The newest command wins."""
        self._command(lambda: self._load(message), unload=False)

    def drop(self) -> None:
        """Hold nothing: what loads or runs ends, and the memory is given back."""
        self._command(None, unload=self._deal is not None or self._loading is not None)

    async def close(self) -> None:
        """Let go of everything; the shard is closed by whoever opened it."""
        self._command(None, unload=False)
        while self._commands:
            await asyncio.wait(set(self._commands))

    def lost(self, why: str) -> None:
        """The shard died: its layers are gone, and the host must know (it deals again)."""
        host = self._deal.host if self._deal else ""
        self._command(None, unload=False)
        self._set_trouble(why)
        if host:
            self._links.send(host, deal.Error(message=why[:2_000], load=True, deal=self._number))

    def needs(self, id: str) -> bool:
        """Whether this device is a neighbour in the chain."""
        nb = self._deal.nb if self._deal else None
        return self._deal is not None and (id == self._deal.next or (nb is not None and id == nb.prev))

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

    def _command(self, job: Callable[[], Coroutine[object, object, None]] | None, *, unload: bool) -> None:
        self._newest += 1
        mine, loading, running = self._newest, self._loading, self._running
        self._deal, self.layers, self.progress, self._fresh = None, None, None, True
        self._loading = self._running = None
        self._frames = asyncio.Queue(QUEUED_FRAMES)

        async def obey() -> None:
            tasks = [t for t in (loading, running) if t]
            for task in tasks:
                task.cancel()
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
        try:
            await self._shard().unload()
        except PooledError:
            log.info("the shard was gone before it was unloaded")

    # -- loading -----------------------------------------------------------------------------------

    async def _load(self, message: deal.Load) -> None:
        host, number = message.host, message.nb.deal if message.nb else 0
        self._number = number
        try:
            spec = self._spec(message)
            if isinstance(spec, str):
                raise ModelNotSupported(spec)
            if message.nb:
                self._links.chain([message.nb.prev, host if message.next == "host" else message.next])
            loaded = await self._load_range(message, spec)
            if message.next != "host" and not await self._linked(message.next):
                self._set_trouble("there is no link to the next device.")
                self._links.send(host, deal.Linked(next=message.next))
                return
        except Exception as error:  # whatever it is, the host must hear of it
            if not isinstance(error, PooledError):
                log.exception("loading failed")
            self._set_trouble(str(error))
            self._links.send(host, deal.Error(message=str(error)[:2_000], load=True, deal=number))
            return
        self._deal, self.layers, self.progress, self.trouble = message, (spec.lo, spec.hi), None, ""
        self._running = asyncio.create_task(self._run(message), name="pooled-worker-run")
        self._links.send(host, deal.Ready(slots=loaded.slots, ckpt=True, deal=number))
        self._on_change()

    def _spec(self, message: deal.Load) -> LoadSpec | str:
        """What to load, or why this deal cannot be taken."""
        if message.v != PROTOCOL:
            return (
                f"The deal is for room protocol {message.v}, this device speaks {PROTOCOL}. Update the older."
            )
        nb = message.nb
        if nb is None:
            return "The host does not say which files the model is made of. It needs pooled_nb."
        if nb.dtype not in ENCODING or nb.enc != ENCODING[nb.dtype].name.lower():
            return f"Dtype {nb.dtype!r} and encoding {nb.enc!r} do not go together. Update the older device."
        if message.kv not in KV_FORMS or nb.kvq != (KVQ if message.kv == "q8" else None):
            return f"Caches kept as {message.kv!r} ({nb.kvq!r}) are not known here. Update the older device."
        if nb.quant is not None:
            return f"Weights kept as {nb.quant!r} are not known here. Update the older device."
        lo, hi = message.range
        if not lo < hi:
            return f"The deal's layer range {lo}–{hi} is empty."
        files: dict[str, FileFact] = {}
        for name, facts in nb.files.items():
            try:
                files[name] = msgspec.convert(facts, FileFact)
            except msgspec.ValidationError:
                return f"The deal's file list is wrong at {name!r}."
        return LoadSpec(
            repo=nb.repo,
            revision=nb.revision,
            folder=self._folder,
            config_sha256=nb.config,
            lo=lo,
            hi=hi,
            ends=False,
            ctx=message.ctx,
            dtype=nb.dtype,
            files=files,
            width=nb.width,
            cols=nb.cols,
            attn=nb.attn,
            experts=nb.experts,
            exact=nb.width > 1,
            max_gb=self._lends_gb,
            max_download_gb=self._max_download_gb,
            kv=message.kv,
            room=self._room,
        )

    async def _linked(self, next_device: str) -> bool:
        try:
            await self._links.connect(next_device)
        except PooledError as error:
            log.info("no link to the next device: %s", error)
            return False
        return True

    async def _load_range(self, message: deal.Load, spec: LoadSpec) -> Loaded:
        said = 0.0

        def progress(pct: int, _words: str) -> None:
            nonlocal said
            self.progress = pct
            if self._clock.now() - said >= PROGRESS_S:
                said = self._clock.now()
                pct_now = max(0, min(100, pct))
                self._links.send(message.host, deal.Progress(pct=pct_now, deal=self._number))
            self._on_change()

        progress(0, "")
        return await self._shard().load(spec, progress)

    def _set_trouble(self, why: str) -> None:
        self.trouble, self.progress, self.layers = why, None, None
        self._on_change()

    # -- running -----------------------------------------------------------------------------------

    async def _run(self, message: deal.Load) -> None:
        frames = self._frames
        while True:
            frame = await frames.get()
            if self._fresh and not frame.reset:
                continue
            self._fresh = False
            try:
                self._forward_on(message, frame, await self._forward(frame))
            except Exception as error:  # a frame that cannot be run must not end the worker
                if not isinstance(error, PooledError):
                    log.exception("a frame failed")
                # What to do about a frame that was refused is the host's affair, not its person's.
                self._error(error.what if isinstance(error, FrameRefused) else str(error), frame)

    async def _forward(self, frame: Frame) -> Forwarded:
        wide = frame.kind is Kind.HIDDEN_B and not frame.spec
        control = Control(
            reset=frame.reset, spec=frame.spec, rb=frame.rb, sv=frame.sv, ld=frame.ld, dp=frame.dp
        )
        last = frame.last and self._deal is not None and self._deal.next == "host"
        columns = Columns(pos=frame.pos, n=frame.n, wide=wide)
        return await self._shard().forward(columns, control, data=frame.payload, last=last)

    def _forward_on(self, message: deal.Load, frame: Frame, ran: Forwarded) -> None:
        if message.next != "host":
            onward = Frame(
                frame.kind,
                frame.pos,
                frame.n,
                ran.data,
                frame.enc,
                spec=frame.spec,
                reset=frame.reset,
                rb=frame.rb,
                sv=frame.sv,
                ld=frame.ld,
                dp=frame.dp,
                epoch=frame.epoch,
                last=frame.last,
                probe=frame.probe,
            )
            if not self._links.send_frame(message.next, onward):
                self._error("the link to the next device is gone", frame)
            return
        kind = Kind.RET_B if frame.kind is Kind.HIDDEN_B else Kind.RET
        back = Frame(kind, ran.pos, ran.n, ran.data, frame.enc, epoch=frame.epoch)
        if not self._links.send_frame(message.host, back):
            log.warning("a return found no link to the host")

    def _error(self, why: str, frame: Frame) -> None:
        self._fresh = True
        host = self._deal.host if self._deal else ""
        if host:
            error = deal.Error(message=why[:2_000], pos=frame.pos, epoch=frame.epoch, deal=self._number)
            self._links.send(host, error)
