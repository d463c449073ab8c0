"""How a device that lost its creator comes back: it knocks (PROTOCOL sections 3 and 8).

At once, then every 3 s for 60 s; after that every 15 s until the 15 minutes are over in which a host that was
started again may take its room back. Each knock is the whole gate again, with the pass. `Knocks` decides,
`Knocking` dials. Times are those of a device that is awake (`awake`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from pooled_nb.errors import PooledError
from pooled_nb.mesh.awake import AwakeClock
from pooled_nb.mesh.deadline import Deadline
from pooled_nb.mesh.jobs import Jobs
from pooled_nb.mesh.linkactions import Cause, End

EVERY_S, FOR_S = 3.0, 60.0
"""Seconds between knocks, and for how long (section 3)."""
LATER_S, RESUME_S = 15.0, 900.0
"""The same from then on: as long as a host may take its room back (section 8, host resume)."""
ANSWER_S = 15.0
"""Seconds until a dial that nobody answers is given up for the next knock: as long as a busy host keeps who
dials in its line (`callers`). What was sent to a process that died is lost, and the one that takes its place
hears of this device only when it is dialed again."""

BREAKS = frozenset({Cause.BROKEN, Cause.SILENT, Cause.NO_HELLO, Cause.LATE, Cause.NO_PATH})
"""Ends of the link to the creator after which this device knocks. All others are somebody's word: thrown out,
the room is over, not believed."""


class Knocks:
    """When to knock, and until when."""

    def __init__(self, now: float) -> None:
        self.since = now
        self._last = float("-inf")

    def due(self, now: float) -> bool:
        """Whether to knock now; counts as knocked then. Only asked while no knock is under way."""
        every = EVERY_S if now - self.since < FOR_S else LATER_S
        if now - self._last < every or self.over(now):
            return False
        self._last = now
        return True

    def soon(self) -> None:
        """Something changed: the next knock is due at once."""
        self._last = float("-inf")

    def over(self, now: float) -> bool:
        """Whether nobody is expected to open any more."""
        return now - self.since >= RESUME_S


class Knocking:
    """Does it.

    Parameters
    ----------
    dial
        Dials the creator and adds the link. Raises as `Endpoint.dial`.
    hurry
        Signaling that is down is tried again at once. Whether it is up.
    linked
        Whether there is a link to the creator, in whatever state: then a knock is under way, and a person may
        be asked there for minutes.
    give_up
        Nobody opened in all that time; called with the end of the link that was lost.
    """

    def __init__(
        self,
        *,
        clock: AwakeClock,
        jobs: Jobs,
        dial: Callable[[], Awaitable[None]],
        hurry: Callable[[], bool],
        linked: Callable[[], bool],
        give_up: Callable[[End], None],
    ) -> None:
        self._clock, self._jobs = clock, jobs
        self._dial, self._hurry, self._linked, self._give_up = dial, hurry, linked, give_up
        self._knocks: Knocks | None = None
        self._end = End(Cause.BROKEN, "")
        self._task: asyncio.Task[None] | None = None

    @property
    def is_on(self) -> bool:
        """Whether this device is out, and knocks."""
        return self._knocks is not None

    @property
    def since(self) -> tuple[float, float] | None:
        """Seconds since the loss, and after how many it is given up; None: it does not knock.

        The second number is 60 first, and the whole quarter of an hour once those are over.
        """
        if self._knocks is None:
            return None
        passed = self._clock.now() - self._knocks.since
        return passed, FOR_S if passed < FOR_S else RESUME_S

    def begin(self, end: End) -> None:
        """The link to the creator broke."""
        self._knocks, self._end = Knocks(self._clock.now()), end
        self.tick()

    def stop(self) -> bool:
        """This device is in again, or is not to come back. Whether it knocked."""
        was, self._knocks = self._knocks, None
        if self._task is not None:
            self._task.cancel()
            self._task = None
        return was is not None

    def signaling(self, up: bool) -> None:
        """Signaling is back: the next knock is due. Or it is lost: who was dialed over it answers no more."""
        if self._knocks is not None and up:
            self._knocks.soon()
            self.tick()
        elif not up:
            self._unanswered()

    def tick(self) -> None:
        """Time passes."""
        if self._knocks is None or self._task is not None or self._linked():
            return
        now = self._clock.now()
        if self._knocks.over(now):
            self._give_up(self._end)
        elif self._knocks.due(now) and self._hurry():
            self._task = self._jobs.spawn(self._knock())

    async def _knock(self) -> None:
        late = Deadline(self._clock.real, ANSWER_S, self._unanswered)
        try:
            await self._dial()
        except PooledError:
            pass  # nobody is there, or not yet: the next knock is due soon
        finally:
            late.cancel()
            if self._task is asyncio.current_task():
                self._task = None

    def _unanswered(self) -> None:
        if self._task is not None:
            self._task.cancel()
            self._task = None
