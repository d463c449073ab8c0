"""What a room says of its door: who waits, who comes in, how far the host is known (PROTOCOL section 4)."""

from __future__ import annotations

import re
from collections.abc import Sequence

from pooled_nb.room.doorfacts import Doubt, GateChoices, LobbyLine, Trust

HERE_ONLY = (
    "It works on this machine only: the room's signaling server is open to no other (see --lan, --signal)."
)
"""Of an invite link."""
TRUST = {
    "proved": "The host proved that it is the one you mean.",
    "confirmed": "You compared the digits with the host's screen: it is the one you mean.",
    "first": "Trust on first use: nothing proved that this host is the one you mean.",
}
"""After admission, to the person of a device."""
_PLAIN = re.compile(r"[^\W\d][\w-]*")
"""A name that may be typed as it is, and is no number."""


def waits(lobby: Sequence[LobbyLine]) -> str:
    """Who waits to be let in, and what to do; empty where nobody does."""
    if not lobby:
        return ""
    first = lobby[0]
    if len(lobby) > 1:
        others = "1 other waits" if len(lobby) == 2 else f"{len(lobby) - 1} others wait"
        return f"{first.name} and {others} to be let in. See who: %pooled lobby."
    digits = f": {first.digits}" if first.digits else ", and can show no digits"
    return f"{first.name} waits to be let in{digits}. Allow with %pooled allow {typed(first)}, or deny."


def typed(line: LobbyLine) -> str:
    """How it is named in a command: by its name, where that is plain."""
    return line.name if _PLAIN.fullmatch(line.name) else str(line.number)


def kicked(name: str, *, ask: bool) -> str:
    """A device was thrown out; what that means for links that were given out."""
    return f"{name} is taken out of the room. {renewed(ask=ask)}"


def renewed(*, ask: bool) -> str:
    """The invite key is a new one."""
    if ask:
        return "The invite link is new: old ones only lead to the lobby now."
    return (
        "The invite link is new, but asking is off: the code alone still lets anybody in "
        "(%pooled gate changes that)."
    )


def chosen(before: GateChoices, now: GateChoices, *, waiting: int) -> list[str]:
    """What the host's person changed about who comes in."""
    said: list[str] = []
    if now.ask != before.ask:
        said.append(
            "You are asked before a device comes in without the invite link."
            if now.ask
            else "Asking is off: whoever knows the code comes in."
        )
        if waiting and not now.ask:
            said.append("Who waits still waits for your word: see %pooled lobby.")
    if now.api != before.api:
        said.append("API clients may come in." if now.api else "No API clients come in any more.")
    if now.older != before.older:
        said.append(
            "Older devices may come in that can prove nothing: whoever runs a server between you may be them."
            if now.older
            else "Devices that can prove nothing count no more."
        )
    if now.starts != before.starts:
        said.append(
            "Anybody's question may start the room." if now.starts == "all" else "Only you start the room."
        )
    return said


def doubt(digits: str) -> Doubt:
    """What a device's person is asked about a host that did not recognise its link (section 4, Device)."""
    what = "The host did not recognise your link, or this device."
    if not digits:
        return Doubt(digits="", text=f"{what} It cannot prove itself either. Is it the one you mean?")
    return Doubt(digits=digits, text=f"{what} Compare the six digits with its screen: {digits}.")


def trust(known: Trust, digits: str, *, again: bool = False) -> str:
    """How far this device knows its host, once it is in; empty before. ``again``: its pass was proved."""
    if known != "first":
        return TRUST.get(known, "")
    if again:
        return f"This is the host of the visit before. {TRUST['first']}"
    then = f"Ask its person whether its screen showed {digits}" if digits else "Ask it for an invite link"
    return f"{TRUST['first']} {then} to be sure."
