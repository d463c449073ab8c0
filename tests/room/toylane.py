"""What a toy shard keeps: caches that only grow, states that only snapshots bring back, and checkpoints.

As strict as PROTOCOL section 5 is: control in its order, and a frame that is refused changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from pooled_nb.errors import FrameRefused
from pooled_nb.shard import BUCKET, Columns, Control, LoadSpec

MOD = 2**32
ALL = 0xFFFF


@dataclass
class ToyCache:
    """What one layer keeps: the numbers of its columns, and a running state that no column tells."""

    numbers: list[int] = field(default_factory=list)
    state: int = 1

    def step(self, number: int, layer: int, pos: int, wide: bool) -> int:
        """Run one column."""
        h = (number * 31 + sum(self.numbers) * 17 + self.state * 5 + layer + pos * 7 + wide) % MOD
        self.numbers.append(h)
        self.state = (self.state * 1_000_003 + h) % MOD
        return h

    def copy(self) -> ToyCache:
        return ToyCache(list(self.numbers), self.state)


@dataclass
class ToyLane:
    """One conversation in all layers ``[lo, hi)`` of a toy."""

    lo: int
    layers: list[ToyCache]
    slots: dict[int, list[ToyCache]] = field(default_factory=dict)
    base: int = 0
    snapshots: list[list[int]] = field(default_factory=list)
    """States of all layers after each column of the last ``spec`` frame that can still be gone back to."""

    @classmethod
    def over(cls, lo: int, hi: int) -> ToyLane:
        return cls(lo, [ToyCache() for _ in range(hi - lo)])

    def run(self, numbers: list[int], columns: Columns, control: Control, spec: LoadSpec) -> list[int]:
        """Apply control, then run the columns; refused, the lane is as it was."""
        new = ToyLane(
            self.lo, [c.copy() for c in self.layers], dict(self.slots), self.base, list(self.snapshots)
        )
        new._control(control)
        new._check(columns, spec)
        out = new._columns(numbers, columns, spec=control.spec)
        self.layers, self.slots = new.layers, new.slots
        self.base, self.snapshots = new.base, new.snapshots
        return out

    def _control(self, control: Control) -> None:
        if control.rb is not None:
            if not 0 <= control.rb < len(self.snapshots):
                raise FrameRefused(f"rb {control.rb} is past the {len(self.snapshots)} snapshots.", "Reset.")
            self.snapshots = self.snapshots[: control.rb + 1]
            for cache, state in zip(self.layers, self.snapshots[-1], strict=True):
                cache.state = state
                del cache.numbers[self.base + control.rb + 1 :]
        if control.sv:
            if control.sv in self.slots or ALL in control.dp:
                raise FrameRefused(f"slot {control.sv} is kept, or all are dropped.", "Take another.")
            self.slots[control.sv] = [c.copy() for c in self.layers]
        if len(control.dp) > 2:
            raise FrameRefused("a frame drops two slots at most.", "Let one wait.")
        for slot in self.slots.copy() if ALL in control.dp else control.dp:
            self.slots.pop(slot, None)
        if control.reset:
            self.layers = [ToyCache() for _ in self.layers]
            self.snapshots = []
        if control.ld:
            if control.ld not in self.slots:
                raise FrameRefused(f"slot {control.ld} is not kept here.", "Reset.")
            self.layers = [c.copy() for c in self.slots[control.ld]]
            self.snapshots = []

    def _check(self, columns: Columns, spec: LoadSpec) -> None:
        pos, n = columns.pos, columns.n
        length = len(self.layers[0].numbers) if self.layers else pos
        if pos != length:
            raise FrameRefused(f"position {pos} is not {length}.", "Reset.")
        last = pos + n - 1
        if n < 1 or last >= spec.ctx:
            raise FrameRefused(f"columns {pos} to {last} are none, or past {spec.ctx}.", "Cut it.")
        if not spec.exact:
            return
        size = spec.cols if columns.wide else spec.width
        step = size if columns.wide else BUCKET
        if n > size or pos // step != last // step:
            raise FrameRefused("the frame is too wide or crosses its multiple.", "Cut it.")

    def _columns(self, numbers: list[int], columns: Columns, *, spec: bool) -> list[int]:
        assert len(numbers) == columns.n
        if spec:
            self.base, self.snapshots = columns.pos, []
        elif columns.pos < self.base + len(self.snapshots):
            del self.snapshots[max(0, columns.pos - self.base) :]
        out = []
        for i, number in enumerate(numbers):
            h = number
            for layer, cache in enumerate(self.layers, self.lo):
                h = cache.step(h, layer, columns.pos + i, columns.wide)
            out.append(h)
            if spec:
                self.snapshots.append([c.state for c in self.layers])
        return out
