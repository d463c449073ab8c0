"""The wire of a link, beside stock aiortc, wrtc where it is installed, and a plain TCP socket.

``python -m benchmarks.wire [--quick] [--json]``. Two processes for each stack, on loopback and through the
tests' UDP shaper (`tests.shaper`); what is compared takes turns in one run, so that a busy machine is busy
for all of them. Nothing is computed: frames of random bytes go to the far end, which sends them back.

``our link`` is a whole link between two meshes: signaling, proofs, pings, its wire, over the tuned
association; by itself and with 3 stripes. The same link on stock aiortc shows what the association is worth;
``stock aiortc`` is a bare `RTCPeerConnection` that carries the same slices, without anything of ours, and
``tuned association`` is that with our association alone. On loopback a link has the settings of one machine
(no keep-alive), over a network those of a room. CPU is that of both processes.

Without ``--quick`` a room of three processes answers over a line that loses datagrams, too.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import tempfile
from collections.abc import AsyncIterator, Awaitable, Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks import wire_room
from benchmarks.report import Row, report
from benchmarks.wire_pairs import Pair, Timed
from benchmarks.wire_rows import (
    CPU_GOAL,
    LINK,
    STOCK,
    STOCK_LINK,
    STOCK_STRIPED,
    STRIPED,
    TCP,
    TIME_GOAL,
    TUNED_BARE,
    WRTC_LINK,
    WRTC_STRIPED,
    Limit,
    behind_rows,
    network_rows,
    opening_rows,
    round_rows,
    weight_rows,
)
from pooled_nb.mesh import stacks
from pooled_nb.mesh.wiresettings import DEFAULT, ONE_MACHINE, WireSettings
from tests.shaper.handle import Shaper
from tests.shaper.line import LineSettings

TUNED, UNTUNED, WRTC = "tuned", "stock", "wrtc"
"""Pairs of processes."""
ENV = {TUNED: {}, UNTUNED: {"POOLED_SCTP": "stock"}, WRTC: {}}

KB = {1_152: "1.2 KB", 10_240: "10 KB", 81_920: "80 KB", 163_840: "164 KB"}
"""Sizes of frames; the least is a token's of SmolLM2-135M."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A carrier: its name in the rows, which pair has it, and how it is made."""

    name: str
    pair: str
    how: dict[str, Any]


def link(name: str, pair: str, settings: WireSettings, **more: Any) -> Kind:
    """A link of ours."""
    transport = {"transport": "wrtc"} if pair == WRTC else {}
    return Kind(name, pair, {"kind": "link", **asdict(settings), **transport, **more})


LOCAL_STRIPED = WireSettings(keepalive_ms=0.0, stripes=3)
ALONE = WireSettings(stripes=0)

LOOPBACK = (
    link(LINK, TUNED, ONE_MACHINE),
    Kind(STOCK, UNTUNED, {"kind": "aiortc"}),
    Kind(TUNED_BARE, TUNED, {"kind": "aiortc"}),
    link(STRIPED, TUNED, LOCAL_STRIPED),
    link(STOCK_LINK, UNTUNED, ONE_MACHINE),
    link(WRTC_LINK, WRTC, ONE_MACHINE),
    Kind(TCP, TUNED, {"kind": "tcp"}),
)
NETWORK = (
    link(STRIPED, TUNED, DEFAULT),
    link(LINK, TUNED, ALONE),
    link(STOCK_LINK, UNTUNED, ALONE),
    link(STOCK_STRIPED, UNTUNED, DEFAULT),
    link(WRTC_STRIPED, WRTC, DEFAULT),
    link(WRTC_LINK, WRTC, ALONE),
)


@dataclass(frozen=True, slots=True)
class Effort:
    """How often things are done."""

    turns: int
    trips: dict[int, int]
    """Of each size, in one turn of one carrier on loopback."""
    pieces: int
    looks: int
    lossy: dict[int, int]
    """Of each size in all, over the line that loses."""
    cold: int
    warm: int
    idle_s: float
    network: tuple[Kind, ...]
    seconds: float = 60.0
    """That a turn of one carrier over a network takes at most."""


