"""What goes first where several wait for one link (PROTOCOL section 5, DESIGN section 4)."""

from __future__ import annotations

import enum


class Priority(enum.IntEnum):
    """Of what a link carries; the least goes first. Control messages and the keep-alive go before all."""

    DECODE = 0
    """Frames of one token, and verify frames."""
    PREFILL = 1
    """Frames of a prompt."""
    CAPTURES = 2
    """Captured states (section 11)."""
    WEIGHTS = 3
    """Model weights (section 6)."""
