"""Which slice goes to which channel of one link, and when (PROTOCOL section 5, sending).

No I/O. An association has one FIFO: what was handed to it delays everything after it. So frames wait here,
and each channel is given at most four slices at a time (DESIGN section 4).
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, field

from pooled_nb.mesh.frame import Frame
from pooled_nb.mesh.wire.priority import Priority
from pooled_nb.mesh.wire.slices import LAST_ID, check, encode

AT_A_TIME = 4
"""Slices that an association holds at most."""
TWICE = 3
"""Frames of at most this many slices go over two connections."""


@dataclass(slots=True)
class _Channel:
    copies: deque[tuple[bytes, Hashable]] = field(default_factory=deque)
    """Second copies that go before anything newer, each with the channel that has the first."""
    recent: deque[int] = field(default_factory=lambda: deque(maxlen=AT_A_TIME))
    """Bytes of the newest slices given: which of them still wait follows from the bytes that do."""
    turn: int = 0
    """When it was last chosen: ties go round-robin."""

    def has_room(self, held: int) -> bool:
        """Whether fewer than `AT_A_TIME` slices make up the bytes it still holds."""
        slices = 0
        for size in reversed(self.recent):
            if held <= 0:
                break
            held -= size
            slices += 1
        return held <= 0 and slices < AT_A_TIME


@dataclass(slots=True)
class _Current:
    """The frame whose slices are being handed over. Ids rise, so no other begins before it ended."""

    frame: Frame
    slices: deque[bytes]
    twice: bool


class Sender:
    """Frames of one link and direction, on their way to any number of channels (one per connection).

    Parameters
    ----------
    twice
        Send small frames over two connections when there are two (a setting).
    """

    def __init__(self, *, twice: bool = True) -> None:
        self._twice = twice
        self._channels: dict[Hashable, _Channel] = {}
        self._queue: list[tuple[int, int, Frame]] = []
        self._pushed = 0
        self._next_id = 1
        self._current: _Current | None = None
        self._again: deque[bytes] = deque()
        self._turns = 0
        self._last: tuple[Hashable, bytes, Hashable | None] | None = None
        """The newest step, and for a second copy the channel of the first."""
        self._waiting_bytes = 0

    @property
    def waiting(self) -> int:
        """What `ready` has still to give: frames not wholly handed over, and second copies."""
        begun = self._current is not None and bool(self._current.slices)
        copies = sum(len(channel.copies) for channel in self._channels.values())
        return len(self._queue) + begun + len(self._again) + copies

    @property
    def waiting_bytes(self) -> int:
        """Payload bytes of the frames that have not begun."""
        return self._waiting_bytes

    @property
    def channels(self) -> int:
        """Open channels."""
        return len(self._channels)

    @property
    def exhausted(self) -> bool:
        """All 2³² − 1 ids of this link are used: it must be redialed."""
        return self._next_id > LAST_ID

    def push(self, frame: Frame, priority: Priority = Priority.DECODE) -> None:
        """Queue a frame. It gets its id when its first slice is handed over.

        Raises
        ------
        ValueError
            The wire cannot carry it.
        """
        check(frame)
        heapq.heappush(self._queue, (priority, self._pushed, frame))
        self._pushed += 1
        self._waiting_bytes += len(frame.payload)

    def add_channel(self, key: Hashable) -> None:
        """A channel opened. One key per connection."""
        self._channels.setdefault(key, _Channel())

    def drop_channel(self, key: Hashable) -> None:
        """A channel closed. What it was given is lost or not: the receiver's rules settle that."""
        channel = self._channels.pop(key, None)
        for data, first in channel.copies if channel is not None else ():
            self._copy(data, first)

    def ready(self, buffered: Mapping[Hashable, int]) -> Iterator[tuple[Hashable, bytes]]:
        """What to send now, one ``(channel, slice)`` at a time.

        Send each before asking for the next, and tell `refused` at once: so no channel ever gets a
        slice after one of a later frame.

        Parameters
        ----------
        buffered
            Bytes each channel still holds; one that is left out holds none. Read once, at the first step.
        """
        held = {key: buffered.get(key, 0) for key in self._channels}
        while (step := self._step(held)) is not None:
            key, data, first = self._last = step
            channel = self._channels[key]
            channel.recent.append(len(data))
            self._turns += 1
            channel.turn = self._turns
            held[key] = held.get(key, 0) + len(data)
            if first is None and self._current is not None and self._current.twice:
                self._copy(data, key)
            yield key, data

    def refused(self, key: Hashable, data: bytes) -> None:
        """A channel did not take the slice just given to it: another gets it, this one counts as closed."""
        newest, self._last = self._last, None
        was_copy = newest is not None and newest[:2] == (key, data) and newest[2] is not None
        self.drop_channel(key)
        if was_copy:
            assert newest is not None
            self._copy(data, newest[2])
            return
        for channel in self._channels.values():  # the first copy is still to be given: so is the second, then
            if channel.copies and channel.copies[-1] == (data, key):
                channel.copies.pop()
        if newest is not None and newest[:2] == (key, data) and self._current is not None:
            self._current.slices.appendleft(data)
        else:
            self._again.append(data)

    def drain(self) -> list[Frame]:
        """Take back every frame not wholly handed over, next first: all channels are closed (fallback)."""
        frames = [self._current.frame] if self._current is not None and self._current.slices else []
        frames += [frame for _, _, frame in sorted(self._queue, key=lambda item: item[:2])]
        self._queue.clear()
        self._current = None
        self._again.clear()
        self._waiting_bytes = 0
        return frames

    def _step(self, held: Mapping[Hashable, int]) -> tuple[Hashable, bytes, Hashable | None] | None:
        """``(channel, slice, channel of the first copy)``."""
        free = [key for key, channel in self._channels.items() if channel.has_room(held.get(key, 0))]
        if not free:
            return None
        free.sort(key=lambda key: (held.get(key, 0), self._channels[key].turn))
        for key in free:
            if copies := self._channels[key].copies:
                data, first = copies.popleft()
                return key, data, first
        if self._again:
            return free[0], self._again.popleft(), None
        if self._current is None or not self._current.slices:
            self._current = self._begin()
        if self._current is None:
            return None
        return free[0], self._current.slices.popleft(), None

    def _begin(self) -> _Current | None:
        """Give the next frame its id."""
        if not self._queue or self.exhausted:
            return None
        frame = heapq.heappop(self._queue)[2]
        self._waiting_bytes -= len(frame.payload)
        slices = encode(frame, self._next_id)
        self._next_id += 1
        return _Current(frame, deque(slices), self._twice and len(slices) <= TWICE)

    def _copy(self, data: bytes, first: Hashable) -> None:
        """Let a channel other than ``first`` carry ``data`` too. A copy that nobody takes is no error."""
        others = [channel for key, channel in self._channels.items() if key != first]
        if others:
            min(others, key=lambda channel: (len(channel.copies), channel.turn)).copies.append((data, first))
