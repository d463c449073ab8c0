"""One device in this process: transformers' ``generate`` or our engine, ms per token. Prints one JSON line.

``benchmarks.room`` runs it once per row, so that no run inherits another's memory or threads.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any


def generate(folder: str, tokens: int, repeats: int, context: int) -> list[float]:
    """Milliseconds a token for greedy ones after a prompt of ``context`` tokens, per run, by transformers."""
    import torch
    from transformers import AutoModelForCausalLM

    model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16)
    model.eval()
    ids = torch.tensor([prompt(context)])
    mask = torch.ones_like(ids)

    def run(n: int) -> float:
        began = time.perf_counter()
        model.generate(
            ids, attention_mask=mask, max_new_tokens=n, min_new_tokens=n, do_sample=False, pad_token_id=0
        )
        return time.perf_counter() - began

    run(4)
    return [(run(tokens + 1) - run(1)) / tokens * 1e3 for _ in range(repeats)]


def prompt(context: int) -> list[int]:
    """That many tokens; which ones does not matter."""
    return [100 + i % 1000 for i in range(context)]


def engine(folder: str, tokens: int, repeats: int, context: int, *, exact: bool) -> list[float]:
    """The same by our engine: a lap is embed, layers, norm, head, sample."""
    from pooled_nb.shard import Columns, Control, LoadSpec, Sampling
    from pooled_nb.shard.engine import Engine

    e = Engine()
    config = json.loads((Path(folder) / "config.json").read_text())
    spec = LoadSpec(
        repo="bench/model",
        revision="1",
        folder=folder,
        config_sha256="",
        lo=0,
        hi=int(config["num_hidden_layers"]),
        ends=True,
        ctx=context + tokens + 256,
        dtype="bfloat16",
        width=16 if exact else 1,
        exact=exact,
    )
    e.load(spec, Path(folder), lambda _pct, _words: None)
    given = prompt(context)
    times = []
    for _ in range(repeats):
        pos = 0
        for start in range(0, context, 32):
            part = given[start : start + 32]
            columns = Columns(pos=start, n=len(part), wide=True)
            ran = e.forward(columns, Control(reset=start == 0), tokens=part, data=None, last=True)
            pos = start + len(part) - 1
        data = ran.data
        began = time.perf_counter()
        for _ in range(tokens):
            token = e.sample(data, pos=pos, n=1, sampling=Sampling())[0]
            pos += 1
            data = e.forward(
                Columns(pos=pos, n=1, wide=False), Control(), tokens=[token], data=None, last=True
            ).data
        times.append((time.perf_counter() - began) / tokens * 1e3)
    return times


def main() -> None:
    """``python -m benchmarks.one_device generate|fast|exact FOLDER TOKENS REPEATS [CONTEXT]``."""
    what, folder = sys.argv[1], sys.argv[2]
    tokens, repeats, context = (int(text) for text in [*sys.argv[3:], "36"][:3])
    import torch

    torch.set_num_threads(1)
    if what == "generate":
        times = generate(folder, tokens, repeats, context)
    else:
        times = engine(folder, tokens, repeats, context, exact=what == "exact")
    print(json.dumps({"ms": statistics.median(times)}))


if __name__ == "__main__":
    main()
