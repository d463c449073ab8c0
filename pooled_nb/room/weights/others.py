"""What taking weights stands on: who has what, and what it must be. The same at a host and at a worker."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from pooled_nb.room.weights.hashes import Word
from pooled_nb.room.weights.inventory import Ranges


class Others(Protocol):
    """The other devices of the room, as this one knows them. Ranges are ``[lo, hi)``."""

    def have(self) -> Mapping[str, Mapping[str, Ranges]]:
        """Which ranges of which weights files each of them has, by its id; joined, in order."""

    def known(self, url: str, lo: int, hi: int) -> Word | None:
        """What a range must be, as far as it is known here without asking."""

    async def word(self, url: str, lo: int, hi: int) -> Word | None:
        """What a range must be; None: nobody vouches for it, so that it counts from no device."""

    def read(self, url: str, lo: int, hi: int, sha256: str) -> None:
        """This device has read a range from the network itself: it was that."""

    def bad(self, url: str, lo: int, hi: int, id: str) -> None:
        """What a device sent was not what it must be: it gives nothing to this device any more."""
