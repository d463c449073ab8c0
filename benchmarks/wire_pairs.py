"""Pairs of processes for `benchmarks.wire`, told what to do by lines of JSON; see `benchmarks.wire_end`."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from dataclasses import dataclass, field
from typing import Any

LIMIT_S = 150.0
"""Seconds that an order may take."""


@dataclass
class Timed:
    """Round trips of one thing, of all turns together.

    Attributes
    ----------
    ms
        Each of them.
    cpu
        CPU seconds of both processes.
    mb
        Megabytes (10⁶ bytes) that were carried, of weights.
    """

    ms: list[float] = field(default_factory=list)
    cpu: float = 0.0
    mb: float = 0.0


class Process:
    """One end."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @classmethod
    async def start(cls, side: str, env: dict[str, str]) -> Process:
        """Start it; what goes wrong in it is told on this process's standard error."""
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "benchmarks.wire_end",
            side,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env={**os.environ, **env},
            limit=1 << 24,
        )
        return cls(process)

    async def call(self, do: str, **what: Any) -> dict[str, Any]:
        """Let it do something, and wait until it is done.

        Raises
        ------
        RuntimeError
            It says that it failed, or ended.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write((json.dumps({"do": do, **what}) + "\n").encode())
        line = await asyncio.wait_for(self._process.stdout.readline(), LIMIT_S)
        said: dict[str, Any] = json.loads(line or b'{"failed": "it ended"}')
        if "failed" in said:
            raise RuntimeError(f"{do} {what.get('name', '')}: {said['failed']}")
        return said

    async def end(self) -> None:
        """End it: its input ends, and soon it must, too."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            await asyncio.wait_for(self._process.wait(), 10)
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()


class Pair:
    """Two processes, near and far, between which carriers are opened by name."""

    def __init__(self, near: Process, far: Process) -> None:
        self._near, self._far = near, far

    @classmethod
    async def start(cls, env: dict[str, str]) -> Pair:
        """Start both."""
        return cls(*await asyncio.gather(Process.start("near", env), Process.start("far", env)))

    async def open(self, name: str, **how: Any) -> dict[str, float]:
        """Open a carrier (`End.do_make`); seconds that parts of it took."""
        await asyncio.gather(*(end.call("make", name=name, **how) for end in (self._near, self._far)))
        told = await self._near.call("listen", name=name)
        answer = await self._far.call("meet", name=name, told=told)
        await self._near.call("met", name=name, told=answer["told"])
        opened: dict[str, float] = answer["opened"]
        return opened

    async def close(self, name: str) -> None:
        """Close a carrier."""
        await asyncio.gather(*(end.call("close", name=name) for end in (self._near, self._far)))

    async def tuned(self) -> bool:
        """Whether both tune their associations; why not is told on standard error."""
        said = await asyncio.gather(self._near.call("tuned"), self._far.call("tuned"))
        return all(one["tuned"] for one in said)

    async def cpu(self) -> float:
        """CPU seconds that both have taken."""
        said = await asyncio.gather(self._near.call("cpu"), self._far.call("cpu"))
        return float(sum(one["cpu"] for one in said))

    async def rounds(self, into: Timed, name: str, size: int, n: int, *, seconds: float = 60.0) -> None:
        """Round trips of frames."""
        before = (await self._far.call("cpu"))["cpu"]
        said = await self._near.call("round", name=name, size=size, n=n, seconds=seconds)
        into.cpu += said["cpu"] + (await self._far.call("cpu"))["cpu"] - before
        into.ms += [s * 1e3 for s in said["s"]]

    async def pour(self, into: Timed, name: str, pieces: int) -> None:
        """Weights, one way; ``ms`` is how long all of a turn took."""
        before = (await self._far.call("cpu"))["cpu"]
        said = await self._near.call("pour", name=name, pieces=pieces)
        into.cpu += said["cpu"] + (await self._far.call("cpu"))["cpu"] - before
        into.ms.append(said["s"] * 1e3)
        into.mb += said["mb"]

    async def behind(self, into: dict[str, Timed], name: str, n: int, *, seconds: float = 20.0) -> None:
        """Keep-alive bytes, small messages and frames of 10 KB behind weights without an end."""
        said = await self._near.call("behind", name=name, n=n, seconds=seconds)
        for what in ("byte", "small", "frame"):
            into.setdefault(what, Timed()).ms += [s * 1e3 for s in said[what]]
        rate = into.setdefault("weights", Timed())
        rate.ms.append(1e3)
        rate.mb += said["mb_s"]

    async def end(self) -> None:
        """End both."""
        await asyncio.gather(self._near.end(), self._far.end())
