"""Decides which connections of a link carry nothing, though both ends believe in them (PROTOCOL section 5).

A NAT forgot one of them, or its path alone is cut: ICE (RFC 7675) says so after half a minute, and until then
a frame has a hole. What the other end has not acknowledged for `STUCK_S`, while it is heard, goes over the
others.

Decides only: what the associations count and the time go in, names of connections come out.
"""

from __future__ import annotations

from collections.abc import Mapping

STUCK_S = 3.0
"""Seconds without an acknowledgement, of what is in flight, after which nothing comes through a connection. A
lost packet is sent again 3 or 4 times meanwhile."""
HEARD_S = 2.0
"""Seconds of silence after which the device is no longer one that is heard: pings come more often."""
FLOWS_S = 1.5
"""Of the connections of a link one at least had an acknowledgement so lately, or has nothing in flight: where
none has, the whole path is cut, and no connection is worse than another."""


class Stuck:
    """Of one link, with its stripes.

    Parameters
    ----------
    now
        The time of a device that is awake, seconds.
    """

    def __init__(self, now: float) -> None:
        self._heard_since = now

    def tick(self, now: float, quiet: float, stuck: Mapping[str, float]) -> frozenset[str]:
        """Time passes; returns the connections that nothing comes through.

        Parameters
        ----------
        quiet
            Seconds since anything was heard over the link, its stripes included; infinity while this device
            may not judge others, because it slept.
        stuck
            ``stuck_s`` of each connection that says it (`ConnectionStats`).
        """
        if quiet > HEARD_S:
            self._heard_since = now
        heard = now - self._heard_since
        if not any(seconds < FLOWS_S for seconds in stuck.values()):
            return frozenset()
        return frozenset(key for key, seconds in stuck.items() if min(seconds, heard) >= STUCK_S)
