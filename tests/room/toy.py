"""A toy shard behind the real door: integers instead of tensors, and as strict as the real one.

A column's number depends on its token, its position, its frame class and all that came before, so a
room that reorders, repeats, drops or misclasses a column gives another text.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable

from pooled_nb.errors import BadQuestion, FrameRefused, ModelNotFound
from pooled_nb.shard import (
    Columns,
    Control,
    DeviceFacts,
    FileFact,
    Forwarded,
    Loaded,
    LoadSpec,
    ModelFacts,
    Prompt,
    Sampled,
    Sampling,
    Turn,
    Want,
)

LAYERS = 6
DIM = 4
VOCAB = 96
MOD = 2**32
END = 0

FACTS = DeviceFacts(
    kind="cpu",
    name="toy",
    total_gb=8.0,
    free_gb=8.0,
    dtypes=["float32", "bfloat16"],
    gbps=1.0,
    sig="toy",
    threads=1,
    torch="0",
    transformers="0",
)
MODEL = ModelFacts(
    repo="toy/model",
    revision="1",
    folder=None,
    label="Toy",
    arch="toy",
    layers=LAYERS,
    dim=DIM,
    vocab=VOCAB,
    dtype="float32",
    max_ctx=4096,
    layer_bytes=[10_000_000] * LAYERS,
    ends_bytes=10_000_000,
    kv_bytes=[64] * LAYERS,
    config_sha256="0" * 64,
    files={"model.safetensors": FileFact(size=1)},
    eos=[END],
)


class ToyShard:
    """See the module. ``end_after``: the model ends its turn once its answer has that many tokens."""

    def __init__(self, *, end_after: int = 40, delay: float = 0.0, fail_load: str = "") -> None:
        self.on_died: Callable[[str], None] | None = None
        self.spec: LoadSpec | None = None
        self.end_after, self.delay, self.fail_load = end_after, delay, fail_load
        self.columns_run = 0
        self.frames: list[tuple[Columns, Control]] = []
        self.asked: list[tuple[list[Turn], bool | None]] = []
        self.closed = False
        self._cache: list[list[int]] = []
        self._drawn = 0
        self._lock = asyncio.Lock()

    async def device(self) -> DeviceFacts:
        return FACTS

    async def inspect(self, model: str, **_: object) -> ModelFacts:
        return MODEL

    async def load(self, spec: LoadSpec, progress: Callable[[int, str], None] | None = None) -> Loaded:
        if progress:
            progress(10, "reading")
        await asyncio.sleep(self.delay)
        if self.fail_load:
            raise ModelNotFound(self.fail_load, "Try another device.")
        self.spec = spec
        self._cache = [[] for _ in range(spec.hi - spec.lo)]
        if progress:
            progress(100, "read")
        return Loaded(weights=1, cache=1, seconds=0.0, placed="toy")

    async def forward(
        self,
        columns: Columns,
        control: Control,
        *,
        tokens: list[int] | None = None,
        data: bytes | None = None,
        last: bool = False,
    ) -> Forwarded:
        async with self._lock:
            await asyncio.sleep(self.delay)
            return self._run(columns, control, tokens, data, last)

    def _run(
        self, columns: Columns, control: Control, tokens: list[int] | None, data: bytes | None, last: bool
    ) -> Forwarded:
        assert self.spec is not None
        if control.reset:
            self._cache = [[] for _ in self._cache]
        if self._cache and columns.pos != len(self._cache[0]):
            raise FrameRefused(f"position {columns.pos} is not {len(self._cache[0])}.", "Reset.")
        size = self.spec.cols if columns.wide else self.spec.width
        if columns.n > size or (
            columns.wide and columns.pos // size != (columns.pos + columns.n - 1) // size
        ):
            raise FrameRefused("the frame is too wide or crosses its multiple.", "Cut it.")
        self.frames.append((columns, control))
        self.columns_run += columns.n
        numbers = (
            list(tokens) if tokens is not None else [c[0] for c in struct.iter_unpack("<4I", data or b"")]
        )
        assert len(numbers) == columns.n
        out = []
        for i, number in enumerate(numbers):
            h = number
            for layer, cache in enumerate(self._cache, self.spec.lo):
                h = (h * 31 + sum(cache) * 17 + layer + (columns.pos + i) * 7 + columns.wide) % MOD
                cache.append(h)
            out.append(h)
        if last:
            out = out[-1:]
        payload = b"".join(struct.pack("<4I", h, 0, 0, 0) for h in out)
        pos = columns.pos + columns.n - len(out)
        return Forwarded(data=payload, pos=pos, n=len(out), ms=0.0)

    async def sample(
        self,
        data: bytes,
        *,
        pos: int,
        n: int,
        sampling: Sampling,
        first: bool = False,
        after: list[int] | None = None,
        seen: list[int] | None = None,
        drafts: list[int] | None = None,
        want: Want | None = None,
    ) -> Sampled:
        assert len(data) == 16 * n
        self._drawn = 1 + len(after or ()) if first else self._drawn + 1
        seed = sampling.seed * 1_000_003 + pos if sampling.temperature else 0
        token = 1 + (struct.unpack("<4I", data)[0] + seed) % (VOCAB - 1)
        if self._drawn > self.end_after:
            return Sampled(tokens=[END], texts=[""], end=True)
        return Sampled(tokens=[token], texts=[chr(31 + token)], end=False)

    async def flush(self) -> str:
        return ""

    async def render(self, turns: list[Turn], *, thinking: bool | None = None) -> Prompt:
        self.asked.append((turns, thinking))
        ids: list[int] = []
        generated: list[bool] = []
        for i, turn in enumerate(turns):
            if "refuse me" in turn.text:
                raise BadQuestion("The template refuses: no such turn.", "Ask otherwise.")
            mine = turn.ids if turn.ids is not None else [1 + ord(c) % (VOCAB - 1) for c in turn.text]
            still_open = turn.role == "assistant" and i + 1 == len(turns)
            ids += mine if still_open else [*mine, 2]
            generated += [turn.ids is not None] * len(mine) + [False] * (not still_open)
        return Prompt(ids=ids, generated=generated)

    async def unload(self) -> None:
        self.spec = None

    async def close(self) -> None:
        self.closed = True
