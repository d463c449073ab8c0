"""Two devices on this machine, of which one gives weights to the other, beside the same over stock aiortc."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks.report import Row


class Peers:
    """A device that gives and one that takes, over a link: processes of `benchmarks.weights_peer`."""

    def __init__(self, model: Path, home: Path, layers: int, sctp: str) -> None:
        env = os.environ | {"POOLED_CACHE": str(home), "POOLED_SCTP": sctp}
        command = [sys.executable, "-m", "benchmarks.weights_peer"]
        self._giver, self._taker = (
            subprocess.Popen(
                [*command, side, str(model), str(layers)],
                env=env,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for side in ("give", "take")
        )
        told = self._read(self._giver)
        self.tuned = bool(told["tuned"])
        self._call(self._taker, json.dumps(told))

    def take(self) -> tuple[float, float]:
        """Carry it once; MB/s, and CPU-ms of both for each MB."""
        before = self._call(self._giver)["cpu"]
        took = self._call(self._taker)
        cpu = took["cpu"] + self._call(self._giver)["cpu"] - before
        return took["mb"] / took["s"], cpu * 1e3 / took["mb"]

    def close(self) -> None:
        """End both."""
        for process in (self._taker, self._giver):
            process.communicate()

    def _call(self, process: subprocess.Popen[str], line: str = "") -> dict[str, float]:
        assert process.stdin
        process.stdin.write(line + "\n")
        process.stdin.flush()
        return self._read(process)

    @staticmethod
    def _read(process: subprocess.Popen[str]) -> dict[str, Any]:
        assert process.stdout
        said: dict[str, Any] = json.loads(process.stdout.readline())
        return said


def from_a_peer(model: Path, home: Path, layers: int, turns: int) -> list[Row]:
    """From one device's disk into another's cache, beside the same over stock aiortc; both take turns."""
    ours, stock = (Peers(model, home / sctp, layers, sctp) for sctp in ("auto", "stock"))
    found: list[list[tuple[float, float]]] = [[], []]
    try:
        for _ in range(turns):
            for peers, into in zip((ours, stock), found, strict=True):
                into.append(peers.take())
    finally:
        ours.close()
        stock.close()
    (rate, cpu), (stock_rate, stock_cpu) = (
        [statistics.median(column) for column in zip(*one, strict=True)] for one in found
    )
    how = "" if ours.tuned else " (not tuned here)"
    return [
        Row(
            what=f"from a peer's disk to this one's cache, hashed{how}",
            value=rate,
            unit="MB/s",
            peer=f"over stock aiortc: {stock_rate:.1f} MB/s",
            ratio=rate / stock_rate,
        ),
        Row(
            what="its CPU for each MB, both ends",
            value=cpu,
            unit="ms",
            peer=f"over stock aiortc: {stock_cpu:.1f} ms",
            ratio=cpu / stock_cpu,
        ),
    ]
