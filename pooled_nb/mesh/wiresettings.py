"""How this device's links carry frames: settings of the wire (PROTOCOL section 5)."""

from __future__ import annotations

from dataclasses import dataclass

MAX_STRIPES = 8
"""Stripes that are taken to one device."""


@dataclass(frozen=True, slots=True)
class WireSettings:
    """Of all links of one device.

    Attributes
    ----------
    keepalive_ms
        Milliseconds without a slice after which a link in use sends its zero byte; 0 is off.
    stripes
        More connections that the dialer of a chain link opens beside its own; 0 to 8.
    twice
        Frames of at most 3 slices go over two connections, where there are two.
    """

    keepalive_ms: float = 10.0
    stripes: int = 3
    twice: bool = True


SCTP = "POOLED_SCTP"
"""Environment variable that switches the tuned association off (`sctp.judge`), and its one value."""
STOCK = "stock"

DEFAULT = WireSettings()

ONE_MACHINE = WireSettings(keepalive_ms=0.0, stripes=0)
"""On one machine nothing is lost and no radio naps between laps: there both only cost time."""
