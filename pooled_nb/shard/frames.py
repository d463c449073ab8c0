"""Where a frame's columns go in a lane, and whether it may run at all. No tensors: only positions.

DESIGN section 5 (frame classes of exact mode) and PROTOCOL section 5 (control that rides on frames).
"""

from __future__ import annotations

from dataclasses import dataclass

from pooled_nb.errors import FrameRefused
from pooled_nb.shard.door import BUCKET, Columns, Control

AGAIN = "Send the conversation again from its start (reset)."


@dataclass(frozen=True, slots=True)
class Rules:
    """What decides how frames run: everything here decides bits, so it is fixed at the room's first start.

    Attributes
    ----------
    ctx
        Tokens the cache holds.
    width, cols
        Columns of the narrow and of the wide class; ``cols`` divides 256.
    exact
        Off: frames have their own width and attend over what is there.
    step
        In fast mode, what is there is rounded up to this: 1 on CPUs, a bucket on accelerators, where a new
        length would cost more than the columns (their kernels are made for each length).
    """

    ctx: int
    width: int
    cols: int
    exact: bool
    step: int = 1

    def __post_init__(self) -> None:
        if self.ctx < 1 or self.width < 1 or self.cols < 1 or BUCKET % self.cols or BUCKET % self.step:
            raise FrameRefused(
                f"Frames of {self.width} and {self.cols} columns in a context of {self.ctx} are impossible.",
                f"Use positive numbers, and columns that divide {BUCKET}.",
            )

    @property
    def capacity(self) -> int:
        """Columns the cache is built for: ``ctx`` rounded up to a whole bucket."""
        return -(-self.ctx // BUCKET) * BUCKET


@dataclass(frozen=True, slots=True)
class Placed:
    """Where an accepted frame runs.

    Attributes
    ----------
    pos, n
        Its columns.
    rows
        Columns that are computed: those beyond ``n`` are padding, thrown away (DESIGN section 5, rule 1).
    length
        Cached columns that are attended over, masked beyond each column's own position.
    """

    pos: int
    n: int
    rows: int
    length: int


class Lane:
    """One conversation's place in the caches: its length, and the last ``spec`` frame that can be taken back.

    Attributes
    ----------
    length
        Columns in the caches.
    """

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self.length = 0
        self._base = 0
        self._kept = 0

    def clear(self) -> None:
        """Nothing is cached and nothing can be rolled back."""
        self.length = self._base = self._kept = 0

    def accept(self, columns: Columns, control: Control) -> Placed:
        """Apply control, then take the frame. A refused frame leaves the lane as it was.

        The order is that of PROTOCOL section 5: rollback, save, drop, reset, load.

        Raises
        ------
        FrameRefused
            The position is not the length after control; the frame has no columns, is too wide for its class,
            crosses a bucket or a multiple of ``cols``, or ends beyond ``ctx``; it rolls back past the last
            ``spec`` frame, or uses slots.
        """
        length, base, kept = self._control(control)
        pos, n = columns.pos, columns.n
        if columns.lane != 0:
            raise FrameRefused(f"The frame is for lane {columns.lane}, and only lane 0 is in use.", AGAIN)
        if pos != length:
            raise FrameRefused(
                f"The frame starts at position {pos}, and the caches hold {length} columns.", AGAIN
            )
        placed = self._place(pos, n, columns.wide)
        if control.spec:
            base, kept = pos, n
        elif pos < base + kept:
            # Columns after a rollback are overwritten: they cannot be rolled forward to any more.
            kept = max(0, pos - base)
        self.length, self._base, self._kept = pos + n, base, kept
        return placed

    def _control(self, control: Control) -> tuple[int, int, int]:
        length, base, kept = self.length, self._base, self._kept
        if control.rb is not None:
            if not 0 <= control.rb < kept:
                raise FrameRefused(
                    f"The frame rolls back to column {control.rb}, and the last draft kept {kept}.",
                    AGAIN,
                )
            length = base + control.rb + 1
        if control.sv:
            raise FrameRefused(
                f"The frame saves slot {control.sv}, and this device keeps no checkpoints.", AGAIN
            )
        # Dropping what was never kept is no error: a slot that is not there is what was asked for.
        if control.reset:
            length = base = kept = 0
        if control.ld:
            raise FrameRefused(f"The frame loads slot {control.ld}, which this device does not hold.", AGAIN)
        return length, base, kept

    def _place(self, pos: int, n: int, wide: bool) -> Placed:
        rules = self.rules
        if n < 1 or pos < 0:
            raise FrameRefused(f"A frame of {n} columns at position {pos} cannot run.", AGAIN)
        last = pos + n - 1
        if last >= rules.ctx:
            raise FrameRefused(
                f"The frame ends at position {last + 1}, and the context is {rules.ctx} tokens.",
                "Start a new chat, or host the model with a longer context.",
            )
        if not rules.exact:
            return Placed(pos, n, n, min(rules.capacity, -(-(pos + n) // rules.step) * rules.step))
        rows = rules.cols if wide else rules.width
        if n > rows:
            raise FrameRefused(
                f"The frame has {n} columns, and its class has {rows}.", "Send narrower frames."
            )
        if pos // BUCKET != last // BUCKET:
            raise FrameRefused(
                f"The frame crosses a multiple of {BUCKET} (positions {pos} to {last}).",
                "Cut it at the multiple.",
            )
        if wide and pos // rows != last // rows:
            raise FrameRefused(
                f"The prompt frame crosses a multiple of {rows} (positions {pos} to {last}).",
                "Cut it at the multiple.",
            )
        return Placed(pos, n, rows, (pos // BUCKET + 1) * BUCKET)
