"""A room of three processes over a line that loses datagrams, against the same line that loses none.

``python -m benchmarks.wire_room TURNS TOKENS``: one JSON line, ms per token of each turn. `benchmarks.wire`
runs it in a process of its own, so that no room shares a process with what measures links.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from typing import Any

import pooled_nb as pooled
from benchmarks.report import Row
from benchmarks.rooms import Workers, wait_for
from tests.shaper.handle import shaper
from tests.shaper.line import LineSettings

MODEL = "HuggingFaceTB/SmolLM2-135M-Instruct"
QUESTION = "Write a long story about a lighthouse keeper and the sea."
DEVICES = 3
DELAY_MS, LOSS = 25.0, 0.05
KEEPS = 0.85
"""Share of its clean tokens a second that a room keeps."""
SETTINGS = {"POOLED_STRIPES": "3", "POOLED_TWICE": "on", "POOLED_KEEPALIVE_MS": "10"}
"""As between machines: a room on one machine has none of it."""
LOSES = f"{LOSS:.0%} loss each way"


def turns(number: int, tokens: int) -> dict[str, list[float]]:
    """Milliseconds a token, after the first, of each turn: a clean line and one that loses take turns."""
    found: dict[str, list[float]] = {"clean": [], LOSES: []}
    with (
        shaper(seed=5) as net,
        pooled.host(
            MODEL, split="memory", lend="1GB", signal=net.url, speculate=False, progress=False
        ) as room,
        Workers(room, DEVICES - 1, lend="1GB"),
    ):
        wait_for(room, DEVICES)
        room.ask(QUESTION, max_tokens=8)
        texts = set()
        for turn in range(number):
            for what in list(found) if turn % 2 else list(found)[::-1]:
                net.change(LineSettings(delay_ms=DELAY_MS, loss=0.0 if what == "clean" else LOSS))
                room.reset()
                answer = room.ask(QUESTION, max_tokens=tokens)
                stats = answer.stats
                if stats is None or stats.tokens != tokens:
                    raise RuntimeError("the answer ended early: another question is needed")
                found[what].append((stats.ms - stats.first_ms) / (stats.tokens - 1))
                texts.add(answer.text)
        net.change(LineSettings())
        if len(texts) != 1:
            raise RuntimeError("the text is not the same each time")
    return found


def rows_of(found: dict[str, list[float]]) -> list[Row]:
    """Tokens a second, and which share of the clean line's is kept."""
    rows = []
    where = f"room of {DEVICES} processes, {2 * DELAY_MS:.0f} ms there and back"
    for what, times in found.items():
        spread = f"({1e3 / max(times):.2f}–{1e3 / min(times):.2f})"
        rows.append(Row(what=f"{where}, {what} {spread}", value=rate(times), unit="tokens/s"))
    row = rows[-1]
    row.peer, row.ratio = "clean", rate(found[LOSES]) / rate(found["clean"])
    row.goal, row.ok = f">= {KEEPS:.2f} x", row.ratio >= KEEPS
    return rows


def rate(times: list[float]) -> float:
    """Tokens a second, of the turns' median."""
    return 1e3 / statistics.median(times)


def measure(number: int, tokens: int) -> list[Row]:
    """Run it, and make rows of what it says."""
    argv = [sys.executable, "-m", "benchmarks.wire_room", str(number), str(tokens)]
    env = {**os.environ, **SETTINGS, "POOLED_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(argv, env=env, stdout=subprocess.PIPE, text=True, check=True)
    said: Any = json.loads(done.stdout.strip().splitlines()[-1])
    return rows_of(said)


if __name__ == "__main__":
    print(json.dumps(turns(int(sys.argv[1]), int(sys.argv[2]))))
