"""The door's `Shard` over the real engine and a tiny random model, inline: one thread, one run.

Jobs are done one after the other in the order they were asked for, as in the child process; what they take
passes on the machine's own clock. Loaded layers are lent out and taken back, so that a process reads each
range once, however many rooms it simulates.
"""

from __future__ import annotations

import asyncio
import atexit
import shutil
import tempfile
from collections import deque
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, cast

import torch
from msgspec import structs

from pooled_nb.errors import ModelTooBig, PooledError, ShardDied, ShardError
from pooled_nb.shard import DeviceFacts, Forwarded, Loaded, LoadSpec, Missing, ModelFacts, protocol
from pooled_nb.shard.caller import Caller
from pooled_nb.shard.chat import Chat
from pooled_nb.shard.compat import quiet
from pooled_nb.shard.desk import Desk
from pooled_nb.shard.door import Progress
from pooled_nb.shard.drafter import Drafts
from pooled_nb.shard.engine import Engine
from pooled_nb.shard.facts import model_facts
from pooled_nb.shard.faults import as_pooled_error
from pooled_nb.shard.frames import Lane
from pooled_nb.shard.sources import find
from pooled_nb.shard.stopping import Stop, never
from tests.shard.tiny import grow
from tests.shard.tinychat import tokenizer
from tests.sim.clocks import SimClock

T = TypeVar("T")

LAYERS = 5
CTX = 1024
SEED = 5
FACTS = DeviceFacts(
    kind="cpu", name="sim", total_gb=8.0, free_gb=8.0, dtypes=["float32"], gbps=1.0, sig="sim", threads=1,
    torch="0", transformers="0",
)  # fmt: skip


@cache
def folder() -> Path:
    """The model's files, made once a process: 5 layers of 32 numbers, weights that make it talk."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.set_num_threads(1)
    where = Path(tempfile.mkdtemp(prefix="pooled-sim-"))
    atexit.register(shutil.rmtree, where, ignore_errors=True)
    tok = tokenizer()
    with torch.random.fork_rng():
        torch.manual_seed(SEED)
        config = LlamaConfig(
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=LAYERS,
            num_attention_heads=2,
            num_key_value_heads=1,
            vocab_size=len(tok),
            max_position_embeddings=CTX,
            bos_token_id=tok.convert_tokens_to_ids("<s>"),
            eos_token_id=tok.convert_tokens_to_ids("<|im_end|>"),
        )
        model = LlamaForCausalLM(config)
        grow(model)
        with torch.no_grad():  # it speaks in letters, and ends now and then
            for id in range(len(tok)):
                if not tok.convert_ids_to_tokens(id).isascii() and id != config.eos_token_id:
                    model.lm_head.weight[id] = 0
        with quiet():
            model.save_pretrained(where)
    tok.save_pretrained(where)
    return where


@cache
def facts() -> ModelFacts:
    """The model as a room knows it; its layers weigh so much that devices of a GB share them."""
    true = model_facts(find(str(folder()), revision=None, folder=None, progress=lambda *_: None))
    return structs.replace(
        true,
        repo="local/tiny",
        label="Tiny",
        layer_bytes=[120_000_000] * LAYERS,
        ends_bytes=50_000_000,
        kv_bytes=[64] * LAYERS,
    )


@cache
def _chat() -> Chat:
    return Chat.load(folder())


class LentEngine(Engine):
    """An engine whose layers come from a shelf, and go back there fresh."""

    _shelf: dict[tuple[Any, ...], list[tuple[Any, ...]]] = {}  # noqa: RUF012  # one for all, on purpose

    def load(self, spec: LoadSpec, folder: Path, progress: Progress) -> Loaded:
        """As of `Engine`; memory is lent by word, so no ``max_gb`` decides anything."""
        self.unload(keep=True)
        spec = structs.replace(spec, max_gb=None, device="cpu", room="")
        self._mark = (spec.lo, spec.hi, spec.ends, spec.ctx, spec.width, spec.cols, spec.exact, spec.kv)
        shelf = self._shelf.setdefault(self._mark, [])
        if shelf:
            self._stage, self._ends, self._dtype, self._embeds, self._handover, self._drawer = shelf.pop()
            self._need().lane = Lane(self._need().rules)
            self._need().keep(None, None, {})
            progress(100, "ready")
            return Loaded(weights=1, cache=1, seconds=0.0, placed="sim")
        return structs.replace(super().load(spec, folder, progress), seconds=0.0, layer_ms=0.0)

    def unload(self, *, keep: bool = False) -> None:
        """Back to the shelf."""
        if self._stage is None:
            return
        self._stage.clear()
        held = (self._stage, self._ends, self._dtype, self._embeds, self._handover, self._drawer)
        self._shelf[self._mark].append(held)
        self._stage = self._ends = self._drawer = self.on_spare = None

    def relieve(self, error: BaseException) -> None:
        """Nothing is freed here."""


class SimDesk(Desk):
    """The desk over lent layers, with one tokenizer for all."""

    def __init__(self) -> None:
        super().__init__()
        self._engine = LentEngine()

    def _load(self, spec: LoadSpec, progress: Progress, stop: Stop = never) -> Loaded:
        self._unload(keep=True)
        loaded = self._engine.load(spec, folder(), progress)
        self._drafts = Drafts(None, self._engine.vocab)
        self._chat = _chat() if spec.ends else None
        return loaded


@dataclass
class Pace:
    """What jobs take, in seconds of the machine's clock."""

    load: float = 2.0
    frame: float = 0.02
    column: float = 0.0005
    other: float = 0.001

    def of(self, job: protocol.AnyJob) -> float:
        match job:
            case protocol.Load():
                return self.load
            case protocol.Forward():
                return self.frame + self.column * job.columns.n
            case _:
                return self.other


