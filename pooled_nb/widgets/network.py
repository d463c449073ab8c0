"""By which ways this device reaches others, as the network box shows it. Pure; nothing of a relay's login.

What a person sets there comes once, by a message, and is only passed on (`heard.Custom`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pooled_nb.room.core import DeviceLine, Status
from pooled_nb.room.doorfacts import NetworkFacts
from pooled_nb.room.sentences import listed
from pooled_nb.widgets import links
from pooled_nb.widgets.formats import line

SERVERS = 6
"""STUN servers that are named."""
LINKS = 40
"""Devices whose path is shown, relayed ones first."""
OPENS = (
    "A strict network needs a TURN server: name one in the network box",
    "Check its network, or name a TURN server in the network box",
    "Name a TURN server that works in the network box",
)
"""A notice that says so opens it (PROTOCOL section 2: a join that found no path). Longer than any
name: a device cannot open it on other people's screens by what it calls itself."""
_FROM = {
    "settings": "from your settings",
    "environment": "from POOLED_TURN",
    "server": "from the signaling server",
}
_FIRST = {"relayed": 0, "direct": 2}


def network(status: Status, notices: Sequence[str], *, over: bool) -> dict[str, Any]:
    """The facts as words, the path to each device, and what may be set."""
    facts, slow = status.network, links.slowest(status)
    return {
        "may": not over and "network" in status.can,
        "rows": [
            _fact("Signaling", *_signaling(facts, line(status.signaling, 200))),
            _fact("STUN", *_stun(facts)),
            _fact("Relay", *_relay(facts)),
        ],
        "slow": slow.why if slow is not None and not over else "",
        "links": _links([d for d in status.devices if not (d.me or d.gone)]),
        "relay_only": facts.relay_only,
        "forget": bool(facts.relay) and facts.relay_from == "settings",
        "trouble": bool(notices) and any(words in notices[-1][-2_000:] for words in OPENS),
    }


def taken(facts: NetworkFacts | None, *, relay: bool) -> str:
    """What was set was taken; ``relay``: one was named."""
    if relay and (facts is None or not facts.relay):
        return "Saved. This room stays on its own network, so it uses no relay."
    return "Saved. It counts for connections made from now on."


def nothing() -> dict[str, Any]:
    """No room is there yet."""
    return {
        "may": False,
        "rows": [],
        "slow": "",
        "links": [],
        "relay_only": False,
        "forget": False,
        "trouble": False,
    }


def _fact(label: str, tone: str, text: str) -> dict[str, str]:
    return {"label": label, "tone": tone, "text": text}


def _signaling(facts: NetworkFacts, registered: str) -> tuple[str, str]:
    server = line(facts.signaling, 200) or registered
    if not facts.up:
        silent = f"{server} does not answer" if server else "No server answers"
        return "bad", f"{silent}. Nobody new can join; the room goes on."
    return "good", f"{server} answers" if server else "answers"


def _stun(facts: NetworkFacts) -> tuple[str, str]:
    if not facts.stun:
        return "idle", "none: only this network is reached"
    servers = [line(server, 100).removeprefix("stun:") for server in facts.stun[:SERVERS]]
    more = len(facts.stun) - SERVERS
    return "idle", listed([*servers, f"{more} more"] if more > 0 else servers)


def _relay(facts: NetworkFacts) -> tuple[str, str]:
    if not facts.relay:
        return "idle", "none"
    source = _FROM.get(facts.relay_from, "")
    only = "; every connection goes through it" if facts.relay_only else ""
    return "good", f"{', '.join(part for part in (line(facts.relay, 200), source) if part)}{only}"


def _links(others: list[DeviceLine]) -> list[dict[str, str]]:
    # Those that a person looks for come first, so that a list that is cut still has them.
    rows = [_link(d) for d in sorted(others, key=lambda d: _FIRST.get(d.path, 1))]
    more = len(rows) - LINKS
    return (
        [*rows[:LINKS], {"name": f"and {more:,} more", "path": "unknown", "text": ""}] if more > 0 else rows
    )


def _link(d: DeviceLine) -> dict[str, str]:
    return {
        "name": line(d.name),
        "path": {"direct": "direct", "relayed": "relay"}.get(d.path, "unknown"),
        "text": links.words(d) or "path not known here",
    }
