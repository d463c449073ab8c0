"""Frames that wait for a shard, bounded in number and in bytes."""

from __future__ import annotations

import asyncio

from pooled_nb.mesh.frame import Frame

QUEUED_FRAMES = 256
"""Frames that may wait for the shard: what a wire may hand over at once (PROTOCOL section 5)."""
QUEUED_BYTES = 1 << 27
"""Bytes of their payloads: a host has six frames of a prompt in flight (section 7), and six of one that was
begun anew; 12 of 256 columns are 101 MB where the model has 8,192 numbers a column, in 32 bits."""


class FrameQueue(asyncio.Queue[Frame]):
    """First in, first out. One frame more may wait than `QUEUED_BYTES` allows."""

    def __init__(self) -> None:
        self._bytes = 0
        super().__init__(QUEUED_FRAMES)

    def full(self) -> bool:
        """Whether no more frames may be put in."""
        return super().full() or self._bytes >= QUEUED_BYTES

    def _put(self, item: Frame) -> None:
        self._bytes += len(item.payload)
        super()._put(item)

    def _get(self) -> Frame:
        frame = super()._get()
        self._bytes -= len(frame.payload)
        return frame