@dataclass
class Ills:
    """What goes wrong at the next loads: ``memory`` (refused in words), ``killed`` (the process ends)."""

    loads: list[str] = field(default_factory=list)


class RealShard(Caller):
    """One device's shard."""

    def __init__(self, clock: SimClock, *, pace: Pace | None = None, ills: Ills | None = None) -> None:
        super().__init__()
        self._clock, self.pace, self.ills = clock, pace or Pace(), ills or Ills()
        self._desk: SimDesk | None = SimDesk()
        self._jobs: deque[tuple[protocol.AnyJob, asyncio.Future[Any], Progress | None]] = deque()
        self._runner: asyncio.Task[None] | None = None
        self._dead = ""
        self._closing = False
        self.frames = 0

    async def _run(self, job: protocol.AnyJob, result: type[T], progress: Progress | None = None) -> T:
        if self._closing:
            raise ShardError("The shard is closed.", "Open another one.")
        if self._dead:
            raise self._died()
        future: asyncio.Future[Any] = self._clock.machine.loop.create_future()
        self._jobs.append((job, future, progress))
        if self._runner is None:
            self._runner = asyncio.get_running_loop().create_task(self._work(), name="sim-shard")
        try:
            return cast(T, await future)
        finally:
            future.cancel()

    async def _work(self) -> None:
        try:
            while self._jobs:
                job, future, progress = self._jobs[0]
                error: Exception | None = None
                value: object = None
                try:
                    value = await self._do(job, progress)
                except PooledError as raised:
                    error = raised
                except Exception as raised:
                    error = as_pooled_error(raised)
                if not self._jobs or self._jobs[0][1] is not future:
                    return  # it died meanwhile
                self._jobs.popleft()
                if future.done():
                    continue
                if error is not None:
                    future.set_exception(error)
                else:
                    future.set_result(value)
        finally:
            self._runner = None

    async def _do(self, job: protocol.AnyJob, progress: Progress | None) -> object:
        slow = self._clock.machine.slow
        takes = self.pace.of(job) * (min(slow, 10.0) if isinstance(job, protocol.Load) else slow)
        if isinstance(job, protocol.Load):
            await self._loads(takes, progress)
        else:
            await self._clock.sleep(takes)
        if self._desk is None:
            raise self._died()
        if isinstance(job, protocol.Device):
            return FACTS
        if isinstance(job, protocol.Inspect):
            return facts()
        if isinstance(job, protocol.Lacks):
            return Missing()  # its files are here
        done = self._desk.run(job, lambda *_: None)
        if isinstance(done, Forwarded):
            self.frames += 1
            return structs.replace(done, ms=takes * 1e3)
        return done

    async def _loads(self, takes: float, progress: Progress | None) -> None:
        ill = self.ills.loads.pop(0) if self.ills.loads else ""
        for step in range(4):
            if progress:
                progress(25 * step, "reading")
            await self._clock.sleep(takes / 4)
            if step == 1 and ill == "memory":
                raise ModelTooBig("Memory ran out while loading.", "Lend less memory, then start again.")
            if step == 1 and ill == "killed":
                self.die("The shard's process was killed (signal 9): memory ran out, usually.")
                raise self._died()
        if progress:
            progress(100, "ready")

    def die(self, why: str) -> None:
        """The shard's process ends by itself; its owner hears of it, as of `ProcessShard`."""
        if self._dead or self._closing:
            return
        self._dead = why
        self._give_back()
        waiting, self._jobs = self._jobs, deque()
        for _, future, _ in waiting:
            if not future.done():
                future.set_exception(self._died())
        if self.on_died is not None:
            asyncio.get_running_loop().call_soon(self.on_died, why, context=self._clock.machine.context)

    def vanish(self) -> None:
        """The process around it was killed, and it with it."""
        self._dead = self._dead or "killed"
        self._jobs.clear()
        self._give_back()

    def _died(self) -> ShardDied:
        return ShardDied(self._dead or "The shard's process ended.", "Lend less memory, then start again.")

    def _give_back(self) -> None:
        if self._desk is not None:
            self._desk.run(protocol.Unload(), lambda *_: None)
            self._desk = None

    async def close(self) -> None:
        """See `Shard.close`."""
        if self._closing:
            return
        self._closing = True
        if self._runner is not None:
            self._runner.cancel()
            await asyncio.gather(self._runner, return_exceptions=True)
        waiting, self._jobs = self._jobs, deque()
        for _, future, _ in waiting:
            future.cancel()
        self._give_back()
