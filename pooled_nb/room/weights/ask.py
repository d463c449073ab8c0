"""What a device asks its person before it downloads much."""

from __future__ import annotations

from msgspec import Struct

from pooled_nb.room import sentences


class DownloadAsk(Struct, frozen=True, kw_only=True):
    """What its person is asked: may this device download so much.

    Attributes
    ----------
    model
        Its repo.
    lo, hi
        Layers ``[lo, hi)`` that it is for, 0-based; people are shown 1-based, inclusive.
    gb
        GB (10⁹ bytes) that are missing here.
    free_gb
        GB free on the disk that it goes to; None: not known.
    """

    model: str
    lo: int
    hi: int
    gb: float
    free_gb: float | None = None

    @property
    def layers(self) -> str:
        """As people read them."""
        return f"layers {self.lo + 1}–{self.hi}" if self.hi - self.lo > 1 else f"layer {self.hi}"

    @property
    def text(self) -> str:
        """The question in words."""
        free = (
            "" if self.free_gb is None else f", and {sentences.size(self.free_gb * 1e9)} are free on its disk"
        )
        return (
            f"Loading {self.layers} of {self.model} makes this device download "
            f"{sentences.size(self.gb * 1e9)}{free}. May it?"
        )
