"""Control that waits for the next frame and rides on it (PROTOCOL section 5). Decides only."""

from __future__ import annotations

from collections import deque

from pooled_nb.shard import Control

ALL = 0xFFFF
"""Drops every slot, in place of one."""
DROPS = 2
"""Slots that one frame may drop; more wait for the next."""


class Riding:
    """What the next frame of a chain carries.

    Attributes
    ----------
    save
        The slot that the state before the next frame is saved as; 0: none.
    """

    def __init__(self) -> None:
        self.save = 0
        self._rb: int | None = None
        self._drops: deque[int] = deque()

    @property
    def dropping(self) -> frozenset[int]:
        """Slots that devices still keep, until their drop has gone."""
        return frozenset(self._drops)

    def roll_back(self, column: int) -> None:
        """Keep the last ``spec`` frame up to this column."""
        self._rb = column

    def drop(self, slot: int) -> None:
        """Forget a slot; where all are forgotten anyway nothing is added."""
        if ALL not in self._drops:
            self._drops.append(slot)

    def drop_all(self) -> None:
        """Forget every slot, and what else waited: the caches do not count any more."""
        self.save, self._rb = 0, None
        self._drops = deque([ALL])

    def clear(self) -> None:
        """Nothing waits: a chain that keeps no checkpoints begins anew by ``reset`` alone."""
        self.save, self._rb = 0, None
        self._drops.clear()

    def take(self, *, reset: bool = False, spec: bool = False, ld: int = 0) -> Control:
        """Make the control of the next frame; with it what waited has gone.

        A rollback that nothing sees, since another state takes its place, is left out.
        """
        all_ = ALL in self._drops
        sv = 0 if all_ else self.save
        rb = None if (reset or ld) and not sv else self._rb
        dp = (ALL,) if all_ else tuple(self._drops.popleft() for _ in range(min(DROPS, len(self._drops))))
        if all_:
            self._drops.clear()
        self.save, self._rb = 0, None
        return Control(reset=reset, spec=spec, rb=rb, sv=sv, ld=ld, dp=dp)
