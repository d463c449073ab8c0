"""One data channel over a WebRTC stack: `network.Channel` (PROTOCOL section 5).

Nothing that arrives before somebody listens is lost.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable

from pooled_nb.errors import LinkFailed
from pooled_nb.mesh.stack import ChannelEvents, StackChannel

log = logging.getLogger(__name__)

MAX_EARLY_MESSAGES = 1_024
MAX_EARLY_BYTES = 8 * 1024 * 1024


class RtcChannel:
    """A channel that may not exist yet: the answerer's ``control`` comes with the dialer's OPEN.

    Parameters
    ----------
    name
        Its label, for messages to people.
    overflow
        Called when more than 1,024 messages or 8 MB came before anybody listened: rather than lose
        one of a reliable channel, its connection ends.
    """

    def __init__(self, name: str, overflow: Callable[[str], None]) -> None:
        self.name = name
        self._overflow = overflow
        self._loop = asyncio.get_running_loop()
        self._channel: StackChannel | None = None
        self._closed = False
        self._said_open = False
        self._said_close = False
        self._early: deque[bytes] = deque()
        self._early_bytes = 0
        self._on_open: Callable[[], None] | None = None
        self._on_message: Callable[[bytes], None] | None = None
        self._on_close: Callable[[], None] | None = None
        self._low_threshold = 0
        self.on_low: Callable[[], None] | None = None

    @property
    def on_open(self) -> Callable[[], None] | None:
        """Called once, when `send` may be called; soon, where that is so already."""
        return self._on_open

    @on_open.setter
    def on_open(self, call: Callable[[], None] | None) -> None:
        self._on_open = call
        if call is not None and self.is_open:
            self._loop.call_soon(self._opened)

    @property
    def on_message(self) -> Callable[[bytes], None] | None:
        """Called with each message; first with those that came before it was set."""
        return self._on_message

    @on_message.setter
    def on_message(self, call: Callable[[bytes], None] | None) -> None:
        self._on_message = call
        if call is not None and self._early:
            self._loop.call_soon(self._hand_over)

    @property
    def on_close(self) -> Callable[[], None] | None:
        """Called once, when the channel has closed; soon, where that is so already."""
        return self._on_close

    @on_close.setter
    def on_close(self, call: Callable[[], None] | None) -> None:
        self._on_close = call
        if call is not None and self._closed:
            self._loop.call_soon(self._say_close)

    @property
    def is_open(self) -> bool:
        """See `network.Channel`."""
        return not self._closed and self._channel is not None and self._channel.is_open

    @property
    def buffered(self) -> int:
        """Bytes that wait for the association's window, as its stack counts them; `on_low` follows."""
        return 0 if self._channel is None or self._closed else self._channel.buffered

    @property
    def low_threshold(self) -> int:
        """See `network.Channel`, in bytes."""
        return self._low_threshold

    @low_threshold.setter
    def low_threshold(self, size: int) -> None:
        self._low_threshold = size
        if self._channel is not None:
            self._channel.low_threshold = size

    def send(self, data: bytes) -> None:
        """See `network.Channel`.

        Raises
        ------
        LinkFailed
            The channel is not open, or the other end takes no message of this size.
        """
        channel = self._channel
        if channel is None or self._closed or not channel.is_open:
            raise LinkFailed(
                f"The channel {self.name} is not open.", "Wait until the device is connected again."
            )
        try:
            channel.send(data)
        except ValueError as error:
            raise LinkFailed(f"A message of {len(data)} bytes was not sent: {error}.") from None

    def adopt(self, channel: StackChannel) -> None:
        """Take the stack's channel; once."""
        self._channel = channel
        channel.listen(
            ChannelEvents(open=self._opened, message=self._received, close=self.ended, low=self._low)
        )
        channel.low_threshold = self._low_threshold
        if channel.is_open:
            self._opened()

    @property
    def is_adopted(self) -> bool:
        """Whether the stack's channel is known."""
        return self._channel is not None

    def ended(self) -> None:
        """The channel, or its whole connection, is over. What came before is still handed over first."""
        if self._closed:
            return
        self._closed = True
        self._loop.call_soon(self._say_close)

    def _opened(self) -> None:
        if self._said_open or self._on_open is None or self._closed:
            return
        self._said_open = True
        self._guard(self._on_open)

    def _low(self) -> None:
        if self.on_low is not None and not self._closed:
            self._guard(self.on_low)

    def _received(self, data: object) -> None:
        if type(data) is bytes and self._said_open and not (self._closed or self._early) and self._on_message:
            try:  # nearly always; as `_guard`
                self._on_message(data)
            except Exception:
                log.exception("a handler of the channel %s failed", self.name)
            return
        # Text on a binary channel is not PeerJS's binary form (PROTOCOL section 3).
        if not isinstance(data, (bytes, bytearray)) or self._closed:
            return
        if not self._said_open:  # a handler that is still to hear of it hears of it before the first message
            self._opened()
        if self._on_message is not None and not self._early:
            self._guard(self._on_message, bytes(data))
            return
        self._early.append(bytes(data))
        self._early_bytes += len(data)
        if len(self._early) > MAX_EARLY_MESSAGES or self._early_bytes > MAX_EARLY_BYTES:
            self._early.clear()
            self._early_bytes = 0
            self._overflow(f"{self.name}: nobody took what it received")

    def _hand_over(self) -> None:
        while self._early and (call := self._on_message) is not None:
            data = self._early.popleft()
            self._early_bytes -= len(data)
            self._guard(call, data)

    def _say_close(self) -> None:
        if self._said_close or self._on_close is None:
            return
        self._hand_over()
        self._said_close = True
        self._guard(self._on_close)

    def _guard(self, call: Callable[..., None], *args: bytes) -> None:
        # The stack calls us while it reads the association: what escaped could end it.
        try:
            call(*args)
        except Exception:
            log.exception("a handler of the channel %s failed", self.name)
