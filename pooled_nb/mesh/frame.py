"""A frame: hidden states of one or more columns, and the control that rides on it (PROTOCOL section 5)."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Kind(enum.IntEnum):
    """Byte 2 of a slice header."""

    HIDDEN = 0
    HIDDEN_B = 1
    RET = 2
    RET_B = 3

    @property
    def is_return(self) -> bool:
        """Whether the frame travels back to the host."""
        return self >= Kind.RET

    @property
    def is_batch(self) -> bool:
        """Whether it is a ``-b`` kind: any number of columns."""
        return self in (Kind.HIDDEN_B, Kind.RET_B)


class Encoding(enum.IntEnum):
    """How one number is written; bits 0–2 of byte 18. The value is the wire's."""

    F16 = 0
    BF16 = 1
    F32 = 2

    @property
    def width(self) -> int:
        """Bytes a number takes."""
        return 4 if self is Encoding.F32 else 2


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame, whole.

    Attributes
    ----------
    kind
        Which of the four.
    pos
        Position of column 0 (``pos`` or ``basePos``).
    n
        Columns.
    payload
        ``n · dim`` numbers, little-endian, in ``enc``.
    spec, reset, rb, sv, ld, dp
        Control, applied before the frame is run (PROTOCOL section 5). ``rb`` is a column or None;
        slots are 0 for none; ``dp`` holds at most two slots, ``(0xffff,)`` for all.
    epoch, last, probe
        *(nb)* bytes 18 and 19.
    """

    kind: Kind
    pos: int
    n: int
    payload: bytes
    enc: Encoding = Encoding.F16
    spec: bool = False
    reset: bool = False
    rb: int | None = None
    sv: int = 0
    ld: int = 0
    dp: tuple[int, ...] = ()
    epoch: int = 0
    last: bool = False
    probe: int = 0
