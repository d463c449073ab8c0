"""An answer as a room makes it, over a desk: prompt frames, then verify frames with whatever drafts come."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pooled_nb.shard import protocol
from pooled_nb.shard.desk import Desk
from pooled_nb.shard.door import (
    BUCKET,
    Columns,
    Control,
    Forwarded,
    Loaded,
    LoadSpec,
    ModelFacts,
    Sampled,
    Sampling,
    Source,
    Want,
)
from tests.shard.runs import COLS, WIDTH

GREEDY = Sampling()
SEEDED = Sampling(temperature=0.7, top_k=20, seed=11, repetition_penalty=1.1)


@dataclass
class Said:
    """Tokens of an answer; how many drafts were tried and were right, by source; laps it took."""

    tokens: list[int] = field(default_factory=list)
    tried: Counter[Source] = field(default_factory=Counter)
    right: Counter[Source] = field(default_factory=Counter)
    laps: int = -1  # the first token comes of the prompt
    source: Source = ""

    def add(self, drawn: Sampled, job: protocol.Sample) -> None:
        """Count what a frame brought, and where the next frame's drafts are from."""
        self.laps += 1
        self.tokens += drawn.tokens
        self.tried[self.source] += job.n - 1
        self.right[self.source] += len(drawn.tokens) - 1
        want = job.want or Want()
        assert len(drawn.drafts) <= (want.lookup if drawn.source == "lookup" else want.draft)
        assert bool(drawn.drafts) == bool(drawn.source)
        self.source = drawn.source


def spec_of(facts: ModelFacts, **changes: Any) -> LoadSpec:
    plain: dict[str, Any] = {
        "repo": facts.repo, "revision": facts.revision, "folder": facts.folder,
        "config_sha256": facts.config_sha256, "lo": 0, "hi": facts.layers, "ends": True, "ctx": 512,
        "dtype": "float32", "width": WIDTH, "cols": COLS, "files": facts.files,
    }  # fmt: skip
    return LoadSpec(**{**plain, **changes})


class Host:
    """A desk with a whole model."""

    def __init__(self, folder: Path | str, draft: Path | str | None = None, **changes: Any) -> None:
        self.desk = Desk()
        self.facts = self.inspect(folder)
        if draft is not None:
            changes["draft"] = spec_of(self.inspect(draft), dtype=changes.get("dtype", "float32"))
        spec = spec_of(self.facts, **changes)
        loaded = self.desk.run(protocol.Load(spec=spec), lambda pct, words: None)
        assert isinstance(loaded, Loaded)
        self.loaded = loaded

    def inspect(self, folder: Path | str) -> ModelFacts:
        facts = self.desk.run(protocol.Inspect(model=str(folder)), lambda pct, words: None)
        assert isinstance(facts, ModelFacts)
        return facts

    def _run(self, job: protocol.AnyJob) -> Any:
        return self.desk.run(job, lambda pct, words: None)

    def _forward(self, pos: int, tokens: list[int], control: Control, *, wide: bool) -> bytes:
        columns = Columns(pos=pos, n=len(tokens), wide=wide)
        ran = self._run(protocol.Forward(columns=columns, control=control, tokens=tokens, last=wide))
        assert isinstance(ran, Forwarded)
        return ran.data

    def answer(self, prompt: list[int], length: int, sampling: Sampling, want: Want | None = None) -> Said:
        """Answer from the start, with so many tokens, or fewer up to an end token."""
        data, said = b"", Said()
        for pos in range(0, len(prompt), COLS):
            data = self._forward(pos, prompt[pos : pos + COLS], Control(reset=pos == 0), wide=True)
        pos = len(prompt) - 1
        job = protocol.Sample(data=data, pos=pos, n=1, sampling=sampling, first=True, seen=prompt, want=want)
        while True:
            drawn: Sampled = self._run(job)
            said.add(drawn, job)
            pos += len(drawn.tokens)
            if drawn.end or len(said.tokens) >= length:
                del said.tokens[length:]
                return said
            drafts = drawn.drafts[: (pos // BUCKET + 1) * BUCKET - pos - 1]  # no frame crosses a bucket
            back = len(drawn.tokens) - 1 if len(drawn.tokens) < job.n else None
            tokens = [drawn.tokens[-1], *drafts]
            data = self._forward(pos, tokens, Control(spec=True, rb=back), wide=False)
            job = protocol.Sample(
                data=data, pos=pos, n=len(tokens), sampling=sampling, drafts=drafts, want=want
            )
