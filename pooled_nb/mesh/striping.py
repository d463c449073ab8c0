"""Decides which stripes to open, and which to give up (PROTOCOL section 5, stripes).

Links that this end dialed and that are part of its chain have stripes; they are opened at the same time, and
what died is dialed again. Nobody waits for them, so nobody is asked for them often: who refuses them, or
never answers, is left alone for longer and longer.

Decides only: the links there are and the time go in, what is to be dialed and closed comes out. A link is its
key, so that one that is dialed anew gets stripes anew.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

BACK_OFF_S = (1.0, 2.0, 4.0, 8.0, 16.0, 30.0)
"""Seconds between a round of dials that failed and the next; the last one holds from then on."""
STEADY_S = 30.0
"""A stripe that carried slices for so long had worked: its death is no failure, and it is dialed at once."""
KEPT_S = 30.0
"""Seconds for which a link that left the chain keeps its stripes.

A deal ends the chain, and the next begins it again: what is sent then is not to go into stripes that are
closing. After so long neither end has anything in flight.
"""


@dataclass(slots=True)
class _Line:
    """What is known of one link's stripes.

    Attributes
    ----------
    living
        Those that this end dials, or has.
    failures
        Rounds of dials that failed, one after the other.
    not_before
        When the next round may be.
    out_since
        When it left the chain, or ended; None: it is part of it.
    """

    living: int = 0
    failures: int = 0
    not_before: float = float("-inf")
    out_since: float | None = None


@dataclass(frozen=True, slots=True)
class Orders:
    """What to do now: dial one stripe for each key in ``dial``; give up all of the links in ``close``."""

    dial: tuple[int, ...] = ()
    close: tuple[int, ...] = ()


class Striping:
    """The stripes that one device opens.

    Parameters
    ----------
    wanted
        Stripes of one link.
    """

    def __init__(self, wanted: int) -> None:
        self._wanted = wanted
        self._lines: dict[int, _Line] = {}

    def tick(self, now: float, chained: Mapping[int, object], *, up: bool) -> Orders:
        """Time passes. What is ordered to be dialed counts as living until `ended`.

        Parameters
        ----------
        chained
            Keys of the links that are to have stripes now.
        up
            Whether signaling is reachable: without it nobody can be dialed.
        """
        for key, line in list(self._lines.items()):
            if key in chained:
                line.out_since = None
            elif line.out_since is None:
                line.out_since = now
            if line.out_since is not None and now - line.out_since >= KEPT_S and not line.living:
                del self._lines[key]
        close = [
            key
            for key, line in self._lines.items()
            if line.out_since is not None and now - line.out_since >= KEPT_S
        ]
        dial: list[int] = []
        for key in chained if up else ():
            line = self._lines.setdefault(key, _Line())
            if now >= line.not_before and (missing := self._wanted - line.living) > 0:
                line.living += missing
                dial += [key] * missing
        return Orders(tuple(dial), tuple(close))

    def ended(self, key: int, now: float, carried: float | None) -> None:
        """A stripe of that link is over.

        Parameters
        ----------
        carried
            Seconds for which it carried slices, 0 where it never did; None: it was not tried in earnest
            (signaling went down, or this device leaves), which says nothing about the other end.
        """
        line = self._lines.get(key)
        if line is None:
            return
        line.living -= 1
        if carried is None:
            return
        if carried >= STEADY_S:
            line.failures, line.not_before = 0, now
        elif now >= line.not_before:  # else it is of the round that failed just now
            line.not_before = now + BACK_OFF_S[min(line.failures, len(BACK_OFF_S) - 1)]
            line.failures += 1
