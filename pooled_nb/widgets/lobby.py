"""Who wants in, who is let in, and how a joiner knows its host, as a room's panel shows it. Pure; no secret.

The six digits are no secret: they stand on two screens, for two people to compare (PROTOCOL section 4).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from pooled_nb.counted import lasting
from pooled_nb.room.core import Role, Status
from pooled_nb.room.doorfacts import LobbyLine
from pooled_nb.room.doorwords import TRUST
from pooled_nb.widgets.formats import finite, gb, line, sentence

LOOKED_AT = 10
"""Notices, the newest of which is shown."""
WAITING = 8
"""Requests that a panel carries; the room's lobby holds no more (PROTOCOL section 4)."""


def lobby(status: Status, role: Role | None) -> dict[str, Any] | None:
    """Who waits, longest first, and what the lobby's line says; None for who does not decide."""
    if role != "host" or status.state == "closed":
        return None
    rows = [_row(waits) for waits in status.lobby[:WAITING]]
    tone, note = _nobody(status)
    return {
        "head": _head(status),
        "rows": rows,
        "more": max(0, len(status.lobby) - WAITING),
        "note": "" if rows else note,
        "tone": "idle" if rows else tone,
    }


def _head(status: Status) -> str:
    n = len(status.lobby)
    if not n:
        return "Lobby"
    place = f", 1 of {n}" if n > 1 else ""
    asked = "Same digits on their screen?" if status.lobby[0].digits else "It can show no digits."
    return f"In the lobby{place}. {asked}"


def _row(waits: LobbyLine) -> dict[str, Any]:
    lends = finite(waits.lends_gb) or 0.0
    parts = [line(waits.kind, 40), f"lends {gb(lends)}" if lends > 0 else "lends nothing"]
    return {
        "number": waits.number,
        "name": line(waits.name),
        "what": ", ".join(part for part in parts if part),
        "digits": line(waits.digits, 12),
        "note": sentence(waits.note, 300),
    }


def _nobody(status: Status) -> tuple[str, str]:
    if not status.network.up:
        return "warn", "Nobody new can join: no signaling server answers. The room goes on."
    if not status.gate.ask:
        return "warn", "Anyone with the code comes in. Asking is off."
    return "idle", "Nobody waits. New devices ask here first."


def news(notices: Sequence[str], knocked: Collection[str], *, so: str = "", first: bool = False) -> str:
    """The newest notice that says more than the panel does, which shows what is ``so`` already.

    The lobby shows who knocks, and a screen reader hears it from there; ``first``: the same place says that
    nothing proved the host. What counts seconds is on the panel as it is now, and old in a notice.
    """
    heads = (*(f"{name} asks to join." for name in knocked), *([TRUST["first"]] if first else []))
    told = (lasting(notice) for notice in reversed(notices[-LOOKED_AT:]) if not notice.startswith(heads))
    return next((notice for notice in told if notice and notice != so), "")


def gate(status: Status, role: Role | None, *, over: bool) -> dict[str, Any]:
    """Whether the room asks, and whether this person may change it."""
    ask = status.gate.ask
    on = "Who holds the invite link, or was let in before, comes in without asking."
    off = "Anyone who knows or guesses the code comes in, and can read what is asked."
    return {
        "ask": ask,
        "text": on if ask else off,
        "may": not over and role == "host" and "set" in status.can,
    }


def trust(status: Status, role: Role | None) -> dict[str, str]:
    """How this device knows its host; empty on the host itself."""
    tone, words, digits = "idle", "", ""
    if role is not None and role != "host" and status.state != "closed":
        digits = line(status.digits, 12)
        match status.trust:
            case "proved":
                tone, words, digits = "good", "The host proved that it knows your invite link or pass.", ""
            case "confirmed":
                tone, words = "good", "You compared the digits with the host's:"
            case "first" if digits:
                tone, words = "warn", "Trust on first use: the host's lobby must have shown"
            case "first":
                tone, words = (
                    "warn",
                    "Trust on first use: nothing proves that this host is the one you mean.",
                )
    return {"head": "Your host" if words else "", "text": words, "digits": digits, "tone": tone}
