"""What of a model's files a device lacks, and what it has: the room's view of them (PROTOCOL section 6).

Ranges are ``[lo, hi)`` of one file here; on the wire ``hi`` is inclusive.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from msgspec import Struct, field

Sent = tuple[int, int, str]
"""What another device sent of a file, as it is kept: bytes ``[lo, hi)``, and their SHA-256."""


class Piece(Struct, frozen=True, kw_only=True):
    """Bytes ``[lo, hi)`` of a file of ``size`` bytes: a small file whole, or a block (`layout.blocks`)."""

    name: str
    lo: int
    hi: int
    size: int


class Missing(Struct, frozen=True, kw_only=True):
    """What a load would have to fetch.

    Attributes
    ----------
    pieces
        In the order in which they are wanted.
    bytes
        Of all of them, and of what is not known in detail yet.
    again
        Some of them are indices and headers: once these are here, more may be missing.
    """

    pieces: list[Piece] = field(default_factory=list)
    bytes: int = 0
    again: bool = False


class Incoming(Protocol):
    """A piece that is on its way into the range cache. Its owner holds the piece's lock until it ends."""

    at: int
    """Bytes of it that are here already, in order from its beginning: of an earlier try, and written now."""

    def write(self, data: bytes) -> None:
        """Add the next bytes.

        Raises
        ------
        ModelNotFound
            The disk is full, or cannot be written: in words. What is here stays.
        """

    def begin_again(self) -> None:
        """Throw away what is here: it came from another source."""

    def finish(self, sha256: str = "") -> str:
        """Keep the piece for good; return its SHA-256, 64 hex digits.

        With ``sha256`` only where it is that; else it is thrown away, and nothing is returned.
        """

    def keep(self) -> None:
        """End here; the next try begins where this one ended."""

    def drop(self) -> None:
        """End here, and throw away what came."""


class Holdings(Protocol):
    """What this device has of models' files, and where pieces from the room go.

    All of it reads or writes the disk: called in a thread, never on the mesh loop. Safe for several threads
    and several kernels at once. ``repo`` and ``revision`` come from a room: they never become a path
    unchecked.
    """

    def have(self, repo: str, revision: str, name: str) -> list[tuple[int, int]]:
        """Ranges of a file that are here whole, joined, in order; empty where nothing may be given away.

        What devices sent is among them only once it was passed to `confirm`.
        """

    def read(self, repo: str, revision: str, name: str, lo: int, hi: int) -> bytes:
        """Bytes of a file that `have` names.

        Raises
        ------
        ModelNotFound
            They are not here (any more), or may not be given away.
        """

    def sha256(self, repo: str, revision: str, name: str, lo: int, hi: int) -> str:
        """Hash of a range, where it is known without reading it (it was hashed when it came); else empty.

        Never of what a device sent: nobody passes that off as read from the hub.
        """

    def sent(self, repo: str, revision: str, name: str) -> list[Sent]:
        """What devices sent of a weights file, in any room: it counts where a room vouches for it."""

    def confirm(self, repo: str, revision: str, name: str, sent: Collection[Sent]) -> None:
        """The room vouches for this of what devices sent: it may be passed on in it, by these `Holdings`."""

    def closed(self, repo: str, revision: str) -> bool:
        """Whether this device knows that not everybody may read a model: nothing of it is taken either."""

    def take(self, repo: str, revision: str, piece: Piece) -> Incoming | None:
        """Begin to take a piece in; None: it is here by now, or another kernel is fetching it."""
