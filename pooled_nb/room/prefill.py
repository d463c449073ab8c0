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

MAX_DRAFTS = MAX_BATCH - 1
"""Drafts of a verify frame: its column 0 is the token that was drawn (PROTOCOL section 7)."""

RESERVE = 32
"""Tokens that a prompt must leave for the answer, else it is refused."""


@dataclass(frozen=True, slots=True)
class Cut:
    """One frame: columns ``[pos, pos + n)``; ``wide`` is its class."""

    pos: int
    n: int
    wide: bool


def cut(generated: Sequence[bool], start: int, *, cols: int, width: int, at: int = 0) -> list[Cut]:
    """Frames for the tokens from ``start`` on.

    Parameters
    ----------
    generated
        One flag a token: assistant text.
    start
        How many tokens the caches already hold.
    cols, width
        The room's frame sizes; ``cols`` divides `BUCKET`. A width of 1 is that of fast mode, where frames
        are as wide as they are: generated text that is computed again goes in batches then.
    at
        A frame begins at this position, too.
    """
    frames: list[Cut] = []
    pos, end = start, len(generated)
    while pos < end:
        wide = not generated[pos]
        size = min(width, MAX_BATCH) if width > 1 else MAX_BATCH
        limit = (pos // cols + 1) * cols if wide else min(pos + size, (pos // BUCKET + 1) * BUCKET)
        limit = min(end, limit, at if pos < at else end)
        stop = pos + 1
        while stop < limit and generated[stop] == generated[pos]:
            stop += 1
        frames.append(Cut(pos, stop - pos, wide))
        pos = stop
    return frames


def drafts_from(pos: int) -> int:
    """Drafts of a verify frame whose first column stands here: it must not cross a bucket."""
    return min(MAX_DRAFTS, BUCKET - 1 - pos % BUCKET)


def begins(ids: Sequence[int], generated: Sequence[bool], of: Sequence[int], classes: Sequence[bool]) -> bool:
    """Whether tokens that were run are a proper prefix of a prompt, each in the same frame class."""
    n = len(ids)
    return n < len(of) and list(of[:n]) == list(ids) and list(classes[:n]) == list(generated)


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
        return len(self.ids) if begins(self.ids, self.generated, ids, generated) else 0

    def extend(self, ids: Sequence[int], generated: Sequence[bool]) -> None:
        """These were run."""
        self.ids += ids
        self.generated += generated

    def cut(self, length: int) -> None:
        """What follows these was taken back."""
        del self.ids[length:], self.generated[length:]

    def hold(self, ids: Sequence[int], generated: Sequence[bool]) -> None:
        """Another state was loaded."""
        self.ids, self.generated = list(ids), list(generated)

    def clear(self) -> None:
        """The caches hold nothing that counts."""
        self.ids.clear()
        self.generated.clear()
