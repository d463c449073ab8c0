"""How many messages all panels of this process may send together. Pure: no clock inside.

A Jupyter server drops **all** output of a kernel above 1,000 messages a second (DESIGN section 7), so
panels stay far below that, however many there are: what cannot be sent now is sent later, as one.
"""

from __future__ import annotations

PER_S = 300.0
"""Messages a second; the rest of the thousand is for cells, whose prints nobody holds back."""
BURST = 60.0
"""Messages at once after a quiet time: one of each of as many panels."""


class Budget:
    """So much a second, and a few at once: in any second at most ``BURST + PER_S`` and one paint more."""

    def __init__(self, now: float, *, per_s: float = PER_S, burst: float = BURST) -> None:
        self._per_s = per_s
        self._burst = burst
        self._left = burst
        self._at = now

    def spend(self, messages: int, now: float) -> None:
        """These were sent. A paint sends a few together, so a little more than there was may be spent."""
        self._fill(now)
        self._left -= messages

    def wait(self, now: float) -> float:
        """Seconds until something may be sent; 0: now."""
        self._fill(now)
        return max(0.0, (1.0 - self._left) / self._per_s)

    def _fill(self, now: float) -> None:
        if now > self._at:
            self._left = min(self._burst, self._left + (now - self._at) * self._per_s)
            self._at = now
