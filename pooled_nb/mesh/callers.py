"""Decides which of many OFFERs is answered next: a few in one turn of the loop, the others wait in line.

A class of a hundred opens its notebooks at once (PROTOCOL section 2: a dialer has 15 s of patience). Each
answer costs the loop some milliseconds, so that all of them in one turn would stop it for a second. When the
model is dealt they all open their stripes at once: those stand in a line of their own (`network.Line`), with
places of their own, so that neither keeps the other out.

Decides only: OFFERs, candidates and the time go in, who is answered now comes out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from pooled_nb.mesh import descriptions
from pooled_nb.mesh.peerjs import shapes

MAX_WAITING = 256
"""OFFERs that wait in one line, of all devices together."""
PATIENCE_S = 15.0
"""Seconds after which a dialer has given up (section 2): its OFFER is thrown away."""
TURN_S = 0.02
"""Seconds between two turns."""


@dataclass(slots=True)
class Caller:
    """One OFFER, and the candidates that came after it."""

    offer: shapes.Offer
    since: float
    candidates: list[shapes.IceCandidate] = field(default_factory=list)

    @property
    def key(self) -> tuple[str, str]:
        """Id of the device, and connectionId."""
        return self.offer.src, self.offer.payload.connection_id


class Callers:
    """One line before one endpoint.

    Parameters
    ----------
    at_once
        Connections that may be coming to be at a time.
    each
        The same of one device; as many of its OFFERs may wait.
    a_turn
        OFFERs that are answered in one turn.
    """

    def __init__(self, *, at_once: int, each: int, a_turn: int) -> None:
        self._at_once, self._each, self._a_turn = at_once, each, a_turn
        self._line: dict[tuple[str, str], Caller] = {}
        self._turn, self._taken = float("-inf"), 0

    def __len__(self) -> int:
        return len(self._line)

    def offer(self, offer: shapes.Offer, now: float) -> bool:
        """Somebody dials. False: there is no place in the line, or this OFFER stands in it."""
        caller = Caller(offer, now)
        key = caller.key
        waiting = Counter(src for src, _ in self._line)
        if key in self._line or len(self._line) >= MAX_WAITING or waiting[offer.src] >= self._each:
            return False
        self._line[key] = caller
        return True

    def candidate(self, src: str, payload: shapes.CandidatePayload) -> None:
        """One more way to somebody who waits; of anybody else it is ignored."""
        caller = self._line.get((src, payload.connection_id))
        if caller is not None and len(caller.candidates) < descriptions.MAX_CANDIDATES:
            caller.candidates.append(payload.candidate)

    def next(self, new: Mapping[str, int], now: float, *, room: bool = True) -> Caller | None:
        """Who is answered now; None: nobody, until `wake`.

        Parameters
        ----------
        new
            Connections that are coming to be, by device. Who has the fewest goes first, so that one device
            that dials without end does not hold up the others; among equals who waits longest.
        room
            Whether the room has a place for one more of them.
        """
        for key in [key for key, caller in self._line.items() if now - caller.since >= PATIENCE_S]:
            del self._line[key]
        if now - self._turn >= TURN_S:
            self._turn, self._taken = now, 0
        if not room or self._taken >= self._a_turn or sum(new.values()) >= self._at_once:
            return None
        fit = [key for key in self._line if new.get(key[0], 0) < self._each]
        if not fit:
            return None
        self._taken += 1
        return self._line.pop(min(fit, key=lambda key: new.get(key[0], 0)))

    @property
    def wake(self) -> float | None:
        """When `next` wants to be asked again, in the seconds of ``now``; None: nobody waits."""
        return self._turn + TURN_S if self._line else None

    def clear(self) -> None:
        """This device left."""
        self._line.clear()
