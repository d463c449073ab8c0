"""Running states: what recurrent and convolution layers keep of all columns before, and taking it back.

transformers' own layers write their states in place and cannot go back (DESIGN section 5). Here a state is
never written over: a step leaves a new tensor, so that a snapshot is a reference and costs no copy.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any, Protocol, cast

import torch
from transformers.cache_utils import LinearAttentionLayer

from pooled_nb.shard.frames import Placed

CONV, RECURRENT = "conv", "recurrent"
Slot = tuple[str, int]
"""Kind and number of one state of a layer."""
KEYS: Slot = ("keys", 0)
"""What a layer writes that keeps keys and values."""


class Holder(Protocol):
    """What a layer needs to know of its slab."""

    frame: Placed

    def touched(self, layer: Any, slot: Slot) -> None:
        """A layer's state was written."""


class StateLayer(LinearAttentionLayer):
    """The running states of one layer: any number of windows of a convolution, and of recurrent states.

    Until `begin` it learns their shapes, and behaves as if nothing came before. After it, what comes before
    position 0 are zeros: the first frame of a conversation runs through the arithmetic of all later ones.

    Attributes
    ----------
    whole
        All columns of a frame go through the layer at once, pads too; else they come one by one.
    ends
        The recurrent state after each real column, left by a scan (`mixers`) for `update_recurrent_state`.
    """

    def __init__(self, slab: Holder) -> None:
        super().__init__()
        self.slab = slab
        self.conv_states: dict[int, torch.Tensor | None] = {}
        self.recurrent_states: dict[int, torch.Tensor | None] = {}
        self.has_previous_state: dict[int, bool] = defaultdict(bool, {0: False})
        self.whole = False
        self.ends: list[torch.Tensor] | None = None
        self._kept: dict[Slot, list[torch.Tensor]] = {}

    @property
    def slots(self) -> list[Slot]:
        """The states that the layer has."""
        return [(CONV, i) for i in sorted(self.conv_states)] + [
            (RECURRENT, i) for i in sorted(self.recurrent_states)
        ]

    def begin(self) -> None:
        """The shapes are known: from now on there is always a state."""
        self.has_previous_state = defaultdict(lambda: True, {0: True})
        self.restart()

    def update_conv_state(
        self, conv_states: torch.Tensor, state_idx: int = 0, conv_kernel_size: int | None = None, **_: Any
    ) -> torch.Tensor:
        """Move the window of a convolution over these columns.

        Parameters
        ----------
        conv_states
            ``[1, channels, columns]``.
        conv_kernel_size
            Columns of the window.

        Returns
        -------
        Tensor
            ``[1, channels, window + columns]``: the window as it was, and the columns.
        """
        slot = CONV, state_idx
        if (held := self.conv_states.get(state_idx)) is None:
            size = conv_kernel_size or conv_states.shape[-1]
            held = conv_states.new_zeros((*conv_states.shape[:-1], size))
        full = torch.cat((held, conv_states), dim=-1)
        size, last = held.shape[-1], full.shape[-1]
        stops: Iterable[int] = (size + i + 1 for i in range(self.slab.frame.n)) if self.whole else (last,)
        self._advance(slot, [full[..., stop - size : stop] for stop in stops])
        return full

    def update_recurrent_state(
        self, recurrent_states: torch.Tensor, state_idx: int = 0, **_: Any
    ) -> torch.Tensor:
        """Take the state after the last column; of a frame that ran whole, those after each column."""
        ends, self.ends = self.ends, None
        self._advance((RECURRENT, state_idx), ends or [recurrent_states])
        return recurrent_states

    def renew(self, slots: Iterable[Slot]) -> None:
        """Give states memory of their own, which a step may write over: snapshots stay as they are."""
        for slot in slots:
            self._states(slot[0])[slot[1]] = self._copy(slot)

    def keep(self, slots: Iterable[Slot], *, first: bool) -> None:
        """Remember states as they are after a column of a ``spec`` frame."""
        for slot in slots:
            if first:
                self._kept[slot] = []
            self._kept[slot].append(self.held(slot))

    def rollback(self, column: int) -> None:
        """Put states back to their snapshot after this column of the last ``spec`` frame."""
        for slot, ends in self._kept.items():
            self._put(slot, ends[column])

    def restart(self) -> None:
        """Begin a conversation: nothing came before."""
        self._kept.clear()
        self.ends = None  # of a frame that failed in between
        for slot in self.slots:
            self._put(slot, torch.zeros_like(self.held(slot)))

    def reset(self) -> None:
        """Forget everything, NaN included."""
        self.restart()

    def copies(self, length: int, start: int = 0) -> list[torch.Tensor]:
        """Copy the states, whatever the columns."""
        return [self._copy(slot) for slot in self.slots]

    def paste(self, tensors: list[torch.Tensor], length: int, start: int = 0) -> None:
        """Put back what `copies` gave; there are no snapshots of it."""
        self._kept.clear()
        for slot, given in zip(self.slots, tensors, strict=True):
            self._put(slot, given.to(self.held(slot), copy=True))

    @property
    def nbytes(self) -> int:
        """Bytes of the states and of the snapshots that are kept now."""
        tensors = [self.held(slot) for slot in self.slots]
        tensors += [end for ends in self._kept.values() for end in ends]
        held = {t.untyped_storage()._cdata: t.untyped_storage().nbytes() for t in tensors}
        return sum(held.values())

    def held(self, slot: Slot) -> torch.Tensor:
        """A state as it is now."""
        return cast(torch.Tensor, self._states(slot[0])[slot[1]])

    def _states(self, kind: str) -> dict[int, torch.Tensor | None]:
        return self.conv_states if kind == CONV else self.recurrent_states

    def _copy(self, slot: Slot) -> torch.Tensor:
        return self.held(slot).clone(memory_format=torch.contiguous_format)

    def _put(self, slot: Slot, state: torch.Tensor) -> None:
        kind, number = slot
        # A window is a view of its frame, and would keep all of it.
        self._states(kind)[number] = state.clone() if kind == CONV else state

    def _advance(self, slot: Slot, ends: list[torch.Tensor]) -> None:
        self.slab.touched(self, slot)
        self._put(slot, ends[-1])
        if self.whole and self.slab.frame.spec:
            self._kept[slot] = ends
