"""The engine: against ``generate``, guessing ahead over a slow wire, the first token, and what caches take.

``python -m benchmarks.engine [--quick] [--json] [--gpu]``; where there is a CUDA device
`benchmarks.engine_gpu` follows, and ``--gpu`` runs that alone. SmolLM2-135M, bf16, greedy, one thread a
process. Rooms are processes on this machine over WebRTC on loopback, whose datagrams leave late
(`benchmarks.delay`); the first token is measured with frames that leave late, too: over links that are ready
for them. Guessing is measured on an edit (a text written again with a word changed), most of which is in the
prompt.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pooled_nb as pooled
from benchmarks import engine_gpu
from benchmarks.delay import set_delay
from benchmarks.report import Row, report
from benchmarks.rooms import Workers, inspect, one_device, wait_for
from pooled_nb.shard import BUCKET, LoadSpec, ModelFacts, open_shard

MODEL = "HuggingFaceTB/SmolLM2-135M-Instruct"
TEXT = (
    "The old lighthouse stood on the northern edge of the island, where the wind never rested. Every evening "
    "the keeper climbed the narrow stairs with a lantern in his hand and a pocket full of dry bread. He lit "
    "the great lamp, wound the heavy clock, and wrote the weather down in a small grey book. On clear nights "
    "he could count the ships that passed between the rocks and the harbour, and on stormy nights he rang "
    "the bell until the morning came."
)
EDIT = f'Repeat the following text exactly, but write "coast" instead of "island":\n\n{TEXT}'
STORY = "Write a long story about a lighthouse keeper and the sea."
GAINS = {0: 1.5, 20: 1.8, 50: 2.2}
"""Milliseconds one way, and by how much guessing is to raise tokens a second there."""
WORDS = 147
"""Of the text twice: a prompt of 200 tokens."""
CTX = 1000


@dataclass
class Measured:
    """Answers to one question: tokens a second and ms to the first token, of each; the tokens."""

    rates: list[float]
    firsts: list[float]
    tokens: list[int]
    prompt: int
    right: float


@contextmanager
def room_of(devices: int, delay: float, *, frames: bool = False, **options: Any) -> Iterator[pooled.Room]:
    """A room whose devices hold a part each, with this delay on every link."""
    set_delay(delay, frames=frames)
    with (
        pooled.host(MODEL, split="memory", lend="1GB", progress=False, **options) as room,
        Workers(room, devices - 1, lend="1GB", delay=delay, frames=frames),
    ):
        wait_for(room, devices)
        room.start()
        yield room


def ask(room: pooled.Room, questions: list[str], tokens: int) -> Measured:
    """Answers to questions, each in a conversation of its own."""
    got = Measured([], [], [], 0, 0.0)
    drafted = accepted = 0
    for question in questions:
        room.reset()
        answer = room.ask(question, max_tokens=tokens)
        stats = answer.stats
        if stats is None or stats.tokens < tokens:
            raise RuntimeError("the answer ended early: another question is needed")
        got.rates.append(stats.tps)
        got.firsts.append(stats.first_ms)
        got.tokens, got.prompt = list(answer.tokens or []), stats.prompt
        drafted, accepted = drafted + stats.drafted, accepted + stats.accepted
    got.right = accepted / drafted if drafted else 0.0
    return got


def alone(folder: str, tokens: int, repeats: int, context: int) -> list[Row]:
    """One device against ``generate``, after a prompt of so many tokens."""
    peer = one_device("generate", folder, tokens, repeats, context)
    after = f"after {context} tokens"
    rows = [Row(what=f"transformers generate, {after}", value=peer, unit="ms/token")]
    for what, goal in (("fast", 0.9), ("exact", 1.2)):
        ms = one_device(what, folder, tokens, repeats, context)
        ratio = ms / peer
        rows.append(
            Row(
                what=f"engine, {what}, {after}",
                value=ms,
                unit="ms/token",
                peer="generate",
                ratio=ratio,
                goal=f"<= {goal:.2f} x generate",
                ok=ratio <= goal,
            )
        )
    return rows


def guessing(
    what: str, question: str, delay: int, tokens: int, repeats: int, goal: float | None, **options: Any
) -> list[Row]:
    """Two devices, guessing ahead or not: tokens a second, and the same tokens."""
    rows, found = [], {}
    for speculate in (False, True):
        with room_of(2, delay, speculate=speculate, **(options if speculate else {})) as room:
            ask(room, [question], 16)
            found[speculate] = ask(room, [question] * repeats, tokens)
    plain, guessed = found[False], found[True]
    name = f"{what}, 2 devices, {delay} ms one way"
    rates = [statistics.median(each.rates) for each in (plain, guessed)]
    ratio = rates[1] / rates[0]
    rows.append(Row(what=f"{name}: plain", value=rates[0], unit="tokens/s"))
    rows.append(
        Row(
            what=f"{name}: guessing ahead ({guessed.right:.0%} of guesses right)",
            value=rates[1],
            unit="tokens/s",
            peer="plain",
            ratio=ratio,
            goal="" if goal is None else f">= {goal} x plain",
            ok=None if goal is None else ratio >= goal,
        )
    )
    return [*rows, same(name, guessed.tokens == plain.tokens)]


def same(what: str, is_same: bool) -> Row:
    """Whether tokens are the same."""
    return Row(what=f"{what}: same tokens", value=float(is_same), unit="1 is yes", goal="1", ok=is_same)


def first_token(repeats: int) -> list[Row]:
    """The first token of 200-token prompts over three devices, without and with a delay."""
    text = " ".join(f"{TEXT} {TEXT}".split()[:WORDS])
    questions = [f"Question {n}: what happens next?\n\n{text}" for n in range(1, repeats + 1)]
    found = []
    for delay, frames in ((0, False), (50, True), (50, False)):
        with room_of(3, delay, frames=frames) as room:
            ask(room, [STORY], 8)
            found.append(ask(room, questions, 8))
    here, late, far = (statistics.median(one.firsts) for one in found)
    name = f"first token of a {found[0].prompt}-token prompt, 3 devices"
    rows = [Row(what=f"{name}, 0 ms one way", value=here, unit="ms")]
    for how, ms in (("frames", late), ("datagrams", far)):
        extra = ms - here
        rows += [
            Row(what=f"{name}, {how} 50 ms late", value=ms, unit="ms"),
            Row(what=f"{name}: late {how} add", value=extra, unit="ms", goal="<= 200 ms", ok=extra <= 200),
        ]
    return [*rows, same(name, all(one.tokens == found[0].tokens for one in found))]


def caches(facts: ModelFacts) -> list[Row]:
    """What caches take, against the arithmetic of the model's config."""
    config = json.loads((Path(str(facts.folder)) / "config.json").read_text())
    heads = config["num_key_value_heads"]
    dim = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    layers = config["num_hidden_layers"]
    pair, item = 2 * heads * dim, 2
    # int8 numbers with a scale for each row of a head; and one layer's columns, as they are attended over.
    token = {"f16": layers * pair * item, "q8": layers * (pair + 2 * heads * item) + pair * item}
    rows = []
    for (kv, size), held in zip(token.items(), asyncio.run(_held(facts, list(token))), strict=True):
        over = held / size - CTX
        rows.append(
            Row(
                what=f"caches of {layers} layers, {kv}, ctx {CTX}",
                value=held / 1e6,
                unit="MB",
                peer=f"arithmetic: {size * CTX / 1e6:.1f} MB",
                ratio=held / (size * CTX),
                goal=f"within {BUCKET} tokens of it",
                ok=0 <= over < BUCKET,
            )
        )
    return rows


