"""Rooms of real processes on this machine, for benchmarks."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pooled_nb as pooled
from pooled_nb.shard import LoadSpec, ModelFacts, open_shard


class Workers:
    """``pooled-nb join`` some times, each a process; ended on the way out.

    They come with the room's invite link, so that nobody has to let them in.

    ``delay``: milliseconds by which what each sends leaves late, whole ``frames`` or datagrams; see
    `benchmarks.delay`.
    """

    def __init__(
        self, room: pooled.Room, n: int, *, lend: str, delay: float = 0.0, frames: bool = False
    ) -> None:
        program = ["benchmarks.delay", f"{delay}{'f' * frames}"] if delay else ["pooled_nb.cli"]
        self._argv = [sys.executable, "-m", *program, "join", "--role", "worker", "--lend", lend]
        self._env = {**os.environ, "POOLED_LINK": room.invite().link}
        self._n = n
        self._started: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Workers:
        for i in range(self._n):
            argv = [*self._argv, "--name", f"worker {i + 1}"]
            out = subprocess.DEVNULL
            self._started.append(
                subprocess.Popen(argv, env=self._env, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
            )
        return self

    def __exit__(self, *_: object) -> None:
        for p in self._started:
            p.send_signal(signal.SIGINT)
        for p in self._started:
            try:
                p.wait(20)
            except subprocess.TimeoutExpired:
                p.kill()
                p.wait()


def one_device(what: str, folder: str, tokens: int, repeats: int, context: int = 36) -> float:
    """Median ms per token of one row of `benchmarks.one_device`, in a process of its own."""
    numbers = [str(number) for number in (tokens, repeats, context)]
    argv = [sys.executable, "-m", "benchmarks.one_device", what, folder, *numbers]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    return float(json.loads(done.stdout.strip().splitlines()[-1])["ms"])


def wait_for(room: pooled.Room, devices: int, seconds: float = 120.0) -> None:
    """Until that many devices are in the room."""
    end = time.monotonic() + seconds
    while len(room.status().devices) < devices:
        if time.monotonic() > end:
            raise TimeoutError(f"{devices} devices did not join within {seconds:.0f} s")
        time.sleep(0.1)


def inspect(model: str) -> ModelFacts:
    """What a model is, and where its files lie."""

    async def find() -> ModelFacts:
        shard = open_shard()
        try:
            return await shard.inspect(model)
        finally:
            await shard.close()

    return asyncio.run(find())


def peak_mb(facts: ModelFacts, layers: int) -> tuple[float, float]:
    """Peak resident memory of a shard child that loads the first ``layers`` layers, MB (10⁶ bytes).

    And what its layers are: weights and caches, MB.
    """

    async def measure() -> tuple[float, float]:
        shard = open_shard()
        try:
            before = _children()
            await shard.device()
            (pid,) = _children() - before
            spec = LoadSpec(
                repo=facts.repo,
                revision=facts.revision,
                folder=facts.folder,
                config_sha256=facts.config_sha256,
                lo=0,
                hi=layers,
                ends=False,
                ctx=1024,
                dtype=facts.dtype,
                files=facts.files,
            )
            loaded = await shard.load(spec)
            return _peak(pid), (loaded.weights + loaded.cache) / 1e6
        finally:
            await shard.close()

    return asyncio.run(measure())


def _children() -> set[int]:
    tasks = Path(f"/proc/{os.getpid()}/task").iterdir()
    return {int(pid) for task in tasks for pid in (task / "children").read_text().split()}


def _peak(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024 / 1e6
