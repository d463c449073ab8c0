"""Which slice goes to which channel of one link, and when (PROTOCOL section 5, sending).

No I/O. An association has one FIFO: what was handed to it delays everything after it. So frames wait here,
and each association is given at most four slices at a time (DESIGN section 4).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from pooled_nb.mesh.frame import Frame
from pooled_nb.mesh.wire.lanes import Lanes
from pooled_nb.mesh.wire.priority import Priority
from pooled_nb.mesh.wire.slices import LAST_ID, SLICE, check, cut, id_of

AT_A_TIME = 4
"""Slices that an association holds at most."""
TWICE = 3
"""Frames of at most this many slices go over two connections."""
MAX_COPIES = 16
"""Second copies that wait for one channel; beyond, the oldest goes: it would come too late to help."""
MAX_GIVEN = 1_250_000
"""Bytes of slices that one channel was given and that are remembered, until the other end has them: more than
an association has in flight."""
GIVEN_UNTOLD = 1 << 18
"""The same where nobody tells what is in flight."""


class Load(NamedTuple):
    """Bytes that a channel's connection has still to do.

    Attributes
    ----------
    held
        Of this channel: handed over and not sent.
    beside
        The same of the connection's other channels: they share the association's FIFO.
    """

    held: int = 0
    beside: int = 0

    @property
    def total(self) -> int:
        """Bytes that go before what is given now."""
        return self.held + self.beside


NOTHING = Load()
_LOST: Hashable = object()
"""In the place of a first copy's channel: of a slice that went over one that nothing comes through."""


@dataclass(slots=True)
class _Channel:
    copies: deque[tuple[bytes, Hashable]] = field(default_factory=deque)
    """Second copies that go before anything newer, each with the channel that has the first."""
    recent: deque[int] = field(default_factory=lambda: deque(maxlen=AT_A_TIME))
    """Bytes of the newest slices given: which of them still wait follows from the bytes that do."""
    turn: int = 0
    """When it was last chosen: ties go round-robin."""
    held: int = 0
    beside: int = 0
    """See `Load`; what was given since counts as held."""
    given: deque[bytes] = field(default_factory=deque)
    """Slices that the other end may not have, oldest first. References: an association has them as well."""
    given_bytes: int = 0
    most: int = GIVEN_UNTOLD
    avoided: bool = False
    """Nothing comes through it: it gets no slices while another channel does."""

    @property
    def rank(self) -> tuple[int, int]:
        """Least queued first, ties round-robin.

        What is in flight does not count: to keep away from a connection that waits for a lost packet gained
        nothing where it was tried, since more slices are exposed on the others then.
        """
        return self.held + self.beside, self.turn

    @property
    def has_room(self) -> bool:
        """Whether fewer than `AT_A_TIME` slices, or what weighs as much, wait in its association."""
        held, slices = self.held, 0
        if held + self.beside > (AT_A_TIME - 1) * SLICE:
            return False
        if held > 0:
            for size in reversed(self.recent):
                held -= size
                slices += 1
                if held <= 0:
                    break
        return held <= 0 and slices < AT_A_TIME

    def give(self, data: bytes, turn: int) -> None:
        size = len(data)
        self.recent.append(size)
        self.given.append(data)
        self.given_bytes += size
        while self.given_bytes > self.most:
            self.given_bytes -= len(self.given.popleft())
        self.turn = turn
        self.held += size


