"""The congestion window of one link, shared by the associations of its connections (RFC 9260 section 7).

A decider: events and times go in; who may send, and who is to be asked next, comes out. All connections of a
link run over one path, so what one of them learns about it holds for all, and together they send no more than
one would.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from pooled_nb.mesh.sctp.delay import Delay
from pooled_nb.mesh.sctp.policy import PACKET, TUNED, Policy

COUNTED = 4
"""Connections of a link for which its floor grows: four are what a chain link has (PROTOCOL section 5)."""


class Member:
    """One association's part of a window.

    Attributes
    ----------
    flight
        Bytes sent and neither acknowledged nor given up.
    expiries
        Times T3 expired in a row, without progress of this association.
    """

    __slots__ = ("_progress", "_window", "expiries", "flight", "wake")

    def __init__(self, window: Window, wake: Callable[[], None]) -> None:
        self._window = window
        self._progress = 0
        self.wake = wake
        self.flight = 0
        self.expiries = 0

    @property
    def is_full(self) -> bool:
        """Whether the window, and not want of data, is what holds the link back."""
        window = self._window
        return window.flight + PACKET > window.size or bool(window.waiting)

    def may_send(self, size: int) -> bool:
        """Whether so many bytes may leave now. Who may not is woken when others' flight shrinks."""
        if not self.flight:
            return True  # RFC 9260 section 6.1 rule A: and no window of others stops a path from being tried
        window = self._window
        if self.expiries >= max(2, window.patience) and self.flight + size > window.collapsed:
            return False  # its own T3, or an acknowledgement, goes on with it
        waiting = window.waiting
        if window.flight + size > window.size:
            waiting[self] = None
            return False
        others = len(waiting) - (self in waiting)
        if others and self.flight + size > window.size // (others + 1):
            waiting[self] = None
            return False
        return True

    def room(self) -> int:
        """Bytes for which `may_send` holds now, one after the other, where any are in flight already."""
        window = self._window
        room = window.size - window.flight
        if window.waiting:
            others = len(window.waiting) - (self in window.waiting)
            if others:
                room = min(room, window.size // (others + 1) - self.flight)
        if self.expiries >= max(2, window.patience):
            room = min(room, window.collapsed - self.flight)
        return room

    def sent(self, size: int) -> None:
        """So many bytes left."""
        self.flight += size
        self._window.flight += size

    def left(self, size: int) -> None:
        """So many are no longer in flight: acknowledged, lost or given up."""
        self.flight -= size
        self._window.flight -= size

    def acked(self, size: int, *, grow: bool) -> None:
        """The peer acknowledged so many for the first time: this path carries.

        Parameters
        ----------
        grow
            The window was full before, and this association is not in fast recovery (RFC 9260 section 7.2.1).
        """
        self.expiries = 0
        self._window.carried(size)
        if grow:
            self._window.grow(size)

    def measured(self, round_trip: float, now: float, *, full: bool) -> None:
        """A round trip, in seconds, of a chunk that was sent once.

        Parameters
        ----------
        full
            The window was full before.
        """
        self._window.measured(round_trip, now, full=full)

    def expired(self, sent_at: float, now: float) -> None:
        """T3 expired (RFC 9260 section 6.3.3) for a chunk last sent at ``sent_at`` seconds."""
        window = self._window
        window.waiting.pop(self, None)  # it asks anew, and meanwhile takes nobody's share
        if not self.expiries:
            self._progress = window.progress
        self.expiries += 1
        if self.expiries < window.patience:
            window.lost(sent_at, now)
        elif self._progress == window.progress:
            window.collapse(now)
        # Else others get through: only this connection is ill, and it may have 2 packets out.

    def leave(self) -> None:
        """The association ended: nothing of it is in flight any more."""
        self._window.flight -= self.flight
        self.flight = 0
        self._window.forget(self)


class Window:
    """See the module.

    Attributes
    ----------
    size
        Bytes that may be in flight of all members together, but for one packet each.
    threshold
        Below it, slow start; above, congestion avoidance (``ssthresh``).
    flight
        Bytes in flight of all members.
    waiting
        Who was refused, longest first.
    progress
        How often anything was acknowledged.
    probe, timeout
        Seconds until the end of a burst is probed, and of T3, of who measured last: where a connection has
        measured nothing yet, they hold for it too. None before the first.
    """

    def __init__(self, policy: Policy = TUNED) -> None:
        self._policy = policy
        self._members: set[Member] = set()
        self.size = policy.initial * PACKET
        self.threshold: float = math.inf
        self.flight = 0
        self.waiting: dict[Member, None] = {}
        self.progress = 0
        self.probe: float | None = None
        self.timeout: float | None = None
        self.collapsed = policy.collapsed * PACKET
        self.patience = policy.collapse_after
        self._delay = Delay(policy.waits)
        self._regained: int | None = None
        self._reduced_at = -math.inf
        self._towards_next = 0

    @property
    def floor(self) -> int:
        """Bytes that ordinary loss leaves. After a collapse no more than what was carried since."""
        floor = self._policy.floor * PACKET * max(1, min(len(self._members), COUNTED))
        return floor if self._regained is None else min(floor, self._regained)

    def join(self, wake: Callable[[], None]) -> Member:
        """A further association. ``wake``: it was refused, and may try again."""
        member = Member(self, wake)
        self._members.add(member)
        if len(self._members) > 1:
            self.size = max(self.size, self.floor)
        return member

    def forget(self, member: Member) -> None:
        """It left."""
        self._members.discard(member)
        self.waiting.pop(member, None)

    def carried(self, size: int) -> None:
        """So many bytes were acknowledged, of whatever window: the path is not dead."""
        self.progress += 1
        if self._regained is not None:
            # Also while it loses: what gets through after a silence is not to be held down by each loss.
            self._regained += size
            floor = self.floor
            self.size = max(self.size, floor)
            if floor < self._regained:
                self._regained = None

    def grow(self, size: int) -> None:
        """So many bytes were acknowledged of a full window (RFC 9260 sections 7.2.1 and 7.2.2)."""
        pace = self._delay.pace
        if not pace:
            return
        if self.size <= self.threshold:
            size = math.ceil(size * pace)
            self.size += size if self._policy.bytes_counted else min(size, PACKET)
        else:
            self._towards_next += size
            while self._towards_next >= self.size:
                self._towards_next -= self.size
                self.size += PACKET
        self.size = min(self.size, self._policy.cap * PACKET)

    def measured(self, round_trip: float, now: float, *, full: bool) -> None:
        """A round trip: where packets begin to wait the window grows no more, or shrinks (`delay`).

        As ever the floor stays, and so does the threshold: this is no loss.
        """
        self.size = self._delay.measured(round_trip, now, size=self.size, floor=self.floor, full=full)

    def lost(self, sent_at: float, now: float) -> None:
        """A chunk sent at ``sent_at`` is lost: once a round trip, whoever reports it, that halves."""
        if sent_at <= self._reduced_at:
            return  # it left before the window was last made smaller, and says nothing about this one
        self.size = max(self.size // 2, self.floor)
        self.threshold = self.size
        self._towards_next = 0
        self._reduced_at = now

    def collapse(self, now: float) -> None:
        """Nothing gets through any more: start as on a path that is dead or tiny."""
        self.threshold = max(self.size // 2, 4 * PACKET)
        self.size = self.collapsed
        self._towards_next = 0
        self._reduced_at = now
        self._regained = self.size

    def turn(self, after: Member) -> None:
        """Let those who wait try, longest first; who is refused again waits behind the others.

        Parameters
        ----------
        after
            Who has just tried itself.
        """
        for member in [*self.waiting]:
            if self.flight >= self.size:
                return
            if member is not after and member in self.waiting:
                del self.waiting[member]
                member.wake()
