"""Decides how long this device itself has slept or stalled (PROTOCOL section 8, late timers).

What waits for another device counts its own time without that: during a freeze of 20 s nobody was silent,
this end only did not listen.
"""

from __future__ import annotations

from collections.abc import Callable

from pooled_nb.mesh.clock import Clock, Timer
from pooled_nb.mesh.deadline import GRACE_S
from pooled_nb.mesh.liveness import LATE_S, TICK_S


class Awake:
    """The ticks of one device: a late one says how long it slept."""

    def __init__(self, now: float) -> None:
        self._ticked = now
        self._slept = self._most = 0.0
        self._until = float("-inf")

    def tick(self, now: float) -> bool:
        """Call every `TICK_S`. Whether this one was late, so that nobody is judged on it."""
        gap, self._ticked = now - self._ticked, now
        if gap <= LATE_S:
            return False
        self._slept += gap - TICK_S
        self._most = max(self._most, self._slept)
        self._until = now + GRACE_S
        return True

    def judges(self, now: float) -> bool:
        """Whether this device has been awake for so long that others could make themselves heard."""
        return now >= self._until and now - self._ticked <= LATE_S

    def slept(self, now: float) -> float:
        """Seconds slept until now, what is under way included; never falls."""
        gap = now - self._ticked
        if gap > LATE_S:
            self._most = max(self._most, self._slept + gap - TICK_S)
        return self._most


class AwakeClock:
    """A `Clock` that stands still while this device sleeps. Its timers are those of the clock below.

    Attributes
    ----------
    real
        The clock below.
    """

    def __init__(self, clock: Clock) -> None:
        self.real = clock
        self._awake = Awake(clock.now())
        self._last = clock.now()
        self._before = 0.0
        """Slept in all until it ticked no more."""
        self._timer: Timer | None = None

    def begin(self, on_tick: Callable[[bool], None]) -> None:
        """Tick from now on, if it does not yet; ``on_tick`` hears whether the tick was late."""
        if self._timer is None:
            self._awake = Awake(self.real.now())
            self._arm(on_tick)

    def stop(self) -> None:
        """Tick no more."""
        if self._timer is not None:
            self._before = self.slept
            self._timer.cancel()
            self._timer = None

    @property
    def slept(self) -> float:
        """Seconds slept while it ticked; never falls, also where it ticks no more, or again."""
        return self._slept(self.real.now())

    @property
    def judges(self) -> bool:
        """See `Awake.judges`."""
        return self._awake.judges(self.real.now())

    def now(self) -> float:
        """Seconds awake, from an arbitrary start; never goes back."""
        real = self.real.now()
        now = real - self._slept(real)
        if now > self._last:
            self._last = now
        return self._last

    def call_later(self, delay: float, callback: Callable[[], None]) -> Timer:
        """See `Clock.call_later`."""
        return self.real.call_later(delay, callback)

    async def sleep(self, delay: float) -> None:
        """See `Clock.sleep`."""
        await self.real.sleep(delay)

    def _slept(self, now: float) -> float:
        return self._before if self._timer is None else self._before + self._awake.slept(now)

    def _arm(self, on_tick: Callable[[bool], None]) -> None:
        self._timer = self.real.call_later(TICK_S, lambda: self._tick(on_tick))

    def _tick(self, on_tick: Callable[[bool], None]) -> None:
        self._arm(on_tick)
        on_tick(self._awake.tick(self.real.now()))
