"""Decides how fast the control messages of one link are read, so that no device takes the loop for itself.

What a message costs is known only once it was read, so a link reads on credit: while it has any left, the
next message is read and its cost taken off; then it waits until the credit has grown again. Nothing is lost
and nothing changes its place meanwhile. A link whose messages wait beyond `Budget.queue` is closed in words.

The cost of a data-channel message is counted in **values**: 16, and one for each value in it (keys counted),
and one for each kilobyte. A value takes the loop about a microsecond, so that 16,384 of them, the most that a
message may hold (`binarypack.MAX_ITEMS`), are 20 ms.

The bound: in any 50 ms one device makes the loop read at most ``burst`` + one message + 50 ms of ``rate``:
16,384 + 16,384 + 5,000 values for a device of the room, 45 ms of work; 4,096 + 1,024 + 205 of a
link before admission, and at most 64 links wait there (`linkbook`).
Honest devices stay far below: a thousand ``ai-token`` a second are 25,000 values, weights at 30 MB/s 78,000,
frames over the control channel some hundreds each. Only the creator says more, a roster after every change,
and its devices grant it four times as much.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

MESSAGE = 16
"""What any message costs, in values."""
QUANTUM_S = 0.01
"""Seconds of credit that are waited for once there is none: so often the loop is woken at most."""
OVERHEAD = 100
"""Bytes that a waiting message is counted with beside its own."""


@dataclass(frozen=True, slots=True)
class Budget:
    """What one link may cost.

    Attributes
    ----------
    rate
        Values a second.
    burst
        Values at once, after a quiet time.
    queue
        Bytes that may wait to be read.
    """

    rate: float
    burst: float
    queue: int


STRANGER = Budget(rate=4_096, burst=4_096, queue=1 << 20)
"""Before admission (section 3): both hellos, the proofs, pings, and the messages that are kept meanwhile."""
DEVICE = Budget(rate=100_000, burst=16_384, queue=16 << 20)
"""An admitted device."""
CREATOR = Budget(rate=400_000, burst=16_384, queue=16 << 20)
"""The creator, as its devices see it: with 256 devices every arrival is a roster of 15,000 values."""


def cost(values: int, size: int) -> float:
    """What reading a message of so many values and bytes costs."""
    return MESSAGE + values + size / 1024


class Inbox:
    """Data-channel messages of one link that wait to be read, in order.

    Parameters
    ----------
    budget
        May be changed at any time.
    now
        Clock seconds.
    """

    def __init__(self, budget: Budget, now: float) -> None:
        self.budget = budget
        self._credit = budget.burst
        self._at = now
        self._waiting: deque[bytes] = deque()
        self._bytes = 0

    def put(self, data: bytes) -> bool:
        """A message came. False: more wait than may, and the link is to be closed."""
        self._bytes += len(data) + OVERHEAD
        self._waiting.append(data)
        return self._bytes <= self.budget.queue

    def take(self, now: float) -> bytes | None:
        """The message to read now, if there is one and the link has credit; say what it cost (`spent`)."""
        if not self._waiting:
            return None
        self._grow(now)
        if self._credit <= 0:
            return None
        data = self._waiting.popleft()
        self._bytes -= len(data) + OVERHEAD
        return data

    def spent(self, cost: float) -> None:
        """The message that was taken last cost so much."""
        self._credit -= cost

    def wait(self) -> float | None:
        """Seconds until `take` is to be asked again; None: nothing waits."""
        if not self._waiting:
            return None
        return max(0.0, -self._credit / self.budget.rate) + QUANTUM_S

    def clear(self) -> None:
        """The link ended."""
        self._waiting.clear()
        self._bytes = 0

    def _grow(self, now: float) -> None:
        grown = max(0.0, now - self._at) * self.budget.rate
        self._credit = min(self.budget.burst, self._credit + grown)
        self._at = now
