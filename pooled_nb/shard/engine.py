"""One device's compute as one synchronous object: what the child process calls, job by job."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from pooled_nb.errors import FrameRefused, ModelNotSupported, ShardError, WrongArrived
from pooled_nb.shard import disk, diskfolder
from pooled_nb.shard.accelerators import empty_caches
from pooled_nb.shard.arch import Parts, attention, max_ctx, read_config
from pooled_nb.shard.damage import refuse_damage
from pooled_nb.shard.device import device_kind
from pooled_nb.shard.door import BUCKET, Columns, Control, Forwarded, Loaded, LoadSpec, Sampling
from pooled_nb.shard.drawer import Drawer
from pooled_nb.shard.ends import Ends
from pooled_nb.shard.faults import let_go, memory_ran_out, no_memory
from pooled_nb.shard.footprint import KV_FORMS, cache_sizes, range_bytes
from pooled_nb.shard.frames import Rules
from pooled_nb.shard.handover import Handover, all_finite
from pooled_nb.shard.history import History
from pooled_nb.shard.kept import cache_folder
from pooled_nb.shard.loader import load_range
from pooled_nb.shard.pace import layer_ms
from pooled_nb.shard.packed import PackedLinear, pack_all
from pooled_nb.shard.quant.forms import QUANT_FORMS
from pooled_nb.shard.quant.linear import QuantLinear
from pooled_nb.shard.sig import signature
from pooled_nb.shard.sizes import kept
from pooled_nb.shard.stage import Stage
from pooled_nb.shard.stopping import Stop, never
from pooled_nb.shard.tensormap import TensorMap

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}

ATTENTION = ("sdpa", "eager")
EXPERTS = ("batched_mm", "grouped_mm", "eager")
"""What a room may ask for. transformers would take any name, and fetch and run a kernel of that name."""


class Engine:
    """Layers ``[lo, hi)`` of one model, with its ends on the host. One job at a time, in order.

    Attributes
    ----------
    on_spare
        Called with position and hidden states ``[n, dim]`` of a frame of which only the last column is
        returned: what reads along (`draft_layers`) has them for nothing.
    """

    def __init__(self) -> None:
        self.on_spare: Callable[[int, torch.Tensor], None] | None = None
        self._stage: Stage | None = None
        self._ends: Ends | None = None
        self._handover = Handover("cpu")
        self._drawer: Drawer | None = None
        self._dtype = torch.float32
        self._embeds = False
        self._key = ""
        """Of the disk copies that stay (`disk.copy_key`)."""

    def load(
        self,
        spec: LoadSpec,
        folder: Path,
        progress: Callable[[int, str], None],
        *,
        tensors: TensorMap | None = None,
        stop: Stop = never,
    ) -> Loaded:
        """Load the range; what was loaded before is freed first.

        Parameters
        ----------
        folder
            Holds ``config.json``.
        progress
            Called with percent and a few words.
        tensors
            Where at least this range's tensors lie; None: in safetensors files of the folder.
        stop
            Called often; what it raises ends the load, and nothing of it is kept here.

        Raises
        ------
        ModelNotFound, ModelNotSupported, ModelTooBig
        """
        start = time.monotonic()
        self.unload(keep=True)
        config = read_config(folder)
        layers = config.num_hidden_layers
        if not 0 <= spec.lo < spec.hi <= layers or (spec.ends and spec.lo != 0):
            raise ModelNotSupported(
                f"Layers {spec.lo + 1} to {spec.hi} cannot be loaded: the model has {layers}.",
                "Deal the layers again.",
            )
        if spec.ctx > max_ctx(config):
            raise ModelNotSupported(
                f"A context of {spec.ctx} tokens is more than this model holds ({max_ctx(config)}).",
                "Use a shorter context.",
            )
        if spec.dtype not in DTYPES:
            raise ModelNotSupported(
                f"The dtype {spec.dtype[:40]!r} is not computed here.", f"Use {', '.join(DTYPES)}."
            )
        for wanted, known in (
            (spec.attn, ATTENTION),
            (spec.experts, EXPERTS),
            (spec.kv, KV_FORMS),
            (spec.quant, QUANT_FORMS),
        ):
            if wanted not in known:
                raise ModelNotSupported(
                    f"The room asks to compute with {wanted[:60]!r}, which is not done here.",
                    f"Use {', '.join(word for word in known if word)}.",
                )
        dtype = DTYPES[spec.dtype]
        device = _device(spec.device)
        step = 1 if device == "cpu" else BUCKET
        rules = Rules(ctx=spec.ctx, width=spec.width, cols=spec.cols, exact=spec.exact, step=step, kv=spec.kv)
        words = f"reading layers {spec.lo + 1}–{spec.hi}"
        shown = -1

        def read(size: int, total: int) -> None:
            nonlocal shown
            percent = size * 95 // total
            if percent != shown:
                shown = percent
                progress(percent, words)

        progress(0, words)
        caches, lasting = _caches(config, spec, dtype)
        try:
            model, parts = load_range(
                folder,
                config,
                spec.lo,
                spec.hi,
                ends=spec.ends,
                dtype=dtype,
                attn=attention(config, spec.attn),
                experts=spec.experts if spec.exact else None,
                device=device,
                max_gb=spec.max_gb,
                quant=spec.quant,
                cache_bytes=caches,
                progress=read,
                tensors=tensors,
                stop=stop,
            )
            progress(96, "warming up")
            ends = Ends(model, parts, spec.width if spec.exact else 0) if spec.ends else None
            stop()
            pack_all(parts.list())
            stop()
            stage = _stage(parts, spec, rules, dtype, lasting)
            pace = layer_ms(stage, embeds=spec.ends)
            handover = Handover(device)
            drawer = Drawer(ends, handover) if ends else None
            if drawer:
                drawer.warm(torch.zeros((1, stage.dim), dtype=dtype))
        except Exception as error:
            if not no_memory(error):
                raise
            raise memory_ran_out(error, f"while loading layers {spec.lo + 1} to {spec.hi}") from error
        stop()
        self._stage, self._ends, self._dtype, self._embeds = stage, ends, dtype, spec.ends
        self._handover, self._drawer = handover, drawer
        weights, cache = _nbytes(model, parts.base), stage.slab.nbytes()
        # With the snapshots that come with the first draft.
        taken = weights + max(cache, caches)
        spare = None if spec.max_gb is None else max(0, int(spec.max_gb * 1e9) - taken)
        slots = self._keep(spec, device, spare)
        progress(100, "ready")
        return Loaded(
            weights=weights,
            cache=cache,
            seconds=time.monotonic() - start,
            placed=_placed(parts),
            slots=slots,
            runs=stage.runs,
            layer_ms=pace,
        )

    def _keep(self, spec: LoadSpec, device: str, spare: int | None) -> list[int]:
        """Give checkpoints their places; return the slots that the disk kept for this room."""
        folder = cache_folder() / "checkpoints"
        diskfolder.clean(folder, time.time())
        key = disk.copy_key(spec, signature(device, spec.dtype)) if spec.room else ""
        if key != self._key:
            self._forget()
        copies, found = disk.open_copies(folder, key, spec.ctx)
        self._need().keep(spare, copies, found)
        self._key = key
        return sorted(found)

    def reserve(self, nbytes: int) -> None:
        """Leave memory to what is loaded beside the layers: checkpoints may take so many bytes less."""
        self._need().checkpoints.shrink(nbytes)

    def _forget(self) -> None:
        if self._key:
            disk.forget(cache_folder() / "checkpoints", self._key)
        self._key = ""

    def forward(
        self,
        columns: Columns,
        control: Control,
        *,
        tokens: list[int] | None,
        data: bytes | memoryview | None,
        last: bool,
    ) -> Forwarded:
        """Apply control, then run a frame of tokens (the host) or hidden states (a worker).

        Parameters
        ----------
        data
            ``n`` hidden states, little-endian, in the spec's dtype.
        last
            Return the last column only.

        Raises
        ------
        FrameRefused, WrongNumbers
            See `Stage.forward`.
        """
        start = time.perf_counter()
        hidden = self.run(columns, control, tokens=tokens, data=data, last=last)
        n = hidden.shape[0]
        packed = self._handover.down(hidden)
        ms = (time.perf_counter() - start) * 1000
        return Forwarded(data=packed, pos=columns.pos + columns.n - n, n=n, ms=ms)

    def run(
        self,
        columns: Columns,
        control: Control,
        *,
        tokens: list[int] | None,
        data: bytes | memoryview | None = None,
        last: bool = True,
    ) -> torch.Tensor:
        """As `forward`, but the hidden states stay where they are: ``[n, dim]``, until the next frame."""
        stage = self._need()
        if self._embeds:
            given = self._tokens(tokens, columns.n, stage)
        else:
            given = self._states(data, columns.n, stage.dim)
        hidden = stage.forward(columns, control, given)
        if last:
            if self.on_spare is not None:
                self.on_spare(columns.pos, hidden)
            hidden = hidden[-1:]
        return hidden

    def sample(
        self,
        data: bytes | memoryview,
        *,
        pos: int,
        n: int,
        sampling: Sampling,
        history: History | None = None,
        drafts: list[int] | None = None,
        ends: Callable[[int], bool] = lambda token: False,
    ) -> list[int]:
        """Final norm, head, and one token per column: column i sits at ``pos + i``, its token one further.

        See `draw_columns` for ``history``, ``drafts`` (one less than columns) and ``ends``.

        Raises
        ------
        FrameRefused
            This device has no head, the data are not ``n`` hidden states, or the drafts are not ``n − 1``.
        WrongNumbers
            NaN or infinity arrived, or came out of norm or head.
        """
        stage, drawer = self._need(), self._draws()
        if drafts is not None and len(drafts) != n - 1:
            raise FrameRefused(f"{n} columns have {n - 1} drafts, and {len(drafts)} came.", "Send it again.")
        hidden = self._states(data, n, stage.dim)
        if not all_finite(hidden):
            raise WrongArrived(
                "NaN or infinity arrived here, before the final norm.",
                "Look at the last device of the chain.",
            )
        return drawer.draw(hidden, sampling, pos, history or History(), drafts, ends)

    def draw(
        self, hidden: torch.Tensor, *, pos: int, sampling: Sampling, history: History | None = None
    ) -> list[int]:
        """As `sample`, from hidden states of `run`, wherever they are: ``[n, dim]``."""
        return self._draws().draw(hidden, sampling, pos, history or History())

    @property
    def vocab(self) -> int:
        """Tokens of the model that is loaded."""
        return int(self._need().base.config.vocab_size)

    def cut(self, length: int) -> bool:
        """Take back all columns from ``length`` on; false, and nothing is done, where states are kept."""
        return self._need().cut(length)

    def unload(self, *, keep: bool = False) -> None:
        """Free weights and caches.

        Parameters
        ----------
        keep
            The disk copies of a room's checkpoints stay for a load of the same layers, which may follow.
        """
        if self._stage is not None:
            self._stage.checkpoints.close(keep=keep)
        if not keep:
            self._forget()
        if self._stage is None:
            return
        self._stage = self._ends = self._drawer = self.on_spare = None
        self._handover = Handover("cpu")
        gc.collect()  # the slab and its layers know each other
        empty_caches()

    def relieve(self, error: BaseException) -> None:
        """Free what a job held that failed for lack of memory, or was stopped: the next finds all of it."""
        let_go(error)
        gc.collect()
        empty_caches()

    @property
    def dtype(self) -> torch.dtype:
        """Of hidden states, weights and caches."""
        return self._dtype

    @property
    def base(self) -> torch.nn.Module:
        """The model's body: the layers that are loaded here, and the embedding where there is one."""
        base: torch.nn.Module = self._need().base
        return base

    @property
    def ends(self) -> Ends:
        """Norm and head; only the host has them."""
        self._need()
        if self._ends is None:
            raise _no_head()
        return self._ends

    def _need(self) -> Stage:
        if self._stage is None:
            raise ShardError("No layers are loaded here.", "Load the model first.")
        return self._stage

    def _draws(self) -> Drawer:
        if self._drawer is None:
            raise _no_head()
        return self._drawer

    def _tokens(self, tokens: list[int] | None, n: int, stage: Stage) -> torch.Tensor:
        if tokens is None or n < 1 or len(tokens) != n:
            raise FrameRefused(
                f"The frame names {n} columns and brings {len(tokens or ())} tokens.", "Send it again."
            )
        vocab = self.vocab
        if min(tokens) < 0 or max(tokens) >= vocab:
            raise FrameRefused(
                f"The frame has a token outside the {vocab} of the vocabulary.", "Send it again."
            )
        return self._handover.tokens(tokens)

    def _states(self, data: bytes | memoryview | None, n: int, dim: int) -> torch.Tensor:
        want = n * dim * self._dtype.itemsize
        got = len(memoryview(data).cast("B")) if data is not None else 0
        if data is None or n < 1 or got != want:
            raise FrameRefused(
                f"{n} hidden states of {dim} numbers are {want} bytes, and {got} came.", "Send it again."
            )
        return self._handover.states(data, self._dtype).view(n, dim)


