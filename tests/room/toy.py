"""A toy shard behind the real door: integers instead of tensors, and as strict as the real one.

A column's number depends on its token, its position, its frame class and all that came before, so a
room that reorders, repeats, drops or misclasses a column, takes back the wrong ones or loads another state
gives another text.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from random import Random

from pooled_nb.errors import BadQuestion, ModelNotFound
from pooled_nb.shard import (
    Columns,
    Control,
    DeviceFacts,
    FileFact,
    Forwarded,
    Loaded,
    LoadSpec,
    Missing,
    ModelFacts,
    Prompt,
    Sampled,
    Sampling,
    Source,
    Turn,
    Want,
)
from tests.room.toylane import ToyLane
from tests.room.toytext import ToyText, looked_up

LAYERS = 6
DIM = 4
VOCAB = 96
END = 0
FEW = 8
"""Different tokens that a model says which copies: the same words come again soon."""

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
    """See the module.

    Parameters
    ----------
    end_after
        The model ends its turn once its answer has that many tokens.
    copies
        How often the model says what stood after the same words before, so that lookup is right.
    drafter
        A draft model: how often it is right. None: there is none.
    drafting
        Seconds that it takes for each guess.
    """

    def __init__(
        self,
        *,
        end_after: int = 40,
        delay: float = 0.0,
        fail_load: str = "",
        copies: float = 0.0,
        drafter: float | None = None,
        drafting: float = 0.0,
    ) -> None:
        self.on_died: Callable[[str], None] | None = None
        self.spec: LoadSpec | None = None
        self.end_after, self.delay, self.fail_load = end_after, delay, fail_load
        self.copies, self.drafter, self.drafting = copies, drafter, drafting
        self.columns_run = self.loads = 0
        self.frames: list[tuple[Columns, Control]] = []
        self.asked: list[tuple[list[Turn], bool | None]] = []
        self.closed = False
        self.lane = ToyLane.over(0, 0)
        self._rendered: dict[tuple[int, ...], list[bool]] = {}
        self._roles: list[bool] = []
        self._history: list[int] = []
        self._drawn = 0
        self._text = ToyText()
        self._rng = Random(7)
        self._lock = asyncio.Lock()

    async def device(self) -> DeviceFacts:
        return FACTS

    async def inspect(self, model: str, **_: object) -> ModelFacts:
        return MODEL

    async def missing(self, spec: LoadSpec, progress: Callable[[int, str], None] | None = None) -> Missing:
        return Missing()

    async def load(self, spec: LoadSpec, progress: Callable[[int, str], None] | None = None) -> Loaded:
        self.loads += 1
        if progress:
            progress(10, "reading")
        await asyncio.sleep(self.delay)
        if self.fail_load:
            raise ModelNotFound(self.fail_load, "Try another device.")
        self.spec = spec
        self.lane = ToyLane.over(spec.lo, spec.hi)
        if progress:
            progress(100, "read")
        drafts = "model" if spec.ends and self.drafter is not None else ""
        return Loaded(weights=1, cache=1, seconds=0.0, placed="toy", drafts=drafts)

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
        numbers = (
            list(tokens) if tokens is not None else [c[0] for c in struct.iter_unpack("<4I", data or b"")]
        )
        out = self.lane.run(numbers, columns, control, self.spec)
        self.frames.append((columns, control))
        self.columns_run += columns.n
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
        assert len(drafts or ()) == n - 1
        if first:
            assert seen is not None, "what was said before is told with the first"
            assert pos == len(seen) - 1
            assert seen[len(seen) - len(after or ()) :] == (after or [])
            self._history, self._drawn = list(seen), len(after or ())
            # Of an answer that goes on after a loss only the prompt was rendered, and maybe by another shard.
            self._roles = self._rendered.get(tuple(seen), [])
            self._text = ToyText(sampling.stop, after or ())
        assert pos == len(self._history) - 1, "a verify frame begins with the last token that was drawn"
        tokens: list[int] = []
        texts: list[str] = []
        for i, (h, *_) in enumerate(struct.iter_unpack("<4I", data)):
            token = self._draw(h, pos + i, sampling)
            tokens.append(token)
            texts.append("" if token == END else self._text.push(token))
            if token == END or self._text.stopped:
                break
            if i + 1 < n and token != (drafts or ())[i]:
                break
        end = tokens[-1] == END
        guesses, source = ([], "") if end or self._text.stopped else self._guess(want or Want(), sampling)
        if source == "draft":
            await asyncio.sleep(self.drafting * len(guesses))
        return Sampled(
            tokens=tokens,
            texts=texts,
            end=end,
            stopped=self._text.stopped,
            drafts=guesses,
            source=source,
        )

    def _draw(self, h: int, pos: int, sampling: Sampling) -> int:
        """Draw the token after position ``pos``, and remember it."""
        self._drawn += 1
        if self._drawn > self.end_after:
            return END
        token = self._token(h, pos, sampling, self._history)
        self._history.append(token)
        return token

    def _token(self, h: int, pos: int, sampling: Sampling, history: list[int]) -> int:
        if self.copies and h % 997 < 997 * self.copies and (again := looked_up(history, 1)):
            return again[0]
        seed = sampling.seed * 1_000_003 + pos if sampling.temperature else 0
        return 1 + (h + seed) % (FEW if self.copies else VOCAB - 1)

    def _guess(self, want: Want, sampling: Sampling) -> tuple[list[int], Source]:
        if want.lookup and (found := looked_up(self._history, want.lookup)):
            return found, "lookup"
        if want.draft and self.drafter is not None:
            return self._drafted(want.draft, sampling), "draft"
        return [], ""

    def _drafted(self, most: int, sampling: Sampling) -> list[int]:
        """The very model as its own draft model, which errs now and then."""
        assert self.drafter is not None
        assert self.spec is not None
        history = list(self._history)
        kinds = [*self._roles, *[True] * (len(history) - len(self._roles))]
        whole = ToyLane.over(0, LAYERS)
        for pos, (token, mine) in enumerate(zip(history, kinds, strict=True)):
            h = token
            for layer, cache in enumerate(whole.layers):
                h = cache.step(h, layer, pos, not mine)
        out = []
        for _ in range(most):
            token = self._token(h, len(history) - 1, sampling, history)
            history.append(token)
            if self._rng.random() >= self.drafter:
                token = 1 + token % (VOCAB - 1)
            out.append(token)
            h = history[-1]
            for layer, cache in enumerate(whole.layers):
                h = cache.step(h, layer, len(history) - 1, False)
        return out

    async def flush(self) -> str:
        return self._text.flush()

    async def render(
        self, turns: list[Turn], *, thinking: bool | None = None, sampling: Sampling | None = None
    ) -> Prompt:
        if sampling:  # else the room only looks at how something is written
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
        self._rendered[tuple(ids)] = generated
        return Prompt(ids=ids, generated=generated)

    async def unload(self) -> None:
        self.spec = None

    async def close(self) -> None:
        self.closed = True
