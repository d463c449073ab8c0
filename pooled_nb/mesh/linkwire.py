"""The wire of one link at work: frames to slices on channels, and back (PROTOCOL section 5).

The deciding is in `pooled_nb.mesh.wire` and `keepalive`; here channels, timers and the fallback meet it.
A link has any number of channels, one per connection; its first comes with the link, stripes add theirs.
Frames come in only while the room says that the link is part of its chain: for any other device of the room
nothing is reassembled, nothing is held, and none of its frames is handed over.

What one link may hold on this device, whatever the other end does. Each bound is where the constant is, and
beyond each the link ends in words, unless it says otherwise:

====================================== ================================================ ===================
what waits                             at most                                          constant
====================================== ================================================ ===================
frames to send                         256, and 64 MiB or 12 of the largest             `lanes`
second copies, of each channel         16 (74 KB); the oldest goes                      `sender.MAX_COPIES`
slices that may not have arrived, each 1.25 MB; 256 KiB where nobody tells; older go    `sender.MAX_GIVEN`
captures, weights to send              256 KiB each, or one message; who sends waits    `bulk.QUEUE`
frames to send as messages             256, and 64 MiB                                  `linkbulk`
in each association, not sent          18,400 bytes, ordinary messages excepted         `linkbulk`
ordinary messages, not sent            16 MiB                                           `link.MAX_BUFFERED`
slices received before admission       256 (1.2 MB); later ones go                      `HELD_SLICES`
whole frames behind a gap              256 }  together 12 of the model's largest and    `receiver`
half frames                            256 }  1 MiB; 64 MiB where it is not known
messages received and not read         16 MiB                                           `pace`
messages in reassembly                 8 of 4.2 MB, 33 MB; the ninth goes               `chunks`
====================================== ================================================ ===================

A frame whose turn it is goes to the room at once, so a device that computes slowly holds nothing here. What
it is sent meanwhile is bounded by the host, which has one token or six frames of a prompt in flight
(section 7), and where a device does not keep to that, by the worker's queue: 256 frames, 128 MiB. Weights are
bounded by what the other end acknowledges (`credit`: 8 MiB of a link), captures by the pace that it reads at
(`bulk`).
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pooled_nb.errors import LinkFailed
from pooled_nb.mesh import together
from pooled_nb.mesh.chunks import Chunker
from pooled_nb.mesh.clock import Clock, Timer
from pooled_nb.mesh.credit import Credit
from pooled_nb.mesh.frame import Frame
from pooled_nb.mesh.keepalive import BYTE
from pooled_nb.mesh.linkalive import LinkAlive
from pooled_nb.mesh.linkbulk import ASSOCIATION, LinkBulk
from pooled_nb.mesh.network import Channel, ConnectionStats
from pooled_nb.mesh.wire import Load, Priority, Receiver, Sender, fallback, priority_of
from pooled_nb.mesh.wire.receiver import PATIENCE_AFTER_CLOSE_S, most_held
from pooled_nb.mesh.wire.slices import SLICE
from pooled_nb.mesh.wiresettings import DEFAULT, WireSettings

OWN = "link"
"""Key of a link's own channels on its wire; stripes have theirs."""
HELD_SLICES = 256
"""Slices kept until the link is admitted (section 4)."""
LOW = 2 * SLICE
"""Bytes left in a channel at which it gets more slices: it never runs dry, and never holds over four."""
POLL_S = 0.01
"""While anything waits, channels are looked at so often: some stacks do not always say that they drained."""
LINGERS_S = PATIENCE_AFTER_CLOSE_S
"""Seconds for which the receiver still waits for a channel that closed. What was on its way comes over the
others (`Sender.again`), once the other end knows too: where it hears of nothing, after `stuck.STUCK_S`."""
TURN = 1 << 18
"""Bytes that are handed over in one turn of the loop, a few milliseconds of work; then others have theirs."""


@dataclass(frozen=True, slots=True)
class _Pair:
    wire: Channel
    keepalive: Channel


