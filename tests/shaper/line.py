"""One direction of one path: what befalls each datagram. No I/O; the time is handed in.

A line is a bottleneck, then a stretch of network: a datagram waits for those before it, where there is a
rate, and is dropped where too much waits (tail drop); then it is lost or not, and is under way for a time. A
line that is frozen lets nothing out; a black hole lets nothing in.
"""

from __future__ import annotations

import heapq
import math
import random
from typing import Annotated, Generic, TypeVar

import msgspec
from msgspec import Meta

T = TypeVar("T")

OVERHEAD = 28
"""Bytes of a datagram's IP and UDP headers (RFC 791, RFC 768): a real line carries them, too."""

_Share = Annotated[float, Meta(ge=0.0, le=1.0)]
_Amount = Annotated[float, Meta(ge=0.0)]


class LineSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a line does to datagrams. Nothing, as it stands.

    Attributes
    ----------
    delay_ms
        How long each is under way, one way.
    jitter_ms
        That each is under way for longer or shorter, at most; never shorter than nothing.
    in_order
        Jitter lets no datagram overtake another: as most real networks do, where netem does not.
    loss
        Share that is lost, of those that the bottleneck lets through.
    burst
        How many are lost in a row, on average (Gilbert's model); up to 1: each by itself.
    duplicate
        Share that arrives twice, each copy by its own time.
    reorder, reorder_ms
        Share that is under way for so much longer, so that later ones overtake it.
    rate_kbit
        Of the bottleneck, thousand bits a second with the headers of IP and UDP; 0: none.
    queue_bytes
        That may wait before the bottleneck; one more is dropped. One datagram may always wait.
    """

    delay_ms: _Amount = 0.0
    jitter_ms: _Amount = 0.0
    in_order: bool = False
    loss: _Share = 0.0
    burst: _Amount = 1.0
    duplicate: _Share = 0.0
    reorder: _Share = 0.0
    reorder_ms: _Amount = 15.0
    rate_kbit: _Amount = 0.0
    queue_bytes: _Amount = 64_000


class Counts(msgspec.Struct):
    """Datagrams of one line so far.

    Attributes
    ----------
    came, came_bytes
        Handed in, and their bytes without headers.
    went
        Handed out, each copy for itself.
    lost, dropped, swallowed
        By chance, before the bottleneck, and by a black hole.
    doubled, held_back
        Those that got a copy, and those that later ones were to overtake.
    """

    came: int = 0
    came_bytes: int = 0
    went: int = 0
    lost: int = 0
    dropped: int = 0
    swallowed: int = 0
    doubled: int = 0
    held_back: int = 0


class Fates:
    """When a datagram leaves a line, by one seed: the same datagrams at the same times have the same fates.

    Each takes the same number of draws, whatever is set and whatever befalls it: to set one thing otherwise
    changes nothing else.
    """

    def __init__(self, seed: str | int, settings: LineSettings = LineSettings()) -> None:  # noqa: B008
        self.settings = settings
        self.counts = Counts()
        self._random = random.Random(f"line {seed}")
        self._free_at = -math.inf
        """When the bottleneck has sent all that waits."""
        self._newest = -math.inf
        self._losing = False

    def departures(self, size: int, now: float, *, swallowed: bool = False) -> list[float]:
        """When this datagram leaves, in seconds of the same clock: once, twice, or never."""
        draw = self._random.random
        lost, moved, doubled, moved_too, late, turned = draw(), draw(), draw(), draw(), draw(), draw()
        settings, counts = self.settings, self.counts
        counts.came += 1
        counts.came_bytes += size
        if swallowed:
            counts.swallowed += 1
            return []
        through = self._through(size, now)
        if through is None:
            counts.dropped += 1
            return []
        if self._is_lost(lost, turned):
            counts.lost += 1
            return []
        extra = 0.0
        if late < settings.reorder:
            counts.held_back += 1
            extra = settings.reorder_ms / 1e3
        leaves = [self._arrives(through, moved) + extra]
        if doubled < settings.duplicate:
            counts.doubled += 1
            leaves.append(self._arrives(through, moved_too))
        return leaves

    def _through(self, size: int, now: float) -> float | None:
        """When the bottleneck has sent it; None: it is full."""
        rate = self.settings.rate_kbit * 125.0  # bytes a second
        if not rate:
            return now
        waits = max(0.0, self._free_at - now) * rate
        if waits > 0.0 and waits + size + OVERHEAD > self.settings.queue_bytes:
            return None
        self._free_at = max(self._free_at, now) + (size + OVERHEAD) / rate
        return self._free_at

    def _is_lost(self, lost: float, turned: float) -> bool:
        loss, burst = self.settings.loss, self.settings.burst
        if burst <= 1.0 or not 0.0 < loss < 1.0:
            return lost < loss
        # Two states, one loses all and one nothing, with the chances that give this share and this length.
        chance = 1.0 / burst if self._losing else loss / (1.0 - loss) / burst
        if turned < chance:
            self._losing = not self._losing
        return self._losing

    def _arrives(self, through: float, moved: float) -> float:
        settings = self.settings
        way = settings.delay_ms + settings.jitter_ms * (2.0 * moved - 1.0)
        at = through + max(0.0, way) / 1e3
        if settings.in_order:
            self._newest = at = max(at, self._newest)
        return at


class Line(Generic[T]):
    """Datagrams under way: in with `put`, out with `take` once it is time."""

    def __init__(self, seed: str | int, settings: LineSettings = LineSettings()) -> None:  # noqa: B008
        self._fates = Fates(seed, settings)
        self._under_way: list[tuple[float, int, T]] = []
        self._number = 0
        self._frozen_until = self._swallows_until = -math.inf

    @property
    def settings(self) -> LineSettings:
        """What it does to datagrams that come from now on."""
        return self._fates.settings

    @settings.setter
    def settings(self, settings: LineSettings) -> None:
        self._fates.settings = settings

    @property
    def counts(self) -> Counts:
        """What it did so far."""
        return self._fates.counts

    def freeze(self, until: float) -> None:
        """Let nothing out until then; after it, all that is due."""
        self._frozen_until = until

    def swallow(self, until: float) -> None:
        """Be a black hole until then, to what comes. What is under way arrives."""
        self._swallows_until = until

    def put(self, datagram: T, size: int, now: float) -> None:
        """A datagram of so many bytes comes."""
        for at in self._fates.departures(size, now, swallowed=now < self._swallows_until):
            self._number += 1
            heapq.heappush(self._under_way, (at, self._number, datagram))

    def take(self, now: float) -> list[T]:
        """What leaves now, in order."""
        out: list[T] = []
        if now < self._frozen_until:
            return out
        while self._under_way and self._under_way[0][0] <= now:
            out.append(heapq.heappop(self._under_way)[2])
        self.counts.went += len(out)
        return out

    @property
    def next(self) -> float | None:
        """When `take` gives something, if nothing comes meanwhile; None: never."""
        if not self._under_way:
            return None
        return max(self._under_way[0][0], self._frozen_until)
