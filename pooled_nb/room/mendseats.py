"""One seat of a deal while the room is kept whole: where its device is, and what it costs. Decides only."""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass, field

from pooled_nb.room.dealing import Seat


class Place(enum.Enum):
    """Where a seat's device is."""

    HERE = "here"
    """In the room; it holds its layers."""
    BACK = "back"
    """In the room again; it is to be told what to hold."""
    LOADING = "loading"
    """It was told: ``ai-ready`` follows, at once where it holds them still."""
    AWAY = "away"
    """Its link broke, and its seat is kept."""
    GONE = "gone"
    """Out of the room; who proves the pass of the seat takes it again."""
    UNLOADED = "unloaded"
    """In the room, and its layers are lost."""


@dataclass(slots=True)
class MendSeat:
    """A seat, as `Recovery` keeps it.

    Attributes
    ----------
    key
        The id of its device's pass (`Mesh.seat`); empty: it has none.
    since
        Since when the device is where it is, or when it last said that it goes on.
    again
        Before that it is not told to load.
    lost
        The room is degraded for its sake, until it holds its layers again; ``why`` and ``due`` say why,
        and from when on a deal without it may come.
    left
        It went on purpose.
    """

    seat: Seat
    since: float
    id: str = ""
    name: str = ""
    key: str = ""
    place: Place = Place.HERE
    again: float = -math.inf
    lost: bool = False
    left: bool = False
    why: str = ""
    due: float = math.inf
    lo: int = field(init=False)
    hi: int = field(init=False)

    def __post_init__(self) -> None:
        self.id, self.name, self.key = self.seat.id, self.seat.name, self.seat.key
        self.lo, self.hi = self.seat.lo, self.seat.hi

    @property
    def present(self) -> bool:
        """Whether its device is in the room and can be linked to."""
        return self.place not in (Place.AWAY, Place.GONE)

    @property
    def awaited(self) -> bool:
        """Whether the room waits for it."""
        return self.place in (Place.AWAY, Place.BACK, Place.LOADING) or (
            self.place is Place.GONE and not self.left
        )

    def go(self, place: Place, now: float) -> None:
        """Its device is there from now on."""
        self.place, self.since = place, now

    def lose(self, why: str, due: float) -> None:
        """The room is degraded for its sake; what happened first says when it deals without it."""
        self.due = min(self.due, due) if self.lost else due
        self.lost, self.why = True, why

    def heal(self, now: float) -> None:
        """It holds its layers."""
        self.go(Place.HERE, now)
        self.lost, self.why, self.due = False, "", math.inf

    def tell_again(self, now: float) -> None:
        """What it was told to hold has changed."""
        self.again = now
        self.go(Place.BACK, now)
