"""``pooled-nb status``: the rooms open on this machine, by their runtime files (PROTOCOL section 2)."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import msgspec

from pooled_nb.errors import RoomNotFound
from pooled_nb.mesh import codes, runtime
from pooled_nb.plain import visible

if TYPE_CHECKING:
    import argparse

    from pooled_nb.mesh.runtime import RoomFile

SLACK_S = 5.0
"""Clocks are coarse: a process that began this much after its file was written may still be its host."""
CONNECT_S = 0.5
NONE = "No room is open on this machine."
NEXT = "Open one with: pooled-nb host MODEL"
_HEAD = ("room", "model", "open since", "process", "server")


def status(args: argparse.Namespace) -> int:
    """Print them; with a code, that one alone."""
    rooms = living(runtime.all_rooms(), began=_began, answers=_answers)
    if args.code is not None:
        code = codes.parse(args.code).code
        rooms = [room for room in rooms if room.code == code]
        if not rooms and not args.json:
            raise RoomNotFound(
                f"No room {codes.shown(code)} is open on this machine.",
                "pooled-nb status lists those that are; one elsewhere is seen by its own devices only.",
            )
    if args.json:
        print(as_json(rooms))
        return 0 if rooms or args.code is None else 1
    if not rooms:
        print(f"{NONE} {NEXT}")
        return 0
    print("\n".join(table(rooms, time.time())))
    return 0


def living(
    rooms: Sequence[RoomFile], *, began: Callable[[int], float | None], answers: Callable[[str], bool]
) -> list[RoomFile]:
    """Those whose host still runs: a number of a process is given out again, after a reboot soon.

    Parameters
    ----------
    began
        When the process of that number began (seconds since 1970); None: not known.
    answers
        Whether somebody listens at that server. Asked only where the process looks too young, which it
        also does when the clock was set.
    """

    def is_stale(room: RoomFile) -> bool:
        since = began(room.pid)
        return since is not None and since > room.created + SLACK_S and not answers(room.server)

    return [room for room in rooms if not is_stale(room)]


def table(rooms: Sequence[RoomFile], now: float) -> list[str]:
    """Lines of a table; files of this user's, but text all the same."""
    from rich.cells import cell_len

    rows = [_HEAD, *(_row(room, now) for room in rooms)]
    widths = [max(cell_len(row[i]) for row in rows) for i in range(len(_HEAD))]
    return [
        "  ".join(c + " " * (w - cell_len(c)) for c, w in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]


def _row(room: RoomFile, now: float) -> tuple[str, ...]:
    return (
        codes.shown(room.code),
        " ".join(visible(room.model).split()) or "–",
        since(room.created, now),
        str(room.pid),
        " ".join(visible(room.server).split()),
    )


def since(created: float, now: float) -> str:
    """``14:05 (12 min)``; with the day where it was another one."""
    try:
        then, today = time.localtime(created), time.localtime(now)
    except (OverflowError, ValueError, OSError):
        return "–"
    same = then[:3] == today[:3]
    return f"{time.strftime('%H:%M' if same else '%Y-%m-%d %H:%M', then)} ({_span(now - created)})"


def _span(seconds: float) -> str:
    minutes = max(0, int(seconds // 60))
    if minutes < 60:
        return f"{minutes} min"
    return f"{minutes // 60} h" if minutes < 48 * 60 else f"{minutes // (24 * 60)} days"


def as_json(rooms: Sequence[RoomFile]) -> str:
    """One object."""
    return msgspec.json.encode(
        {
            "rooms": [
                {
                    "code": codes.shown(room.code),
                    "model": room.model,
                    "since": room.created,
                    "pid": room.pid,
                    "server": room.server,
                }
                for room in rooms
            ]
        }
    ).decode()


def _began(pid: int) -> float | None:
    import psutil

    try:
        return float(psutil.Process(pid).create_time())
    except (psutil.Error, OSError, ValueError):
        return None


def _answers(server: str) -> bool:
    try:
        place = urlsplit(server)
        port = place.port or (443 if place.scheme == "wss" else 80)
        with socket.create_connection((place.hostname or "", port), timeout=CONNECT_S):
            return True
    except (OSError, ValueError):
        return False
