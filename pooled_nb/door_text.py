"""Who asks to come in, how far the host is known, and by which ways devices meet: in words. Pure; no secret.

Names are as others chose them; whoever shows a text makes it harmless (`pooled_nb.plain`).
"""

from __future__ import annotations

from collections.abc import Sequence

from pooled_nb.plain import isolated
from pooled_nb.room import doorwords
from pooled_nb.room.doorfacts import GateChoices, LobbyLine, NetworkFacts, Trust, WireChoice

NOBODY = "Nobody waits to be let in."
LINK = (
    "Its link lets whoever holds it in without asking, and so is not shown here: .link holds it, for an "
    "environment variable or a file of yours. In a notebook, Invite in the panel copies it."
)
_RELAY_FROM = {
    "settings": " (from your settings)",
    "environment": " (from POOLED_TURN)",
    "server": " (from the signaling server)",
    "": "",
}


def what(line: LobbyLine) -> str:
    """Say what it is: ``Jupyter, CUDA, lends 8.0 GB``."""
    lends = f"lends {line.lends_gb:.1f} GB" if line.lends_gb else "asks only"
    return ", ".join(part for part in (line.kind, lends) if part)


def asks(line: LobbyLine) -> str:
    """One sentence about who waits, with what to compare before it is let in."""
    proof = (
        f"Its screen must show {line.digits}." if line.digits else "It can show no digits: ask its person."
    )
    note = f" {line.note}" if line.note else ""
    return f"{isolated(line.name)} ({what(line)}) asks to join. {proof}{note}"


def waits(lobby: Sequence[LobbyLine]) -> str:
    """Who waits, in a few words for a line that says more; empty where nobody does."""
    if not lobby:
        return ""
    first = lobby[0]
    digits = f", with {first.digits} on its screen" if first.digits else ""
    more = f" (and {len(lobby) - 1} more)" if len(lobby) > 1 else ""
    return f"{isolated(first.name)} asks to join{digits}{more}"


def trust(known: Trust, digits: str) -> str:
    """How far this device knows its host; empty where it was proved, or compared by a person."""
    return doorwords.trust(known, digits) if known == "first" else ""


def lobby_rows(lobby: Sequence[LobbyLine]) -> list[tuple[str, ...]]:
    """Cells of a table: number, name, what it is, digits, note."""
    return [
        (str(line.number), isolated(line.name), what(line), line.digits or "–", line.note) for line in lobby
    ]


LOBBY_HEAD = ("number", "device", "what it is", "its screen shows", "")
LOBBY_NEXT = (
    "Compare the digits with its screen first. %pooled allow NAME (in Python room.allow(NAME)) lets it in; "
    "%pooled deny NAME sends it away."
)


def gate(choices: GateChoices) -> str:
    """Who comes in, one line each."""
    rows = [
        ("ask", choices.ask, "who comes without the invite link is asked about", "the code is enough"),
        ("api", choices.api, "programs that speak for others may come", "no programs that speak for others"),
        ("older", choices.older, "keys count that are sent as they are", "keys count where they are proved"),
    ]
    lines = [f"{name:7} {'on' if on else 'off':4} {yes if on else no}" for name, on, yes, no in rows]
    who = "every device's question may start it" if choices.starts == "all" else "only the host starts it"
    return "\n".join([*lines, f"{'starts':7} {choices.starts:4} {who}"])


def network(facts: NetworkFacts) -> str:
    """By which ways this device reaches others, one line each."""
    up = "" if facts.up else " (does not answer now: the room goes on, nobody new comes in)"
    relay = f"{facts.relay}{_RELAY_FROM[facts.relay_from]}" if facts.relay else "none"
    ways = "the relay only" if facts.relay_only else "direct where possible"
    rows = [
        ("signaling", f"{facts.signaling or '–'}{up}"),
        ("STUN", ", ".join(facts.stun) or "none"),
        ("relay", relay),
        ("paths", ways),
    ]
    if facts.wire is not None:
        rows.append(("frames", ", ".join(wire(facts.wire))))
    if later := wire(facts.later):
        rows.append(("next room" if facts.wire is not None else "frames", ", ".join(later)))
    return "\n".join(f"{name:10} {value}" for name, value in rows)


def wire(choice: WireChoice) -> list[str]:
    """How frames travel, a few words for each thing that is said: ``4 connections per link it dials``."""
    words = []
    if isinstance(choice.stripes, int):
        more = f"{choice.stripes + 1} connections" if choice.stripes else "1 connection"
        words.append(f"{more} per link it dials")
    if isinstance(choice.twice, bool) and choice.stripes != 0:
        words.append("small ones twice" if choice.twice else "small ones once")
    if isinstance(choice.keepalive_ms, int | float):
        pause = f"after {choice.keepalive_ms:g} ms" if choice.keepalive_ms else "off"
        words.append(f"keep-alive {pause}")
    if choice.transport is not None:
        words.append(f"over {choice.transport}")
    return words


def invite(code: str) -> str:
    """Say of an invite link what it is, without showing it."""
    return f"Invite to room {code}. {LINK}"
