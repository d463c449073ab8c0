"""Which waiting frame of a link begins next: the most urgent lane's oldest (PROTOCOL section 5, sending).

All frames of one lane depend on each other through the caches, so none ever overtakes another of its lane,
however urgent it is. What it waits for becomes as urgent as itself instead.

What waits here is this device's own doing, and it is bounded all the same: the link ends in words before the
frames become memory.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field

from pooled_nb.mesh.frame import Frame
from pooled_nb.mesh.wire.priority import Priority

MAX_FRAMES = 256
"""Frames that wait, of all lanes: as many as a receiver keeps behind a gap."""
MAX_BYTES = 1 << 26
"""Payload bytes that wait, or `OF_THE_LARGEST` frames of the largest that was pushed, if that is more."""
OF_THE_LARGEST = 12
"""Prompt frames: six in flight (section 7), and six more of an answer that began anew."""


@dataclass(slots=True)
class _Lane:
    frames: deque[tuple[Priority, int, Frame]] = field(default_factory=deque)
    waiting: dict[Priority, int] = field(default_factory=dict)

    @property
    def rank(self) -> tuple[Priority, int]:
        """Its most urgent frame's priority, and when its oldest was pushed."""
        return min(self.waiting), self.frames[0][1]


class Lanes:
    """Frames that have not begun."""

    def __init__(self) -> None:
        self._lanes: dict[int, _Lane] = {}
        self._pushed = self._largest = 0
        self.frames = self.bytes = 0
        """Frames that wait, and bytes of their payloads."""

    @property
    def is_over(self) -> bool:
        """More waits than may."""
        return self.frames > MAX_FRAMES or self.bytes > max(MAX_BYTES, OF_THE_LARGEST * self._largest)

    def push(self, frame: Frame, priority: Priority, lane: int) -> None:
        """A frame, behind all others of its lane."""
        queue = self._lanes.get(lane)
        if queue is None:
            queue = self._lanes[lane] = _Lane()
        queue.frames.append((priority, self._pushed, frame))
        queue.waiting[priority] = queue.waiting.get(priority, 0) + 1
        self._pushed += 1
        self._largest = max(self._largest, len(frame.payload))
        self.frames += 1
        self.bytes += len(frame.payload)

    def pop(self) -> tuple[Frame, Priority] | None:
        """The frame that begins next, and what it was pushed with."""
        if not self._lanes:
            return None
        if len(self._lanes) == 1:
            [(lane, queue)] = self._lanes.items()
        else:
            lane, queue = min(self._lanes.items(), key=lambda item: item[1].rank)
        priority, _, frame = queue.frames.popleft()
        queue.waiting[priority] -= 1
        if not queue.waiting[priority]:
            del queue.waiting[priority]
        if not queue.frames:
            del self._lanes[lane]
        self.frames -= 1
        self.bytes -= len(frame.payload)
        return frame, priority

    def drain(self) -> list[Frame]:
        """Take all of them, next first."""
        out = []
        while (popped := self.pop()) is not None:
            out.append(popped[0])
        return out

    def waiting(self) -> dict[Priority, int]:
        """Payload bytes that wait, by priority."""
        out: Counter[Priority] = Counter()
        for lane in self._lanes.values():
            for priority, _, frame in lane.frames:
                out[priority] += len(frame.payload)
        return dict(out)
