"""Decides how a deal that lost something gets whole again, or is dealt anew (PROTOCOL sections 3, 6 and 8).

Events in, actions out. All times are seconds that this device was awake: what it slept through is nobody's
silence, and shortens no wait of others.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from pooled_nb.room import sentences
from pooled_nb.room.dealing import Seat
from pooled_nb.room.mendlinks import MendLink
from pooled_nb.room.mendseats import MendSeat, Place

REDEAL_S = 60.0
"""From a drop to the deal that comes by itself (section 8), and from one that failed to the next."""
SOON_S = 2.0
"""The same where nobody is waited for: several that leave at once cost one deal."""
STALLED_S = 60.0
"""A device that came back and loads holds a re-deal up as long as it says once in this time how far it is."""
MAX_FAILED = 4
"""Deals by itself in a row that failed while they loaded, after which a person decides."""


@dataclass(frozen=True, slots=True)
class Moved:
    """The device of a seat came back under another id, or another name: the deal says so from now on."""

    was: str
    id: str
    name: str


@dataclass(frozen=True, slots=True)
class Reload:
    """Send it ``ai-load``, with the deal as it is."""

    id: str


@dataclass(frozen=True, slots=True)
class Relink:
    """Send it ``ai-next {relink: 1}``."""

    id: str
    next: str


@dataclass(frozen=True, slots=True)
class Hold:
    """Nothing can be computed now, and nobody is given up: answers wait."""

    why: str


@dataclass(frozen=True, slots=True)
class Degrade:
    """Something of the deal is gone: everybody hears it."""

    why: str


@dataclass(frozen=True, slots=True)
class Whole:
    """Everybody holds what the deal says again. ``degraded``: the room had been."""

    degraded: bool


@dataclass(frozen=True, slots=True)
class Redeal:
    """Deal anew, over the devices now here."""

    why: str


Action = Moved | Reload | Relink | Hold | Degrade | Whole | Redeal
Health = Literal["whole", "held", "degraded"]


class Recovery:
    """The seats of one deal, the links between its workers, and what is to be done about them.

    ``auto``: the room deals again by itself (`ChatSettings.redeal`).
    """

    def __init__(self) -> None:
        self.auto = True
        self.trouble = ""
        """Why the newest attempt to deal again did not work; empty: there was none, or it did."""
        self._auto_since = -math.inf
        self._seats: list[MendSeat] = []
        self._links: list[MendLink] = []
        self._dealing = False
        self._later: list[tuple[str, str, str, str]] = []
        """Who came back while a start was under way: id, name, id before, pass."""
        self._nothing = ""
        """Why nothing is dealt any more, and the room has to be dealt anew; empty: it has not."""
        self._nothing_due = self._retry = -math.inf
        self._failed = 0
        self._said: tuple[Health, str] = ("whole", "")

    # -- what is shown -----------------------------------------------------------------------------

    @property
    def health(self) -> Health:
        """How the deal is now; once degraded it is so until it is whole."""
        if self.given_up:
            return "degraded"
        if all(s.place is Place.HERE for s in self._seats) and all(link.up for link in self._links):
            return "whole"
        return "degraded" if self._said[0] == "degraded" else "held"

    @property
    def given_up(self) -> bool:
        """Whether something of the deal is lost, and not only waited for."""
        lost = any(s.lost for s in self._seats) or any(link.late for link in self._links)
        return lost or bool(self._nothing)

    @property
    def by_itself(self) -> bool:
        """Whether the room deals again by itself, sooner or later, and not only when a person says so."""
        return self.auto and self._failed < MAX_FAILED

    @property
    def dealing(self) -> bool:
        """Whether a start is under way: it knows better than this what happens."""
        return self._dealing

    @property
    def loading(self) -> list[str]:
        """Ids of devices that load again."""
        return [s.id for s in self._seats if s.place is Place.LOADING]

    @property
    def names(self) -> list[str]:
        """Who is waited for, in chain order: seats first, else the ends of links."""
        seats = [s.name for s in self._seats if s.awaited]
        ends = [name for link in self._links if not link.up for name in (link.before.name, link.after.name)]
        return seats or list(dict.fromkeys(ends))

    @property
    def sentence(self) -> str:
        """What is so, without what is to be done about it; empty while all is well."""
        health = self.health
        if health == "degraded" and not self.loading:
            return self._why(health)
        return "" if health == "whole" else self._waits()

    def redeal_in(self, now: float) -> float | None:
        """Seconds until the room deals again by itself; None: it does not, as things stand."""
        at = self._redeal_at()
        return None if at is None or self._returns(now) else max(0.0, at - now)

    def next_at(self, now: float) -> float | None:
        """When `tick` has something to do at the latest; None: not before the next event."""
        times = [t for link in self._links for t in link.times()]
        times += [s.again for s in self._seats if s.place is Place.BACK and s.again > now]
        times += [s.since + STALLED_S for s in self._seats if s.place is Place.LOADING]
        if (at := self._redeal_at()) is not None:
            times.append(at)
        return min((t for t in times if t > now), default=None)

    # -- a start -----------------------------------------------------------------------------------

    def begin(self) -> None:
        """A start begins; whatever happens to devices meanwhile is its affair."""
        self._dealing = True

    def online(self, seats: Sequence[Seat], now: float) -> None:
        """A start ended well: everybody holds what this deal says."""
        self._seats = [MendSeat(seat, now) for seat in seats]
        workers = self._seats[1:]
        self._links = [MendLink(a, b) for a, b in pairwise(workers)]
        self._dealing, self._nothing, self._failed, self._retry = False, "", 0, -math.inf
        self._later = []
        self.trouble, self._said = "", ("whole", "")

    def not_dealt(self, why: str, now: float) -> list[Action]:
        """No deal could be made, mostly for want of memory: all is as before, and is tried again."""
        self._dealing = False
        if self.health == "degraded":
            self.trouble, self._retry = why, now + REDEAL_S
        later, self._later = self._later, []
        actions = [a for id, name, was, key in later for a in self.back(id, name, now, was=was, key=key)]
        return actions + self._settle(now)

    def failed(self, why: str, now: float) -> list[Action]:
        """A start ended badly: nobody holds anything, and the earlier deal is over."""
        self._seats, self._links, self._later, self._dealing = [], [], [], False
        self._nothing, self._nothing_due = why, now + REDEAL_S
        self._failed += 1
        self._said = ("degraded", "")  # everybody heard of the start meanwhile: it is said again
        return self._settle(now)

    def over(self) -> None:
        """Nothing is dealt, and nothing is to be: the room is as before its first start, or closed."""
        self.online((), 0.0)

    def allow(self, auto: bool, now: float) -> list[Action]:
        """The person wishes, or not, that the room deals by itself: it counts down from here."""
        if auto and not self.auto:
            self._auto_since = now
        if auto != self.auto and self._said[0] == "degraded" and not self.trouble:
            self._said = ("degraded", "")  # what comes next is another thing now
        self.auto = auto
        return self._settle(now)

    def joined(self, now: float) -> list[Action]:
        """Somebody came who could hold layers, or lends more: what did not fit may fit now."""
        if self.trouble:
            self._retry = min(self._retry, now + SOON_S)
        if self._nothing:
            self._nothing_due = min(self._nothing_due, now + SOON_S)
        return self._settle(now)

    # -- what happens to devices -------------------------------------------------------------------

    def away(self, id: str, now: float) -> list[Action]:
        """Its link broke. It comes back, or is gone: the mesh says which."""
        if (seat := self._seat(id)) and seat.place in (Place.HERE, Place.BACK, Place.LOADING):
            seat.go(Place.AWAY, now)
        return self._settle(now)

    def gone(self, id: str, why: str, now: float, *, left: bool) -> list[Action]:
        """It is out of the roster. ``left``: on purpose, or thrown out, so that nobody waits for it."""
        if (seat := self._seat(id)) and seat.place is not Place.GONE:
            if seat.place is not Place.UNLOADED:
                seat.lose(why, now + (SOON_S if left else REDEAL_S))
            seat.go(Place.GONE, now)
            seat.left = left
        return self._settle(now)

    def unloaded(self, id: str, why: str, now: float) -> list[Action]:
        """It is here, and holds its layers no more: nobody to wait for."""
        if (seat := self._seat(id)) and seat.place is not Place.GONE:
            seat.lose(why, now + SOON_S)
            seat.go(Place.UNLOADED, now)
        return self._settle(now)

    def back(self, id: str, name: str, now: float, *, was: str, key: str) -> list[Action]:
        """A device is admitted: one of a seat, by the id it had in the roster or by its pass, or another."""
        if self._dealing:
            self._later.append((id, name, was, key))
            return []
        seat = next((s for s in self._seats if was and s.id == was), None)
        seat = seat or next((s for s in self._seats if key and s.key == key), None)
        if seat is None:
            return self._settle(now)
        actions: list[Action] = []
        if (seat.id, seat.name) != (id, name):
            actions.append(Moved(seat.id, id, name))
        if seat.id != id:
            self._moves(seat, id, now)
        seat.name, seat.left, seat.again = name, False, now
        seat.go(Place.BACK, now)
        return actions + self._settle(now)

    def progress(self, id: str, now: float) -> None:
        """It loads, and says how far it is."""
        if (seat := self._seat(id)) and seat.place is Place.LOADING:
            seat.since = now

    def ready(self, id: str, now: float) -> list[Action]:
        """It holds its layers, and its link to the next device is proved."""
        if (seat := self._seat(id)) and seat.place is Place.LOADING:
            seat.heal(now)
            for link in self._links:
                if link.before is seat:
                    link.stands(now)
        return self._settle(now)

    def link_lost(self, sender: str, other: str, now: float) -> list[Action]:
        """A worker says that its link to another (by name) is gone."""
        for link in self._links:
            if (link.before.id, link.after.name) == (sender, other) or (
                # What it says of the old link may arrive after the new one stands.
                (link.after.id, link.before.name) == (sender, other) and link.settled(now)
            ):
                link.fails(now)
        return self._settle(now)

    def linked(self, sender: str, next: str, now: float, *, ok: bool) -> list[Action]:
        """A worker answers ``ai-next``, or could not link when it loaded."""
        for link in self._links:
            if link.before.id != sender or link.after.id != next:
                continue
            if link.before.place is Place.LOADING and not ok:
                link.before.go(Place.BACK, now)  # it has to be told again what to load
                link.before.again = link.refused(now)
            elif ok and link.before.place is Place.HERE:
                link.stands(now)
            elif not ok:
                link.refused(now)
        return self._settle(now)

    def tick(self, now: float) -> list[Action]:
        """Time passed."""
        return self._settle(now)

    # -- inside ------------------------------------------------------------------------------------

    def _seat(self, id: str) -> MendSeat | None:
        return next((s for s in self._seats if s.id == id), None)

    def _moves(self, seat: MendSeat, id: str, now: float) -> None:
        """Its neighbours know another id: the one before links anew, the one after hears from whom."""
        seat.id = id
        for link in self._links:
            if link.after is seat:
                link.fails(now)
                link.again = now  # what is under way is for an id that nobody has any more
                if link.before.place is Place.LOADING:
                    link.before.tell_again(now)
            elif link.before is seat and link.after.place in (Place.HERE, Place.LOADING):
                link.after.tell_again(now)

    def _settle(self, now: float) -> list[Action]:
        if self._dealing or not (self._seats or self._nothing):
            return []
        actions: list[Action] = []
        for seat in reversed(self._seats[1:]):
            if seat.place is Place.BACK and now >= seat.again and self._next_is_here(seat):
                seat.go(Place.LOADING, now)
                actions.append(Reload(seat.id))
            elif seat.place is Place.LOADING and not seat.lost and now - seat.since >= STALLED_S:
                seat.lose(sentences.stalled(seat.name, STALLED_S), now)
        for link in self._links:
            if link.wants(now):
                actions.append(Relink(link.before.id, link.after.id))
            link.judge(now, REDEAL_S)
        actions += self._say()
        at = self._redeal_at()
        if at is not None and now >= at and not self._returns(now):
            self._dealing = True
            actions.append(Redeal(self._why("degraded")))
        return actions

    def _next_is_here(self, seat: MendSeat) -> bool:
        """Whether the worker after it is in the room: its ``ai-ready`` needs a link to it."""
        return all(link.after.present for link in self._links if link.before is seat)

    def _say(self) -> list[Action]:
        health = self.health
        why = self._why(health)
        before, self._said = self._said, (health, why)
        if self._said == before:
            return []
        if health == "whole":
            self.trouble, self._failed = "", 0
            return [Whole(before[0] == "degraded")]
        return [Degrade(why) if health == "degraded" else Hold(why)]

    def _why(self, health: Health) -> str:
        """What everybody hears of it, where it is not whole."""
        if health == "whole":
            return ""
        lost = [s for s in self._seats if s.lost]
        if len(lost) > 1 and all(s.place is Place.GONE for s in lost):
            return sentences.several_gone([s.name for s in lost], [(s.lo, s.hi) for s in lost])
        whys = [self._nothing, *(s.why for s in reversed(lost))]
        whys += [sentences.unlinked(link.before.name, link.after.name) for link in self._links if link.late]
        return next(filter(None, whys), "") or self._waits()

    def _waits(self) -> str:
        """What is waited for."""
        if away := [s.name for s in self._seats if s.place is Place.AWAY]:
            return sentences.away(away)
        if back := [s.name for s in self._seats if s.place in (Place.BACK, Place.LOADING)]:
            return sentences.returning(back)
        return sentences.relinking(self.names)

    def _redeal_at(self) -> float | None:
        if not self.by_itself or self._dealing:
            return None
        dues = [s.due for s in self._seats if s.lost] + [link.due for link in self._links if link.late]
        if self._nothing:
            dues.append(self._nothing_due)
        if not dues:
            return None
        counted = self._auto_since + REDEAL_S if self._auto_since > -math.inf else -math.inf
        return max(min(dues), self._retry, counted)

    def _returns(self, now: float) -> bool:
        """Whether somebody who came back loads: a deal would throw away what it has."""
        return any(s.place is Place.LOADING and now - s.since < STALLED_S for s in self._seats)