@dataclass(slots=True)
class _Current:
    """The frame whose slices are being handed over. Ids rise, so no other begins before it ended."""

    frame: Frame
    priority: Priority
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
        self._lanes = Lanes()
        self._next_id = 1
        self._current: _Current | None = None
        self._again: deque[bytes] = deque()
        self._lost: deque[bytes] = deque()
        """What goes once more, ids rising."""
        self._turns = 0
        self._last: tuple[Hashable, bytes, Hashable | None] | None = None
        """The newest step, and for a second copy the channel of the first."""

    @property
    def waiting(self) -> int:
        """What `ready` has still to give: frames not wholly handed over, and second copies."""
        begun = self._current is not None and bool(self._current.slices)
        copies = 0
        for channel in self._channels.values():
            copies += len(channel.copies)
        return self._lanes.frames + begun + len(self._again) + len(self._lost) + copies

    @property
    def waiting_bytes(self) -> int:
        """Bytes of all that waits: payloads of frames that have not begun, and slices."""
        copies = sum(len(data) for channel in self._channels.values() for data, _ in channel.copies)
        begun = sum(map(len, self._current.slices)) if self._current is not None else 0
        return self._lanes.bytes + begun + sum(map(len, (*self._again, *self._lost))) + copies

    def waiting_of(self) -> dict[Priority, int]:
        """Bytes of frames that are not wholly handed over, by priority; copies are not counted."""
        out = self._lanes.waiting()
        if self._current is not None and self._current.slices:
            begun = sum(map(len, self._current.slices))
            out[self._current.priority] = out.get(self._current.priority, 0) + begun
        return out

    @property
    def channels(self) -> int:
        """Open channels."""
        return len(self._channels)

    @property
    def exhausted(self) -> bool:
        """All 2³² − 1 ids of this link are used: it must be redialed."""
        return self._next_id > LAST_ID

    @property
    def overflow(self) -> str | None:
        """Why the link must be closed: more waits than may (`lanes`). Ask once `ready` gave what it can."""
        if not self._lanes.is_over:
            return None
        return f"{self._lanes.frames} frames of {self._lanes.bytes} bytes wait for it, and it takes none"

    def waits_for(self, key: Hashable) -> bool:
        """Whether something waits that this channel would carry: what is less urgent must not go before it.

        A copy that waits for another channel is none of that: that channel may be stuck for long.
        """
        channel = self._channels.get(key)
        begun = self._current is not None and bool(self._current.slices)
        first = self._lanes.frames or begun or self._again or self._lost
        return bool(first or (channel is not None and channel.copies))

    def push(self, frame: Frame, priority: Priority = Priority.DECODE, lane: int = 0) -> None:
        """Queue a frame, behind all of its lane. It gets its id when its first slice is handed over.

        Raises
        ------
        ValueError
            The wire cannot carry it.
        """
        check(frame)
        self._lanes.push(frame, priority, lane)

    def add_channel(self, key: Hashable) -> None:
        """A channel opened. One key per connection."""
        self._channels.setdefault(key, _Channel())

    def outstanding(self, key: Hashable, size: int | None) -> None:
        """What its association has not sent, or has no acknowledgement of: older slices have arrived.

        Parameters
        ----------
        size
            Bytes, in the order in which they were given; None: it does not say.
        """
        if (channel := self._channels.get(key)) is None:
            return
        channel.most = GIVEN_UNTOLD if size is None else MAX_GIVEN
        keep = GIVEN_UNTOLD if size is None else size
        while channel.given and channel.given_bytes - len(channel.given[0]) >= keep:
            channel.given_bytes -= len(channel.given.popleft())

    def avoid(self, keys: Collection[Hashable]) -> None:
        """Nothing comes through these channels: they get no slices while there is another."""
        for key, channel in self._channels.items():
            channel.avoided = key in keys
        for channel in self._channels.values():
            if channel.avoided:
                copies, channel.copies = channel.copies, deque()
                for data, first in copies:
                    self._copy(data, first)

    def again(self, key: Hashable, *, but: bytes | None = None) -> None:
        """What a channel was given may not arrive: the others get it, before anything newer, and once.

        So another channel may get older slices than it had last. That harms nobody: a receiver counts the
        highest id that a channel has shown, takes a second copy for none, and gives nothing up before this
        channel, too, has gone past it. What did not come through it, it has not gone past. The last channel
        of a link keeps what it has: there is no other.

        Parameters
        ----------
        but
            A slice that is handed over in another way: `refused` does.
        """
        channel = self._channels.get(key)
        if channel is None or len(self._channels) == 1:
            return
        lost = [*self._lost, *(data for data in channel.given if data is not but)]
        self._lost = deque(sorted(lost, key=id_of))
        channel.given.clear()
        channel.given_bytes = 0

    def drop_channel(self, key: Hashable) -> None:
        """A channel closed. What it was given is lost or not: `again`, before this, sends it once more."""
        channel = self._channels.pop(key, None)
        for data, first in channel.copies if channel is not None else ():
            self._copy(data, first)

    def ready(self, loads: Mapping[Hashable, Load]) -> Iterator[tuple[Hashable, bytes]]:
        """What to send now, one ``(channel, slice)`` at a time.

        Send each before asking for the next, and tell `refused` at once: so no channel ever gets a
        slice after one of a later frame.

        Parameters
        ----------
        loads
            What each channel still has to do; one that is left out has nothing. Read once, at the first step:
            what is given meanwhile counts as held, also where it was sent at once. So ask again, until
            nothing comes.
        """
        for key, channel in self._channels.items():
            channel.held, channel.beside = loads.get(key, NOTHING)
        while (step := self._step()) is not None:
            key, data, first = self._last = step
            self._turns += 1
            self._channels[key].give(data, self._turns)
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
            if newest[2] is _LOST:
                self._lost.appendleft(data)
            else:
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
        frames += self._lanes.drain()
        self._current = None
        self._again.clear()
        self._lost.clear()
        return frames

    def _step(self) -> tuple[Hashable, bytes, Hashable | None] | None:
        """``(channel, slice, channel of the first copy, or `_LOST`)``."""
        free = self._free()
        if not free:
            return None
        if self._lost:
            return free[0], self._lost.popleft(), _LOST
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

    def _free(self) -> list[Hashable]:
        """Channels that have room, best first."""
        channels = self._channels
        if len(channels) == 1:
            [(key, only)] = channels.items()
            return [key] if only.has_room else []
        free = [key for key, channel in channels.items() if channel.has_room and not channel.avoided]
        if not free and all(channel.avoided for channel in channels.values()):
            free = [key for key, channel in channels.items() if channel.has_room]
        free.sort(key=lambda key: channels[key].rank)
        return free

    def _begin(self) -> _Current | None:
        """Give the next frame its id."""
        if self.exhausted or (popped := self._lanes.pop()) is None:
            return None
        frame, priority = popped
        slices = cut(frame, self._next_id)  # `push` checked it
        self._next_id += 1
        return _Current(frame, priority, deque(slices), self._twice and len(slices) <= TWICE)

    def _copy(self, data: bytes, first: Hashable) -> None:
        """Let a channel other than ``first`` carry ``data`` too. A copy that nobody takes is no error."""
        others = [c for key, c in self._channels.items() if key != first and not c.avoided]
        if not others:
            return
        best = min(others, key=lambda channel: (len(channel.copies), *channel.rank))
        best.copies.append((data, first))
        if len(best.copies) > MAX_COPIES:
            best.copies.popleft()
