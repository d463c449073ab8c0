"""Whose turn it is to be painted: at most 20 messages a second each, whoever waits longest first.

Pure: events and ``now`` in, whom to paint and how long to wait out.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)

GAP_S = 0.05
"""Between two messages of one panel (DESIGN section 7)."""


class Turns(Generic[K]):
    """Who wants to be painted, and from when on."""

    def __init__(self) -> None:
        self._due: dict[K, float] = {}
        self._free: dict[K, float] = {}

    def wake(self, who: K, now: float) -> float:
        """It has changed; when its turn comes at the earliest."""
        due = max(now, self._free.get(who, now))
        self._due[who] = due = min(due, self._due.get(who, due))
        return due

    def next(self, now: float) -> K | None:
        """Whom to paint now; it then wants nothing until it is woken."""
        who = min(self._due, key=self._due.__getitem__, default=None)
        if who is None or self._due[who] > now:
            return None
        del self._due[who]
        return who

    def painted(self, who: K, messages: int, again: float | None, now: float) -> None:
        """It was painted with so many messages, and wants its turn again at that time (None: when woken)."""
        free = self._free[who] = now + GAP_S * max(1, messages)
        # It may have been woken while it was painted.
        wanted = [due for due in (self._due.get(who), again) if due is not None]
        if wanted:
            self._due[who] = max(free, min(wanted))

    def wants(self, who: K) -> bool:
        """Whether it has a turn to come."""
        return who in self._due

    def drop(self, who: K) -> None:
        """It is gone."""
        self._due.pop(who, None)
        self._free.pop(who, None)

    def wait(self, now: float) -> float | None:
        """Seconds until the next turn; None: until somebody is woken."""
        due = min(self._due.values(), default=None)
        return None if due is None else max(0.0, due - now)
