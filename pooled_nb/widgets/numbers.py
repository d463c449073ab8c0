"""The four numbers and the strip of a room's panel: memory before, bytes while loading, speed while it runs.

Pure: a `Status` in, JSON out.
"""

from __future__ import annotations

from typing import Any

from pooled_nb.room.core import DeviceLine, Status
from pooled_nb.widgets.chain import MOST, RUNNING, held, holders
from pooled_nb.widgets.formats import NONE, finite, gb, ms, number, percent


def numbers(status: Status) -> list[dict[str, str]]:
    """At most four."""
    if status.state == "closed":
        return []
    if status.state == "loading":
        return _loading(status)
    return _running(status) if status.state in RUNNING else _before(status)


def strip(status: Status) -> dict[str, Any]:
    """The bar below the numbers, with what its two ends say."""
    if status.state == "closed":
        return empty_strip()
    if status.state == "loading":
        return _loaded(status)
    return _held(status) if status.state in RUNNING else _lent(status)


def empty_strip() -> dict[str, Any]:
    """No bar."""
    return {"left": "", "right": "", "parts": [], "mark": None}


def lent_gb(status: Status) -> float:
    """What those who can hold layers lend."""
    return sum(_lends(d) for d in _here(status))


def _here(status: Status) -> list[DeviceLine]:
    """Those in layer order that are in the room."""
    return [d for d in holders(status) if not d.gone]


def _lends(d: DeviceLine) -> float:
    return max(0.0, finite(d.lends_gb) or 0.0)


def _number(value: str, unit: str, label: str, tip: str = "") -> dict[str, str]:
    return {"value": value, "unit": unit, "label": label, "tip": tip}


def _before(status: Status) -> list[dict[str, str]]:
    here = len(_here(status))
    need = finite(status.need_gb) or 0.0
    return [
        _number(
            number(need) if need else NONE, "GB", "needed", "Weights and caches of the model in this room"
        ),
        _number(number(lent_gb(status)), "GB", "lent", "What the devices here lend"),
        _number(str(here), "device" if here == 1 else "devices", "can hold layers"),
    ]


def _loading(status: Status) -> list[dict[str, str]]:
    devices = holders(status)
    ready = sum(percent(d.progress) >= 100 for d in devices)
    need = finite(status.need_gb) or 0.0
    return [
        _number(str(loaded(status)), "%", "loaded"),
        _number(str(ready), f"of {len(devices)}", "devices ready"),
        _number(
            number(need) if need else NONE, "GB", "needed", "Weights and caches of the model in this room"
        ),
    ]


def _running(status: Status) -> list[dict[str, str]]:
    tps = finite(status.tps) or 0.0
    holding = [d for d in _here(status) if held(d)]
    links = [d.rtt_ms for d in holding if not d.me and finite(d.rtt_ms) is not None]
    # While it answers nobody but the host knows how many there are.
    used = f"{status.used:,}" if status.used or status.state not in ("answering", "waiting") else NONE
    slowest = ms(max(link for link in links if link is not None)).split() if links else [NONE, ""]
    return [
        _number(
            f"{tps:.1f}" if tps else NONE,
            "",
            "tokens per second",
            "Of the last answer, its first token aside",
        ),
        _number(
            used,
            f"of {status.ctx:,}" if status.ctx else "",
            "context",
            "Tokens the caches hold",
        ),
        _number(str(len(holding)), "device" if len(holding) == 1 else "devices", "hold layers"),
        _number(slowest[0], slowest[1], "slowest link", "Round trip from this device"),
    ]


def _part(w: float, kind: str, i: int | None = None) -> dict[str, Any]:
    return {"w": round(max(0.0, min(1.0, w)), 4), "kind": kind, "i": i}


def _lent(status: Status) -> dict[str, Any]:
    devices = holders(status)[:MOST]
    lent, need = lent_gb(status), finite(status.need_gb) or 0.0
    whole = max(lent, need)
    if not whole:
        return empty_strip()
    parts = [_part(_lends(d) / whole, "full", i) for i, d in enumerate(devices)]
    if lent < need:
        parts.append(_part((need - lent) / whole, "lack"))
    right = "" if not need else f"{gb(need - lent)} short" if lent < need else f"{gb(lent - need)} to spare"
    mark = round(need / whole, 4) if need and lent > need else None
    return {"left": "lent by device", "right": right, "parts": parts, "mark": mark}


def _shares(devices: list[DeviceLine]) -> list[float]:
    """How much of the model each device loads; the same for all where that is not known here."""
    ranges = [held(d) or (0, 0) for d in devices]
    sizes = [hi - lo for lo, hi in ranges]
    whole = sum(sizes)
    return [s / whole for s in sizes] if whole else [1 / len(devices)] * len(devices)


def loaded(status: Status) -> int:
    """Percent of the model that the devices have loaded."""
    devices = holders(status)
    if not devices:
        return 0
    return percent(sum(s * percent(d.progress) for s, d in zip(_shares(devices), devices, strict=True)))


def _loaded(status: Status) -> dict[str, Any]:
    devices = holders(status)
    if not devices:
        return empty_strip()
    done = [s * percent(d.progress) / 100 for s, d in zip(_shares(devices), devices, strict=True)]
    parts = [_part(w, "full", i) for i, w in enumerate(done[:MOST])]
    parts.append(_part(1 - sum(done), "lack"))
    return {"left": "loaded by device", "right": f"{loaded(status)} %", "parts": parts, "mark": None}


def _held(status: Status) -> dict[str, Any]:
    devices = holders(status)
    lent = lent_gb(status)
    used = [max(0.0, finite(d.held_gb) or 0.0) for d in devices]
    if not lent or not sum(used):
        return empty_strip()
    parts = [_part(u / max(lent, sum(used)), "full", i) for i, u in enumerate(used[:MOST]) if u]
    right = f"{number(sum(used))} of {gb(lent)} lent"
    return {"left": "memory used by device", "right": right, "parts": parts, "mark": None}
