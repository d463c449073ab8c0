"""Decides which device gives which piece of the model, and what is left for the hub (DESIGN section 6).

Pieces that few devices have go first, so that who has them is busy from the beginning. Of the devices that
have a piece the one that gives this device the least now is asked; the host last of equals, since everybody
asks it. A piece whose hash is not known is asked of the host alone, which vouches for what it gives: from
another device a wrong byte would not be seen.

No I/O: what links are like and how each piece went goes in, whom to ask comes out.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from pooled_nb.room.weights.givers import Giver
from pooled_nb.shard import Piece

AT_ONCE = 4
"""Pieces that one device is asked for at a time. It gives 8 over one link (PROTOCOL section 6): the other
half is for a load that begins anew while the one before still ends."""


@dataclass(frozen=True, slots=True)
class Ask:
    """Ask this device for this piece, now."""

    piece: Piece
    device: str


@dataclass(slots=True)
class _Wanted:
    piece: Piece
    number: int
    """Its place among all, as they are wanted."""
    of: set[str]
    """Whom it may still be asked of."""
    asked: str = ""
    """Whom it is asked of now."""
    here: bool = field(default=False)


class Plan:
    """Who gives what, of one look at what is missing.

    Parameters
    ----------
    pieces
        Those that are missing, in the order in which they are wanted.
    givers
        Who has what, by id.
    host, me
        Ids: of the room's host, and of this device (so that devices that want the same begin with others).
    vouched
        Whether the hash of a piece is known by now.
    refused
        Who gives nothing any more.
    """

    def __init__(
        self,
        pieces: Sequence[Piece],
        givers: Mapping[str, Giver],
        *,
        host: str,
        me: str = "",
        vouched: Callable[[Piece], bool],
        refused: Collection[str] = (),
    ) -> None:
        self._host, self._vouched = host, vouched
        able = {id: giver for id, giver in givers.items() if id not in refused and id != me}
        self._wanted = {
            piece: _Wanted(piece, number, {id for id, giver in able.items() if giver.gives(piece)})
            for number, piece in enumerate(pieces)
        }
        self._turn = {id: hashlib.sha256(f"{me} {id}".encode()).digest() for id in able}
        self._able = set(able)
        """Those that may give something yet."""
        self._open: set[str] = set()
        """Those with a direct link."""
        self._busy: Counter[str] = Counter()
        self._order: list[_Wanted] | None = None
        self._here = 0
        """Pieces in it that came since it was made."""

    # -- what is so --------------------------------------------------------------------------------

    @property
    def unlinked(self) -> set[str]:
        """Devices that have a piece, and of whose link nothing is known: reach them."""
        if self._able <= self._open:
            return set()
        return {id for w in self._waiting() for id in w.of} - self._open

    @property
    def unknown(self) -> list[Piece]:
        """Pieces that linked devices could give but for their hash, which the host is to be asked for.

        Also of what the host could give itself: to hash a piece costs it less than to send it.
        """
        able = self._open - {self._host}
        if not able:
            return []
        return [w.piece for w in self._waiting() if not (w.of.isdisjoint(able) or self._vouched(w.piece))]

    @property
    def left(self) -> list[Piece]:
        """Pieces that are not here and that no device gives: the hub's, in the order they are wanted."""
        return [w.piece for w in self._wanted.values() if not (w.here or w.asked or w.of)]

    @property
    def is_over(self) -> bool:
        """Whether nothing is asked for, and nobody is left who could be."""
        return not any(w.asked or w.of for w in self._wanted.values() if not w.here)

    # -- what happens ------------------------------------------------------------------------------

    def linked(self, id: str) -> None:
        """There is a direct link to a device."""
        self._open.add(id)
        self._order = None

    def unlink(self, id: str) -> None:
        """Its link broke; what it was asked for has ended, or is about to. It may be reached again."""
        self._open.discard(id)
        self._order = None

    def without(self, id: str) -> None:
        """A device gives nothing to this one: there is no path to it, or only a relay, or it is refused."""
        self._open.discard(id)
        self._able.discard(id)
        for wanted in self._wanted.values():
            wanted.of.discard(id)
        self._order = None

    def unvouched(self, piece: Piece) -> None:
        """Nobody says what a piece must be: only the host is asked for it; what it gives it vouches for."""
        self._wanted[piece].of &= {self._host}
        self._order = None

    def next(self) -> list[Ask]:
        """What to ask for now; it counts as asked from here on."""
        asks: list[Ask] = []
        free = {id for id in self._open if self._busy[id] < AT_ONCE}
        for wanted in self._waiting() if free else ():
            able = wanted.of & free
            if able and not self._vouched(wanted.piece):
                able &= {self._host}
            if not able:
                continue
            device = min(able, key=self._rank)
            wanted.asked = device
            self._busy[device] += 1
            asks.append(Ask(wanted.piece, device))
            if self._busy[device] >= AT_ONCE:
                free.discard(device)
                if not free:
                    break
        return asks

    def ended(self, piece: Piece, *, here: bool, again: bool = False) -> None:
        """How asking for a piece went.

        Parameters
        ----------
        here
            It is here, or need not be asked for in this round.
        again
            It may be asked of the same device once more (its link broke); else it goes to another.
        """
        wanted = self._wanted[piece]
        device, wanted.asked = wanted.asked, ""
        if device:
            self._busy[device] -= 1
        wanted.here = here
        self._here += here
        if not here and not again:
            wanted.of.discard(device)
            self._order = None

    # -- inside ------------------------------------------------------------------------------------

    def _waiting(self) -> Iterator[_Wanted]:
        """Those that are to be asked for, rarest first."""
        if self._order is None:
            self._order = sorted(
                (w for w in self._wanted.values() if not w.here),
                key=lambda w: (len(w.of & self._open) or len(w.of), w.number),
            )
            self._here = 0
        if 2 * self._here > len(self._order):
            self._order, self._here = [w for w in self._order if not w.here], 0
        return (w for w in self._order if not (w.asked or w.here))

    def _rank(self, id: str) -> tuple[int, bool, bytes]:
        """Least busy first, the host last of equals; which of the others first is another for each device."""
        return self._busy[id], id == self._host, self._turn[id]
