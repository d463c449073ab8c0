"""What panels cost a kernel, and what they send: an answer at 100 tokens/s, many at 1,000, a long one.

``python -m benchmarks.panel [--quick] [--json]``. A real kernel process; the messages are counted where a
notebook server would count them, on the kernel's iopub channel. CPU is that of the whole kernel, less
what the same growing answers cost it without panels.
"""

from __future__ import annotations

import argparse
import ast
import asyncio
import os
import tempfile
from collections import deque
from pathlib import Path
from typing import Any

from benchmarks.report import Row, report
from pooled_nb.demo.kernels import kernels

RATE = 100
MANY = 30
FAST = 1_000
TOKENS = 10_000
LIMIT = 1_000
"""Messages a second above which a Jupyter server drops all output (DESIGN section 7)."""


class Listener:
    """Runs expressions in the kernel, and notes when it sent each message of a panel."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self.times: list[float] = []

    async def value(self, expression: str) -> Any:
        """What an expression gives in the kernel; `times` then has the messages that came meanwhile."""
        self.times = []
        asked = self._client.execute("", user_expressions={"v": expression}, allow_stdin=False)
        over = False
        while not over:
            message = await self._client.get_iopub_msg(timeout=300)
            over = (
                message["parent_header"].get("msg_id") == asked
                and message["content"].get("execution_state") == "idle"
            )
            if message["msg_type"] == "comm_msg":
                self.times.append(message["header"]["date"].timestamp())
        reply = await self._client.get_shell_msg(timeout=60)
        found = reply["content"]["user_expressions"]["v"]
        if found["status"] != "ok":
            raise RuntimeError(found["evalue"])
        return ast.literal_eval(found["data"]["text/plain"])

    def most(self) -> int:
        """The most messages in any one second."""
        window: deque[float] = deque()
        most = 0
        for at in self.times:
            window.append(at)
            while window[0] < at - 1:
                window.popleft()
            most = max(most, len(window))
        return most


async def measure(*, quick: bool) -> list[Row]:
    """All rows, in one kernel."""
    seconds = 4 if quick else 20
    env = {"PYTHONPATH": os.getcwd()}
    with tempfile.TemporaryDirectory() as folder:
        async with kernels(["panel"], Path(folder), env) as [kernel]:
            await kernel.run("from benchmarks.panels import cost, memory")
            listener = Listener(kernel._client)
            rows = []
            for kind in ("answer", "room"):
                rows += await one(listener, kind, seconds)
            rows += await many(listener, 4 if quick else 10)
            rows += await flat(listener)
            return rows


async def one(listener: Listener, kind: str, seconds: int) -> list[Row]:
    """One panel at 100 tokens a second."""
    call = f"cost({kind!r}, 1, {RATE}, {seconds}, panels="
    bare = await listener.value(f"{call}False)")
    shown = await listener.value(f"{call}True)")
    cpu, most = shown - bare, listener.most()
    name = f"{kind} panel, {RATE} tokens/s"
    return [
        Row(what=f"{name}: kernel CPU", value=cpu, unit="% of a core", goal="<= 3", ok=cpu <= 3),
        Row(
            what=f"{name}: most updates in a second", value=most, unit="messages", goal="<= 20", ok=most <= 20
        ),
    ]


async def many(listener: Listener, seconds: int) -> list[Row]:
    """Many panels, each at 1,000 tokens a second."""
    call = f"cost('answer', {MANY}, {FAST}, {seconds}, panels="
    bare = await listener.value(f"{call}False)")
    shown = await listener.value(f"{call}True)")
    most = listener.most()
    name = f"{MANY} panels, {FAST:,} tokens/s each"
    goal = f"< {LIMIT:,}"
    return [
        Row(
            what=f"{name}: most messages in a second", value=most, unit="messages", goal=goal, ok=most < LIMIT
        ),
        Row(what=f"{name}: kernel CPU", value=shown - bare, unit="% of a core"),
    ]


async def flat(listener: Listener) -> list[Row]:
    """Memory over one long answer."""
    beyond, resident = await listener.value(f"memory({TOKENS}, {FAST})")
    name = f"{TOKENS:,} tokens in one panel"
    return [
        Row(
            what=f"{name}: Python memory beyond its text",
            value=beyond,
            unit="MB",
            goal="<= 0.5",
            ok=beyond <= 0.5,
        ),
        Row(what=f"{name}: the process grew by", value=resident, unit="MB", goal="<= 10", ok=resident <= 10),
    ]


def main() -> None:
    """Measure, then report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="shorter: ends within 50 s on 2 cores")
    parser.add_argument("--json", action="store_true", help="only the line for programs")
    args = parser.parse_args()
    report("panel", asyncio.run(measure(quick=args.quick)), as_json=args.json)


if __name__ == "__main__":
    main()
