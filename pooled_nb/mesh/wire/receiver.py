"""What one link makes of the slices it receives: frames, in strict id order (PROTOCOL section 5, receiving).

No I/O: channels are keys, time is handed in. A missing frame is late, not lost, until the rules say so.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass, field

from pooled_nb.mesh.frame import Frame
from pooled_nb.mesh.wire.slices import Slice, count_of, decode, join

MAX_BEHIND_GAP = 256
"""Complete frames that wait behind a gap; at the next, the link fails."""
HALF_KEPT = 64
HALF_AGE_S = 30.0
"""Half frames older than this are forgotten once `HALF_KEPT` are held."""
MAX_HALF = 256
"""Half frames, however young, as many as whole ones may wait. An honest sender has a dozen in flight; and all
of them are looked through whenever a gap is given up."""
PATIENCE_S = 60.0
PATIENCE_AFTER_CLOSE_S = 5.0
CLOSE_COUNTS_S = 15.0
"""How long a closed channel makes the shorter patience hold."""
PATIENCE_EXPECTED_S = 1.0
"""How long a gap waits for channels that are only expected, however many and whoever opened them."""
MAX_HELD = 1 << 26
"""Bytes of half and of waiting frames where nobody said how large a frame may be; the link fails there."""
IN_FLIGHT = 12
"""Of the largest frames an honest peer has at most so many in flight: six of a prompt (section 7), and six of
an answer that began anew meanwhile."""
_SLICE_COST = 300
"""Bytes this process needs for a held slice beside its payload, roughly."""
_HALF_COST = 1_000
"""The same for a half frame beside its slices."""
_SPARE = 1 << 20
"""Bytes for small frames beside the largest."""
_CLOSED_KEPT = 64
"""Closed channels that are remembered: what they still hand in makes nobody wait for them."""


def most_held(largest: int | None) -> int:
    """Bytes of half and waiting frames that an honest peer needs.

    Parameters
    ----------
    largest
        Payload bytes of the largest frame of the room's model; None: not known.
    """
    if largest is None:
        return MAX_HELD
    return IN_FLIGHT * (largest + _SLICE_COST * count_of(largest) + _HALF_COST) + _SPARE


@dataclass(slots=True)
class _Half:
    head: bytes
    count: int
    born: float
    parts: dict[int, bytes] = field(default_factory=dict)
    held: int = 0


class Receiver:
    """Reassembly for one link and direction.

    Attributes
    ----------
    failed
        None, or why the link must be closed. Nothing comes out any more then.
    skipped
        How many ids were given up so far.
    most
        Bytes of half and of waiting frames at which the link fails; see `most_held`.
    refused
        How many whole frames said what no frame may (`slices.check`): each was dropped when its turn came,
        as if it had been handed over, so that nothing waits for it and no id is out of order.
    """

    def __init__(self) -> None:
        self.failed: str | None = None
        self.most = MAX_HELD
        self.skipped = self.refused = 0
        self._due = 1
        self._shown: dict[Hashable, int] = {}
        self._expected: set[Hashable] = set()
        self._closed: deque[Hashable] = deque(maxlen=_CLOSED_KEPT)
        self._closed_at = float("-inf")
        self._half: dict[int, _Half] = {}
        self._whole: dict[int, tuple[Frame | None, int]] = {}
        self._held = 0
        self._stuck_since = 0.0
        """Last progress, or when the gap began; counts only while frames wait behind one."""

    @property
    def due(self) -> int:
        """Id of the frame to be handed over next."""
        return self._due

    @property
    def waiting(self) -> int:
        """Complete frames behind a gap."""
        return len(self._whole)

    def opened(self, key: Hashable) -> None:
        """A channel opened: from now on it counts among those that must have gone past a gap."""
        self._expected.discard(key)
        if key in self._closed:
            self._closed.remove(key)
        self._shown.setdefault(key, 0)

    def expected(self, key: Hashable) -> None:
        """The other end may use this channel already, and nobody has proved yet that it is the other end's
        (section 4): a gap waits for it, but only so long (`PATIENCE_EXPECTED_S`).
        """
        if key not in self._shown:
            self._expected.add(key)

    def closed(self, key: Hashable, now: float) -> list[Frame]:
        """A channel closed, or is expected no more; returns the frames that need not wait for it."""
        if self.failed:
            return []
        if key in self._expected:
            self._expected.remove(key)
            return self._release(now)
        if self._shown.pop(key, None) is None:
            return []
        self._closed.append(key)
        self._closed_at = now
        return self._release(now)

    def over(self, now: float) -> list[Frame]:
        """All channels are closed or expected no more; returns every whole frame that is held."""
        self._expected.clear()
        self._closed.extend(self._shown)
        self._shown.clear()
        self._closed_at = now
        return [] if self.failed else self._release(now)

    def slice(self, key: Hashable, data: bytes | bytearray | memoryview, now: float) -> list[Frame]:
        """One message of a wire channel; returns the frames to run now, ids rising."""
        found = None if self.failed else decode(data)
        if found is None:
            return []
        if not self._take(found, now):
            return []
        self._show(key, found.id)
        return self._release(now) if self._whole else []

    def pass_over(self, key: Hashable, data: bytes | bytearray | memoryview) -> None:
        """A message of a wire channel whose frame nobody wants: it counts as handed over, nothing is kept."""
        found = None if self.failed else decode(data)
        if found is not None:
            self._show(key, found.id)
            self._drop_below(found.id + 1)

    def clear(self) -> None:
        """Nobody wants what is held: all of it counts as handed over."""
        self._drop_below(max([*self._half, *self._whole], default=0) + 1)

    def tick(self, now: float) -> list[Frame]:
        """Time passed; returns the frames that waited long enough for a gap."""
        return [] if self.failed else self._release(now)

    def _show(self, key: Hashable, id: int) -> None:
        # What a closed channel still hands in is taken, but that channel is waited for no more.
        if key not in self._closed:
            shown = self._shown
            if id > shown.get(key, 0):
                shown[key] = id

    def _take(self, new: Slice, now: float) -> bool:
        """Keep a slice. False where it contradicts its frame: such a slice says nothing."""
        id = new.id
        if id < self._due or id in self._whole:
            return True  # handed over, skipped or complete: a second copy, or too late
        half = self._half.get(id)
        if half is None:
            self._forget(now)
            half = self._half[id] = _Half(new.head, new.count, now, {}, _HALF_COST)
            self._held += _HALF_COST
        elif half.head != new.head:
            return False
        parts, index, data = half.parts, new.index, new.data
        if index in parts:
            return True
        cost = len(data) + _SLICE_COST
        parts[index] = data
        half.held += cost
        self._held += cost
        if id == self._due:
            self._stuck_since = now
        if len(parts) == half.count:
            self._complete(id, half, now)
        if self._held > self.most or len(self._half) > MAX_HALF:
            self._fail("The other end sent too much that never became whole.")
        return True

    def _complete(self, id: int, half: _Half, now: float) -> None:
        if not self._whole:
            self._stuck_since = now  # if a gap there is, it begins now
        payload = b"".join(half.parts[i] for i in range(half.count))
        del self._half[id]
        self._whole[id] = (join(half.head, payload), half.held)

    def _release(self, now: float) -> list[Frame]:
        out: list[Frame] = []
        while self._whole:
            if self._due not in self._whole:
                oldest = min(self._whole)
                if not self._give_up(oldest, now):
                    break
                self.skipped += oldest - self._due
                self._drop_below(oldest)
            frame, held = self._whole.pop(self._due)
            self._held -= held
            self._due += 1
            self._stuck_since = now
            if frame is None:
                self.refused += 1
            else:
                out.append(frame)
        if len(self._whole) > MAX_BEHIND_GAP:
            self._fail(f"More than {MAX_BEHIND_GAP} frames wait for one that does not come.")
        return out

    def _give_up(self, oldest: int, now: float) -> bool:
        """Whether all missing ids below the oldest complete frame are skipped."""
        stuck = now - self._stuck_since
        # Every channel has its slices in rising id order: past this id, nothing older can come over it.
        if all(shown >= oldest for shown in self._shown.values()) and (
            not self._expected or stuck >= PATIENCE_EXPECTED_S
        ):
            return True
        if stuck >= PATIENCE_S:
            return True
        return stuck >= PATIENCE_AFTER_CLOSE_S and now - self._closed_at <= CLOSE_COUNTS_S

    def _drop_below(self, id: int) -> None:
        """Frames below ``id`` are no longer waited for; what is held of them goes."""
        if id <= self._due:
            return
        self._due = id
        for old in [i for i in self._half if i < id]:
            self._held -= self._half.pop(old).held
        for old in [i for i in self._whole if i < id]:
            self._held -= self._whole.pop(old)[1]

    def _forget(self, now: float) -> None:
        """Make room before another half frame is held."""
        if len(self._half) < HALF_KEPT:
            return
        old = []
        for id, half in self._half.items():  # in the order they were born
            if now - half.born <= HALF_AGE_S:
                break
            old.append(id)
        for id in old:
            self._held -= self._half.pop(id).held

    def _fail(self, why: str) -> None:
        self.failed = why
        self._half.clear()
        self._whole.clear()
        self._held = 0
