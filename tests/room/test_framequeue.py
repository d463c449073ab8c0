"""What a worker holds of frames that it has not run (PROTOCOL section 5)."""

from __future__ import annotations

import asyncio

import pytest

from pooled_nb.mesh.frame import Frame, Kind
from pooled_nb.room import framequeue
from pooled_nb.room.framequeue import QUEUED_FRAMES, FrameQueue


def frame(pos: int, size: int) -> Frame:
    return Frame(Kind.HIDDEN_B, pos, 1, bytes(size))


def test_bounded_in_number_and_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """PROTOCOL section 5: a device that sends more than is computed fills no memory; what left makes room."""
    monkeypatch.setattr(framequeue, "QUEUED_BYTES", 10_000)
    queue = FrameQueue()
    for pos in range(10):
        assert not queue.full()
        queue.put_nowait(frame(pos, 1_000))
    assert queue.full()
    with pytest.raises(asyncio.QueueFull):
        queue.put_nowait(frame(10, 1))
    assert [queue.get_nowait().pos for _ in range(3)] == [0, 1, 2]
    assert not queue.full()
    small = FrameQueue()
    for pos in range(QUEUED_FRAMES):
        small.put_nowait(frame(pos, 1))
    assert small.full()
