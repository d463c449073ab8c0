"""One data channel over aiortc: `network.Channel` (PROTOCOL section 5).

Nothing that arrives before somebody listens is lost.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from pooled_nb.errors import LinkFailed

if TYPE_CHECKING:
    from aiortc import RTCDataChannel

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
        self._channel: RTCDataChannel | None = None
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
        return not self._closed and self._channel is not None and self._channel.readyState == "open"

    @property
    def buffered(self) -> int:
        """Bytes that wait for the association's window.

        aiortc stops counting a message when it cuts it into chunks, one message at a time: so up to one
        more may not have left yet. `on_low` follows the same count.
        """
        return 0 if self._channel is None or self._closed else self._channel.bufferedAmount

    @property
    def low_threshold(self) -> int:
        """See `network.Channel`, in bytes."""
        return self._low_threshold

    @low_threshold.setter
    def low_threshold(self, size: int) -> None:
        self._low_threshold = size
        if self._channel is not None:
            self._channel.bufferedAmountLowThreshold = size

    def send(self, data: bytes) -> None:
        """See `network.Channel`.

        Raises
        ------
        LinkFailed
            The channel is not open, or the other end takes no message of this size.
        """
        if self._channel is None or not self.is_open:
            raise LinkFailed(
                f"The channel {self.name} is not open.", "Wait until the device is connected again."
            )
        try:
            self._channel.send(data)
        except ValueError as error:
            raise LinkFailed(f"A message of {len(data)} bytes was not sent: {error}.") from None

    def adopt(self, channel: RTCDataChannel) -> None:
        """Take aiortc's channel; once."""
        self._channel = channel
        channel.on("open", self._opened)
        channel.on("message", self._received)
        channel.on("close", self.ended)
        channel.on("bufferedamountlow", self._low)
        channel.bufferedAmountLowThreshold = self._low_threshold
        if channel.readyState == "open":
            self._opened()

    @property
    def is_adopted(self) -> bool:
        """Whether aiortc's channel is known."""
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
        # Text on a binary channel is not PeerJS's binary form (PROTOCOL section 3).
        if not isinstance(data, (bytes, bytearray)) or self._closed:
            return
        # A handler that is still to hear of the opening hears of it before the first message.
        self._opened()
        if self._on_message is not None and not self._early:
            call = self._on_message
            self._guard(lambda: call(bytes(data)))
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
            self._guard(lambda call=call, data=data: call(data))  # type: ignore[misc]  # bound per turn

    def _say_close(self) -> None:
        if self._said_close or self._on_close is None:
            return
        self._hand_over()
        self._said_close = True
        self._guard(self._on_close)

    def _guard(self, call: Callable[[], None]) -> None:
        # aiortc calls us from the task that reads the association: what escaped would end it.
        try:
            call()
        except Exception:
            log.exception("a handler of the channel %s failed", self.name)
