"""Whether the path of a connection is direct, and why none was found: in words (PROTOCOL section 2, ICE)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from pooled_nb.mesh.network import Path


class Way(Protocol):
    """One candidate, with the names that aioice has for its parts."""

    host: str
    type: str


def path_of(own: Way, other: Way, told: Sequence[Way]) -> Path:
    """Of the nominated pair.

    Parameters
    ----------
    told
        All candidates of the other end. One that it did not tell (``prflx``: learned from its packets)
        may be its relay: only an address that it told as its own, or an end without a relay, is direct.
    """
    if "relay" in (own.type, other.type):
        return "relayed"
    if other.type != "prflx":
        return "direct"
    relays = {way.host for way in told if way.type == "relay"}
    if other.host in relays:
        return "relayed"
    owns = {way.host for way in told if way.type in ("host", "srflx")}
    return "direct" if other.host in owns or not relays else "unknown"


def obstacle(*, told: int, names: int, trouble: str) -> str:
    """Why no path was found, as the rest of a sentence.

    Parameters
    ----------
    told
        Candidates of the other end that can be tried.
    names
        How many it gave as ``….local`` names.
    trouble
        What is wrong with this end's relay, in words; empty: nothing that is known.
    """
    if told:
        why = "none of the ways to the other device works"
    elif names:
        why = "the other device told only names of its own network (….local), which nobody here resolves"
    else:
        why = "the other device told no address at which it can be reached"
    return f"{why}; {trouble}" if trouble else why
