"""Makes sure of a direct link to a device that has pieces (PROTOCOL section 2: weights cross no relay)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable
from typing import Protocol

from pooled_nb.errors import PooledError
from pooled_nb.mesh.clock import Clock
from pooled_nb.mesh.listener import LinkFacts

REACH_S = 10.0
"""So long a link to a device is waited for; its pieces are fetched elsewhere then."""
BACK_S = 60.0
"""So long one is waited for that alone has the model: who lost its host knocks as long (section 3)."""
PATH_S = 3.0
"""So long it may take until it is known how a new link goes."""
PAUSE_S = 1.0


class Linked(Protocol):
    """What this needs of the mesh."""

    async def connect(self, to: str) -> None:
        """A link to a device of the roster."""

    def facts(self, id: str) -> LinkFacts | None:
        """What is known of an admitted link; None: there is none."""


class Reaching:
    """Says whether a device can give, once that is known."""

    def __init__(self, *, mesh: Linked, clock: Clock) -> None:
        self._mesh, self._clock = mesh, clock

    async def reach(self, id: str, patience: float) -> bool:
        """Whether there is a direct link to a device within so many seconds; dials it where there is none."""
        until = self._clock.now() + patience
        while self._mesh.facts(id) is None:
            with contextlib.suppress(PooledError):  # also: who cannot be dialed may come itself
                await self._within(until, self._mesh.connect(id))
            if self._mesh.facts(id) is None:
                if self._clock.now() + PAUSE_S > until:
                    return False
                await self._clock.sleep(PAUSE_S)
        known = self._clock.now() + PATH_S
        while (facts := self._mesh.facts(id)) is not None:
            if facts.path != "unknown" or self._clock.now() >= known:
                return facts.path == "direct"
            await self._clock.sleep(PAUSE_S)
        return False

    async def _within(self, until: float, call: Awaitable[None]) -> None:
        """Wait for a call no longer than that; a dial that others wait for goes on."""
        dial = asyncio.ensure_future(call)
        clock = asyncio.ensure_future(self._clock.sleep(max(0.0, until - self._clock.now())))
        try:
            await asyncio.wait([dial, clock], return_when=asyncio.FIRST_COMPLETED)
            if dial.done():
                dial.result()
        finally:
            for task in (dial, clock):
                task.cancel()
            await asyncio.gather(dial, clock, return_exceptions=True)
