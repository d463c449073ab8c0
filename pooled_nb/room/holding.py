"""An answer that waits: whether it goes on, and when it gives up (PROTOCOL section 8)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pooled_nb.mesh.clock import SOON, Clock
from pooled_nb.room.chain import Chain
from pooled_nb.room.core import Reason
from pooled_nb.room.ground import Ground

TRIES = 4
"""Times that an answer goes on without a new token between; then it is given up."""
WAIT_S = 360.0
"""Seconds of one wait."""
PAUSES = (1.0, 2.0, 4.0, 8.0)
"""Seconds before each try while nothing says that the room was not whole: what failed may be noticed yet."""
NEXT = "ask again when the room is whole, or was dealt anew."
"""What people do about an answer that was given up."""
GOES_ON = "The answer goes on."
"""What its asker reads then."""


class Tries:
    """Decider: how often and how long one answer waits."""

    def __init__(self) -> None:
        self.lost_before = 0
        """Losses since the last new token."""
        self.waited = 0.0
        """Seconds of all its waits."""
        self._since: float | None = None
        self._after = 0.0

    def progress(self, tokens: int) -> None:
        """Something ran, and so many new tokens came of it."""
        if tokens:
            self.lost_before = 0

    def lost(self, now: float) -> bool:
        """What ran is lost, and a wait begins: whether there may be another try."""
        self.lost_before += 1
        self._since = now
        if self.lost_before > TRIES:
            return False
        self._after = now + PAUSES[self.lost_before - 1]
        return True

    def left(self, now: float) -> float:
        """Seconds that this wait may still take; none left: it is given up."""
        return WAIT_S - (now - self._since) if self._since is not None else WAIT_S

    def pause(self, now: float) -> float:
        """Seconds until the next try, where the room is whole as far as anybody knows."""
        return self._after - now

    def over(self, now: float) -> None:
        """The wait is over, however it ended."""
        if self._since is not None:
            self.waited += now - self._since
            self._since = None


@dataclass(frozen=True, slots=True)
class Over:
    """A wait that ended without a chain: ``abort`` where nobody wants the answer any more, else ``error``.

    ``long``: it lasted as long as a wait may.
    """

    reason: Reason
    why: str = ""
    long: bool = False


class Wait:
    """Actor around `Tries`: waits until an answer may go on, or is over.

    Parameters
    ----------
    clock
        Time without what this device slept: a wait is not over because its host slept.
    tell
        Called with a sentence when it begins to wait, when the reason is another one, and when it goes on.

    Attributes
    ----------
    why
        Why it waits now, in a sentence; empty: it does not.
    """

    def __init__(self, ground: Ground, clock: Clock, tell: Callable[[str], None]) -> None:
        self.why = ""
        self._ground, self._clock, self._tell = ground, clock, tell

    async def whole(self, tries: Tries, why: str, times: int, unwanted: Callable[[], bool]) -> Chain | Over:
        """Wait for a chain to go on with.

        Parameters
        ----------
        why
            What was lost, as part of a sentence: why it waits while the room is whole as far as it knows.
        times
            `Ground.times` when what was lost began. Where it has risen since, nothing is waited for.
        unwanted
            Whether nobody wants the answer any more.
        """
        lost = why[:1].upper() + why[1:].rstrip(".")
        more = tries.lost(self._clock.now())
        try:
            while True:
                now, ground = self._clock.now(), self._ground
                if ground.gone:
                    return Over("error", ground.gone[1])
                if unwanted():
                    return Over("abort")
                if not more:
                    return Over("error", f"{lost}. {TRIES} more tries brought nothing new; {NEXT}")
                chain, left = ground.ready, tries.left(now)
                if chain and (ground.times != times or tries.pause(now) < SOON):
                    self._tell(GOES_ON)
                    return chain
                if left < SOON:
                    what = (self.why or lost).rstrip(".")
                    return Over("error", f"{what}. It waited {WAIT_S / 60:.0f} min; {NEXT}", long=True)
                self._say(ground.held or f"{lost}. The answer tries again.")
                await ground.changed(self._clock, min(left, tries.pause(now)) if chain else left)
        finally:
            tries.over(self._clock.now())
            self.why = ""

    def _say(self, why: str) -> None:
        if why != self.why:
            self.why = why
            self._ground.wake()  # whoever waits for the shard: it is free now
            self._tell(why)