class LinkWire:
    """Frames of one link, both directions.

    Parameters
    ----------
    on_frame
        Called with each frame, in order, once `release` was called and while the link is `chained`.
    on_failed
        Called once with why the link must be closed.
    heard
        Called for every message of every channel: a sign of life.
    control, chunker
        The link's control channel, for large messages and for frames when there is no wire left.
    on_broken
        Called when that channel is gone.

    Attributes
    ----------
    window
        What all ranges of weights over this link may have on their way together.
    alive
        Its keep-alive.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        on_frame: Callable[[Frame], None],
        on_failed: Callable[[str], None],
        heard: Callable[[], None],
        control: Channel,
        chunker: Chunker,
        on_broken: Callable[[], None],
        settings: WireSettings = DEFAULT,
    ) -> None:
        self._clock = clock
        self._on_frame, self._on_failed = on_frame, on_failed
        self.window = Credit()
        self._bulk = LinkBulk(clock, control, chunker, on_more=self._pump, on_broken=on_broken)
        self._sender, self._receiver = Sender(twice=settings.twice), Receiver()
        self.alive = LinkAlive(clock, settings.keepalive_ms, self._keep_alive, heard)
        self._pairs: dict[str, _Pair] = {}
        self._gone_at: dict[str, float] = {}
        """Channels that closed, and that the receiver still waits for."""
        self._stuck: frozenset[str] = frozenset()
        self._held: deque[tuple[str, bytes]] | None = deque()
        """Slices that came before admission; None from then on."""
        self._fallback = self._chained = False
        self._wire_over = False
        """The other end fell back: what its wire still brings is older than what came since."""
        self._pumping = self._closed = False
        self._poll: Timer | None = None

    @property
    def fallback(self) -> bool:
        """Whether frames go as control messages, until the link is redialed."""
        return self._fallback

    @property
    def chained(self) -> bool:
        """Whether frames of the other end are taken: the room says so, before or after the link exists.

        What comes meanwhile counts as handed over, so the first frame after it is not waited for.
        """
        return self._chained

    @chained.setter
    def chained(self, chained: bool) -> None:
        self._chained = chained
        if not chained:
            self._receiver.clear()

    @property
    def queued(self) -> int:
        """Bytes that wait on this device: frames, large messages, and slices that no association has sent."""
        wires = sum(pair.wire.buffered for pair in self._pairs.values())
        return self._sender.waiting_bytes + self._bulk.waiting_bytes + wires

    @property
    def waiting(self) -> dict[Priority, int]:
        """Bytes that wait and that no association was given, by class."""
        out = self._bulk.waiting
        for priority, size in self._sender.waiting_of().items():
            out[priority] += size
        return out

    def most(self, largest: int | None) -> None:
        """How large a frame of the room's model is at most, in payload bytes; None: not known."""
        self._receiver.most = most_held(largest)

    def add(self, key: str, wire: Channel, keepalive: Channel) -> None:
        """Take one connection's two channels, open or not yet open."""
        self._pairs[key] = _Pair(wire, keepalive)
        self._gone_at.pop(key, None)
        wire.low_threshold = LOW
        wire.on_open = lambda: self._opened(key)
        wire.on_close = lambda: self._gone(key)
        wire.on_low = self._pump
        wire.on_message = lambda data: self._slice(key, data)
        keepalive.on_message = lambda _data: self.alive.heard(self._clock.now())
        if wire.is_open:
            self._opened(key)

    def expect(self, key: str) -> None:
        """A connection will be added soon: a frame that seems to be missing may come over it already."""
        if not self._closed and key not in self._pairs:
            self._receiver.expected(key)

    def drop(self, key: str) -> None:
        """A connection is gone, added or only expected."""
        if key in self._pairs:
            self._gone(key)
        elif not self._closed and self._held is None:
            self._hand_over(self._receiver.closed(key, self._clock.now()))

    def send(self, frame: Frame) -> bool:
        """Queue a frame; False when nothing can carry it any more.

        One lane is in use, and its frames depend on each other through the caches: they keep their order,
        whatever their priorities.

        Raises
        ------
        ValueError
            The wire cannot carry it: a mistake of the caller.
        """
        if self._closed or self._sender.exhausted:
            return False
        if self._fallback:
            return self._send_message(frame)
        self._sender.push(frame, priority_of(frame))
        self.alive.carried(self._clock.now())
        self._pump()
        if (why := self._sender.overflow) is not None:
            self._fail(why)
        return not self._closed

    async def send_bulk(
        self, packed: bytes, priority: Priority, *, credit: Credit | None = None, size: int = 0
    ) -> bool:
        """Queue a large message once its class has room; see `Mesh.send_bulk`."""
        if credit is not None and credit.of is not self.window:
            return False  # of a link before this one
        return await self._bulk.send(packed, priority, credit=credit, size=size)

    def control(self, value: dict[str, Any]) -> None:
        """A frame that came as a control message: the other end has no wire left."""
        if self._closed or self._held is not None:
            return
        frame = fallback.from_map(value)
        if frame is None:
            return
        # Section 5: first what the wire still holds, then these, in order.
        self._wire_over = True
        self._hand_over(self._receiver.over(self._clock.now()))
        if self._chained and not self._closed:
            self._on_frame(frame)

    def release(self) -> None:
        """The link is admitted: what was held counts now."""
        held, self._held = self._held, None
        for key, data in held or ():
            self._slice(key, data, heard=False)

    def tick(self, now: float) -> None:
        """Time passes: gaps are given up (section 5, receiving)."""
        self._forget(LINGERS_S)
        if not self._closed:
            self._hand_over(self._receiver.tick(now))

    def counted(self, stats: Mapping[str, ConnectionStats | None], stuck: frozenset[str]) -> None:
        """What the connections of its channels count, and which of them nothing comes through.

        Their slices go over the others, and new ones too.
        """
        if self._closed or self._fallback:
            return
        for key, said in stats.items():
            if key in self._pairs and self._pairs[key].wire.is_open:  # one that closed counts nothing
                self._sender.outstanding(key, None if said is None else said.unsent + said.in_flight)
        before, self._stuck = self._stuck, stuck
        if stuck == before:
            return
        self._sender.avoid(stuck)
        for key in [key for key in self._pairs if key in stuck and key not in before]:
            self._sender.again(key)
        self._pump()

    def close(self) -> None:
        """Stop for good; the channels are the link's to close."""
        self._closed = True
        self._bulk.close()
        self.alive.close()
        if self._poll is not None:
            self._poll.cancel()

    # -- channels --------------------------------------------------------------------------------

    def _opened(self, key: str) -> None:
        if self._closed or self._fallback or key not in self._pairs:
            return
        self._sender.add_channel(key)
        self._receiver.opened(key)
        self._pump()

    def _gone(self, key: str) -> None:
        if self._closed or self._pairs.pop(key, None) is None:
            return
        self._sender.again(key)
        self._sender.drop_channel(key)
        if self._held is None:
            self._gone_at[key] = self._clock.now()
        if not self._pairs:
            self._forget(0.0)
            if not self._closed:
                self._fall_back()
        self._pump()

    def _forget(self, after: float) -> None:
        """The receiver waits no more for channels that closed so long ago."""
        now = self._clock.now() if self._gone_at else 0.0
        for key in [key for key, at in self._gone_at.items() if now - at >= after]:
            del self._gone_at[key]
            if not self._closed:
                self._hand_over(self._receiver.closed(key, now))

    def _fall_back(self) -> None:
        # A link that fell back stays so until it is redialed (section 5).
        self._fallback = True
        for frame in self._sender.drain():
            if not self._send_message(frame):
                return

    def _send_message(self, frame: Frame) -> bool:
        why = self._bulk.frame(fallback.to_map(frame))
        if why is not None:
            self._fail(why)
        self._pump()
        return not self._closed

    def _fail(self, why: str) -> None:
        if not self._closed:
            self.close()
            self._on_failed(why)

    def _slice(self, key: str, data: bytes, *, heard: bool = True) -> None:
        now = self._clock.now()
        if heard:
            self.alive.heard(now)
        if self._closed or self._wire_over:
            return
        if self._held is not None:
            if len(self._held) < HELD_SLICES and len(data) <= SLICE:
                self._held.append((key, data))
        elif not self._chained:
            self._receiver.pass_over(key, data)
        else:
            self.alive.carried(now)
            self._hand_over(self._receiver.slice(key, data, now))

    def _hand_over(self, frames: list[Frame]) -> None:
        for frame in frames:
            if self._closed:
                return
            self._on_frame(frame)
        if self._receiver.failed is not None:
            self._fail(self._receiver.failed)

    def _pump(self) -> None:
        """Hand over slices and pieces while an association has room for more, the most urgent first."""
        if self._pumping or self._closed:
            return
        self._pumping = True
        given = 0
        together.here.begin()
        try:
            while (waiting := self._sender.waiting) and given < TURN and (slices := self._give()):
                given += slices
            if not (self._closed or self._bulk.is_idle or self._sender.waits_for(OWN)):
                given += self._bulk.pump(ASSOCIATION - self._load(OWN).total, TURN - given)
        finally:
            self._pumping = False
            together.here.end()
        if self._closed:
            return
        waits = self._bulk.waiting_bytes or (waiting and self._sender.channels)
        if waits and (self._poll is None or given >= TURN):
            if self._poll is not None:
                self._poll.cancel()
            self._poll = self._clock.call_later(0.0 if given >= TURN else POLL_S, self._polled)

    def _give(self) -> int:
        """One round of slices, as many as each association takes at a time; returns their bytes."""
        given = 0
        for key, data in self._sender.ready({key: self._load(key) for key in self._pairs}):
            try:
                self._pairs[str(key)].wire.send(data)
            except LinkFailed:
                self._sender.again(key, but=data)
                self._sender.refused(key, data)
            else:
                given += len(data)
        if given:
            self.alive.sent(self._clock.now())
        return given

    def _load(self, key: str) -> Load:
        held = self._pairs[key].wire.buffered if key in self._pairs else 0
        return Load(held, self._bulk.buffered if key == OWN else 0)

    def _polled(self) -> None:
        self._poll = None
        self._pump()

    def _keep_alive(self) -> None:
        for pair in self._pairs.values():
            with contextlib.suppress(LinkFailed):  # best effort
                if pair.keepalive.is_open:
                    pair.keepalive.send(BYTE)
                    break
