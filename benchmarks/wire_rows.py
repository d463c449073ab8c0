"""From what `benchmarks.wire` measured to rows, with their goals. No I/O."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass

from benchmarks.gate import percentile
from benchmarks.report import Row
from benchmarks.wire_pairs import Timed

LINK = "our link"
STRIPED = "our link, 3 stripes"
STOCK = "stock aiortc"
"""The same slices on a bare connection: what the goals are ratios of."""
TUNED_BARE = "tuned association"
"""The same over ours: what is left to the link itself."""
STOCK_LINK = "our link on stock aiortc"
STOCK_STRIPED = "our link on stock aiortc, 3 stripes"
WRTC_LINK = "our link on wrtc"
WRTC_STRIPED = "our link on wrtc, 3 stripes"
TCP = "TCP"

TIME_GOAL, CPU_GOAL = 0.6, 0.4
"""Of stock aiortc's time and CPU."""
BEHIND_MS = 25.0


@dataclass(frozen=True, slots=True)
class Limit:
    """A goal in milliseconds: for which carrier, and which share of its round trips."""

    carrier: str
    ms: float
    share: float = 0.5


def words(share: float) -> str:
    """``median``, ``p99``."""
    return "median" if share == 0.5 else f"p{share * 100:.0f}"


def value_of(timed: Timed, share: float) -> float:
    """That percentile of its round trips."""
    return statistics.median(timed.ms) if share == 0.5 else percentile(timed.ms, share)


def cpu_of(timed: Timed) -> float:
    """CPU milliseconds of both ends for one round trip."""
    return timed.cpu * 1e3 / len(timed.ms)


def _against(row: Row, peer: str, value: float, goal: float | None) -> Row:
    row.peer, row.ratio = peer, row.value / value
    if goal is not None:
        row.goal, row.ok = f"<= {goal:.2f} x", row.ratio <= goal
    return row


def round_rows(what: str, found: Mapping[str, Timed], goals: tuple[float, float] | None = None) -> list[Row]:
    """Times and CPU of one size of frame, each beside stock aiortc's.

    Parameters
    ----------
    what
        Words for the size, and where.
    found
        By carrier; those without a round trip are left out.
    goals
        Ratios of time and CPU that our link is to keep.
    """
    rows = []
    stock = found.get(STOCK)
    for name, timed in found.items():
        if not timed.ms:
            continue
        tail = f"(p95 {percentile(timed.ms, 0.95):.2f}, p99 {percentile(timed.ms, 0.99):.2f})"
        time = Row(what=f"{what}, {name} {tail}", value=statistics.median(timed.ms), unit="ms")
        cpu = Row(what=f"{what}, {name}: CPU, both ends", value=cpu_of(timed), unit="CPU-ms")
        if stock is not None and stock.ms and name != STOCK:
            wanted = goals if name == LINK and goals is not None else (None, None)
            _against(time, STOCK, statistics.median(stock.ms), wanted[0])
            _against(cpu, STOCK, cpu_of(stock), wanted[1])
        rows += [time, cpu]
    return rows


def weight_rows(found: Mapping[str, Timed]) -> list[Row]:
    """Weights, one way: how fast, and what a megabyte costs both ends."""
    rows = []
    stock = found.get(STOCK)
    for name, timed in found.items():
        if not timed.mb:
            continue
        rate = Row(what=f"weights, {name}", value=timed.mb / sum(timed.ms) * 1e3, unit="MB/s")
        cost = Row(
            what=f"weights, {name}: CPU, both ends", value=timed.cpu / timed.mb * 1e3, unit="CPU-ms/MB"
        )
        if stock is not None and stock.mb and name != STOCK:
            _against(rate, STOCK, stock.mb / sum(stock.ms) * 1e3, None)
            _against(cost, STOCK, stock.cpu / stock.mb * 1e3, CPU_GOAL if name == LINK else None)
        rows += [rate, cost]
    return rows


def behind_rows(found: Mapping[str, Mapping[str, Timed]]) -> list[Row]:
    """What waits behind weights without an end."""
    rows = []
    for name, by in found.items():
        rate = by["weights"].mb / len(by["weights"].ms)
        for what, said in (("byte", "keep-alive"), ("small", "control message"), ("frame", "10 KB frame")):
            ms = statistics.median(by[what].ms)
            row = Row(what=f"{said} behind weights ({rate:.1f} MB/s), {name}", value=ms, unit="ms")
            if name in (LINK, STRIPED) and what != "frame":
                row.goal, row.ok = f"<= {BEHIND_MS:.0f} ms", ms <= BEHIND_MS
            rows.append(row)
    return rows


def network_rows(what: str, found: Mapping[str, Timed], limit: Limit) -> list[Row]:
    """Round trips over a bad network: that percentile of each carrier, and the goal of one."""
    rows = []
    stock = found.get(STOCK_LINK)
    for name, timed in found.items():
        if not timed.ms:
            continue
        spread = f"(p95 {percentile(timed.ms, 0.95):.0f})"
        if limit.share != 0.5:
            spread = f"(median {statistics.median(timed.ms):.0f})"
        said = f"{what}, {words(limit.share)}, {name} {spread}"
        row = Row(what=said, value=value_of(timed, limit.share), unit="ms")
        if stock is not None and stock.ms and name != STOCK_LINK:
            _against(row, STOCK_LINK, value_of(stock, limit.share), None)
        if name == limit.carrier:
            row.goal, row.ok = f"<= {limit.ms:.0f} ms", row.value <= limit.ms
        rows.append(row)
    return rows


def opening_rows(what: str, found: Mapping[str, list[dict[str, float]]]) -> list[Row]:
    """How long a link takes to open, proved and in the roster; and until its stripes are proved, too."""
    rows = []
    for name, opened in found.items():
        for part in ("link", "stripes"):
            if opened and (part == "link" or name.endswith("stripes")):
                ms = statistics.median(one[part] for one in opened) * 1e3
                rows.append(Row(what=f"{what}: {name}, {part} open", value=ms, unit="ms"))
    return rows
