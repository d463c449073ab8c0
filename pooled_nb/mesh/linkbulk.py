"""Large messages of one link at work: who sends them waits until there is room (DESIGN section 4).

What goes when is decided by `wire.bulk` and `credit`; here the control channel and those who wait meet it.
The link's wire says when: a piece goes only where no slice waits for the same association (`LinkWire`).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pooled_nb.errors import LinkFailed
from pooled_nb.mesh.binarypack import MAX_BYTES, PackError, pack
from pooled_nb.mesh.chunks import MAX_PIECE, Chunker
from pooled_nb.mesh.clock import Clock
from pooled_nb.mesh.credit import Credit
from pooled_nb.mesh.network import Channel
from pooled_nb.mesh.wire.bulk import BulkQueue
from pooled_nb.mesh.wire.lanes import MAX_FRAMES
from pooled_nb.mesh.wire.priority import BULK, Priority
from pooled_nb.mesh.wire.sender import AT_A_TIME
from pooled_nb.mesh.wire.slices import SLICE

ASSOCIATION = AT_A_TIME * SLICE
"""Bytes that an association holds at most, control messages excepted: four slices."""
LOW = ASSOCIATION - MAX_PIECE
"""Bytes left in the control channel at which there is room for one more piece."""
MAX_FALLBACK = 1 << 26
"""Bytes of frames that wait as messages on a link without a wire (section 5)."""


@dataclass(eq=False)
class _Waiter:
    packed: bytes
    credit: Credit | None
    size: int
    """Bytes that count for the credit."""
    turn: asyncio.Future[bool]


class LinkBulk:
    """Of one link, this end.

    Parameters
    ----------
    control
        Its control channel.
    chunker
        Of that channel: chunk numbers run on.
    on_more
        Called when something may go: the wire is to be pumped.
    on_broken
        Called when the channel is gone.
    """

    def __init__(
        self,
        clock: Clock,
        control: Channel,
        chunker: Chunker,
        *,
        on_more: Callable[[], None],
        on_broken: Callable[[], None],
    ) -> None:
        self._clock, self._control = clock, control
        self._on_more, self._on_broken = on_more, on_broken
        self._queue = BulkQueue(chunker, clock.now())
        self._lines: dict[Priority, deque[_Waiter]] = {priority: deque() for priority in BULK}
        self._closed = False
        control.low_threshold = LOW
        control.on_low = on_more

    @property
    def buffered(self) -> int:
        """Bytes of messages that its association holds."""
        return self._control.buffered

    @property
    def is_idle(self) -> bool:
        """Whether nothing waits, here or in the queue."""
        return not (self._queue.waiting_bytes or any(self._lines.values()))

    @property
    def waiting(self) -> dict[Priority, int]:
        """Bytes that wait, by class."""
        return self._queue.waiting

    @property
    def waiting_bytes(self) -> int:
        """The same, of all."""
        return self._queue.waiting_bytes

    async def send(
        self, packed: bytes, priority: Priority, *, credit: Credit | None = None, size: int = 0
    ) -> bool:
        """Queue a packed message once its class has room. See `Mesh.send_bulk`."""
        if priority not in BULK:
            raise ValueError(f"messages of priority {priority.name} do not wait")
        if credit is not None:
            credit.may(size)  # raises where it never fits
            credit.on_free = self._on_more
            if credit.of is not None:
                credit.of.on_free = self._on_more
        await asyncio.sleep(0)  # on a network that takes all at once others have their turn all the same
        if self._closed or (credit is not None and credit.is_closed):
            return False
        line = self._lines[priority]
        waiter = _Waiter(packed, credit, size, asyncio.get_running_loop().create_future())
        line.append(waiter)
        self._on_more()
        try:
            return await waiter.turn
        finally:
            if waiter in line:  # cancelled while it waited: nothing of it was sent
                line.remove(waiter)

    def frame(self, value: dict[str, Any]) -> str | None:
        """Queue a frame as a message (section 5, fallback), behind all others; or say why it cannot be."""
        try:
            packed = pack(value)
        except PackError as error:
            return f"its wire is gone and a frame does not fit a message ({error})"
        if len(packed) > MAX_BYTES:
            return f"its wire is gone and a frame of {len(packed)} bytes does not fit a message"
        # One class for all frames: their order is that of the link.
        self._queue.push(Priority.DECODE, packed, paced=True)
        waiting = self._queue.waiting[Priority.DECODE]
        if waiting > MAX_FALLBACK or self._queue.messages(Priority.DECODE) > MAX_FRAMES:
            return f"its wire is gone, {waiting} bytes of frames wait for it, and it takes none"
        return None

    def pump(self, room: int, limit: int) -> int:
        """Hand over pieces that fit ``room`` bytes, at most ``limit`` in all; returns how many bytes went."""
        given = 0
        self._admit()
        while not self._closed and given < limit:
            before = self._control.buffered
            piece = self._queue.next(room, self._clock.now())
            if piece is None:
                break
            try:
                self._control.send(piece)
            except LinkFailed:
                self._on_broken()
                break
            given += len(piece)
            room -= max(0, self._control.buffered - before)
            self._admit()
        return given

    def close(self) -> None:
        """The link ended: who waits hears it."""
        self._closed = True
        self._queue.clear()
        for line in self._lines.values():
            for waiter in line:
                if not waiter.turn.done():
                    waiter.turn.set_result(False)
            line.clear()

    def _admit(self) -> None:
        """Queue what waits and fits, in order; what waits for its own credit holds up no other's."""
        for priority, line in self._lines.items():
            held: set[Credit] = set()
            for waiter in list(line):
                credit = waiter.credit
                if waiter.turn.done():
                    continue  # cancelled just now
                if credit is not None and credit.is_closed:
                    waiter.turn.set_result(False)
                    line.remove(waiter)
                    continue
                if credit is not None and (credit in held or not credit.may(waiter.size)):
                    held.add(credit)
                    continue
                if not self._queue.fits(priority, len(waiter.packed)):
                    break
                if credit is not None:
                    credit.sent(waiter.size)
                self._queue.push(priority, waiter.packed, paced=credit is None)
                waiter.turn.set_result(True)
                line.remove(waiter)
