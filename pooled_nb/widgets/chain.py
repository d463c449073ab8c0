"""The chain of a room for its panel: who holds which layers, what they do, the hops between them.

Pure: a `Status` in, JSON out. Layers are 0-based, hi exclusive, in ``lo`` and ``hi``, and 1-based in words.
"""

from __future__ import annotations

import re
from itertools import accumulate, pairwise
from typing import Any

from pooled_nb.room.core import DeviceLine, Status
from pooled_nb.room.sentences import layer_range
from pooled_nb.widgets import links
from pooled_nb.widgets.formats import NONE, finite, gb, line, ms, named, number, percent

Range = tuple[int, int]
"""Layers, 0-based, hi exclusive."""

MOST = 100
"""Devices that a panel draws."""
LONG_S = 120
"""A wait that may last longer counts minutes."""
RUNNING = ("online", "answering", "waiting", "degraded", "away")
_GONE = re.compile(
    r"^(.{1,200}) (dropped|left|was taken out); layers? (\d{1,6})(?:–(\d{1,6}))? (?:are|is) missing"
)


def layers_words(lo: int, hi: int) -> str:
    """``layers 1–10``, ``layer 7``."""
    return f"layer{'s' if hi - lo > 1 else ''} {layer_range(lo, hi)}"


def held(d: DeviceLine) -> Range | None:
    """The layers it holds; what is no range of layers, whoever said it, is none."""
    return d.layers if d.layers is not None and 0 <= d.layers[0] < d.layers[1] else None


def holders(status: Status) -> list[DeviceLine]:
    """Devices in layer order; before a deal those that lend, the host first."""
    dealt = [d for d in status.devices if held(d)]
    if dealt:
        return sorted(dealt, key=lambda d: held(d) or (0, 0))
    lend = [d for d in status.devices if d.lends_gb > 0 and d.role != "guest"]
    return sorted(lend, key=lambda d: d.role != "host")


def gaps(status: Status) -> list[Range]:
    """Ranges of layers that no device of the room holds; none before a deal."""
    ranges = sorted(layers for d in status.devices if not d.gone and (layers := held(d)))
    if not ranges:
        return []
    ends = [(0, 0), *ranges, (status.layers, status.layers)]
    return [(hi, lo) for (_, hi), (lo, _) in pairwise(ends) if hi < lo]


def told_gone(status: Status) -> tuple[str, str, Range] | None:
    """Of a degraded room, as its sentence says: whose layers are missing, how it went, which they are."""
    found = _GONE.match(status.sentence)
    if found is None:
        return None
    lo, hi = int(found[3]) - 1, int(found[4] or found[3])
    return found[1], found[2], (lo, hi)


def chain(status: Status) -> tuple[list[dict[str, Any]], int]:
    """The devices in order, and how many layers have none."""
    devices = holders(status)[:MOST]
    dealt = any(held(d) for d in devices)
    ranges = [held(d) for d in devices] if dealt else _rough(devices, status.layers)
    slow = links.slowest(status)
    rows = [_row(d, r, status, slow) for d, r in zip(devices, ranges, strict=True)]
    known = [held(d) or (0, 0) for d in devices if d.gone]
    lost = told_gone(status) if status.state == "degraded" and not known else None
    rest = -sum(hi - lo for lo, hi in known)
    for lo, hi in gaps(status):
        rest += hi - lo
        if lost is not None and lo <= lost[2][0] < lost[2][1] <= hi:
            rest -= lost[2][1] - lost[2][0]
            rows.append(_dropped(*lost))
            rows.sort(key=lambda row: row["lo"])
    return rows, max(0, rest)


def _rough(devices: list[DeviceLine], layers: int) -> list[Range | None]:
    """Layers in proportion to the memory lent: about what a deal would give."""
    lent = [max(0.0, finite(d.lends_gb) or 0.0) for d in devices]
    if layers < len(devices) or not sum(lent):
        return [None] * len(devices)
    cuts = [0, *(round(layers * part / sum(lent)) for part in accumulate(lent))]
    return [(lo, hi) if lo < hi else None for lo, hi in pairwise(cuts)]


def _row(d: DeviceLine, layers: Range | None, status: Status, slow: links.Slow | None) -> dict[str, Any]:
    state, tone, word, more = _doing(d, status)
    slows = slow is not None and slow.id == d.id and not more
    lent = max(0.0, finite(d.lends_gb) or 0.0)
    used = max(0.0, finite(d.held_gb) or 0.0)
    return {
        "id": line(d.id),
        "name": line(d.name),
        "you": d.me,
        "host": d.role == "host",
        "kind": "phone" if "phone" in d.kind.lower() else "computer",
        "lo": layers[0] if layers else None,
        "hi": layers[1] if layers else None,
        "layers": layers_words(*layers) if layers and held(d) else "",
        "state": state,
        "tone": tone,
        "word": word,
        "more": slow.short if slow and slows else more or ("relayed" if d.path == "relayed" else ""),
        "tip": slow.why if slow and slows else "",
        "pct": percent(d.progress) if state == "loading" else 0 if state in ("held", "dropped") else 100,
        "used": round(used, 2),
        "lent": round(lent, 2),
        "memory": NONE if d.gone else f"{number(used)} / {gb(lent)}",
    }


