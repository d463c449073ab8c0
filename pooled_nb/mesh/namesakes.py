"""Decides whether a newcomer gets the name of a device that may be gone (PROTOCOL section 8).

A page that was loaded anew, without its pass, asks for the name that its dead link still holds. Who holds it
is asked, and keeps it with any byte; else it is dropped, and nobody is called ``laptop 2`` beside a ghost.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

QUIET_S, PROBE_S = 1.0, 1.5
"""Seconds of quiet after which a device is asked, and that it has for its answer (section 8)."""


@dataclass(frozen=True, slots=True)
class Holder:
    """The device of the roster that is called so.

    Attributes
    ----------
    quiet
        Seconds since anything was heard of it, over its link or before that broke.
    """

    id: str
    quiet: float


class Verdict(enum.Enum):
    """What is to be done now."""

    GO = "go"
    """Let the newcomer in; the name is made unique where it is held."""
    PROBE = "probe"
    """Ping the holder, and ask again on the next tick."""
    WAIT = "wait"
    DROP = "drop"
    """Nobody answers: the holder goes, and the newcomer has its name."""


class Namesake:
    """One newcomer's wait for its name."""

    def __init__(self) -> None:
        self._asked: tuple[str, float] | None = None

    def decide(self, holder: Holder | None, now: float) -> Verdict:
        """Say what to do, given who holds the name at ``now`` (None: nobody who could be dropped)."""
        if holder is None:
            return Verdict.GO
        if self._asked is None:
            if holder.quiet < QUIET_S:
                return Verdict.GO
            self._asked = holder.id, now
            return Verdict.PROBE
        id, since = self._asked
        if holder.id != id or holder.quiet < now - since:
            return Verdict.GO  # heard since, or another device was called so meanwhile: nobody waits twice
        return Verdict.WAIT if now - since < PROBE_S else Verdict.DROP
