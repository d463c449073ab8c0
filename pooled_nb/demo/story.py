"""What the demo does, step by step, and what it prints at the end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from pooled_nb.demo.kernels import Kernel, kernels
from pooled_nb.errors import BadOption
from pooled_nb.plain import visible
from pooled_nb.room.core import AskOptions
from pooled_nb.room.questions import check_question
from pooled_nb.room.sentences import layer_range

STATUS = "__import__('msgspec').to_builtins(__import__('pooled_nb').current().status())"
LENT = "__import__('pooled_nb').current().status().devices[0].lends_gb"
ANSWER = "{'text': answer.text, 'tokens': answer.tokens, 'tps': answer.stats.tps, 'reason': answer.reason}"
HANDED = """\
from pathlib import Path
from pooled_nb.mesh import ownfiles
ownfiles.write(Path({!r}), __import__('pooled_nb').current().invite().link.encode())"""
"""A cell that writes the invite link into a file for this user alone."""
TAKEN = """\
import os
os.environ["POOLED_LINK"] = open({!r}).read()"""
"""A cell that reads it where ``join`` looks for it."""
LINE = 300
"""Characters of what a kernel shows that are shown here."""
SHARE = 80
"""Percent of the free memory that the kernels of this one machine lend, all together."""


class Screen:
    """Steps as lines; in a terminal also what happens meanwhile, on one line that moves."""

    def __init__(self) -> None:
        self._console = Console(file=sys.stdout)
        self._live = self._console.is_terminal
        # A file or a pipe has no columns: its lines stay whole.
        self._console.soft_wrap = not self._live

    @contextlib.contextmanager
    def step(self, words: str) -> Iterator[Step]:
        """Say what is done now."""
        if not self._live:
            self.line(words)
            yield Step(words, None)
            return
        with self._console.status(Text(words)) as status:
            yield Step(words, status)
        self.line(f"✓ {words}")

    def line(self, text: str = "") -> None:
        """Print one line."""
        self._console.print(Text(visible(text)))
        self._console.file.flush()


class Step:
    """One step under way."""

    def __init__(self, words: str, status: Any) -> None:
        self._words = words
        self._status = status

    def show(self, text: str) -> None:
        """Show the last line of what a kernel shows, whole: a terminal breaks what is too long for it."""
        lines = text.strip().splitlines()
        if self._status is not None and lines:
            self._status.update(Text(visible(f"{self._words}: {shortened(lines[-1])}")))


def shortened(line: str, most: int = LINE) -> str:
    """One line of some rows at most; what is new in an answer that grows is its end."""
    return line if len(line) <= most else f"…{line[-most:]}"


async def tell(*, devices: int, model: str, question: str, max_tokens: int) -> int:
    """Run the room over ``devices`` kernels, then the same question on one, and compare the tokens."""
    if devices < 2:
        raise BadOption(f"A demo with {devices} device shows no split.", "Use --devices 2 or more.")
    check_question(question, AskOptions(max_tokens=max_tokens))  # before kernels are started for it
    screen = Screen()
    # Each kernel computes with its share of the cores, in both runs: what differs is the split alone.
    cores = os.environ.get("POOLED_THREADS", str(max(1, (os.cpu_count() or 1) // devices)))
    env = {"POOLED_THREADS": cores}
    names = [f"kernel {n}" for n in range(1, devices + 1)]
    with tempfile.TemporaryDirectory(prefix="pooled-demo-", ignore_cleanup_errors=True) as folder:
        async with contextlib.AsyncExitStack() as stack:
            with screen.step(f"Starting {devices} Jupyter kernels"):
                opened = await stack.enter_async_context(kernels(names, Path(folder), env))
            many = await _room(screen, opened, Path(folder), model, question, max_tokens)
            one = await _alone(screen, opened[0], model, question, max_tokens)
    return _report(screen, many, one, f"{cores} core{'s' if cores != '1' else ''}")


async def _room(
    screen: Screen, opened: list[Kernel], folder: Path, model: str, question: str, max_tokens: int
) -> dict[str, Any]:
    host, *workers = opened
    with screen.step("Loading the extension in each of them"):
        await asyncio.gather(*(kernel.run("%load_ext pooled_nb") for kernel in opened))
    lend = f"--lend {SHARE // len(opened)}%"
    with screen.step(f"{host.name}: %pooled host {model} --split memory") as step:
        await host.run(
            typed(f"%pooled host MODEL --split memory {lend} --name {host.name!r}", model), step.show
        )
    for notice in await host.value("__import__('pooled_nb').current().notices"):
        screen.line(f"  Note: {notice}")
    # With the invite link nobody has to let them in. It is a secret: no cell, output or argument holds it.
    link = str(folder / "link")
    await host.run(HANDED.format(link))
    # One after the other, each with the host's share: so the chain runs in the order of their names.
    lend = f"--lend {await host.value(LENT):.6f}GB"
    for worker in workers:
        with screen.step(f"{worker.name}: %pooled join --role worker, with the invite link") as step:
            await worker.run(TAKEN.format(link))
            await worker.run(f"%pooled join --role worker {lend} --name {worker.name!r}", step.show)
    with screen.step(f"{host.name}: %pooled start") as step:
        await host.run("%pooled start", step.show)
    with screen.step(f"{host.name}: %%ask {' '.join(question.split())}") as step:
        await host.run(f"%%ask -o answer --max {max_tokens}\n{question}", step.show)
    found = {"status": await host.value(STATUS), "answer": await host.value(ANSWER), "question": question}
    with screen.step("All of them: %pooled leave"):
        await asyncio.gather(*(worker.run("%pooled leave") for worker in workers))
        await host.run("%pooled leave")
    return found


async def _alone(screen: Screen, host: Kernel, model: str, question: str, max_tokens: int) -> dict[str, Any]:
    with screen.step(f"{host.name}, alone: the same question") as step:
        await host.run(typed(f"%pooled host MODEL --name {host.name!r}", model), step.show)
        await host.run(f"%%ask -o answer --max {max_tokens}\n{question}", step.show)
        found = {"answer": await host.value(ANSWER)}
        await host.run("%pooled leave")
    return found


def typed(line: str, model: str) -> str:
    """A cell with that line, its word MODEL being the model, whatever its path holds."""
    # A variable, since IPython would expand braces and dollar signs of the path itself.
    return f"model = {shlex.quote(model)!r}\n{line.replace('MODEL', '{model}')}"


def _report(screen: Screen, many: dict[str, Any], one: dict[str, Any], cores: str) -> int:
    status, answer = many["status"], many["answer"]
    code = status["code"]
    devices = status["devices"]
    same = bool(answer["tokens"]) and answer["tokens"] == one["answer"]["tokens"]
    screen.line()
    screen.line(f"Room      {code[:3]}-{code[3:]}: {len(devices)} kernels of this machine, linked by WebRTC")
    screen.line(f"Model     {status['label'] or status['model']}, {status['layers']} layers")
    for device in devices:
        held = f"layers {layer_range(*device['layers'])}" if device["layers"] else "no layers"
        screen.line(f"          {device['name']}: {device['role']}, {held}")
    screen.line(f"Question  {' '.join(many['question'].split())}")
    screen.line(f"Answer    {_one_line(answer)}")
    screen.line(
        f"Speed     {answer['tps']:.1f} tokens/s over {len(devices)} devices, "
        f"{one['answer']['tps']:.1f} on one ({len(answer['tokens'] or [])} tokens; {cores} a device)"
    )
    screen.line(f"same tokens as one device: {'yes' if same else 'no'}")
    if not same:
        screen.line(f"One device answered: {_one_line(one['answer'])}")
    return 0 if same else 1


def _one_line(answer: dict[str, Any]) -> str:
    return " ".join(answer["text"].split()) + (" …" if answer["reason"] == "max" else "")
