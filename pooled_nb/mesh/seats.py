"""Decides how long the creator keeps the seat of a device whose link broke (PROTOCOL section 3, dead links).

Its line stays in the roster, and its name stays taken, until it is back, or the time that a seat is kept is
over. Times are those of a device that is awake (`awake`): a creator that slept counts nobody's absence.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass

from pooled_nb.mesh.linkactions import Cause

KEPT_S = 45.0
"""Seconds that a seat is kept (section 3)."""
BROKE = frozenset({Cause.BROKEN, Cause.NO_HELLO, Cause.LATE, Cause.NO_PATH})
"""Ends after which a device may come back. Where a link was silent for its patience its time is over already;
after any other one somebody wanted it so."""


@dataclass(frozen=True, slots=True)
class Away:
    """A device whose link broke.

    Attributes
    ----------
    since
        When it did.
    heard
        When its last byte came.
    patience
        Seconds of silence after which a device of the chain is dropped (section 8).
    """

    id: str
    since: float
    heard: float
    patience: float


class Seats:
    """Seats of devices that are away, in the order in which they went."""

    def __init__(self) -> None:
        self._away: dict[str, Away] = {}

    def __contains__(self, id: str) -> bool:
        return id in self._away

    def lost(self, id: str, *, quiet: float, patience: float, now: float) -> None:
        """The link to a device broke; ``quiet``: seconds since anything was heard of it."""
        self._away[id] = Away(id, now, now - quiet, patience)

    def settled(self, id: str) -> bool:
        """It is back, or out of the roster. Whether it was away."""
        return self._away.pop(id, None) is not None

    def quiet(self, id: str, now: float) -> float | None:
        """Seconds since anything was heard of a device that is away; None: it is not away."""
        away = self._away.get(id)
        return None if away is None else max(0.0, now - away.heard)

    def spare(self, chain: Container[str], spared: Container[str]) -> str | None:
        """Whose seat is given up first where the room is full; None: nobody is away.

        Who holds layers, or loads them, is waited for longest.
        """
        needed = [id for id in self._away if id in chain or id in spared]
        return next((id for id in self._away if id not in needed), next(iter(needed), None))

    def over(self, now: float, chain: Container[str], spared: Container[str]) -> list[str]:
        """Whose seat is kept no longer: of a chain, for which an answer waits, those that were silent for
        their patience, but for those that load; all others after 45 s.
        """
        return [
            away.id
            for away in self._away.values()
            if now - away.since >= KEPT_S
            or (away.id in chain and away.id not in spared and now - away.heard >= away.patience)
        ]
