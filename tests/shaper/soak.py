"""A link that carries all that it can, for long, over a network that loses 1 % each way.

``python -m tests.shaper.soak --minutes 10`` (``make soak MINUTES=10``). Two processes, a link with its
stripes between them, and the shaper. It ends with 1 where a frame, a message or a part was lost, came twice,
out of order or altered, where a connection died, or where a process grew.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import queue
import statistics
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.e2e.needs import bound
from tests.shaper.handle import Shaper, shaper
from tests.shaper.line import LineSettings

ROOT = Path(__file__).parents[2]
LINE = LineSettings(loss=0.01, delay_ms=5.0, jitter_ms=1.0, in_order=True, duplicate=0.002, reorder=0.002)
CONNECTIONS = 4
"""The link's and three stripes'."""
GROWTH_MB = 10.0
"""That a process may have grown from its second minute to its last: what an allocator keeps, and no more."""
SETTLED_MIN = 1
"""Minutes after which memory is looked at; shorter runs are not judged by it."""
UP_S = 60.0
COUNTED = ("frames", "messages", "parts", "packets", "resent")
"""Each minute: what came, and what went out in packets."""
Said = dict[str, Any]


class End:
    """One of the two processes."""

    def __init__(self, name: str, url: str) -> None:
        self.name = name
        self.reports: list[Said] = []
        self.said: queue.Queue[Said] = queue.Queue()
        self.process = subprocess.Popen(
            bound(sys.executable, "-X", "faulthandler", "-m", "tests.shaper.soakdevice", name, url),
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            said = json.loads(line)
            if "rss_mb" in said:
                self.reports.append(said)
            self.said.put(said)
        self.said.put({"heard": "over"})

    def until(self, what: str, seconds: float) -> Said:
        """Wait until it says this.

        Raises
        ------
        RuntimeError
            It ended, or did not say it in time.
        """
        end = time.monotonic() + seconds
        with contextlib.suppress(queue.Empty):
            while (said := self.said.get(timeout=max(0.0, end - time.monotonic())))["heard"] != "over":
                if said["heard"] == what:
                    return said
            raise RuntimeError(f"{self.name} ended before it was {what}")
        raise RuntimeError(f"{self.name} was not {what} in {seconds:.0f} s")

    def tell(self, order: str) -> None:
        """Say what to do."""
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(f"{order}\n")
            self.process.stdin.flush()

    def close(self) -> None:
        """End it."""
        self.tell("end")
        try:
            self.process.wait(15)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


@dataclass
class Verdict:
    """How it went.

    Attributes
    ----------
    failures
        Each in a sentence; empty: all is well.
    reports
        Of each end, in order.
    """

    failures: list[str] = field(default_factory=list)
    reports: dict[str, list[Said]] = field(default_factory=dict)
    lost: int = 0
    connections: int = 0


def grown(reports: list[Said], began: float) -> tuple[float, float] | None:
    """MB in the second minute and in the last, by their medians; None where it did not last so long."""
    second = [r["rss_mb"] for r in reports if 60 * SETTLED_MIN <= r["at"] - began < 60 * (SETTLED_MIN + 1)]
    last_at = reports[-1]["at"] if reports else began
    last = [r["rss_mb"] for r in reports if r["at"] > last_at - 60]
    if not second or last_at - began < 60 * (SETTLED_MIN + 2):
        return None
    return statistics.median(second), statistics.median(last)


def judge(net: Shaper, ends: list[End], began: float) -> Verdict:
    """What there is to say against it."""
    counts = net.counts()
    verdict = Verdict(
        reports={end.name: end.reports for end in ends},
        lost=sum(c.lost for c in counts),
        connections=len({c.path for c in counts}),
    )
    for end in ends:
        if not end.reports:
            verdict.failures.append(f"{end.name} never said anything.")
            continue
        verdict.failures += [f"{end.name}: {error}." for error in end.reports[-1]["errors"]]
        if (mb := grown(end.reports, began)) is not None and mb[1] - mb[0] > GROWTH_MB:
            verdict.failures.append(f"{end.name} grew from {mb[0]:.0f} to {mb[1]:.0f} MB.")
    if verdict.connections != CONNECTIONS:
        verdict.failures.append(f"{verdict.connections} connections were made in place of {CONNECTIONS}.")
    return verdict


def soak(seconds: float, *, seed: int = 1, line: LineSettings = LINE, show: bool = False) -> Verdict:
    """Run it.

    Raises
    ------
    RuntimeError
        It did not come to be, or a process ended early.
    """
    with contextlib.ExitStack() as stack:
        net = stack.enter_context(shaper(line, seed=seed))
        ends: list[End] = []
        for name in ("host", "joiner"):
            ends.append(End(name, net.url))
            stack.callback(ends[-1].close)
            if name == "host":
                ends[0].until("up", UP_S)
        for end in ends:
            end.until("striped", UP_S)
        began = time.monotonic()
        for end in ends:
            end.tell("go")
        shown = 0
        while (now := time.monotonic()) < began + seconds:
            if any(
                end.process.poll() is not None or (end.reports and end.reports[-1]["errors"]) for end in ends
            ):
                break
            time.sleep(min(1.0, began + seconds - now))
            if show and int((time.monotonic() - began) // 60) > shown:
                shown += 1
                _print(shown, ends)
        for end in ends:
            end.tell("drain")
        for end in ends:
            end.until("drained", 150.0)
        return judge(net, ends, began)


def _print(minute: int, ends: list[End]) -> None:
    for end in ends:
        now = end.reports[-1]
        before = next((r for r in end.reports if r["at"] > now["at"] - 60), now)
        more = {key: now[key] - before[key] for key in ("at", "bytes", *COUNTED)}
        speed = more["bytes"] / max(1e-3, more["at"]) / 1e6
        print(
            f"minute {minute:3}  {end.name:6}  {speed:6.2f} MB/s of frames in, "
            + ", ".join(f"{more[key]} {key}" for key in COUNTED)
            + f", {now['stripes']} stripes, {now['rss_mb']:.1f} MB held",
            flush=True,
        )


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser(prog="python -m tests.shaper.soak")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    try:
        verdict = soak(60 * args.minutes, seed=args.seed, show=True)
    except RuntimeError as error:
        print(f"It failed: {error}.")
        return 1
    for name, reports in verdict.reports.items():
        last = reports[-1] if reports else {}
        print(f"{name}: {last}")
    print(f"{verdict.lost} datagrams were lost over {verdict.connections} connections.")
    for failure in verdict.failures:
        print(f"It failed: {failure}")
    print("All arrived once, in order and unaltered." if not verdict.failures else "")
    return 1 if verdict.failures else 0


if __name__ == "__main__":
    sys.exit(main())
