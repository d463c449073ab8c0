"""A room against ``generate``: SmolLM2-135M, bf16, greedy, one thread a process.

``python -m benchmarks.room [--quick] [--json]``. Rows: ``generate`` and our engine on one device (fast,
exact), the same text over 1, 2 and 3 processes on loopback WebRTC, a shard child's peak memory, and
what ``import pooled_nb`` costs. All in one run, since machines are noisy.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time

import pooled_nb as pooled
from benchmarks.report import Row, report
from benchmarks.rooms import Workers, inspect, one_device, peak_mb, wait_for
from pooled_nb.shard import ModelFacts

MODEL = "HuggingFaceTB/SmolLM2-135M-Instruct"
QUESTION = "Write a long story about a lighthouse keeper and the sea."


def over(devices: int, tokens: int, repeats: int, *, exact: bool) -> tuple[list[float], list[int]]:
    """A room of that many processes: ms per token after the first of each repeat, and the tokens."""
    with (
        pooled.host(MODEL, split="memory", exact=exact, lend="1GB", progress=False) as room,
        Workers(room, devices - 1, lend="1GB"),
    ):
        wait_for(room, devices)
        room.ask(QUESTION, max_tokens=8)
        times, text = [], []
        for _ in range(repeats):
            room.reset()
            answer = room.ask(QUESTION, max_tokens=tokens)
            stats = answer.stats
            if stats is None or stats.tokens != tokens:
                raise RuntimeError("the answer ended early: another question is needed")
            times.append((stats.ms - stats.first_ms) / (stats.tokens - 1))
            text = list(answer.tokens or [])
        return times, text


def import_seconds() -> float:
    """Median of what ``import pooled_nb`` takes in a fresh process, beyond an empty one."""

    def run(code: str) -> float:
        began = time.perf_counter()
        subprocess.run([sys.executable, "-c", code], check=True)
        return time.perf_counter() - began

    pairs = [(run("import pooled_nb; pooled_nb.host"), run("pass")) for _ in range(5)]
    return statistics.median(a - b for a, b in pairs)


def main() -> None:
    """Measure, then report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer tokens: ends within 50 s on 2 cores")
    parser.add_argument("--json", action="store_true", help="only the line for programs")
    args = parser.parse_args()
    tokens, repeats = (24, 1) if args.quick else (128, 3)
    os.environ["POOLED_THREADS"] = "1"
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    with tempfile.TemporaryDirectory() as runtime:
        os.environ["POOLED_RUNTIME_DIR"] = runtime
        report("room", measure(tokens, repeats, quick=args.quick), as_json=args.json)


def measure(tokens: int, repeats: int, *, quick: bool) -> list[Row]:
    """All rows, in one run."""
    facts = inspect(MODEL)
    folder = str(facts.folder)
    peer = one_device("generate", folder, tokens, repeats)
    rows = [Row(what="transformers generate, one device", value=peer, unit="ms/token")]
    for what, goal in (("fast", 1.0), ("exact", 1.35)):
        ms = one_device(what, folder, tokens, repeats)
        ratio = ms / peer
        rows.append(
            Row(
                what=f"engine, {what}, one device",
                value=ms,
                unit="ms/token",
                peer="generate",
                ratio=ratio,
                goal=f"<= {goal:.2f} x generate",
                ok=ratio <= goal,
            )
        )
    rows += rooms(tokens, repeats, quick=quick)
    rows += memory(facts)
    seconds = import_seconds()
    rows.append(
        Row(what="import pooled_nb", value=seconds * 1e3, unit="ms", goal="<= 300 ms", ok=seconds <= 0.3)
    )
    return rows


def rooms(tokens: int, repeats: int, *, quick: bool) -> list[Row]:
    """Rows over 1, 2 and 3 processes."""
    times, text = over(1, tokens, repeats, exact=True)
    base = statistics.median(times)
    rows = [room_row("room, exact, 1 process", times, base)]
    for devices in (3,) if quick else (2, 3):
        times, text_now = over(devices, tokens, repeats, exact=True)
        extra = (statistics.median(times) - base) / (devices - 1)
        rows += [
            room_row(f"room, exact, {devices} processes", times, base),
            Row(
                what=f"each extra device of {devices}",
                value=extra,
                unit="ms/token",
                goal="<= 4 ms/token",
                ok=extra <= 4,
            ),
            Row(
                what=f"same tokens over {devices} as over 1",
                value=float(text_now == text),
                unit="1 is yes",
                goal="1",
                ok=text_now == text,
            ),
        ]
    if not quick:
        times, _ = over(3, tokens, repeats, exact=False)
        rows.append(room_row("room, fast, 3 processes", times, base))
    return rows


def room_row(what: str, times: list[float], base: float) -> Row:
    """A room's median, with its spread in the words."""
    spread = f" ({min(times):.1f}–{max(times):.1f})" if len(times) > 1 else ""
    median = statistics.median(times)
    return Row(what=what + spread, value=median, unit="ms/token", peer="room, 1 process", ratio=median / base)


def memory(facts: ModelFacts) -> list[Row]:
    """Peak memory of a shard child: a fixed base, and what lies above it against its layers."""
    few, many = 1, facts.layers
    (low, low_own), (high, high_own) = peak_mb(facts, few), peak_mb(facts, many)
    ratio = (high - low) / (high_own - low_own)
    base = low - low_own * ratio
    return [
        Row(what=f"shard child's peak, {few} layer", value=low, unit="MB"),
        Row(
            what=f"shard child's peak, {many} layers",
            value=high,
            unit="MB",
            peer=f"weights and caches: {high_own:.0f} MB",
        ),
        Row(what="its fixed base (Python, torch, transformers)", value=base, unit="MB"),
        Row(
            what="peak above the base",
            value=high - base,
            unit="MB",
            peer="its own weights and caches",
            ratio=ratio,
            goal="<= 1.15 x its own layers",
            ok=ratio <= 1.15,
        ),
    ]


if __name__ == "__main__":
    main()
