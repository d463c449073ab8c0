"""Which columns must be run before an answer, and in which frames (PROTOCOL section 7, DESIGN section 5).

Bits depend on a token's frame class, so the class follows the token's role: assistant text runs at
``width``, everything else wide, whenever it is computed again. Wide frames are cut at multiples of
``cols``; no frame crosses a position bucket.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from pooled_nb.shard import BUCKET

IN_FLIGHT = 6
"""Frames of a prefill under way at once (PROTOCOL section 7)."""

MAX_BATCH = 16
"""Columns of a ``-b`` frame at ``width``; prompt frames go up to ``cols``."""

RESERVE = 32
"""Tokens that a prompt must leave for the answer, else it is refused."""


@dataclass(frozen=True, slots=True)
class Cut:
    """One frame: columns ``[pos, pos + n)``; ``wide`` is its class."""

    pos: int
    n: int
    wide: bool


def cut(generated: Sequence[bool], start: int, *, cols: int, width: int) -> list[Cut]:
    """Frames for the tokens from ``start`` on.

    Parameters
    ----------
    generated
        One flag a token: assistant text.
    start
        How many tokens the caches already hold.
    cols, width
        The room's frame sizes; ``cols`` divides `BUCKET`.
    """
    frames: list[Cut] = []
    pos, end = start, len(generated)
    while pos < end:
        wide = not generated[pos]
        size = cols if wide else min(width, MAX_BATCH)
        limit = (
            min(end, (pos // cols + 1) * cols) if wide else min(end, pos + size, (pos // BUCKET + 1) * BUCKET)
        )
        stop = pos + 1
        while stop < limit and generated[stop] == generated[pos]:
            stop += 1
        frames.append(Cut(pos, stop - pos, wide))
        pos = stop
    return frames


@dataclass(slots=True)
class Fed:
    """The exact tokens every device's caches hold, without the last sampled one (PROTOCOL section 7).

    With each token goes its frame class: the same token computed in another class has other bits.
    """

    ids: list[int] = field(default_factory=list)
    generated: list[bool] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.ids)

    def reusable(self, ids: Sequence[int], generated: Sequence[bool]) -> int:
        """How many tokens of a prompt need no run: all of these when they are a proper prefix, else none."""
        n = len(self.ids)
        same = n < len(ids) and list(ids[:n]) == self.ids and list(generated[:n]) == self.generated
        return n if same else 0

    def extend(self, ids: Sequence[int], generated: Sequence[bool]) -> None:
        """These were run."""
        self.ids += ids
        self.generated += generated

    def clear(self) -> None:
        """The caches hold nothing that counts."""
        self.ids.clear()
        self.generated.clear()
