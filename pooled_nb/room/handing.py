"""When a device that leaves politely may go (`RoomCore.leave`, ``after_answer``)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pooled_nb.mesh.clock import Clock

LOOK_S = 0.2
ENOUGH_S = 60.0
"""Seconds for which a room that cannot do without a device keeps it at most, once the answer has ended."""
ASKED = "This device is leaving the room."
HANDS = "Leaving once the host has dealt this device's layers anew. %pooled leave goes at once."
WAITS = "Leaving once your answer has ended. %pooled leave goes at once."


@dataclass(frozen=True, slots=True)
class Now:
    """What counts: whether it holds layers; the ``mid`` of the running answer (0: none); whether that is to a
    question of this device; whether the host can be reached.
    """

    holds: bool
    answer: int
    mine: bool
    here: bool


class Handing:
    """Decider. It begins when this device has told the host that it lends nothing any more.

    A guest goes when its own answer has ended. Who holds layers goes when the host has dealt them anew;
    where the room cannot do without it, once the answer that ran has ended and a minute has passed.
    """

    def __init__(self, began: float, now: Now) -> None:
        self._began, self._answer = began, now.answer

    def may_go(self, at: float, now: Now) -> bool:
        """Whether nothing keeps it any more."""
        if not now.here:
            return True
        if now.mine:
            return False
        ended = now.answer == 0 or now.answer != self._answer
        return not now.holds or (ended and at - self._began >= ENOUGH_S)


class HandingOver:
    """Actor: a device leaves politely.

    Parameters
    ----------
    pledge
        Tells the host how much this device lends; None: as much as ever.
    now
        What counts at this moment.

    Attributes
    ----------
    is_on
        It waits until it may go.
    """

    def __init__(
        self, clock: Clock, *, pledge: Callable[[float | None], None], now: Callable[[], Now]
    ) -> None:
        self.is_on = False
        self._clock, self._pledge, self._now = clock, pledge, now

    async def wait(self) -> None:
        """Return once this device may go. Who is cancelled meanwhile stays, and lends as before."""
        first, self.is_on = not self.is_on, True
        if first:
            self._pledge(0.0)
        handing = Handing(self._clock.now(), self._now())
        try:
            while not handing.may_go(self._clock.now(), self._now()):
                await self._clock.sleep(LOOK_S)
        except BaseException:  # its person thought better of it
            if first:
                self.is_on = False
                self._pledge(None)
            raise
