"""The wire of one link at work: frames to slices on channels, and back (PROTOCOL section 5).

The deciding is in `pooled_nb.mesh.wire` and `keepalive`; here channels, timers and the fallback meet it.
A link has any number of channels, one per connection; its first comes with the link, stripes add theirs.
Frames come in only while the room says that the link is part of its chain: for any other device of the room
nothing is reassembled, nothing is held, and none of its frames is handed over.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pooled_nb.errors import LinkFailed
from pooled_nb.mesh.clock import Clock, Timer
from pooled_nb.mesh.frame import Frame
from pooled_nb.mesh.keepalive import BYTE, KeepAlive
from pooled_nb.mesh.network import Channel
from pooled_nb.mesh.wire import Receiver, Sender, fallback
from pooled_nb.mesh.wire.slices import SLICE
from pooled_nb.mesh.wiresettings import DEFAULT, WireSettings

HELD_SLICES = 256
"""Slices kept until the link is admitted (section 4)."""
LOW = 2 * SLICE
"""Bytes left in a channel at which it gets more slices: it never runs dry, and never holds over four."""
POLL_S = 0.01
"""While frames wait, channels are looked at this often: some stacks do not always say that they drained."""


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
    send_control
        Sends a map over the control channel (fallback); False when that is gone, too.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        on_frame: Callable[[Frame], None],
        on_failed: Callable[[str], None],
        heard: Callable[[], None],
        send_control: Callable[[dict[str, Any]], bool],
        settings: WireSettings = DEFAULT,
    ) -> None:
        self._clock = clock
        self._on_frame, self._on_failed = on_frame, on_failed
        self._heard, self._send_control = heard, send_control
        self._sender, self._receiver = Sender(twice=settings.twice), Receiver()
        self._keepalive = KeepAlive(settings.keepalive_ms)
        self._pairs: dict[str, _Pair] = {}
        self._held: deque[tuple[str, bytes]] | None = deque()
        """Slices that came before admission; None from then on."""
        self._fallback = self._chained = False
        self._wire_over = False
        """The other end fell back: what its wire still brings is older than what came since."""
        self._pumping = self._closed = False
        self._poll: Timer | None = None
        self._alive: Timer | None = None

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
        """Bytes of frames that wait on this device."""
        return self._sender.waiting_bytes + sum(pair.wire.buffered for pair in self._pairs.values())

    def add(self, key: str, wire: Channel, keepalive: Channel) -> None:
        """Take one connection's two channels, open or not yet open."""
        self._pairs[key] = _Pair(wire, keepalive)
        wire.low_threshold = LOW
        wire.on_open = lambda: self._opened(key)
        wire.on_close = lambda: self._gone(key)
        wire.on_low = self._pump
        wire.on_message = lambda data: self._slice(key, data)
        keepalive.on_message = lambda _data: self._heard()
        if wire.is_open:
            self._opened(key)

    def expect(self, key: str) -> None:
        """A connection will be added soon, and the other end may use it already: a frame that seems to be
        missing may come over it.
        """
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
        so all have one priority.

        Raises
        ------
        ValueError
            The wire cannot carry it: a mistake of the caller.
        """
        if self._closed or self._sender.exhausted:
            return False
        if self._fallback:
            return self._send_control(fallback.to_map(frame))
        self._sender.push(frame)
        self._carried()
        self._pump()
        return not self._closed

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
        if not self._closed:
            self._hand_over(self._receiver.tick(now))

    def close(self) -> None:
        """Stop for good; the channels are the link's to close."""
        self._closed = True
        for timer in (self._poll, self._alive):
            if timer is not None:
                timer.cancel()
        self._poll = self._alive = None

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
        self._sender.drop_channel(key)
        if self._held is None:
            self._hand_over(self._receiver.closed(key, self._clock.now()))
        if not self._pairs and not self._closed:
            self._fall_back()
        self._pump()

    def _fall_back(self) -> None:
        # A link that fell back stays so until it is redialed (section 5).
        self._fallback = True
        for frame in self._sender.drain():
            if not self._send_control(fallback.to_map(frame)):
                return

    def _slice(self, key: str, data: bytes, *, heard: bool = True) -> None:
        if heard:
            self._heard()
        if self._closed or self._wire_over:
            return
        if self._held is not None:
            if len(self._held) < HELD_SLICES and len(data) <= SLICE:
                self._held.append((key, data))
            return
        if not self._chained:
            self._receiver.pass_over(key, data)
            return
        self._carried()
        self._hand_over(self._receiver.slice(key, data, self._clock.now()))

    def _hand_over(self, frames: list[Frame]) -> None:
        for frame in frames:
            if self._closed:
                return
            self._on_frame(frame)
        if self._receiver.failed is not None and not self._closed:
            self.close()
            self._on_failed(self._receiver.failed)

    def _pump(self) -> None:
        """Hand over slices while a channel has room for more."""
        if self._pumping or self._closed:
            return
        self._pumping = True
        try:
            for key, data in self._sender.ready({k: p.wire.buffered for k, p in self._pairs.items()}):
                try:
                    self._pairs[str(key)].wire.send(data)
                except LinkFailed:
                    self._sender.refused(key, data)
                else:
                    self._keepalive.sent(self._clock.now())
        finally:
            self._pumping = False
        if self._sender.waiting and self._sender.channels and self._poll is None:
            self._poll = self._clock.call_later(POLL_S, self._polled)

    def _polled(self) -> None:
        self._poll = None
        self._pump()

    # -- keep-alive ------------------------------------------------------------------------------

    def _carried(self) -> None:
        now = self._clock.now()
        self._keepalive.carried(now)
        if self._alive is None:
            self._arm(now)

    def _arm(self, now: float) -> None:
        at = self._keepalive.next(now)
        # Never at once: a byte that is due now follows the slices of this turn of the loop.
        self._alive = None if at is None else self._clock.call_later(max(at - now, 1e-3), self._keep_alive)

    def _keep_alive(self) -> None:
        now = self._clock.now()
        self._alive = None
        if self._closed:
            return
        if self._keepalive.due(now):
            self._keepalive.sent(now)
            for pair in self._pairs.values():
                if pair.keepalive.is_open:
                    try:
                        pair.keepalive.send(BYTE)
                    except LinkFailed:
                        continue  # best effort
                    break
        self._arm(now)