def _stage(parts: Parts, spec: LoadSpec, rules: Rules, dtype: torch.dtype, lasting: frozenset[int]) -> Stage:
    try:
        return Stage(parts, spec.lo, rules, dtype, embeds=spec.ends, lasting=lasting)
    except ModelNotSupported:
        # Layers that give no numbers agree with nothing: then the files are to blame, not the architecture.
        refuse_damage(parts.base, parts.list(), spec.lo, dtype)
        raise


def _caches(config: Any, spec: LoadSpec, dtype: torch.dtype) -> tuple[int, frozenset[int]]:
    """Bytes that the caches of the range will take, and which of its layers' columns others may read too."""
    keeps = kept(config, dtype)
    for lo, hi in keeps.glued:
        if lo < spec.lo < hi or lo < spec.hi < hi:
            raise ModelNotSupported(
                f"Layers {lo + 1} to {hi} attend over each other's caches, so one device must hold them all.",
                "Deal the layers again.",
            )
    sizes = cache_sizes(
        [2 * numbers for numbers in keeps.numbers],
        keeps.rows,
        keeps.state,
        kv=spec.kv,
        itemsize=dtype.itemsize,
        glued=keeps.glued,
    )
    inside = {i for lo, hi in keeps.glued for i in range(lo, hi) if spec.lo <= i < spec.hi}
    return range_bytes(sizes, spec.lo, spec.hi, spec.ctx), frozenset(i - spec.lo for i in inside)


