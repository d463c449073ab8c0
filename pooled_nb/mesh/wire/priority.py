"""What goes first where several wait for one link (PROTOCOL section 5, DESIGN section 4)."""

from __future__ import annotations

import enum

from pooled_nb.mesh.frame import Frame, Kind


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


BULK = (Priority.CAPTURES, Priority.WEIGHTS)
"""Messages that wait until no frame does."""


def priority_of(frame: Frame) -> Priority:
    """Whether somebody waits for a frame's one token, or for a prompt.

    A ``-b`` frame without ``spec`` is a prompt's (section 5, frame classes), and the return that answers it
    has the last column alone: a ``-b`` return of one column. Where a peer returns all columns of a prompt,
    they are taken for a verify frame's, which harms nothing.
    """
    prompt = frame.kind is Kind.HIDDEN_B and not frame.spec
    return Priority.PREFILL if prompt or (frame.kind is Kind.RET_B and frame.n == 1) else Priority.DECODE
