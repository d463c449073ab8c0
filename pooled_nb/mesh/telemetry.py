"""Decides what is said of one link's last minute: round trips, packets that were lost (PROTOCOL section 8).

Samples and the time go in, numbers come out. It is fed on the tick (`pulse`), never by a slice, and what it
holds is bounded. Lap time-outs do not use it: they want the newest round trips (`liveness`), people the
steady ones.
"""

from __future__ import annotations

import math
import statistics
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

from pooled_nb.mesh.network import ConnectionStats

WINDOW_S = 60.0
"""Seconds that count."""
KEEP = 128
"""Samples that are kept of each kind: a minute of pings, and of ticks, at 0.5 s."""
TRIPS = 8
"""Round trips from which on their 95th percentile says more than one outlier does."""
PACKETS = 200
"""Packets from which on a share of them says something: of fewer, one alone would be half a percent."""


@dataclass(frozen=True, slots=True)
class Numbers:
    """What a link was like in the last minute; None: too little was seen, or its stack does not say.

    Attributes
    ----------
    rtt_s, rtt_p95_s
        Median and 95th percentile of the round trips of pings, seconds.
    loss
        Share of the packets that left this device and had to be sent again, 0 to 1; without those that were
        only late, and came twice. Of the way back this end knows nothing: there the other end counts.
    """

    rtt_s: float | None = None
    rtt_p95_s: float | None = None
    loss: float | None = None


NOTHING = Numbers()
"""Nothing was seen."""


class Telemetry:
    """Of one link, with its stripes."""

    def __init__(self) -> None:
        self._trips: deque[tuple[float, float]] = deque(maxlen=KEEP)
        self._packets: deque[tuple[float, int, int]] = deque(maxlen=KEEP)
        self._counted: dict[str, tuple[int, int]] = {}

    def trip(self, seconds: float, now: float) -> None:
        """A ping was answered."""
        self._trips.append((now, seconds))

    def counted(self, stats: Mapping[str, ConnectionStats | None], now: float) -> None:
        """What the connections count that are there now, by their ids; None: that one does not say.

        One that is seen for the first time counts from then on, and what one that is gone had counted stays.
        """
        sent = lost = 0
        before, self._counted = self._counted, {}
        for id, said in stats.items():
            if said is None:
                continue
            self._counted[id] = counts = said.sent, said.resent - said.doubled
            was = before.get(id, counts)
            sent += max(0, counts[0] - was[0])
            lost += counts[1] - was[1]  # less than none, where what came twice is told a tick later
        if sent or lost:
            self._packets.append((now, sent, lost))

    def numbers(self, now: float) -> Numbers:
        """What the last minute says."""
        trips = sorted(seconds for at, seconds in self._trips if now - at < WINDOW_S)
        packets = [(sent, lost) for at, sent, lost in self._packets if now - at < WINDOW_S]
        again = max(0, sum(lost for _, lost in packets))
        of = sum(sent for sent, _ in packets) + again
        return Numbers(
            rtt_s=statistics.median(trips) if trips else None,
            rtt_p95_s=_p95(trips) if len(trips) >= TRIPS else None,
            loss=again / of if of >= PACKETS else None,
        )


def _p95(ordered: list[float]) -> float:
    """Nearest rank: a round trip that there was."""
    return ordered[math.ceil(0.95 * len(ordered)) - 1]
