"""One device's compute as one synchronous object: what the child process calls, job by job."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from pathlib import Path

import torch

from pooled_nb.errors import FrameRefused, ModelNotSupported, ModelTooBig, ShardError
from pooled_nb.shard import sampling as samplers
from pooled_nb.shard.arch import Parts, attention, cache_numbers, max_ctx, read_config, slice_config
from pooled_nb.shard.device import device_kind
from pooled_nb.shard.door import BUCKET, Columns, Control, Forwarded, Loaded, LoadSpec, Sampling
from pooled_nb.shard.ends import Ends
from pooled_nb.shard.faults import no_memory
from pooled_nb.shard.frames import Rules
from pooled_nb.shard.loader import load_range
from pooled_nb.shard.packed import PackedLinear, pack_all
from pooled_nb.shard.stage import Stage

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}

ATTENTION = ("sdpa", "eager")
EXPERTS = ("batched_mm", "grouped_mm", "eager")
"""What a room may ask for. transformers would take any name, and fetch and run a kernel of that name."""


class Engine:
    """Layers ``[lo, hi)`` of one model, with its ends on the host. One job at a time, in order."""

    def __init__(self) -> None:
        self._stage: Stage | None = None
        self._ends: Ends | None = None
        self._dtype = torch.float32
        self._embeds = False

    def load(self, spec: LoadSpec, folder: Path, progress: Callable[[int, str], None]) -> Loaded:
        """Load the range; what was loaded before is freed first.

        Parameters
        ----------
        folder
            Holds ``config.json`` and the safetensors files with at least this range's tensors.
        progress
            Called with percent and a few words.

        Raises
        ------
        ModelNotFound, ModelNotSupported, ModelTooBig
        """
        start = time.monotonic()
        self.unload()
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
        for wanted, known in ((spec.attn, ATTENTION), (spec.experts, EXPERTS)):
            if wanted not in known:
                raise ModelNotSupported(
                    f"The room asks to compute with {wanted[:60]!r}, which is not done here.",
                    f"Use {', '.join(known)}.",
                )
        dtype = DTYPES[spec.dtype]
        device = _device(spec.device)
        step = 1 if device == "cpu" else BUCKET
        rules = Rules(ctx=spec.ctx, width=spec.width, cols=spec.cols, exact=spec.exact, step=step)
        words = f"reading layers {spec.lo + 1}–{spec.hi}"
        shown = -1

        def read(size: int, total: int) -> None:
            nonlocal shown
            percent = size * 95 // total
            if percent != shown:
                shown = percent
                progress(percent, words)

        progress(0, words)
        numbers = cache_numbers(slice_config(config, spec.lo, spec.hi))
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
                cache_bytes=sum(numbers) * rules.capacity * dtype.itemsize,
                progress=read,
            )
            progress(96, "warming up")
            ends = Ends(model, parts, spec.width if spec.exact else 0) if spec.ends else None
            pack_all(parts.list())
            stage = Stage(parts, spec.lo, rules, dtype, embeds=spec.ends)
        except Exception as error:
            if not no_memory(error):
                raise
            raise ModelTooBig(
                f"The device ran out of memory while loading layers {spec.lo + 1} to {spec.hi}.",
                "Lend a smaller range.",
            ) from error
        self._stage, self._ends, self._dtype, self._embeds = stage, ends, dtype, spec.ends
        weights = _nbytes(model, parts.base)
        progress(100, "ready")
        return Loaded(
            weights=weights,
            cache=stage.slab.nbytes(),
            seconds=time.monotonic() - start,
            placed=_placed(parts),
        )

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
        stage = self._need()
        start = time.perf_counter()
        if self._embeds:
            given = self._tokens(tokens, columns.n, stage)
        else:
            given = self._states(data, columns.n, stage.dim)
        hidden = stage.forward(columns, control, given)
        if last:
            hidden = hidden[-1:]
        n = hidden.shape[0]
        packed = _pack(hidden)
        ms = (time.perf_counter() - start) * 1000
        return Forwarded(data=packed, pos=columns.pos + columns.n - n, n=n, ms=ms)

    def sample(self, data: bytes | memoryview, *, pos: int, n: int, sampling: Sampling) -> list[int]:
        """Final norm, head, and one token per column: column i sits at ``pos + i``, its token one further.

        Raises
        ------
        FrameRefused
            This device has no head, or the data are not ``n`` hidden states.
        WrongNumbers
            NaN or infinity came out of norm or head.
        """
        stage = self._need()
        if self._ends is None:
            raise FrameRefused("This device holds no head, so it draws no tokens.", "Ask the host.")
        logits = self._ends.logits(self._states(data, n, stage.dim)).numpy()
        return [samplers.draw(logits[i], sampling, pos + i + 1) for i in range(n)]

    def unload(self) -> None:
        """Free weights and caches."""
        if self._stage is None:
            return
        self._stage = self._ends = None
        gc.collect()  # the slab and its layers know each other
        if torch.cuda.is_available():
            torch.cuda.empty_cache()

    def _need(self) -> Stage:
        if self._stage is None:
            raise ShardError("No layers are loaded here.", "Load the model first.")
        return self._stage

    def _tokens(self, tokens: list[int] | None, n: int, stage: Stage) -> torch.Tensor:
        if tokens is None or n < 1 or len(tokens) != n:
            raise FrameRefused(
                f"The frame names {n} columns and brings {len(tokens or ())} tokens.", "Send it again."
            )
        vocab = stage.base.config.vocab_size
        if min(tokens) < 0 or max(tokens) >= vocab:
            raise FrameRefused(
                f"The frame has a token outside the {vocab} of the vocabulary.", "Send it again."
            )
        return torch.tensor(tokens, dtype=torch.int64)

    def _states(self, data: bytes | memoryview | None, n: int, dim: int) -> torch.Tensor:
        want = n * dim * self._dtype.itemsize
        got = len(memoryview(data).cast("B")) if data is not None else 0
        if data is None or n < 1 or got != want:
            raise FrameRefused(
                f"{n} hidden states of {dim} numbers are {want} bytes, and {got} came.", "Send it again."
            )
        return torch.frombuffer(bytearray(data), dtype=self._dtype).view(n, dim)


def _pack(hidden: torch.Tensor) -> bytes:
    plain = hidden.contiguous().cpu()
    return plain.view(-1).view(torch.uint8).numpy().tobytes()


def _device(wanted: str) -> str:
    there = device_kind()
    if wanted == "cpu" or wanted in ("auto", there):
        return "cpu" if wanted == "cpu" else there
    raise ModelNotSupported(f"There is no device {wanted[:40]!r} here.", "Use cpu, or auto.")


def _nbytes(*modules: torch.nn.Module) -> int:
    """Bytes of the modules' weights; a tied or shared one counts once."""
    held = {id(p): p.nbytes for module in modules for p in module.parameters()}
    packed = {id(m): m.nbytes for module in modules for m in module.modules() if isinstance(m, PackedLinear)}
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
