"""Many devices with the invite key that arrive at once: how long it takes, and what the creator's loop feels.

``python -m benchmarks.gate [--quick] [--json]``. A real host room, with its embedded signaling server, on one
asyncio loop of this process; the devices are in two others, over real WebRTC on loopback. A ticker of 5 ms
measures by how much the loop is late (also because other processes have the cores), and how much CPU it takes
from one tick to the next (by itself). As many connections without a room are the floor: what ICE, DTLS and
SCTP take.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import json
import math
import os
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from benchmarks.report import Row, report
from pooled_nb.mesh import codes
from pooled_nb.mesh.clock import LoopClock
from pooled_nb.mesh.ice import IcePolicy
from pooled_nb.mesh.network import Connection
from pooled_nb.mesh.rtcnetwork import RtcNetwork
from pooled_nb.mesh.signalserver import SignalServer
from pooled_nb.room.core import RoomCore
from pooled_nb.room.hostroom import HostRoom
from pooled_nb.room.opening import host

MODEL = "HuggingFaceTB/SmolLM2-135M-Instruct"
TICK_S = 0.005
PROCESSES = 2
GOAL_MS = 50.0
"""Nothing blocks the mesh loop for longer (DESIGN section 3)."""
LIMIT_S = 120.0
"""Seconds that devices may take; each gives up long before."""


@dataclass
class Arrival:
    """What one wave of devices did to this process."""

    lags: list[float] = field(default_factory=list)
    """Milliseconds by which a tick was late: also what other processes of this machine took."""
    busy: list[float] = field(default_factory=list)
    """Milliseconds of CPU that the loop took from one tick to the next: what it did by itself."""
    seconds: list[float] = field(default_factory=list)
    """When each device was in."""
    failed: list[str] = field(default_factory=list)
    cpu: float = 0.0
    mb: float = 0.0
    """By how much the resident memory grew, 10⁶ bytes."""


class Ticker:
    """By how much the loop is late, every 5 ms, and for how long it was busy."""

    def __init__(self) -> None:
        self.lags: list[float] = []
        self.busy: list[float] = []
        self._task: asyncio.Task[None] | None = None

    def __enter__(self) -> Ticker:
        self._task = asyncio.ensure_future(self._run())
        return self

    def __exit__(self, *_: object) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        while True:
            due, cpu = time.perf_counter() + TICK_S, time.thread_time()
            await asyncio.sleep(TICK_S)
            self.lags.append((time.perf_counter() - due) * 1e3)
            self.busy.append((time.thread_time() - cpu) * 1e3)


class Devices:
    """Two processes of `benchmarks.arrivals`, ended on the way out."""

    def __init__(self, order: dict[str, Any], n: int) -> None:
        self._order = order
        self._counts = [n // PROCESSES + (i < n % PROCESSES) for i in range(PROCESSES)]
        self._running: list[asyncio.subprocess.Process] = []

    async def __aenter__(self) -> Devices:
        try:
            for n in self._counts:
                process = await asyncio.create_subprocess_exec(
                    sys.executable,
                    "-m",
                    "benchmarks.arrivals",
                    stdin=asyncio.subprocess.PIPE,
                    stdout=asyncio.subprocess.PIPE,
                    limit=1 << 20,
                )
                self._running.append(process)
                _tell(process, {**self._order, "n": n})
            await asyncio.gather(*(_hear(process) for process in self._running))
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        for process in self._running:
            _tell(process, {})
        for process in self._running:
            try:
                await asyncio.wait_for(process.wait(), 20)
            except TimeoutError:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
                await process.wait()

    async def arrive(self) -> list[dict[str, Any]]:
        """All at once; when the last one is in, or has failed."""
        for process in self._running:
            _tell(process, {})
        return list(await asyncio.gather(*(_hear(process) for process in self._running)))


def _tell(process: asyncio.subprocess.Process, what: dict[str, Any]) -> None:
    assert process.stdin is not None
    with contextlib.suppress(ConnectionError):
        process.stdin.write((json.dumps(what) + "\n").encode())


async def _hear(process: asyncio.subprocess.Process) -> dict[str, Any]:
    """What it says; one that ends or hangs has failed, which is a number, too: the report is made."""
    assert process.stdout is not None
    try:
        said: dict[str, Any] = json.loads(await asyncio.wait_for(process.stdout.readline(), LIMIT_S))
    except (TimeoutError, ValueError):
        return {"failed": [f"a process of devices said nothing in {LIMIT_S:.0f} s, or ended"]}
    return said


async def wave(order: dict[str, Any], n: int) -> Arrival:
    """``n`` devices at once."""
    found = Arrival()
    async with Devices(order, n) as devices:
        me = psutil.Process()
        gc.collect()
        before, cpu = me.memory_info().rss, time.process_time()
        with Ticker() as ticker:
            for said in await devices.arrive():
                found.seconds += said.get("seconds", [])
                found.failed += said.get("failed", [])
        found.cpu = time.process_time() - cpu
        found.mb = (me.memory_info().rss - before) / 1e6
        found.lags, found.busy = ticker.lags, ticker.busy
    return found


@contextlib.asynccontextmanager
async def real_room() -> AsyncIterator[RoomCore]:
    """A room that nobody has joined; nothing is loaded."""
    room = await host(MODEL, lend="1GB")
    try:
        yield room
    finally:
        await room.leave()


async def with_gate(n: int) -> Arrival:
    """``n`` devices join a room with its invite key."""
    async with real_room() as room:
        assert isinstance(room, HostRoom)
        invite = codes.parse(room.invite().link)
        order = {"url": room.mesh.server, "code": room.code, "key": invite.key, "gate": True}
        found = await wave(order, n)
        await _until_gone(room)
        return found


async def _until_gone(room: HostRoom) -> None:
    for _ in range(200):
        if len(room.mesh.roster) == 1:
            return
        await asyncio.sleep(0.05)


async def floor(n: int) -> Arrival:
    """``n`` connections to one id, without a room."""
    server = await SignalServer.start()
    code = codes.draw()
    endpoint = await RtcNetwork(LoopClock(), IcePolicy.local()).register(codes.room_id(code), [server.url])
    taken: list[Connection] = []
    endpoint.on_connection = taken.append
    try:
        return await wave({"url": server.url, "code": code, "key": None, "gate": False}, n)
    finally:
        await asyncio.gather(*(connection.close() for connection in taken))
        await endpoint.close()
        await server.close()


def percentile(values: list[float], share: float) -> float:
    """The value that this share of all lies at or below; NaN of none."""
    if not values:
        return float("nan")
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


MEASURES: tuple[tuple[str, str, Callable[[Arrival], float], float | None], ...] = (
    ("until all are in", "s", lambda wave: percentile(wave.seconds, 1.0), None),
    ("until half are in", "s", lambda wave: percentile(wave.seconds, 0.5), None),
    ("creator's loop late, p50", "ms", lambda wave: percentile(wave.lags, 0.5), None),
    ("creator's loop late, p99", "ms", lambda wave: percentile(wave.lags, 0.99), GOAL_MS),
    ("creator's loop late, at most", "ms", lambda wave: percentile(wave.lags, 1.0), None),
    ("busy at a stretch, p99", "CPU-ms", lambda wave: percentile(wave.busy, 0.99), None),
    ("busy at a stretch, at most", "CPU-ms", lambda wave: percentile(wave.busy, 1.0), GOAL_MS),
    ("creator's CPU", "s", lambda wave: wave.cpu, None),
)
"""What is measured of a wave: words, unit, value, and what it may be at most."""


def rows_of(n: int, gate: Arrival, bare: Arrival) -> list[Row]:
    """Rows of one number of devices; the peer is the same number of bare connections."""
    peer = f"{n} connections, no room"
    came, opened = float(len(gate.seconds)), float(len(bare.seconds))
    rows = [
        Row(what=f"{n} devices with the key: in", value=came, unit="devices", goal=f"{n}", ok=came == n),
        Row(what=f"{peer}: open", value=opened, unit="connections", goal=f"{n}"),
    ]
    for what, unit, of, most in MEASURES:
        value, other = of(gate), of(bare)
        if math.isnan(value):
            continue  # nobody came in: the first row says so
        row = Row(what=f"{n}: {what}", value=value, unit=unit, peer=peer, ratio=None)
        if other > 0:
            row.ratio = value / other
        if most is not None:
            row.goal, row.ok = f"<= {most:.0f} {unit}", value <= most
        rows.append(row)
    return [*rows, Row(what=f"{n}: creator's memory for each", value=gate.mb / n, unit="MB")]


async def measure(*, quick: bool) -> list[Row]:
    """All rows, in one run."""
    # aiortc's own tasks fail where the other end is gone; a room's thread sends that to the log, too.
    asyncio.get_running_loop().set_exception_handler(lambda _loop, _what: None)
    rows: list[Row] = []
    for n in (20, 100):
        bare, gate = await floor(n), await with_gate(n)
        if not quick:
            more = [await with_gate(n) for _ in range(2)]
            gate = sorted([gate, *more], key=lambda one: percentile(one.lags, 0.99))[1]
        for why in sorted({*bare.failed, *gate.failed}):
            print(f"{n} devices: {why}", file=sys.stderr)
        rows += rows_of(n, gate, bare)
    return rows


def main() -> None:
    """Measure, then report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one run of each: ends within 50 s on 2 cores")
    parser.add_argument("--json", action="store_true", help="only the line for programs")
    args = parser.parse_args()
    os.environ["POOLED_THREADS"] = "1"
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    with tempfile.TemporaryDirectory() as folder:
        os.environ["POOLED_RUNTIME_DIR"] = str(Path(folder) / "run")
        os.environ["POOLED_DATA_DIR"] = str(Path(folder) / "data")
        report("gate", asyncio.run(measure(quick=args.quick)), as_json=args.json)


if __name__ == "__main__":
    main()
