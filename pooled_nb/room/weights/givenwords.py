"""What this device gave to others, in words."""

from __future__ import annotations

from collections.abc import Iterable

from pooled_nb.mesh.messages.link import Member
from pooled_nb.room import sentences
from pooled_nb.room.weights.giving import Given

LEAST = 1_000_000
"""Bytes; less is not worth a sentence."""
NAMED = 3


def given_words(given: Given, roster: Iterable[Member]) -> str:
    """``This device gave 1.2 GB of weights to Ada and Leo.``; empty where it gave none."""
    if given.bytes < LEAST:
        return ""
    names = {member.id: member.name for member in roster}
    known = sorted(names[id] for id in given.to if id in names)
    rest = len(given.to) - len(known[:NAMED])
    others = [f"{rest} more" if known else "others"] if rest else []
    size = f"{given.bytes / 1e9:.1f} GB" if given.bytes >= 5e8 else f"{given.bytes / 1e6:.0f} MB"
    return f"This device gave {size} of weights to {sentences.listed([*known[:NAMED], *others])}."
