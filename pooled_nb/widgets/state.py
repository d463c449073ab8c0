"""What a room's panel draws: everything it says, from the room's status. Pure; holds no secret.

What is so is worded here; the browser draws it, and has labels of its own only for what never changes.
Sizes are bounded: 100 devices, 100 guests, names of 60 characters.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import msgspec

from pooled_nb.room.core import ChatSettings, Role, Status
from pooled_nb.widgets import download, network, words
from pooled_nb.widgets.chain import MOST, chain, hops
from pooled_nb.widgets.formats import line, percent, say, sentence
from pooled_nb.widgets.joining import code, join
from pooled_nb.widgets.lobby import gate, lobby, news, trust
from pooled_nb.widgets.numbers import empty_strip, loaded, numbers, strip
from pooled_nb.widgets.settings import settings

VERSION = 1
LEFT = "This device has left the room."


def room_state(
    status: Status | None,
    role: Role | None,
    progress: tuple[int | None, str] = (None, ""),
    notices: Sequence[str] = (),
    *,
    left: bool = False,
    before: Status | None = None,
    knocked: Collection[str] = (),
) -> dict[str, Any]:
    """The trait ``room``.

    Parameters
    ----------
    status
        As seen last; None while it opens.
    left
        The room is over for this device: nothing can be pressed any more.
    before
        As seen last before it was over: its numbers stay, so that the panel keeps its height.
    knocked
        Names of those whom the lobby showed: the notice that they knock says nothing more.
    """
    first = status is not None and trust(status, role)["tone"] == "warn"
    notice = sentence(news(notices, knocked, so=status.sentence if status is not None else "", first=first))
    if status is None:
        said = words.never(notice) if left else words.opening(progress)
        pct = None if left or progress[0] is None else percent(progress[0])
        return {**_nothing(), "state": "closed" if left else "opening", "say": said, "role": role, "pct": pct}
    over = left or status.state == "closed"
    if over and status.state != "closed":
        status = msgspec.structs.replace(status, state="closed", sentence=LEFT)
    rows, rest = chain(status)
    counted = before if over and before is not None else status
    return {
        "v": VERSION,
        "code": code(status),
        "label": line(status.label or status.model),
        "facts": words.facts(status, role),
        "role": role,
        "state": "closed" if over else status.state,
        "say": words.state(status, role),
        "pct": loaded(status) if status.state == "loading" else None,
        "actions": words.actions(status),
        "join": join(status),
        "invite": not over and role == "host" and "invite" in status.can,
        "layers": status.layers,
        "chain": _may_go(rows, status, over=over),
        "hops": hops(status, rows),
        "rest": rest,
        "numbers": numbers(counted),
        "strip": strip(counted),
        "guests": _may_go(_few(words.guests(status)), status, over=over),
        "queue": _queue(status, over=over),
        "settings": settings(status.settings, may=not over and "set" in status.can, host=role == "host"),
        "lobby": None if over else lobby(status, role),
        "gate": gate(status, role, over=over),
        "trust": trust(status, role),
        "network": network.network(status, notices, over=over),
        "promise": words.promise(status),
        "notice": notice or download.known(status),
        "saved": "",
    }


def _nothing() -> dict[str, Any]:
    return {
        "v": VERSION,
        "code": "",
        "label": "",
        "facts": "",
        "role": None,
        "state": "opening",
        "say": say("work", "", ""),
        "pct": None,
        "actions": [],
        "join": "",
        "invite": False,
        "layers": 0,
        "chain": [],
        "hops": [],
        "rest": 0,
        "numbers": [],
        "strip": empty_strip(),
        "guests": [],
        "queue": {"waiting": 0, "names": [], "text": ""},
        "settings": settings(ChatSettings(), may=False, host=False),
        "lobby": None,
        "gate": {"ask": True, "text": "", "may": False},
        "trust": {"head": "", "text": "", "digits": "", "tone": "idle"},
        "network": network.nothing(),
        "promise": "",
        "notice": "",
        "saved": "",
    }


def _few(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    more = len(rows) - MOST
    return (
        [*rows[:MOST], {"id": "", "name": f"and {more} more", "state": "", "why": ""}] if more > 0 else rows
    )


def _may_go(rows: list[dict[str, Any]], status: Status, *, over: bool) -> list[dict[str, Any]]:
    """The same, and which of them this person may throw out."""
    may = "kick" in status.can and not over
    others = {line(d.id) for d in status.devices if may and not (d.me or d.gone)}
    return [{**row, "kick": bool(row["id"]) and row["id"] in others} for row in rows]


def _queue(status: Status, *, over: bool) -> dict[str, Any]:
    waiting = 0 if over else status.waiting
    names = [] if over else [line(name) for name in status.queue[:MOST]]
    return {"waiting": waiting, "names": names, "text": words.waits(waiting) if waiting else ""}
