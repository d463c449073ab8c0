"""Decides whom to ping, who was silent too long, and when not to judge (PROTOCOL sections 3 and 8).

Any received byte is a sign of life. A timer that fired late means that this device stalled: it judges
nobody on that tick, and the time it slept is nobody's silence.
"""

from __future__ import annotations

import math
import statistics
from collections import deque
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)

TICK_S = 0.5
"""How often `Liveness.tick` wants to be called; also how often watched links are pinged."""
LATE_S = 1.2
"""A tick that comes this long after the one before was late (section 8)."""
PING_S, WATCH_S = 2.5, 0.5
"""Between pings of a link, and while an answer runs (section 3)."""
COMPUTER_S, PHONE_S, HOST_S = 15.0, 60.0, 30.0
"""Silence after which a device is dropped; ``HOST_S``: as a device sees the creator (section 8)."""
SAMPLES = 5
"""Round trips the median is taken over: three new ones outvote a first one that went through a relay."""
OUTSTANDING = 64
"""Pings remembered until they are answered."""
SLACK_S = 0.05
"""A timer that fires this early still counts as on time."""


@dataclass(frozen=True, slots=True)
class Due(Generic[Key]):
    """What a tick decided: ``pings`` to send as (link, ts), ``silent`` links to drop."""

    pings: list[tuple[Key, int]]
    silent: list[Key]


@dataclass(slots=True)
class _Peer:
    heard: float
    patience: float
    pinged: float = float("-inf")
    answered: float | None = None
    asked: dict[int, float] = field(default_factory=dict)
    rtts: deque[float] = field(default_factory=lambda: deque(maxlen=SAMPLES))


class Liveness(Generic[Key]):
    """Pings and silence of all links of one device. ``Key`` names a link."""

    def __init__(self, now: float) -> None:
        self._ticked = now
        self._peers: dict[Key, _Peer] = {}
        self._watched: frozenset[Key] = frozenset()
        self._spared: frozenset[Key] = frozenset()
        self._ts = 0

    def add(self, key: Key, now: float, patience: float = COMPUTER_S) -> None:
        """A link opened: ping it from now on, and drop it after ``patience`` seconds of silence."""
        self._peers[key] = _Peer(heard=now, patience=patience)

    def remove(self, key: Key) -> None:
        """The link ended."""
        self._peers.pop(key, None)

    def patience(self, key: Key, seconds: float) -> None:
        """What the device is became known (a phone gets longer)."""
        if peer := self._peers.get(key):
            peer.patience = seconds

    def watch(self, keys: Iterable[Key]) -> None:
        """Ping these every 500 ms from now on, all others every 2.5 s."""
        self._watched = frozenset(keys)

    def spare(self, keys: Iterable[Key]) -> None:
        """Never call these silent (they load); replaces the set before."""
        spared = frozenset(keys)
        for key in self._spared - spared:  # a silence that was excused does not count afterwards
            if peer := self._peers.get(key):
                peer.heard = max(peer.heard, self._ticked)
        self._spared = spared

    def heard(self, key: Key, now: float) -> None:
        """A byte was received over the link."""
        if peer := self._peers.get(key):
            peer.heard = max(peer.heard, now)

    def answered(self, key: Key, ts: object, now: float) -> float | None:
        """A pong came: its round trip, seconds. None: it answers no ping of ours, and is only a byte."""
        peer = self._peers.get(key)
        if peer is None or not isinstance(ts, (int, float)) or not math.isfinite(ts):
            return None
        # A browser may hand the number back as a double.
        sent = peer.asked.pop(int(ts), None)
        if sent is None:
            return None
        rtt = max(0.0, now - sent)
        peer.rtts.append(rtt)
        peer.answered = sent if peer.answered is None else max(peer.answered, sent)
        return rtt

    def tick(self, now: float) -> Due[Key]:
        """Call every `TICK_S`; says what is due."""
        gap, self._ticked = now - self._ticked, now
        late = gap > LATE_S
        pings: list[tuple[Key, int]] = []
        silent: list[Key] = []
        for key, peer in self._peers.items():
            if late:
                peer.heard = min(now, peer.heard + gap - TICK_S)
            elif now - peer.heard >= peer.patience and key not in self._spared:
                silent.append(key)
                continue
            if now - peer.pinged >= (WATCH_S if key in self._watched else PING_S) - SLACK_S:
                pings.append((key, self._ask(peer, now)))
        return Due(pings, silent)

    def ping(self, key: Key, now: float) -> int | None:
        """Ask this one now: the ``ts`` to send; None for a link that is not known."""
        peer = self._peers.get(key)
        return None if peer is None else self._ask(peer, now)

    def rtt(self, key: Key) -> float | None:
        """Median round trip of the last pings, seconds; None until one was answered."""
        peer = self._peers.get(key)
        return statistics.median(peer.rtts) if peer and peer.rtts else None

    def quiet(self, key: Key, now: float) -> float:
        """Seconds since anything was received; 0 for a link that is not known.

        Without a stall under way: a link that breaks as this device wakes is told before the late tick.
        """
        peer, gap = self._peers.get(key), now - self._ticked
        stalled = gap - TICK_S if gap > LATE_S else 0.0
        return max(0.0, now - peer.heard - stalled) if peer else 0.0

    def answered_ping_of(self, key: Key) -> float | None:
        """When the newest ping that was answered had been sent (section 8, "back")."""
        peer = self._peers.get(key)
        return peer.answered if peer else None

    def _ask(self, peer: _Peer, now: float) -> int:
        peer.pinged = now
        self._ts = self._ts % (2**31 - 1) + 1
        peer.asked[self._ts] = now
        while len(peer.asked) > OUTSTANDING:
            del peer.asked[next(iter(peer.asked))]
        return self._ts
