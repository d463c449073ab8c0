"""The engine on a CUDA device, absolute and against the floor: ``python -m benchmarks.engine --gpu``.

The floor of a token is the bytes of weights that it reads, divided by the device's copy speed, measured in
the same run; a copy both reads and writes its bytes, and both are counted. Weights are random, in the shapes
of Llama-3.1-8B and Qwen3-1.7B, bf16. Each part has a limit of time; one that fails is said, and the rest
goes on. Each number is printed as soon as it is there.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import queue
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.engine_gpu_models import nbytes_of, place
from benchmarks.report import Row, report

LIMITS = {"make": 90.0, "exact": 60.0, "room": 90.0, "wrtc": 90.0}
"""Seconds of a part; others have `LIMIT`."""
LIMIT = 45.0
PLAN = {
    "full": (
        *("8B:copy", "8B:make", "8B:peer", "8B:exact", "8B:fast"),
        *("1.7B:make", "1.7B:peer", "1.7B:exact", "1.7B:fast", "1.7B:room", "1.7B:wrtc"),
        *("8B:chain", "8B:ungraphed", "8B:unfused", "1.7B:ungraphed", "1.7B:unfused", "8B:plain"),
        *("1.7B:chain", "1.7B:plain", "8B:room"),
    ),
    "quick": ("1.7B:copy", "1.7B:make", "1.7B:peer", "1.7B:exact", "1.7B:fast"),
}
"""What matters most comes first: what follows may find no time left."""


@dataclass
class Found:
    """What parts told, made into rows."""

    copy: float = 0.0
    read: dict[str, int] = field(default_factory=dict)
    forward: dict[str, float] = field(default_factory=dict)
    rows: list[Row] = field(default_factory=list)

    def floor(self, shape: str) -> float:
        """Milliseconds that reading the weights takes; 0 where that is not known."""
        return self.read.get(shape, 0) / self.copy / 1e6 if self.copy else 0.0

    def take(self, shape: str, line: dict[str, Any]) -> Row | None:
        """Make a row of a line, if it is one."""
        if "copy" in line:
            self.copy = float(line["copy"])
            return self._keep(
                Row(what="copy within the device, read and written", value=self.copy, unit="GB/s")
            )
        if "read" in line:
            self.read[shape] = int(line["read"])
            what = f"{shape}: floor ({self.read[shape] / 1e9:.2f} GB a token / copy speed)"
            return self._keep(Row(what=what, value=self.floor(shape), unit="ms/token"))
        if "what" not in line:
            return None
        if line.get("is_peer"):
            self.forward[shape] = float(line["value"])
        return self._keep(self._row(shape, line))

    def _row(self, shape: str, line: dict[str, Any]) -> Row:
        value = float(line["value"])
        row = Row(what=f"{shape}: {line['what']}", value=value, unit=line["unit"], peer=line.get("peer", ""))
        row.goal, row.ok, row.ratio = line.get("goal_words", ""), line.get("ok"), line.get("ratio")
        to, goal = line.get("to"), line.get("goal")
        against = self.floor(shape) if to == "floor" else self.forward.get(shape, 0.0)
        if to is not None:
            row.peer = "floor" if to == "floor" else "model.forward"
            row.ratio = value / against if against else None
        if goal is not None:
            row.goal = f"<= {goal} x floor" if to == "floor" else f">= {goal} x model.forward"
            if row.ratio is not None:
                row.ok = row.ratio <= goal if to == "floor" else row.ratio >= goal
        if (most := line.get("goal_ratio")) is not None:
            row.goal, row.ok = f"<= {most} x its own", bool(row.ratio is not None and row.ratio <= most)
        return row

    def _keep(self, row: Row) -> Row:
        self.rows.append(row)
        return row


class Runner:
    """Runs parts in a process; starts another where one fails or takes too long."""

    def __init__(self, home: Path, device: str, found: Found, *, quick: bool, until: float) -> None:
        self._home, self._device, self._found, self._until = home, device, found, until
        self._quick = "quick" if quick else "full"
        self._began = time.monotonic()

    def run(self, parts: list[str]) -> None:
        """All of them, or as many as there is time for."""
        left = list(parts)
        while left and time.monotonic() < self._until:
            done = self._some(left)
            left = left[done:]
        if left:
            self._say(f"no time left for {', '.join(left)}")

    def _some(self, parts: list[str]) -> int:
        """Run parts in one process until one fails; how many are done with, a failed one too."""
        argv = [
            sys.executable,
            "-m",
            "benchmarks.engine_gpu_part",
            str(self._home),
            self._device,
            self._quick,
        ]
        process = subprocess.Popen(
            [*argv, *parts], stdout=subprocess.PIPE, text=True, env=_environment(), start_new_session=True
        )
        lines: queue.Queue[str | None] = queue.Queue()
        threading.Thread(target=_read, args=(process, lines), daemon=True).start()
        done, now = 0, ""
        limit = min(time.monotonic() + LIMIT, self._until)  # to import what it needs
        try:
            while True:
                try:
                    text = lines.get(timeout=max(0.0, limit - time.monotonic()))
                except queue.Empty:
                    self._say(f"{now or 'the start'}: it took too long and was ended")
                    return done + 1
                if text is None:
                    return done if not now and done else done + 1
                line = _parsed(text)
                if "begin" in line:
                    now = line["begin"]
                    limit = min(time.monotonic() + LIMITS.get(now.partition(":")[2], LIMIT), self._until)
                elif "end" in line:
                    done, now = done + 1, ""
                    limit = min(time.monotonic() + LIMIT, self._until)
                elif "failed" in line:
                    self._say(f"{line['failed']} FAILED: {line['words']}")
                if (row := self._found.take(now.partition(":")[0], line)) is not None:
                    ratio = "" if row.ratio is None else f" ({row.ratio:.2f} x {row.peer})"
                    ok = "" if row.ok is None else f" [{row.goal}: {'yes' if row.ok else 'NO'}]"
                    self._say(f"{row.what}: {row.value:.2f} {row.unit}{ratio}{ok}")
                if "note" in line:
                    self._say(f"{now}: {line['note']}")
                if done == len(parts):
                    return done
        finally:
            _end(process)

    def _say(self, text: str) -> None:
        print(f"[{time.monotonic() - self._began:5.1f} s] {text}", flush=True)


def _end(process: subprocess.Popen[str]) -> None:
    """End it, with the devices of a room that it started."""
    with contextlib.suppress(ProcessLookupError):
        if sys.platform == "win32":
            process.kill()
        else:
            os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _read(process: subprocess.Popen[str], lines: queue.Queue[str | None]) -> None:
    assert process.stdout
    for line in process.stdout:
        lines.put(line)
    lines.put(None)


def _parsed(text: str) -> dict[str, Any]:
    """A line of a part; what libraries print is none."""
    try:
        line = json.loads(text)
    except ValueError:
        return {}
    return line if isinstance(line, dict) else {}


def _environment() -> dict[str, str]:
    return {**os.environ, "HF_HUB_OFFLINE": "1", "PYTHONUNBUFFERED": "1", "HF_HUB_DISABLE_PROGRESS_BARS": "1"}


def measure(
    parts: list[str], *, device: str = "cuda", quick: bool = False, seconds: float = 150
) -> list[Row]:
    """The rows of these parts, of which none begins after so many seconds."""
    found, until = Found(), time.monotonic() + seconds
    shapes = dict.fromkeys(part.partition(":")[0] for part in parts)
    home = place(sum(nbytes_of(shape) for shape in shapes if f"{shape}:make" in parts))
    try:
        Runner(home, device, found, quick=quick, until=until).run(parts)
    finally:
        shutil.rmtree(home, ignore_errors=True)
    return found.rows


def main() -> None:
    """Measure, then report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="the small shape alone, in a minute")
    parser.add_argument("--json", action="store_true", help="only the line for programs at the end")
    parser.add_argument("--seconds", type=float, default=150, help="no part begins after so many")
    parser.add_argument("--device", default="cuda", help="cpu tries this out")
    parser.add_argument("--parts", nargs="*", help="some parts only, SHAPE:WHAT")
    args = parser.parse_args()
    os.environ.setdefault("POOLED_THREADS", "1")
    with tempfile.TemporaryDirectory() as runtime:
        os.environ["POOLED_RUNTIME_DIR"] = runtime
        plan = args.parts or list(PLAN["quick" if args.quick else "full"])
        rows = measure(plan, device=args.device, quick=args.quick, seconds=args.seconds)
        report("engine on a GPU", rows, as_json=args.json)


if __name__ == "__main__":
    main()