QUICK = Effort(
    turns=2,
    trips={1_152: 60, 10_240: 40, 81_920: 8},
    pieces=24,
    looks=5,
    lossy={10_240: 100, 81_920: 16},
    cold=1,
    warm=6,
    idle_s=0.5,
    network=tuple(kind for kind in NETWORK if kind.name in (STRIPED, STOCK_LINK)),
    seconds=2.5,
)
FULL = Effort(
    turns=5,
    trips={1_152: 100, 10_240: 100, 81_920: 20},
    pieces=64,
    looks=20,
    lossy={10_240: 300, 81_920: 60},
    cold=3,
    warm=12,
    idle_s=2.0,
    network=NETWORK,
)


ROOM_TURNS, ROOM_TOKENS = 5, 64


@contextlib.asynccontextmanager
async def pairs() -> AsyncIterator[dict[str, Pair]]:
    """A pair of processes for each stack that is here."""
    here = [name for name in ENV if name != WRTC or "wrtc" in stacks.available()]
    async with contextlib.AsyncExitStack() as ends:
        made = await asyncio.gather(*(Pair.start(ENV[name]) for name in here))
        for pair in made:
            ends.push_async_callback(pair.end)
        yield dict(zip(here, made, strict=True))


class Bench:
    """All measurements, one after the other."""

    def __init__(self, made: Mapping[str, Pair], effort: Effort) -> None:
        self._pairs, self._effort = made, effort

    def _here(self, kinds: Iterable[Kind]) -> list[Kind]:
        return [kind for kind in kinds if kind.pair in self._pairs]

    async def loopback(self) -> list[Row]:
        """Round trips, weights, what waits behind them, and what an idle link costs."""
        kinds, effort = self._here(LOOPBACK), self._effort
        opened = {k.name: [await self._pairs[k.pair].open(k.name, **k.how)] for k in kinds}
        rows = []
        for size, n in effort.trips.items():
            found = {kind.name: Timed() for kind in kinds}
            for kind in kinds:  # what only happens once is no round trip
                await self._pairs[kind.pair].rounds(Timed(), kind.name, size, 5)
            for turn in range(effort.turns):
                for kind in _turned(kinds, turn):
                    await self._pairs[kind.pair].rounds(found[kind.name], kind.name, size, n)
            rows += round_rows(KB[size], found, (TIME_GOAL, CPU_GOAL))
        poured = {kind.name: Timed() for kind in kinds}
        for turn in range(effort.turns):
            for kind in _turned(kinds, turn):
                await self._pairs[kind.pair].pour(poured[kind.name], kind.name, effort.pieces)
        rows += weight_rows(poured)
        behind: dict[str, dict[str, Timed]] = {kind.name: {} for kind in kinds}
        for kind in kinds:
            await self._pairs[kind.pair].behind(behind[kind.name], kind.name, effort.looks)
        rows += behind_rows(behind)
        await self._close(kinds)
        links = [kind for kind in kinds if kind.how["kind"] == "link"]
        for kind in links:
            for _ in range(effort.cold):
                opened[kind.name].append(await self._pairs[kind.pair].open(kind.name, **kind.how))
                await self._pairs[kind.pair].close(kind.name)
        rows += opening_rows("0 ms", {kind.name: opened[kind.name] for kind in links})
        return rows + await self._idle([kind for kind in links if kind.name in (LINK, STRIPED)])

    async def _idle(self, kinds: list[Kind]) -> list[Row]:
        """CPU of both ends of a link over which nothing goes, less what both processes take without one."""
        rows = []
        for kind in kinds:
            pair = self._pairs[kind.pair]
            bare = await self._cpu(pair)
            await pair.open(kind.name, **kind.how)
            await asyncio.sleep(0.5)  # what opens it still ends
            value = await self._cpu(pair) - bare
            await pair.close(kind.name)
            rows.append(Row(what=f"idle, {kind.name}: CPU, both ends", value=value, unit="CPU-ms/s"))
        return rows

    async def _cpu(self, pair: Pair) -> float:
        """CPU-ms a second of a pair that is left alone."""
        before = await pair.cpu()
        await asyncio.sleep(self._effort.idle_s)
        return (await pair.cpu() - before) * 1e3 / self._effort.idle_s

    async def lossy(self, net: Shaper) -> list[Row]:
        """20 ms and 1 % loss each way. The pairs run side by side: each waits most of the time."""
        kinds, rows = self._here(self._effort.network), []
        net.change(LineSettings(delay_ms=20))
        await self._open(kinds, net)
        net.change(LineSettings(delay_ms=20, loss=0.01))
        limits = {10_240: Limit(STRIPED, 100, 0.99), 81_920: Limit(STRIPED, 150)}
        for size, n in self._effort.lossy.items():
            found = await self._side_by_side(kinds, size, n)
            rows += network_rows(f"20 ms + 1 % loss: {KB[size]}", found, limits[size])
        net.change(LineSettings())
        await self._close(kinds)
        return rows

    async def far(self, net: Shaper) -> list[Row]:
        """50 ms one way: links as they open, their first frames, and those that follow."""
        kinds = self._here(self._effort.network)
        limits = {10_240: Limit(STRIPED, 125), 163_840: Limit(STRIPED, 350)}
        net.change(LineSettings(delay_ms=50))
        opened: dict[str, list[dict[str, float]]] = {kind.name: [] for kind in kinds}
        cold = {size: {kind.name: Timed() for kind in kinds} for size in limits}
        for _ in range(self._effort.cold):
            for size in limits:
                for name, parts in (await self._open(kinds, net)).items():
                    opened[name].append(parts)
                for kind in kinds:
                    await self._pairs[kind.pair].rounds(cold[size][kind.name], kind.name, size, 1)
                if size != max(limits):
                    await self._close(kinds)
        rows = opening_rows("50 ms", opened)
        for size, limit in limits.items():
            warm = await self._side_by_side(kinds, size, self._effort.warm)
            rows += network_rows(f"50 ms, first frame: {KB[size]}", cold[size], limit)
            rows += network_rows(f"50 ms, warm: {KB[size]}", warm, limit)
        await self._close(kinds)
        net.change(LineSettings())
        return rows

    # -- inside ------------------------------------------------------------------------------------

    async def _open(self, kinds: list[Kind], net: Shaper) -> dict[str, dict[str, float]]:
        """Open them through the shaper, pairs side by side; seconds of each one's parts."""
        opened: dict[str, dict[str, float]] = {}

        async def one(kind: Kind) -> None:
            opened[kind.name] = await self._pairs[kind.pair].open(kind.name, **kind.how, url=net.url)

        await self._by_pair(kinds, one)
        return opened

    async def _close(self, kinds: list[Kind]) -> None:
        await self._by_pair(kinds, lambda kind: self._pairs[kind.pair].close(kind.name))

    async def _side_by_side(self, kinds: list[Kind], size: int, n: int) -> dict[str, Timed]:
        """Round trips of all, where a processor has little to do: pairs at once, carriers of one in turns."""
        found = {kind.name: Timed() for kind in kinds}
        effort = self._effort

        async def some(kind: Kind) -> None:
            pair, into = self._pairs[kind.pair], found[kind.name]
            await pair.rounds(into, kind.name, size, -(-n // effort.turns), seconds=effort.seconds)

        for turn in range(effort.turns):
            await self._by_pair(_turned(kinds, turn), some)
        return found

    async def _by_pair(self, kinds: Iterable[Kind], do: Any) -> None:
        async def all_of(pair: str) -> None:
            for kind in kinds:
                if kind.pair == pair:
                    await do(kind)

        jobs: list[Awaitable[None]] = [all_of(pair) for pair in self._pairs]
        await asyncio.gather(*jobs)


def _turned(kinds: list[Kind], turn: int) -> list[Kind]:
    """Who begins changes from turn to turn."""
    first = turn % len(kinds)
    return kinds[first:] + kinds[:first]


async def measure(*, quick: bool) -> list[Row]:
    """All rows of links, in one run."""
    async with pairs() as made:
        bench = Bench(made, QUICK if quick else FULL)
        tuned = await made[TUNED].tuned()
        rows = [Row(what=f"{LINK}: tuned", value=float(tuned), unit="1 is yes", goal="1", ok=tuned)]
        rows += await bench.loopback()
        net = await asyncio.to_thread(Shaper, seed=1)
        try:
            return [*rows, *await bench.lossy(net), *await bench.far(net)]
        finally:
            net.close()


def main() -> None:
    """Measure, then report."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="fewer round trips, no room: within 50 s")
    parser.add_argument("--json", action="store_true", help="only the line for programs")
    args = parser.parse_args()
    os.environ["POOLED_THREADS"] = "1"
    with tempfile.TemporaryDirectory() as folder:
        os.environ["POOLED_RUNTIME_DIR"] = os.environ["POOLED_DATA_DIR"] = folder
        rows = asyncio.run(measure(quick=args.quick))
        if not args.quick:
            rows += wire_room.measure(ROOM_TURNS, ROOM_TOKENS)
        report("wire", rows, as_json=args.json)


if __name__ == "__main__":
    main()
