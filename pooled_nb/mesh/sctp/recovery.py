"""Which chunks are lost: from what came of later ones, and from time (RFC 9260 section 7.2.4, RFC 8985).

A decider. Every transmission has a number; one is lost when three later ones came, or when one later came
and a round trip and a quarter have gone by. Numbers, not TSNs: so a chunk that was sent again and lost again
is known lost as soon as anything sent after it comes, and is not struck by what was under way before it.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Sequence

from pooled_nb.mesh.sctp.chunks import Outbound

MISSES = 3
MOST_PATIENCE = 16.0
"""Quarters of the shortest round trip that reordering is given: with each loss that was none, one more; and
never more than a usual round trip (RFC 8985 section 6.2)."""
FORGOTTEN = 1 / 16
"""Of that patience, with each loss (RFC 8985 section 6.2: after 16)."""
LEAST_REORDERING_S = 0.002
"""Shorter than this the event loop and the system's own queues cannot tell order from loss."""
CREDIBLE = 0.75
"""Of the last round trip beyond doubt: sooner, what comes of a chunk that was sent again is its earlier
transmission, late. Against the fastest of all (RFC 8985 section 6.2) many would pass where packets queue, and
each strike all that is under way."""
REMEMBERED = 256
"""Chunks held for lost, of which the peer may say yet that it had them."""


class Recovery:
    """See the module. Times are loop seconds.

    Parameters
    ----------
    early
        Counts transmissions and looks at the time; else it counts SACKs, as RFC 9260 does.
    """

    __slots__ = (
        "_early",
        "_fastest",
        "_last",
        "_more_patient_at",
        "_newest",
        "_newest_at",
        "_newly",
        "_patience",
        "_reorders",
        "_round_trip",
        "_struck",
        "_usual",
        "order",
    )

    def __init__(self, *, early: bool) -> None:
        self._early = early
        self.order = 0
        self._newest = 0
        self._newest_at = -math.inf
        self._round_trip = 0.0
        self._fastest = math.inf
        self._last = 0.0
        self._usual = 0.0
        self._newly: list[int] = []
        self._patience = 1.0
        self._more_patient_at = -math.inf
        self._reorders = False
        self._struck: dict[int, float] = {}

    def sent(self, leaving: Iterable[Outbound], now: float) -> None:
        """Chunks leave, for the first time or again."""
        order = self.order
        for chunk in leaving:
            order += 1
            chunk.order = order
            chunk.sent_at = now
            chunk.sent_count += 1
            chunk.misses = 0
        self.order = order

    def acked(self, arrived: Iterable[Outbound], now: float) -> float | None:
        """Chunks are acknowledged for the first time.

        Returns
        -------
        float or None
            The round trip, of the newest that tells one (Karn).
        """
        newest_once = -1
        round_trip = None
        for chunk in arrived:
            order = chunk.order
            took = now - chunk.sent_at
            if chunk.sent_count > 1:
                if took < CREDIBLE * self._last:
                    continue  # that was its earlier transmission
            else:
                if took < self._fastest:
                    self._fastest = took
                elif order < self._newest and self._early:
                    self._reorders = True  # it overtook nobody sent again: the path does not keep order
                self._last = took
                self._usual += (took - self._usual) / 8 if self._usual else took
                if order > newest_once:
                    newest_once, round_trip = order, took
            self._newly.append(order)
            if order > self._newest:
                self._newest = order
                self._newest_at = chunk.sent_at
                self._round_trip = took
        return round_trip

    def settle(self) -> None:
        """Nothing is missing: what was counted for `judge` strikes nobody."""
        self._newly.clear()

    def spurious(self, duplicates: Sequence[int], now: float) -> None:
        """The peer had these TSNs already (RFC 9260 section 3.3.4).

        Of one that was held for lost it follows that reordering takes longer here: once a round trip (RFC
        8985 section 6.2). The network doubles others, and a probe of the tail asks for it.
        """
        for tsn in duplicates:
            struck_at = self._struck.pop(tsn, None)
            if struck_at is not None:
                self._reorders = True
                if struck_at > self._more_patient_at:
                    self._more_patient_at = now
                    self._patience = min(MOST_PATIENCE, self._patience + 1.0)

    def is_due(self, chunk: Outbound, now: float) -> bool:
        """Whether it could have been acknowledged, had it come."""
        return not self._early or math.isinf(self._fastest) or now >= chunk.sent_at + self._due()

    def _due(self) -> float:
        return self._round_trip + max(
            LEAST_REORDERING_S, min(self._patience * self._fastest / 4, self._usual)
        )

    def judge(self, outstanding: Iterable[Outbound], now: float) -> tuple[list[Outbound], float | None]:
        """What is lost, after the acknowledgements of one SACK, or when the time that was told has come.

        Returns
        -------
        tuple
            The lost ones, in order; and the time at which to ask again, None if nothing hangs in the balance.
        """
        newly, self._newly = sorted(self._newly), []
        newest = self._newest
        due = self._due() if self._early else math.inf
        lost: list[Outbound] = []
        again = math.inf
        for chunk in outstanding:
            if chunk.order > newest or chunk.acked or chunk.retransmit or chunk.abandoned:
                continue
            if newly and not self._reorders:
                later = len(newly) - bisect_right(newly, chunk.order)
                chunk.misses += later if self._early else later > 0
            if chunk.misses >= MISSES or now >= chunk.sent_at + due:
                lost.append(chunk)
            else:
                again = min(again, chunk.sent_at + due)
        if lost:
            self._patience = max(1.0, self._patience - FORGOTTEN)
            for chunk in lost:
                self._struck[chunk.tsn] = now
            while len(self._struck) > REMEMBERED:
                del self._struck[next(iter(self._struck))]
        return lost, None if math.isinf(again) else again
