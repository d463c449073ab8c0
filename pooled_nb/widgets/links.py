"""What a panel says of the links of this device. Pure; every number is one that a browser can be sent."""

from __future__ import annotations

from typing import NamedTuple

from msgspec import structs

from pooled_nb.room import linkwords
from pooled_nb.room.core import DeviceLine, Status
from pooled_nb.widgets.formats import finite, named

RUNNING = ("online", "answering")
"""Where answers come, links can make them slower."""


def words(d: DeviceLine) -> str:
    """``18 ms (at times 41) · direct · 1.2 % lost · 4 connections``; empty where nothing is known."""
    return " · ".join(linkwords.parts(_tidy(d)))


class Slow(NamedTuple):
    """The one device whose link makes answers slower: a word or two for its row, and the sentences."""

    id: str
    short: str
    why: str


def slowest(status: Status) -> Slow | None:
    """None: no link does, or no answer comes now."""
    weak = linkwords.slowest(map(_tidy, status.devices)) if status.state in RUNNING else None
    if weak is None:
        return None
    return Slow(weak.id, linkwords.short(weak), linkwords.why_slow(weak, named(weak.name)))


def _tidy(d: DeviceLine) -> DeviceLine:
    return structs.replace(d, rtt_ms=finite(d.rtt_ms), rtt_p95_ms=finite(d.rtt_p95_ms), loss=finite(d.loss))
