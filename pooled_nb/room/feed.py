"""The events of one question of this device, from whoever answers it to whoever reads it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from pooled_nb.errors import PooledError
from pooled_nb.room.core import AnswerEvent, Done


class Feed:
    """A queue of events that ends with `Done`, or with the error that refused the question."""

    def __init__(self) -> None:
        self._queue: asyncio.Queue[AnswerEvent | PooledError] = asyncio.Queue()
        self.over = False

    def put(self, event: AnswerEvent) -> None:
        """Add an event; after `Done` nothing is taken any more."""
        if not self.over:
            self.over = isinstance(event, Done)
            self._queue.put_nowait(event)

    def refuse(self, error: PooledError) -> None:
        """The question is not answered."""
        if not self.over:
            self.over = True
            self._queue.put_nowait(error)

    async def __aiter__(self) -> AsyncIterator[AnswerEvent]:
        while True:
            event = await self._queue.get()
            if isinstance(event, PooledError):
                raise event
            yield event
            if isinstance(event, Done):
                return
