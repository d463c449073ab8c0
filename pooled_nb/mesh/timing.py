"""How long to wait (PROTOCOL section 8). Seconds everywhere."""

from __future__ import annotations

MEASURED_LAPS = 4
"""Decode laps before the measured time counts."""
TOKEN_S = 30.0
VERIFY_S = PREFILL_S = 90.0
FLOOR_S = 25.0
DECAY = 0.98


def lap_timeout(laps: int, slowest_s: float, rtt_s: float, fallback_s: float) -> float:
    """How long one decode or verify lap may take.

    Parameters
    ----------
    laps
        Decode laps measured so far.
    slowest_s
        The slowest recent one; 0 is unmeasured.
    rtt_s
        Of the worst link of the chain.
    fallback_s
        What holds until enough was measured, and never less than the answer.
    """
    if laps < MEASURED_LAPS or slowest_s <= 0:
        return fallback_s
    return min(fallback_s, max(FLOOR_S, 6 * slowest_s + 2 * rtt_s + 2))


def stopped_responding(rtt_s: float) -> float:
    """Silence of a device, while answering, after which people are told that it is waited for."""
    return min(max(3 + 3 * rtt_s, 3.5), 5.0)


class LapTimes:
    """The laps of one chain: how many, and the slowest recent one."""

    def __init__(self) -> None:
        self.laps = 0
        self.slowest_s = 0.0

    def add(self, seconds: float) -> None:
        """A decode or verify lap came back."""
        self.laps += 1
        self.slowest_s = max(self.slowest_s * DECAY, seconds)

    def token(self, rtt_s: float) -> float:
        """Time-out of a lap of one token."""
        return lap_timeout(self.laps, self.slowest_s, rtt_s, TOKEN_S)

    def verify(self, rtt_s: float) -> float:
        """Time-out of a verify lap."""
        return lap_timeout(self.laps, self.slowest_s, rtt_s, VERIFY_S)

    def prefill(self) -> float:
        """Time-out of a prefill lap: never shortened, its length says nothing about the next."""
        return PREFILL_S
