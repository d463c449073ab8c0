"""How long packets wait on the path of a link, and how large its window may be for that (RFC 6817, RFC 9406).

A decider. Everything on a link is ours, so a queue that stands on its path delays nobody but us: a keep-alive
and a token wait behind the weights that were sent ahead. The least round trip of a time is that of the path
itself; what later ones take more was spent waiting. What counts is the least of a round: on Wi-Fi, or where
a loop was busy, single packets come late although nothing stands.
"""

from __future__ import annotations

import math

SAMPLES = 8
"""Round trips that make a round at least (RFC 9406 section 4.3)."""
MEMORY_S = 60.0
"""Seconds after which the least round trip is looked for anew, since paths change; it holds as long again."""
NEAR_S = 0.002
"""A round trip so close to the least one has seen no queue."""
LEAST_PACE = 1 / 8


class Delay:
    """See the module. Times are loop seconds.

    Parameters
    ----------
    most
        Seconds that packets may wait; infinite: any time.

    Attributes
    ----------
    pace
        Bytes that slow start grows by for each that was acknowledged: 1 until a queue was seen, none while
        there is one, and later so few that a round adds half of what may wait.
    """

    __slots__ = (
        "_before",
        "_began_at",
        "_beside",
        "_has_waited",
        "_is_stale",
        "_least",
        "_lowest",
        "_most",
        "_round_at",
        "_samples",
        "pace",
    )

    def __init__(self, most: float) -> None:
        self._most = most
        self._least = self._before = self._lowest = math.inf
        self._began_at = self._round_at = -math.inf
        self._beside = 0.0
        """Seconds that packets take longer for another reason: they do so with the least window, too."""
        self._samples = 0
        self._is_stale = self._has_waited = False
        self.pace = 1.0

    @property
    def least(self) -> float:
        """Seconds of a round trip in which nothing waits; infinite before the first."""
        return min(self._least, self._before)

    def measured(self, round_trip: float, now: float, *, size: int, floor: int, full: bool) -> int:
        """Take a round trip; returns what the window is to be: it changes once a round at most.

        A round is over when what left after its begin is acknowledged.

        Parameters
        ----------
        size, floor
            Bytes of the window, and those below which it is not made smaller.
        full
            It was full: else what waited is not its doing.
        """
        if now - self._began_at >= MEMORY_S:
            self._is_stale = self._least > self.least + NEAR_S
            self._before, self._least = self._least, math.inf
            self._began_at = now
        self._least = min(self._least, round_trip)
        self._lowest = min(self._lowest, round_trip)
        self._samples += 1
        if self._samples < SAMPLES or now - round_trip < self._round_at:
            return size
        took, self._lowest = self._lowest, math.inf
        self._round_at = now
        self._samples = 0
        return self._judge(took, size, floor, full=full)

    def _judge(self, took: float, size: int, floor: int, *, full: bool) -> int:
        least, most = self.least, self._most
        at_least = full and size <= floor
        waited = took - least
        if at_least or waited < self._beside:
            # A jittery path, a busy processor over there, or a line so slow that the floor is a queue: to
            # shrink does not help, and a window that grows is told by what it adds.
            self._beside += (waited - self._beside) / (2 if at_least else 8)
        waited -= self._beside
        if 2 * waited > most:
            self.pace, self._has_waited = 0.0, True
        else:
            self.pace = min(1.0, max(LEAST_PACE, most / 2 / took)) if self._has_waited else 1.0
        if not full or size <= floor:
            return size
        if self._is_stale:
            # Nothing came near the least round trip for long: either the path is longer now, or a queue
            # stands. It is let run empty, to know.
            self._is_stale = False
            return floor
        if waited > most:
            # What fits the path and half of the queue that may stand.
            return max(floor, size // 2, int(size * (least + self._beside + most / 2) / took))
        return size
