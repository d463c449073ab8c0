"""How every benchmark reports: a table for people, one JSON line for programs (DESIGN section 9)."""

from __future__ import annotations

import json
import os
import platform
import sys

from msgspec import Struct, to_builtins
from rich.console import Console
from rich.table import Table


class Row(Struct, kw_only=True):
    """One measured number. ``ratio``: to the peer's; ``ok``: whether the goal holds, None without one."""

    what: str
    value: float
    unit: str
    peer: str = ""
    ratio: float | None = None
    goal: str = ""
    ok: bool | None = None


def report(name: str, rows: list[Row], *, as_json: bool) -> None:
    """Print the table (not with ``as_json``), then the line that programs read."""
    if not as_json:
        table = Table(title=f"{name} ({conditions()})")
        for column in ("what", "value", "unit", "ratio", "peer", "goal", "ok"):
            table.add_column(column, justify="right" if column in ("value", "ratio") else "left")
        for r in rows:
            ok = "" if r.ok is None else "yes" if r.ok else "NO"
            ratio = "" if r.ratio is None else f"{r.ratio:.2f}"
            table.add_row(r.what, f"{r.value:.2f}", r.unit, ratio, r.peer, r.goal, ok)
        Console(width=140).print(table)
    print(json.dumps({"name": name, "rows": [to_builtins(r) for r in rows]}))
    sys.stdout.flush()


def conditions() -> str:
    """The machine, in a few words."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return f"{platform.machine()}, {cores} cores, Python {platform.python_version()}"
