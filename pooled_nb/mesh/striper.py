"""Opens the stripes that `striping` wants, and closes those that it gives up (PROTOCOL section 5)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from pooled_nb.errors import PooledError, SignalingDown
from pooled_nb.mesh.clock import Clock
from pooled_nb.mesh.dialing import Dialing
from pooled_nb.mesh.jobs import Jobs
from pooled_nb.mesh.links import Links
from pooled_nb.mesh.striping import Striping
from pooled_nb.mesh.wiresettings import MAX_STRIPES

log = logging.getLogger(__name__)


class Striper:
    """Of one device.

    The room says with `Mesh.chain` whose frames it takes: so a dialer knows of its chain before the first
    frame can come, and these are the links that get stripes. Guests name nobody.

    Parameters
    ----------
    wanted
        Stripes of one link (`WireSettings.stripes`).
    clock
        The time of a device that is awake.
    is_up
        Whether signaling is reachable.
    """

    def __init__(
        self, wanted: int, *, dialing: Dialing, jobs: Jobs, clock: Clock, is_up: Callable[[], bool]
    ) -> None:
        self._dialing, self._jobs, self._clock, self._is_up = dialing, jobs, clock, is_up
        self._striping = Striping(min(wanted, MAX_STRIPES))
        self._running: dict[asyncio.Task[None], None] = {}  # a set has no order of its own
        self._over = False

    def tick(self, links: Links) -> None:
        """Time passes."""
        if self._over:
            return
        chained = links.stripes.wanting()
        orders = self._striping.tick(self._clock.now(), chained, up=self._is_up())
        for key in orders.close:
            links.stripes.give_up(key)
        for key in orders.dial:
            task = self._jobs.spawn(self._open(key, chained[key]))
            self._running[task] = None
            task.add_done_callback(self._running.pop)

    def cancel(self) -> None:
        """This device leaves."""
        self._over = True
        for task in list(self._running):
            task.cancel()

    async def _open(self, key: int, to: str) -> None:
        """One stripe from its dial to its end."""
        carried: float | None = None
        try:
            stripe = await self._dialing.stripe(to)
            since = self._clock.now()
            await asyncio.shield(stripe.over)
            carried = self._clock.now() - since
        except Exception as error:
            carried = None if isinstance(error.__cause__, SignalingDown) else 0.0
            if not isinstance(error, PooledError):
                raise
            log.info("%s", error)
        finally:
            self._striping.ended(key, self._clock.now(), carried)
