"""Decides when a broken link between two devices is dialed again (PROTOCOL section 3, dead links)."""

from __future__ import annotations

from collections.abc import Container

from pooled_nb.mesh.linkactions import Cause
from pooled_nb.mesh.seats import KEPT_S

EVERY_S = 3.0
"""Seconds between two dials."""
REDIALED = frozenset({Cause.BROKEN, Cause.SILENT})


class Redials:
    """Neighbours in a chain to which this device had dialed a link that broke."""

    def __init__(self) -> None:
        self._lost: dict[str, tuple[float, float]] = {}
        """When the link broke, and when it was dialed last."""

    def lost(self, id: str, cause: Cause, now: float) -> None:
        """A link that this end had dialed is gone; a dial that failed changes nothing."""
        if cause in REDIALED and id not in self._lost:
            self._lost[id] = now, float("-inf")

    def settled(self, id: str) -> None:
        """There is a link again, or none is wanted."""
        self._lost.pop(id, None)

    def due(self, now: float, chain: Container[str]) -> list[str]:
        """Whom to dial now: devices of the chain, at once and then every 3 s for 45 s."""
        for id, (since, _) in list(self._lost.items()):
            if id not in chain or now - since >= KEPT_S:
                del self._lost[id]
        due = [id for id, (_, dialed) in self._lost.items() if now - dialed >= EVERY_S]
        for id in due:
            self._lost[id] = self._lost[id][0], now
        return due
