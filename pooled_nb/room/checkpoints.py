"""Which states the devices of a chain keep, and which of them a prompt begins with (PROTOCOL section 7).

Every device saves, loads and drops the same slots, since control rides on frames. So the host alone knows
what a slot holds: exact tokens, with their frame classes. Decides only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pooled_nb.room.control import Riding
from pooled_nb.room.prefill import begins

LAST_SLOT = 65534
RECENT = 2
"""States after an answer that are kept (a setting), beside a pinned system prompt."""


@dataclass(frozen=True, slots=True)
class Kept:
    """One checkpoint: these tokens were run, and nothing after them."""

    slot: int
    ids: list[int]
    generated: list[bool]


class Checkpoints:
    """The checkpoints of one chain.

    Parameters
    ----------
    riding
        Where saves and drops wait for their frame.
    recent
        How many states after an answer are kept.
    on
        Every device of the chain applies checkpoint control; else nothing is ever kept.
    """

    def __init__(self, riding: Riding, recent: int = RECENT, *, on: bool = True) -> None:
        self.on = on
        self._riding, self._most = riding, recent if on else 0
        self._recent: list[Kept] = []
        """The one that was of use longest ago comes first."""
        self._pinned: Kept | None = None
        self._waiting: Kept | None = None
        """Its save rides on the next frame."""
        self._newest = 0

    @property
    def kept(self) -> list[Kept]:
        """What the devices hold, or will once the next frame is run."""
        return [k for k in (*self._recent, self._waiting, self._pinned) if k]

    def best(self, ids: Sequence[int], generated: Sequence[bool], *, above: int) -> Kept | None:
        """The longest state that is a proper prefix of a prompt, and longer than ``above`` tokens."""
        saved = [k for k in (*self._recent, self._pinned) if k and len(k.ids) > above]
        fits = [k for k in saved if begins(k.ids, k.generated, ids, generated)]
        best = max(fits, key=lambda k: len(k.ids), default=None)
        if best in self._recent:
            self._recent.remove(best)
            self._recent.append(best)
        return best

    def save(self, ids: Sequence[int], generated: Sequence[bool]) -> None:
        """An answer is over: its state is saved by the next frame."""
        self.unsave()
        if not ids or self._most < 1 or any(k.ids == ids and k.generated == generated for k in self.kept):
            return
        self._waiting = Kept(self._slot(), list(ids), list(generated))
        self._riding.save = self._waiting.slot

    def unsave(self) -> None:
        """What waits to be saved is not needed: the answer goes on, or another takes its place."""
        if self._waiting:
            self._waiting, self._riding.save = None, 0

    def going(self, *, ld: int = 0) -> None:
        """A frame goes now, and with it the save that waits; what is above the most is dropped by it.

        ``ld``: the slot that it loads: a frame drops before it loads (PROTOCOL section 5).
        """
        if self._waiting:
            self._recent.append(self._waiting)
            self._waiting = None
        while len(self._recent) > self._most and self._recent[0].slot != ld:
            self._riding.drop(self._recent.pop(0).slot)

    def pin(self, ids: Sequence[int], generated: Sequence[bool]) -> None:
        """Save the state before the next frame as the system prompt's; the one before it goes."""
        if not self.on:
            return
        if self._pinned:
            self._riding.drop(self._pinned.slot)
        self._pinned = Kept(self._slot(), list(ids), list(generated))
        self._riding.save = self._pinned.slot

    def new_chat(self) -> None:
        """Nothing of the old chat is of use, but for its system prompt."""
        self.unsave()
        for kept in self._recent:
            self._riding.drop(kept.slot)
        self._recent.clear()

    def lost(self) -> None:
        """A lap failed, or engines are fresh: no device's slots count any more."""
        self._recent.clear()
        self._waiting = self._pinned = None
        if self.on:
            self._riding.drop_all()
        else:
            self._riding.clear()

    def _slot(self) -> int:
        """A number that no device keeps anything under."""
        taken = {k.slot for k in self.kept} | self._riding.dropping
        self._newest = self._newest % LAST_SLOT + 1
        while self._newest in taken:
            self._newest = self._newest % LAST_SLOT + 1
        return self._newest
