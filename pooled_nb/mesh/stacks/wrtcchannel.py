"""A data channel of libwebrtc, and the bound of what may wait between its threads and the mesh loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from importlib import import_module
from typing import Any

from pooled_nb.mesh.stack import ChannelEvents

TURNS = 2
"""Of the loop, that others may take before what came is handed over."""
LOOK_EVERY = 128
MAX_WAITING = 16_384
MAX_WAITING_BYTES = 64 * 1024 * 1024
"""Messages, and bytes, that may wait for the loop; a connection that brings more than that ends."""


class Flood:
    """Whether what waits for this loop is more than it can be let wait.

    libwebrtc takes in what comes as fast as the network brings it, and its queue towards the loop has no
    bound of its own. Who sends most looks most often, and so is the one to go.

    Parameters
    ----------
    waiting
        How many messages wait now, of all connections; None: nobody knows.
    over
        Called once.
    """

    def __init__(self, waiting: Callable[[], int] | None, over: Callable[[], None]) -> None:
        self._waiting, self._over = waiting, over
        self._count = self._size = 0

    def came(self, size: int) -> None:
        """Count a message of so many bytes."""
        self._count += 1
        self._size += size
        if self._count < LOOK_EVERY or self._waiting is None:
            return
        mean, self._count, self._size = self._size // self._count, 0, 0
        waiting = self._waiting()
        if waiting > MAX_WAITING or waiting * mean > MAX_WAITING_BYTES:
            self._waiting = None
            self._over()


class WrtcChannel:
    """See `stack.StackChannel`."""

    def __init__(self, channel: Any, flood: Flood) -> None:
        self._channel, self._flood = channel, flood

    @property
    def is_open(self) -> bool:
        """See `stack.StackChannel`."""
        return bool(self._channel.ready_state == "open")

    @property
    def is_reliable(self) -> bool:
        """See `stack.StackChannel`."""
        channel = self._channel
        return bool(
            channel.ordered and channel.max_retransmits is None and channel.max_packet_life_time is None
        )

    @property
    def buffered(self) -> int:
        """See `stack.StackChannel`."""
        return int(self._channel.buffered_amount)

    @property
    def low_threshold(self) -> int:
        """See `stack.StackChannel`."""
        return int(self._channel.buffered_amount_low_threshold)

    @low_threshold.setter
    def low_threshold(self, size: int) -> None:
        self._channel.buffered_amount_low_threshold = size

    def listen(self, events: ChannelEvents) -> None:
        """See `stack.StackChannel`."""
        flood = self._flood
        opened, message, closed, low = events.open, events.message, events.close, events.low

        def came(event: Any) -> None:
            data = event.data
            flood.came(len(data))
            message(data)

        self._channel.on("open", lambda _: opened())
        self._channel.on("message", came)
        self._channel.on("close", lambda _: closed())
        self._channel.on("bufferedamountlow", lambda _: low())

    def send(self, data: bytes) -> None:
        """See `stack.StackChannel`."""
        try:
            self._channel.send(data)
        except Exception as error:  # too long, its queue is full, or closed a moment ago
            raise ValueError(str(error)) from None

    def close(self) -> None:
        """See `stack.StackChannel`."""
        self._channel.close()


def backlog() -> Callable[[], int] | None:
    """How many messages wait for the running loop; None where this version of the package does not tell.

    Its queue lets up to 100 turns of a busy loop go first, so that what awaited one of its calls goes on
    before the next event. Nothing here needs that for longer than `TURNS`, and frames are not to wait.
    """
    try:
        state = import_module("webrtc.utils.loops").LoopState.of(asyncio.get_running_loop())
        len(state.mailbox)
        state.MAX_DEFERRALS = TURNS
    except (ImportError, AttributeError, TypeError):
        return None
    return lambda: len(state.mailbox)
