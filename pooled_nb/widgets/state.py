"""What a room's panel draws: everything it says, from the room's status. Pure; holds no secret.

What is so is worded here; the browser draws it, and has labels of its own only for what never changes.
Sizes are bounded: 100 devices, 100 guests, names of 60 characters.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from pooled_nb.room.core import ChatSettings, Role, Status
from pooled_nb.widgets import words
from pooled_nb.widgets.chain import MOST, chain, hops
from pooled_nb.widgets.formats import line, percent, sentence
from pooled_nb.widgets.joining import code, join
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
    """
    notice = sentence(notices[-1]) if notices else ""
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
        "layers": status.layers,
        "chain": rows,
        "hops": hops(status, rows),
        "rest": rest,
        "numbers": numbers(counted),
        "strip": strip(counted),
        "guests": _few(words.guests(status)),
        "queue": _queue(status, over=over),
        "settings": settings(status.settings, may=not over and "set" in status.can),
        "promise": words.promise(status),
        "notice": notice,
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
        "say": words.say("work", "", ""),
        "pct": None,
        "actions": [],
        "join": "",
        "layers": 0,
        "chain": [],
        "hops": [],
        "rest": 0,
        "numbers": [],
        "strip": empty_strip(),
        "guests": [],
        "queue": {"waiting": 0, "names": [], "text": ""},
        "settings": settings(ChatSettings(), may=False),
        "promise": "",
        "notice": "",
        "saved": "",
    }


def _few(rows: list[dict[str, str]]) -> list[dict[str, str]]:
    more = len(rows) - MOST
    return [*rows[:MOST], {"name": f"and {more} more", "state": "", "why": ""}] if more > 0 else rows


def _queue(status: Status, *, over: bool) -> dict[str, Any]:
    waiting = 0 if over else status.waiting
    names = [] if over else [line(name) for name in status.queue[:MOST]]
    return {"waiting": waiting, "names": names, "text": words.waits(waiting) if waiting else ""}
