"""Where a frame's columns go in a lane, and whether it may run at all. No tensors: only positions.

DESIGN section 5 (frame classes of exact mode) and PROTOCOL section 5 (control that rides on frames).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pooled_nb.errors import FrameRefused
from pooled_nb.shard.door import BUCKET, Columns, Control

AGAIN = "Send the conversation again from its start (reset)."

DRAFT = 63
"""Columns of the longest ``spec`` frame: ``rb`` names columns 0 to 62 (PROTOCOL section 5)."""
SLOTS = 64
"""Checkpoints a device keeps, as many as ``ai-ready`` may name."""
LAST_SLOT, _ALL = 0xFFFE, 0xFFFF


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
    kv
        The form keys and values are kept in: see `footprint.KV_FORMS`.
    """

    ctx: int
    width: int
    cols: int
    exact: bool
    step: int = 1
    kv: str = "f16"

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
    spec
        Running states are kept after every column, so that the frame can be taken back.
    """

    pos: int
    n: int
    rows: int
    length: int
    spec: bool = False


@dataclass(frozen=True, slots=True)
class Rollback:
    """Put the state back to the snapshot after this column of the last ``spec`` frame."""

    column: int


@dataclass(frozen=True, slots=True)
class Save:
    """Keep the state of this many columns as a slot."""

    slot: int
    length: int


@dataclass(frozen=True, slots=True)
class Drop:
    """Forget these slots, which are kept."""

    slots: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Restart:
    """Clear the running state."""


@dataclass(frozen=True, slots=True)
class Load:
    """Put back the state that a slot keeps, of this many columns."""

    slot: int
    length: int


Act = Rollback | Save | Drop | Restart | Load
"""What control asks of the caches, before the frame runs."""


@dataclass(slots=True)
class _State:
    """A lane between two frames: columns cached; the last ``spec`` frame's place and columns; the slots."""

    length: int
    base: int
    kept: int
    slots: dict[int, int]


class Lane:
    """One conversation's place in the caches, what of it can be taken back, and which slots are kept.

    It decides; the tensors of slots are `checkpoints.Checkpoints`'.
    """

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self._now = _State(0, 0, 0, {})
        self._old: set[int] = set()

    @property
    def length(self) -> int:
        """Columns in the caches."""
        return self._now.length

    @property
    def slots(self) -> Mapping[int, int]:
        """The slots that are kept, with their columns."""
        return self._now.slots

    def clear(self) -> None:
        """Nothing is cached, nothing can be rolled back, no slot is kept."""
        self._now = _State(0, 0, 0, {})
        self._old = set()

    def found(self, slots: Mapping[int, int]) -> None:
        """Take over slots that a disk kept; a host that does not know of them may use their numbers."""
        self._now.slots = dict(list(slots.items())[:SLOTS])
        self._old = set(self._now.slots)

    def cut(self, length: int) -> None:
        """Take columns from ``length`` on back without a frame, where all that is cached are columns."""
        now = self._now
        now.length = min(now.length, length)
        now.kept = max(0, min(now.kept, now.length - now.base))

    def lost(self, slot: int) -> None:
        """A slot could not be kept: to load it is refused from now on."""
        self._now.slots.pop(slot, None)
        self._old.discard(slot)

    def accept(self, columns: Columns, control: Control) -> tuple[Placed, tuple[Act, ...]]:
        """Apply control, then take the frame. A refused frame leaves the lane as it was.

        Returns
        -------
        Placed
            Where the frame runs.
        tuple of Act
            What is done with the caches before, in this order: that of PROTOCOL section 5.

        Raises
        ------
        FrameRefused
            The position is not the length after control; the frame has no columns, is too wide for its class,
            crosses a bucket or a multiple of ``cols``, or ends beyond ``ctx``; it rolls back past the last
            ``spec`` frame; it loads a slot that is not kept, saves one that is, or names what is no slot.
        """
        now = self._now
        state = _State(now.length, now.base, now.kept, dict(now.slots))
        acts = self._control(state, control)
        pos, n = columns.pos, columns.n
        if columns.lane != 0:
            raise FrameRefused(f"The frame is for lane {columns.lane}, and only lane 0 is in use.", AGAIN)
        if pos != state.length:
            raise FrameRefused(
                f"The frame starts at position {pos}, and the caches hold {state.length} columns.", AGAIN
            )
        if control.spec and n > DRAFT:
            raise FrameRefused(
                f"The draft has {n} columns, and {DRAFT} are the most.", "Send narrower frames."
            )
        placed = self._place(pos, n, columns.wide, control.spec)
        if control.spec:
            state.base, state.kept = pos, n
        elif pos < state.base + state.kept:
            # Columns after a rollback are overwritten: they cannot be rolled forward to any more.
            state.kept = max(0, pos - state.base)
        state.length = pos + n
        self._now = state
        self._old &= state.slots.keys()
        if control.sv:
            self._old.discard(control.sv)
        return placed, tuple(acts)

    def _control(self, state: _State, control: Control) -> list[Act]:
        acts: list[Act] = []
        if control.rb is not None:
            if not 0 <= control.rb < state.kept:
                raise FrameRefused(
                    f"The frame rolls back to column {control.rb}, and the last draft kept {state.kept}.",
                    AGAIN,
                )
            state.length = state.base + control.rb + 1
            acts.append(Rollback(control.rb))
        if control.sv:
            acts += self._save(state, control)
        if control.dp:
            acts += _drop(state, control.dp)
        if control.reset:
            state.length = state.base = state.kept = 0
            acts.append(Restart())
        if control.ld:
            _needs_slot(control.ld)
            length = state.slots.get(control.ld)
            if length is None:
                raise FrameRefused(
                    f"The frame loads slot {control.ld}, which this device does not hold.", AGAIN
                )
            # Snapshots belong to the text that was left.
            state.length, state.base, state.kept = length, 0, 0
            acts.append(Load(control.ld, length))
        return acts

    def _save(self, state: _State, control: Control) -> list[Act]:
        slot = control.sv
        _needs_slot(slot)
        if control.dp[:1] == (_ALL,):
            raise FrameRefused(f"The frame saves slot {slot} and drops all slots.", AGAIN)
        acts: list[Act] = []
        if slot in self._old:
            acts.append(Drop((slot,)))
        elif slot in state.slots:
            raise FrameRefused(f"The frame saves slot {slot}, which is kept already.", AGAIN)
        elif len(state.slots) >= SLOTS:
            raise FrameRefused(f"The frame saves slot {slot}, and {SLOTS} slots are the most.", AGAIN)
        state.slots[slot] = state.length
        return [*acts, Save(slot, state.length)]

    def _place(self, pos: int, n: int, wide: bool, spec: bool) -> Placed:
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
            seen = min(rules.capacity, -(-(pos + n) // rules.step) * rules.step)
            return Placed(pos, n, n, seen, spec)
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
        return Placed(pos, n, rows, (pos // BUCKET + 1) * BUCKET, spec)


def _drop(state: _State, slots: tuple[int, ...]) -> list[Act]:
    if slots[0] == _ALL:
        slots = tuple(state.slots)
    for slot in slots:
        if slot:  # 0 is none
            _needs_slot(slot)
    # Dropping what was never kept is no error: a slot that is not there is what was asked for.
    gone = tuple(slot for slot in dict.fromkeys(slots) if state.slots.pop(slot, None) is not None)
    return [Drop(gone)] if gone else []


def _needs_slot(slot: int) -> None:
    if not 1 <= slot <= LAST_SLOT:
        raise FrameRefused(f"The frame names slot {slot}, and slots are 1 to {LAST_SLOT}.", AGAIN)
