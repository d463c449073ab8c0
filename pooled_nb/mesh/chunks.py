"""PeerJS's chunks: how a packed message above 16,300 bytes crosses a link (PROTOCOL section 2)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final, TypeGuard

from pooled_nb.mesh.binarypack import MAX_BYTES, MAX_ITEMS, Meter, PackError, pack, unpack

CHUNK = 16_300
"""Packed bytes above which a message is cut, and bytes of each piece."""
MAX_CHUNKS = 256
"""Chunks of one message."""
MAX_OPEN = 8
"""Messages in reassembly at a time."""
MAX_DATAGRAM = CHUNK + 256
"""Bytes of one data-channel message: a chunk in its map. What is longer is no PeerJS message."""
MAX_PIECE = CHUNK + 64
"""Bytes of what `Chunker.split` makes of a message, each at most."""
FEW_ITEMS = 1 << 10
"""Values of a message from a link that is not admitted: every message of the gate has below a hundred."""


class Close:
    """What `Assembler.feed` returns for PeerJS's own close; there is one, `CLOSE`."""


CLOSE: Final = Close()


class Chunker:
    """Cuts what this end sends. One per control channel: chunk numbers run on."""

    def __init__(self) -> None:
        self._count = 0

    def split(self, packed: bytes) -> list[bytes]:
        """One packed message as data-channel messages.

        Raises
        ------
        PackError
            It is larger than 256 chunks, which the other end would drop.
        """
        if len(packed) > MAX_BYTES:
            raise PackError(f"a message of {len(packed)} bytes, where {MAX_BYTES} may cross a link")
        return list(self.pieces(packed))

    def pieces(self, packed: bytes) -> Iterator[bytes]:
        """The same one by one, of a message that may cross a link. Others may go between them: the other end
        holds up to `MAX_OPEN` that have begun.
        """
        if len(packed) <= CHUNK:
            yield packed
            return
        self._count += 1
        count, total = self._count, -(-len(packed) // CHUNK)
        for n in range(total):
            data = packed[n * CHUNK : (n + 1) * CHUNK]
            yield pack({"__peerData": count, "n": n, "data": data, "total": total})


@dataclass(slots=True)
class _Open:
    total: int
    pieces: dict[int, bytes] = field(default_factory=dict)


class Assembler:
    """Puts together what the other end sent. One per control channel; nothing a peer sends makes it raise."""

    def __init__(self) -> None:
        self._open: dict[int, _Open] = {}
        self._meter = Meter()
        self._past = 0
        """Chunked messages up to this number began before admission: what is left of them counts no more."""

    @property
    def waiting(self) -> int:
        """Messages in reassembly."""
        return len(self._open)

    @property
    def values(self) -> int:
        """Values that the last message made this end read, whatever came of it."""
        return self._meter.values

    def feed(self, data: bytes | bytearray | memoryview, *, admitted: bool = True) -> Any | Close | None:
        """One data-channel message.

        Parameters
        ----------
        admitted
            Whether the link is. Until it is, nothing is reassembled for it (a stranger could make this end
            hold 33 MB), and a message has at most `FEW_ITEMS` values.

        Returns
        -------
        The unpacked value once it is whole; `CLOSE` for PeerJS's close; None where there is nothing to
        hand on: a chunk of more, something malformed, or something beyond the limits of PROTOCOL section 2.
        """
        self._meter = Meter()
        if len(data) > MAX_DATAGRAM:
            return None
        value = self._read(data, MAX_ITEMS if admitted else FEW_ITEMS)
        mark = value.get("__peerData") if isinstance(value, dict) else None
        if not mark:
            return value if admitted or len(data) <= CHUNK else None
        if isinstance(mark, dict):
            return CLOSE if mark.get("type") == "close" else None
        if not admitted:
            if _whole(mark):  # numbers run on, and the channel is ordered
                self._past = max(self._past, mark)
            return None
        whole = self._chunk(mark, value)
        if whole is None:
            return None
        value = self._read(whole, MAX_ITEMS)
        # A chunk within chunks is nothing PeerJS sends.
        return None if isinstance(value, dict) and value.get("__peerData") else value

    def _chunk(self, mark: object, value: dict[str, Any]) -> bytes | None:
        n, total, data = value.get("n"), value.get("total"), value.get("data")
        if not (_whole(mark) and _whole(n) and _whole(total) and isinstance(data, bytes)):
            return None
        if not 1 <= total <= MAX_CHUNKS or not 0 <= n < total or not 1 <= len(data) <= CHUNK:
            return None
        if mark <= self._past:
            return None
        held = self._open.get(mark)
        if held is None:
            if len(self._open) >= MAX_OPEN:
                return None  # the new ninth goes, not the oldest (PROTOCOL section 2)
            held = self._open[mark] = _Open(total)
        if held.total != total or n in held.pieces:
            return None
        held.pieces[n] = data
        if len(held.pieces) < total:
            return None
        del self._open[mark]
        return b"".join(held.pieces[i] for i in range(total))

    def _read(self, data: bytes | bytearray | memoryview, max_items: int) -> Any:
        try:
            return unpack(data, max_items=max_items, meter=self._meter)
        except PackError:
            return None


def _whole(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)
