"""How long each socket may read in one turn of a loop: no turn takes long, and no socket waits for another.

A busy socket holds 64 datagrams whenever it is asked, and a device has as many sockets as links and stripes.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from weakref import WeakKeyDictionary

TURN_S = 0.02
"""Seconds that all sockets of a loop read in one turn of it; timers and keep-alives wait as long."""
LEAST_S = 0.0005
"""What each gets at least: a datagram or a few."""


class Turns:
    """Shares a turn among the sockets that are ready in it.

    Parameters
    ----------
    soon
        Calls back in the loop's next turn, before its sockets are asked.
    """

    def __init__(
        self, soon: Callable[[Callable[[], None]], object], now: Callable[[], float] = time.monotonic
    ) -> None:
        self._soon, self._now = soon, now
        self._ready = self._last = 0

    def until(self) -> float:
        """A socket begins to read: until when it may, in seconds of ``now``.

        How many follow in this turn is not known before they do: there were as many in the last one.
        """
        self._ready += 1
        if self._ready == 1:
            self._soon(self._over)
        return self._now() + max(LEAST_S, TURN_S / max(self._ready, self._last))

    def _over(self) -> None:
        self._last, self._ready = self._ready, 0


_of: WeakKeyDictionary[asyncio.AbstractEventLoop, Turns] = WeakKeyDictionary()


def here() -> Turns:
    """The turns of the running loop."""
    loop = asyncio.get_running_loop()
    found = _of.get(loop)
    if found is None:
        # Asked for anew each time: what is held by the table must not hold its key, the loop.
        found = _of[loop] = Turns(lambda call: asyncio.get_running_loop().call_soon(call))
    return found
