"""Which device a person means, by its name or number. Decides only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from pooled_nb.errors import BadOption, NotReady
from pooled_nb.plain import isolated, visible
from pooled_nb.room.core import DeviceLine
from pooled_nb.room.doorfacts import LobbyLine
from pooled_nb.room.sentences import listed

Line = TypeVar("Line", LobbyLine, DeviceLine)

SHOWN = 40
"""Letters of a name that is repeated to who typed it."""


def waiting(lobby: Sequence[LobbyLine], who: str | int | None) -> LobbyLine:
    """Who of the lobby is meant.

    Parameters
    ----------
    who
        A number (also as text: numbers go first, since names are the newcomers' own choice), a name, or None:
        the only one that waits.

    Raises
    ------
    NotReady
        Nobody waits, or not this one.
    BadOption
        It could be several.
    """
    if not lobby:
        raise NotReady("Nobody waits to be let in.", "Whoever comes without the invite link waits here.")
    if who is None:
        if len(lobby) == 1:
            return lobby[0]
        raise BadOption(f"{len(lobby)} devices wait: {_numbered(lobby)}.", "Say which: its name or number.")
    if isinstance(who, int):
        found = [line for line in lobby if line.number == who]
    else:
        found = [line for line in lobby if str(line.number) == who.strip().lstrip("#")] or _named(lobby, who)
    if not found:
        raise NotReady(f"{_quoted(who)} does not wait to be let in.", f"There wait: {_numbered(lobby)}.")
    if len(found) > 1:
        raise BadOption(f"Several that wait are called so: {_numbered(found)}.", "Use the number.")
    return found[0]


def here(devices: Sequence[DeviceLine], name: str) -> DeviceLine:
    """Which other device of the room is meant.

    Raises
    ------
    NotReady
        There is none of this name.
    BadOption
        It is this device itself, or could be several.
    """
    others = [device for device in devices if not device.me and not device.gone]
    found = _named(others, name)
    if len(found) == 1:
        return found[0]
    if found:
        raise BadOption(f"Several devices are called {_quoted(name)}.", "Write its name as it is shown.")
    if _named([device for device in devices if device.me], name):
        raise BadOption("This is your own device.", "Leave the room instead.")
    names = listed([isolated(visible(device.name)) for device in others])
    there = f"There are: {names}." if names else "Nobody else is here."
    raise NotReady(f"{_quoted(name)} is not in the room.", there)


def _named(lines: Sequence[Line], name: str) -> list[Line]:
    """Those of this name as it is written; where there are none, those that differ in capitals only."""
    exact = [line for line in lines if line.name == name]
    return exact or [line for line in lines if line.name.casefold() == name.strip().casefold()]


def _numbered(lobby: Sequence[LobbyLine]) -> str:
    return listed([f"{line.number} {isolated(visible(line.name))}" for line in lobby])


def _quoted(who: str | int) -> str:
    return str(who) if isinstance(who, int) else isolated(visible(who.strip()[:SHOWN]))