async def _held(facts: ModelFacts, forms: list[Any]) -> list[int]:
    """Bytes of all layers' caches in each form."""
    shard, held = open_shard(), []
    try:
        for kv in forms:
            spec = LoadSpec(
                repo=facts.repo,
                revision=facts.revision,
                folder=facts.folder,
                config_sha256=facts.config_sha256,
                lo=0,
                hi=facts.layers,
                ends=False,
                ctx=CTX,
                dtype="bfloat16",
                files=facts.files,
                kv=kv,
            )
            held.append((await shard.load(spec)).cache)
        return held
    finally:
        await shard.close()


def measure(*, quick: bool) -> list[Row]:
    """All rows, in one run."""
    facts = inspect(MODEL)
    folder = str(facts.folder)
    tokens, repeats = (24, 1) if quick else (64, 3)
    rows = alone(folder, tokens, repeats, 36)
    if not quick:
        rows += alone(folder, tokens, repeats, 900)
    for delay in (50,) if quick else GAINS:
        rows += guessing("an edit", EDIT, delay, 48 if quick else 80, repeats, GAINS[delay])
    if not quick:
        # A check of the path only: a draft model is to be smaller than what it guesses for.
        rows += guessing("a story, the model drafts for itself", STORY, 50, 64, 1, None, draft=MODEL)
        rows += first_token(5)
    return rows + caches(facts)


def on_a_gpu(*, quick: bool) -> list[Row]:
    """The rows of a CUDA device; they need no model of the hub."""
    plan = engine_gpu.PLAN["quick" if quick else "full"]
    return engine_gpu.measure(list(plan), quick=quick)


def has_gpu() -> bool:
    """Whether a shard computes on a CUDA device here."""

    async def kind() -> str:
        shard = open_shard()
        try:
            return (await shard.device()).kind
        finally:
            await shard.close()

    return asyncio.run(kind()) == "cuda"


def main() -> None:
    """Measure, then report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rows: ends within a minute on 2 cores")
    parser.add_argument("--json", action="store_true", help="only the line for programs")
    parser.add_argument("--gpu", action="store_true", help="only what is measured on a CUDA device")
    args = parser.parse_args()
    os.environ["POOLED_THREADS"] = "1"
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    with tempfile.TemporaryDirectory() as runtime:
        os.environ["POOLED_RUNTIME_DIR"] = runtime
        rows = [] if args.gpu else measure(quick=args.quick)
        if args.gpu or has_gpu():
            rows += on_a_gpu(quick=args.quick)
        report("engine", rows, as_json=args.json)


if __name__ == "__main__":
    main()
