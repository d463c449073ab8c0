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


def generate(folder: str, tokens: int, repeats: int) -> list[float]:
    """Seconds for ``tokens`` greedy tokens minus those of the prompt, per run, by transformers."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer: Any = AutoTokenizer.from_pretrained(folder)
    model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16)
    model.eval()
    turns = [{"role": "user", "content": "Why is the sky blue?"}]
    ids = tokenizer.apply_chat_template(
        turns, add_generation_prompt=True, return_tensors="pt", return_dict=True
    )["input_ids"]

    def run(n: int) -> float:
        began = time.perf_counter()
        model.generate(ids, max_new_tokens=n, min_new_tokens=n, do_sample=False, pad_token_id=0)
        return time.perf_counter() - began

    run(4)
    return [(run(tokens + 1) - run(1)) / tokens * 1e3 for _ in range(repeats)]


def engine(folder: str, tokens: int, repeats: int, *, exact: bool) -> list[float]:
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
        ctx=1024,
        dtype="bfloat16",
        width=16 if exact else 1,
        exact=exact,
    )
    e.load(spec, Path(folder), lambda _pct, _words: None)
    prompt = list(range(100, 136))
    times = []
    for _ in range(repeats):
        pos = 0
        for start in range(0, len(prompt), 32):
            part = prompt[start : start + 32]
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
    """``python -m benchmarks.one_device generate|fast|exact FOLDER TOKENS REPEATS``."""
    what, folder, tokens, repeats = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    import torch

    torch.set_num_threads(1)
    if what == "generate":
        times = generate(folder, tokens, repeats)
    else:
        times = engine(folder, tokens, repeats, exact=what == "exact")
    print(json.dumps({"ms": statistics.median(times)}))


if __name__ == "__main__":
    main()