def _no_head() -> FrameRefused:
    return FrameRefused("This device holds no head, so it draws no tokens.", "Ask the host.")


def _device(wanted: str) -> str:
    there = device_kind()
    if wanted == "cpu" or wanted in ("auto", there):
        return "cpu" if wanted == "cpu" else there
    raise ModelNotSupported(f"There is no device {wanted[:40]!r} here.", "Use cpu, or auto.")


def _nbytes(*modules: torch.nn.Module) -> int:
    """Bytes of the modules' weights; a tied or shared one counts once."""
    held = {id(p): p.nbytes for module in modules for p in module.parameters()}
    kinds = (PackedLinear, QuantLinear)
    packed = {id(m): m.nbytes for module in modules for m in module.modules() if isinstance(m, kinds)}
    return sum(held.values()) + sum(packed.values())


def _placed(parts: Parts) -> str:
    """Where the layers are, for people: ``cuda:0 (24 layers), cpu (6 layers)``."""
    counts: dict[str, int] = {}
    for layer in parts.list():
        first = next(layer.parameters(), None)
        # accelerate keeps what does not fit on the accelerator in main memory, and shows it as meta.
        place = str(first.device).replace("meta", "cpu") if first is not None else "cpu"
        counts[place] = counts.get(place, 0) + 1
    return ", ".join(f"{place} ({n} {'layer' if n == 1 else 'layers'})" for place, n in counts.items())
