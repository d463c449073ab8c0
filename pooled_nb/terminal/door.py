"""Who comes in and by which ways, at a terminal."""

from __future__ import annotations

import sys
from getpass import getpass
from typing import TYPE_CHECKING, Any

from pooled_nb import whom
from pooled_nb.door_text import asks
from pooled_nb.download_text import ANSWERS, SAID
from pooled_nb.errors import BadOption, NotReady
from pooled_nb.plain import visible
from pooled_nb.printed import show_link
from pooled_nb.terminal.commands import DoorDo
from pooled_nb.terminal.screen import aside, here, say
from pooled_nb.typed import Unseen

if TYPE_CHECKING:
    from pooled_nb.progress import Waiting
    from pooled_nb.room.doorfacts import LobbyLine
    from pooled_nb.room_view import Room

WAYS = "Write /network turn (a relay, asked for unseen), no-turn, relay-only, or direct."


def do(room: Room, what: DoorDo, rest: str) -> int | None:
    """Do it and say so; what is news of the room (see `news`) says itself.

    Returns
    -------
    int | None
        The number of the device that was decided about.

    Raises
    ------
    PooledError
        It cannot be done: why.
    """
    match what:
        case "lobby":
            say(here(str(room.lobby)))
        case "allow" | "deny":
            line = whom.waiting(room.lobby, rest or None)
            _decide(room, line, allow=what == "allow")
            return line.number
        case "kick":
            room.kick(rest)
        case "invite":
            link = room.renew_invite() if rest else room.invite()
            if not show_link(link):
                say("The link is a secret, and this output is no terminal: --invite-file keeps it in a file.")
        case "download":
            room.allow_download(ANSWERS[rest])
            say(SAID[ANSWERS[rest]])
        case "gate":
            say(str(room.gate(**gate_changes(rest))))
        case "network":
            changes = network_changes(rest)
            if changes.get("turn") is None and "turn" in changes:
                changes["turn"] = _asked_relay()
            say(str(room.network(**changes)))
    return None


def gate_changes(rest: str) -> Any:
    """What ``/gate`` changes: ``ask off``, ``starts host``.

    Raises
    ------
    BadOption
        There is no such choice.
    """
    if not rest:
        return {}
    match rest.split():
        case ["ask" | "api" | "older" as name, "on" | "off" as value]:
            return {name: value == "on"}
        case ["starts", "all" | "host" as value]:
            return {"starts": value}
    raise BadOption("The gate has no such choice.", "Write ask on, ask off, starts host, api on, older on.")


def network_changes(rest: str) -> dict[str, Any]:
    """What ``/network`` changes; ``turn`` None: it is to be asked for.

    Raises
    ------
    BadOption
        There is no such way. What was typed is not repeated: it may be a relay.
    """
    way = rest.removeprefix("--")  # as sentences of the room have it, which name the magic's option
    match way:
        case "":
            return {}
        case "turn":
            return {"turn": None}
        case "no-turn":
            return {"turn": ""}
        case "relay-only" | "direct":
            return {"relay_only": way == "relay-only"}
    raise BadOption("There is no such way.", WAYS)


def _asked_relay() -> str:
    try:
        text = getpass("Relay, as turn:USER:PASSWORD@HOST:PORT (not shown): ").strip()
    except EOFError:
        text = ""
    if not text:
        raise BadOption("No relay was typed.", "To use none, write /network no-turn.")
    return Unseen(text)


def ask_about(room: Room, view: Waiting) -> None:
    """Ask about who wants to come in, while this terminal waits for devices."""
    status = room.seen()
    if status is None or not status.lobby or sys.stdin is None or not sys.stdin.isatty():
        return
    line = status.lobby[0]
    view.close()  # nothing may move over a question
    print(visible(f"{asks(line)} Let it in? [y/n] "), end="", file=sys.stderr, flush=True)
    try:
        said = input().strip().lower()
    except EOFError:
        raise KeyboardInterrupt from None  # Ctrl-D: its person waits no longer
    if said not in ("y", "yes", "n", "no"):
        return  # asked again
    try:
        _decide(room, line, allow=said in ("y", "yes"))
    except NotReady as error:
        aside(here(str(error)))


def _decide(room: Room, line: LobbyLine, *, allow: bool) -> None:
    if allow:
        room.allow(line.number)
        aside(f"{line.name} is let in.")
    else:
        room.deny(line.number)
        aside(f"{line.name} is sent away.")
