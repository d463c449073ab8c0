"""One link between two workers of a deal: lost, made again, given up (PROTOCOL section 6). Decides only."""

from __future__ import annotations

import math
from dataclasses import dataclass

from pooled_nb.room.mendseats import MendSeat, Place

RELINK_S = 15.0
"""A waiting answer is held this long for a link between workers, at most."""
RETRY_S = 3.0
"""Between two attempts to make it again."""
SETTLED_S = 5.0
"""For so long after a link stands, the end that did not dial it may still speak of the one before."""


@dataclass(slots=True)
class MendLink:
    """The link by which ``before`` sends frames to ``after``.

    Attributes
    ----------
    until
        When it is given up, counted while both ends are here; None: nothing runs.
    again
        When ``before`` is asked to make it again, next.
    late
        It was given up: the room is degraded for its sake, and a deal comes at ``due``. It is tried on.
    """

    before: MendSeat
    after: MendSeat
    up: bool = True
    until: float | None = None
    again: float = -math.inf
    late: bool = False
    due: float = math.inf
    stood: float = -math.inf

    def stands(self, now: float) -> None:
        """It is proved."""
        self.up, self.until, self.late, self.due, self.stood = True, None, False, math.inf, now

    def fails(self, now: float) -> None:
        """It is gone. What is known already changes nothing."""
        if self.up:
            self.up, self.until, self.again = False, None, now

    def refused(self, now: float) -> float:
        """An attempt did not work; when the next one is due."""
        self.up, self.again = False, now + RETRY_S
        return self.again

    def settled(self, now: float) -> bool:
        """Whether word of the end that did not dial it is of this link, and not of the one before."""
        return self.up and now - self.stood >= SETTLED_S

    def wants(self, now: float) -> bool:
        """Whether ``before`` is to be asked now to make it again; it counts as asked then."""
        if self.up or self.before.place is not Place.HERE or not self.after.present or now < self.again:
            return False
        self.again = now + RELINK_S
        return True

    def judge(self, now: float, redeal_s: float) -> None:
        """Give it up once its time is over; a device that is not here is another matter."""
        if self.up or not (self.before.present and self.after.present):
            self.until = None
        elif self.before.place is Place.LOADING:
            pass  # its ``ai-ready`` says that the link stands; time that ran out meanwhile counts after that
        elif self.until is None:
            self.until = now + RELINK_S
        elif now >= self.until and not self.late:
            self.late, self.due = True, now + redeal_s

    def times(self) -> list[float]:
        """When it has something to do."""
        if self.up:
            return []
        return [t for t in (self.until if not self.late else None, self.again) if t is not None]