def back(d: DeviceLine, status: Status) -> bool:
    """Whether it is here again, and loads the layers that it had before."""
    again = status.state in ("waiting", "degraded", "online")
    return again and not d.gone and held(d) is not None and d.progress is not None and d.progress < 100


def _doing(d: DeviceLine, status: Status) -> tuple[str, str, str, str]:
    """Its state for the drawing, the tone, a word, and what more there is to say."""
    if status.state == "closed":
        return "held", "idle", "room closed", ""
    if d.gone:
        told = told_gone(status)
        return "dropped", "bad", told[1] if told is not None and told[0] == d.name else "gone", ""
    if (status.state == "loading" and held(d)) or back(d, status):
        pct = percent(d.progress)
        far = f"loading {pct} %" if pct or status.state == "loading" else "loading"
        if d.asks:
            return "loading", "warn", "asks its person", f"{pct} %" if pct else ""
        return ("ready", "good", "ready", "") if pct >= 100 else ("loading", "work", far, "")
    if held(d) is None or status.state not in RUNNING:
        return "held", "idle", "not dealt yet", ""
    if status.state == "away":
        return _apart(d)
    if d.silent_s > 0:
        return "stopped", "warn", "stopped responding", f"waiting, {silence(d)}"
    if d.name in status.waits_for:
        return "stopped", "warn", "waited for", ""
    if status.state == "answering":
        return "computing", "work", "computing", ""
    return "ready", "good", "ready", ""


def _apart(d: DeviceLine) -> tuple[str, str, str, str]:
    """As it is known at a device that has lost its host, and with it all news of the others."""
    if d.role == "host":
        return "stopped", "warn", "does not answer", f"{silence(d)} silent" if d.silent_s > 0 else ""
    if d.me:
        return "ready", "good", "keeps its layers", ""
    return "unknown", "idle", "no news", ""


def silence(d: DeviceLine) -> str:
    """``6 of 15 s``, ``2 of 15 min``."""
    part, whole, unit = (d.silent_s, d.patience_s, "s")
    if whole > LONG_S:
        part, whole, unit = part // 60, whole // 60, "min"
    return f"{part:,} of {whole:,} {unit}" if whole > 0 else f"{part:,} {unit}"


def _dropped(name: str, how: str, layers: Range) -> dict[str, Any]:
    lo, hi = layers
    return {
        "id": "",
        "name": line(name),
        "you": False,
        "host": False,
        "kind": "computer",
        "lo": lo,
        "hi": hi,
        "layers": layers_words(lo, hi),
        "state": "dropped",
        "tone": "bad",
        "word": how,
        "more": "",
        "tip": "",
        "pct": 0,
        "used": 0.0,
        "lent": 0.0,
        "memory": NONE,
    }


def hops(status: Status, rows: list[dict[str, Any]]) -> list[dict[str, str]]:
    """Hop ``i`` follows ``rows[i]``, the last goes back to the host. A link is measured by its own ends."""
    if len(rows) < 2:
        return []
    known = {line(d.id): d for d in status.devices if status.state != "away"}
    return [_hop(a, b, known) for a, b in zip(rows, [*rows[1:], rows[0]], strict=True)]


def _hop(a: dict[str, Any], b: dict[str, Any], known: dict[str, DeviceLine]) -> dict[str, str]:
    ends = f"{named(a['name'])} to {named(b['name'])}"
    apart = not known and bool((a["you"] and b["host"]) or (b["you"] and a["host"]))  # it knocks there
    if apart or "dropped" in (a["state"], b["state"]):
        return {"path": "down", "text": "no link", "tip": f"{ends}: no link"}
    far = known.get(b["id"]) if a["you"] else known.get(a["id"]) if b["you"] else None
    if far is None:
        return {"path": "unknown", "text": NONE, "tip": f"{ends}: measured by these two devices"}
    path = {"direct": "direct", "relayed": "relay"}.get(far.path, "unknown")
    rtt = finite(far.rtt_ms)
    parts = [ms(rtt) if rtt is not None else NONE, path if path != "unknown" else ""]
    words = " ".join(part for part in parts if part)
    return {"path": path, "text": words, "tip": f"{ends}: {links.words(far) if rtt is not None else words}"}
