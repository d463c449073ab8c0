"""The numbers of an association, apart from its machinery, so that both can be tested against others'."""

from __future__ import annotations

import math
from dataclasses import dataclass

from aiortc.rtcsctptransport import USERDATA_MAX_LENGTH

PACKET = USERDATA_MAX_LENGTH
"""Bytes of user data in a full DATA chunk; windows count these, as aiortc and RFC 9260 section 7 do."""


@dataclass(frozen=True, slots=True)
class Policy:
    """How an association recovers and grows. The defaults are those measured for frames (DESIGN section 4).

    Attributes
    ----------
    rto_initial, rto_min, rto_max
        Seconds (RFC 9260 section 16 recommends 1, 1 and 60).
    rto_beyond
        Seconds of T3 beyond the smoothed round trip, at least: where those vary little, one that takes a
        moment longer is no loss. What is lost at the end of a burst is probed for before.
    backoff_max
        Seconds that doubling makes of a timer at most: a path that is back is found within these.
    t1_retries, t1_backs_off
        How often INIT and COOKIE ECHO are sent again, and whether less and less often.
    burst
        Packets that may leave at once; 0: as the window allows.
    initial, floor, cap
        Packets of 1,160 bytes of the window: at first and after ordinary loss, for each connection of the
        link up to four; and at most.
    collapse_after, collapsed
        Expiries of T3 in a row, without progress anywhere on the link, that make the window so many packets.
    bytes_counted
        Slow start grows by what was acknowledged (RFC 3465), not by a packet a SACK: ours are one a batch.
    waits
        Seconds that packets may wait on the path before the window shrinks (RFC 6817: at most 0.1).
    early
        Loss is known from later packets and from time, and the end of a burst is probed (RFC 8985).
    resend_acked
        After T3 what a gap block acknowledged is sent again too.
    max_message
        Bytes of the largest message that may come; 0: any.
    """

    rto_initial: float = 0.5
    rto_min: float = 0.1
    rto_max: float = 60.0
    rto_beyond: float = 0.1
    backoff_max: float = 2.0
    t1_retries: int = 16
    t1_backs_off: bool = True
    burst: int = 0
    initial: int = 32
    floor: int = 32
    cap: int = 904
    collapse_after: int = 3
    collapsed: int = 2
    bytes_counted: bool = True
    waits: float = 0.015
    early: bool = True
    resend_acked: bool = False
    max_message: int = 65_536


TUNED = Policy()

STOCK = Policy(
    rto_initial=3.0,
    rto_min=1.0,
    rto_beyond=0.0,
    backoff_max=60.0,
    t1_retries=8,
    t1_backs_off=False,
    burst=4,
    initial=3,
    floor=4,
    cap=2**31,
    collapse_after=1,
    collapsed=1,
    bytes_counted=False,
    waits=math.inf,
    early=False,
    resend_acked=True,
    max_message=0,
)
"""aiortc's own, which its tests assert."""
