"""Which piece of a large message goes next over a link's control channel, and when (DESIGN section 4).

Weights and captures are large and wait for everything else; so do frames where a link has no wire left
(section 5, fallback). Each is cut as PeerJS cuts it (section 2), and a piece goes only once the one before
has left: a ping, a keep-alive or a token passes between two pieces. Of each class one message is begun at a
time: with a control message, which is never held up, four are in reassembly at the other end; eight may be.

No I/O: messages, free bytes and the time go in, pieces come out.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from pooled_nb.mesh.chunks import CHUNK, Chunker
from pooled_nb.mesh.pace import cost
from pooled_nb.mesh.wire.priority import Priority

QUEUE = 1 << 18
"""Bytes of one class that wait here; a message above that waits alone."""
PACE = 30_000.0
"""Values a second (`pace.cost`) of what nobody acknowledges, 10 MB/s: a third of what the other end reads, so
that with a window of weights on their way (`credit`) its inbox never holds what it closes a link for."""
BURST = 8_192.0
"""Values at once."""
_ITEMS = 9
"""Values of a piece's map."""
_LAST_ITEMS = 64
"""Values of the message in it, which are read with its last piece."""


@dataclass(slots=True)
class _Message:
    packed: bytes
    paced: bool
    left: int
    """Bytes that have not been handed over."""
    pieces: Iterator[bytes] | None = None
    """Set once it has begun."""
    head: bytes = b""
    """The piece that goes next, where it was cut already."""


class BulkQueue:
    """What waits for one link's control channel behind its frames."""

    def __init__(self, chunker: Chunker, now: float) -> None:
        self._chunker = chunker
        self._lines: dict[Priority, deque[_Message]] = {priority: deque() for priority in Priority}
        self._bytes = dict.fromkeys(Priority, 0)
        self._all = 0
        self._credit, self._at = BURST, now

    @property
    def waiting(self) -> dict[Priority, int]:
        """Bytes that wait, by class."""
        return dict(self._bytes)

    @property
    def waiting_bytes(self) -> int:
        """The same, of all."""
        return self._all

    def messages(self, priority: Priority) -> int:
        """How many wait, of one class."""
        return len(self._lines[priority])

    def fits(self, priority: Priority, size: int) -> bool:
        """Whether a message of a class may be pushed now."""
        return not self._lines[priority] or self._bytes[priority] + size <= QUEUE

    def push(self, priority: Priority, packed: bytes, *, paced: bool) -> None:
        """Queue a packed message behind all of its class; it may cross a link (`binarypack.MAX_BYTES`).

        Parameters
        ----------
        paced
            Nobody acknowledges it: it waits for `PACE`.
        """
        self._lines[priority].append(_Message(packed, paced, len(packed)))
        self._bytes[priority] += len(packed)
        self._all += len(packed)

    def next(self, room: int, now: float) -> bytes | None:
        """The piece to send now; None: nothing that may go fits.

        Parameters
        ----------
        room
            Bytes that the association takes now.
        """
        self._credit = min(BURST, self._credit + max(0.0, now - self._at) * PACE)
        self._at = now
        for priority, line in self._lines.items():
            if not line or (line[0].paced and self._credit <= 0):
                continue
            message = line[0]
            piece = self._head(message)
            if len(piece) > room:
                return None  # what is less urgent does not slip past it
            return self._took(priority, message, piece)
        return None

    def clear(self) -> None:
        """The link ended."""
        for priority, line in self._lines.items():
            line.clear()
            self._bytes[priority] = 0
        self._all = 0

    def _head(self, message: _Message) -> bytes:
        if message.pieces is None:
            message.pieces = self._chunker.pieces(message.packed)
        message.head = message.head or next(message.pieces)
        return message.head

    def _took(self, priority: Priority, message: _Message, piece: bytes) -> bytes:
        taken, message.head = min(message.left, CHUNK), b""
        message.left -= taken
        self._bytes[priority] -= taken
        self._all -= taken
        if message.paced:
            self._credit -= cost(_ITEMS if message.left else _ITEMS + _LAST_ITEMS, len(piece))
        if not message.left:
            self._lines[priority].popleft()
        return piece
