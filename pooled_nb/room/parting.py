"""A host that closes its room once the running answer has ended: nobody who was promised one is cut off."""

from __future__ import annotations

import asyncio

from pooled_nb.mesh.messages import chat
from pooled_nb.room import telling
from pooled_nb.room.answering import Answering
from pooled_nb.room.outbox import Outbox

CLOSES = "The room closes after the answer that runs. Ask in another room."


class Parting:
    """Waits for the end of the running answer; `changed` and `cut` are called by the room."""

    def __init__(self, *, answering: Answering, outbox: Outbox) -> None:
        self._answering, self._outbox = answering, outbox
        self._over = asyncio.Event()
        self.changed()

    def refuse_waiting(self) -> None:
        """Only the running answer is waited for; those in the queue are told."""
        waiting = self._answering.queue.clear()
        for entry in waiting:
            telling.refuse(self._outbox, entry, "gone", CLOSES)
        if waiting:
            self._outbox.broadcast(chat.Queue(n=0))

    def changed(self) -> None:
        """Something of the answer changed."""
        if self._answering.queue.running is None:
            self._over.set()

    def cut(self) -> None:
        """The room is left at once, after all."""
        self._over.set()

    async def wait(self) -> None:
        """Until the answer has ended, or is not waited for any more."""
        await self._over.wait()
