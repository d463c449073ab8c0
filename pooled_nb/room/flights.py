"""Laps that are out: what waits for each, and until when (PROTOCOL sections 5 and 8)."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from pooled_nb.mesh.clock import SOON, Clock, Timer
from pooled_nb.mesh.frame import Frame
from pooled_nb.room.laps import Lap, Laps, Verdict


@dataclass(slots=True)
class Flight:
    """One lap: where its columns go when they are back, and how long it may take."""

    lap: Lap
    limit: float
    back: asyncio.Future[bytes]
    timer: Timer


class Flights:
    """Actor around `Laps`.

    Parameters
    ----------
    clock
        Time that counts: while this device sleeps no lap is late.
    rtt
        Round trip of the chain's worst link now, seconds.
    late
        Called with the limit of a lap that it has not kept.
    """

    def __init__(
        self,
        laps: Laps,
        *,
        clock: Clock,
        rtt: Callable[[], float],
        late: Callable[[float], None],
    ) -> None:
        self._laps, self._clock = laps, clock
        self._rtt, self._late = rtt, late
        self._out: deque[Flight] = deque()

    def out(self, frame: Frame, *, prefill: bool) -> asyncio.Future[bytes]:
        """A frame was handed to the chain: a future of what comes back."""
        back: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        lap = self._laps.sent(frame, prefill=prefill, now=self._clock.now())
        limit = self._laps.limit(lap, self._rtt())
        flight = Flight(lap, limit, back, self._clock.call_later(limit, lambda: self._due(flight)))
        self._out.append(flight)
        return back

    def returned(self, frame: Frame, size: int) -> Verdict:
        """A return arrived; ``size`` is what its payload must have."""
        verdict, _ = self._laps.returned(frame, self._clock.now())
        if verdict is Verdict.STALE:
            return verdict
        if len(frame.payload) != size:
            return Verdict.WRONG
        if verdict is not Verdict.ANSWER:
            return verdict
        flight = self._out.popleft()
        flight.timer.cancel()
        if not flight.back.done():
            flight.back.set_result(frame.payload)
        return verdict

    def fail(self, failure: Callable[[], Exception]) -> None:
        """None of them comes back any more."""
        out, self._out = self._out, deque()
        for flight in out:
            flight.timer.cancel()
            if not flight.back.done():
                flight.back.set_exception(failure())
                flight.back.exception()  # an answer that was given up asks nobody any more

    def _due(self, flight: Flight) -> None:
        """Its time is over; where this device slept meanwhile, the rest of it begins."""
        rest = flight.lap.sent + flight.limit - self._clock.now()
        if rest > SOON:
            flight.timer = self._clock.call_later(rest, lambda: self._due(flight))
        else:
            self._late(flight.limit)
