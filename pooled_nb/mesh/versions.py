"""The protocol's version, and how two ends of different versions part (PROTOCOL sections 3 and 12)."""

from __future__ import annotations

from dataclasses import dataclass

PROTOCOL = 4
"""What this build speaks; a change to frames, proofs or a message's meaning bumps it."""


@dataclass(frozen=True, slots=True)
class Mismatch:
    """Two ends that may not speak: who is older, in words for each of them.

    Attributes
    ----------
    theirs
        For the other end's person (the creator's ``bye {reason}``).
    what, next_step
        For this end's person, as the two sentences of an error.
    """

    theirs: str
    what: str
    next_step: str


def mismatch(v: int | None, *, creator: bool) -> Mismatch | None:
    """How to refuse the other end's ``hello``; None when it speaks this version.

    Parameters
    ----------
    v
        The version of its ``hello``; None, that it named none, counts as older.
    creator
        Whether this end is the room's creator.
    """
    if v == PROTOCOL:
        return None
    spoken = "no protocol version" if v is None else f"protocol {v}"
    older = v is None or v < PROTOCOL
    here, there = ("this room", "that device") if creator else ("this device", "the other end")
    side = there if older else here
    what = f"{there[0].upper()}{there[1:]} speaks {spoken} and {here} protocol {PROTOCOL}: {side} is older."
    if older:
        theirs = f"This end speaks protocol {PROTOCOL} and yours {spoken}: yours is older. Update it."
        step = f"Update pooled_nb on {there}." if creator else "Ask its person to update, then try again."
    else:
        theirs = (
            f"This end speaks protocol {PROTOCOL} and yours {spoken}: this end is older. "
            "Ask its person to update, then try again."
        )
        step = "Update it (pip install -U pooled-nb) and " + (
            "open the room again." if creator else "join again."
        )
    return Mismatch(theirs, what, step)
