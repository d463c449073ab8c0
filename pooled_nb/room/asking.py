"""A device's own questions on their way: sent, read to the end, asked again over a new link (section 7)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Protocol

from pooled_nb.errors import NotReady, PooledError
from pooled_nb.mesh.messages import Message
from pooled_nb.room import sentences
from pooled_nb.room.asked import Asked
from pooled_nb.room.core import AnswerEvent, AskOptions, Notice
from pooled_nb.room.feed import Feed


class ToHost(Protocol):
    """What a device needs of the mesh to be heard by its host."""

    @property
    def id(self) -> str:
        """This device's."""

    @property
    def creator(self) -> str:
        """The host's."""

    def send(self, to: str, message: Message) -> bool:
        """One control message; False where there is no link."""


class Asking:
    """Actor around `Asked`."""

    def __init__(self, mesh: ToHost) -> None:
        self._mesh = mesh
        self._asked = Asked()
        self._is_away = False

    @property
    def answering(self) -> bool:
        """Whether a question of this device is being answered."""
        return self._asked.answering

    async def put(
        self, may: Callable[[], AskOptions], say: Callable[[str, AskOptions], Message]
    ) -> AsyncIterator[AnswerEvent]:
        """Ask, and read what comes of it; the last event is always `Done`.

        Parameters
        ----------
        may
            The question's options, once it is read; raises where it may not be asked.
        say
            The message that asks it, by ``rid`` and options.
        """
        options, feed = may(), Feed()
        rid, message = self._asked.add(feed, lambda rid: say(rid, options))
        if not self._say(message):
            self._asked.forget(rid)
            raise NotReady("There is no link to the host now.", "Try again when it is back.")
        if options.fast:
            feed.put(Notice(sentences.HOST_CHOOSES))
        try:
            async for event in feed:
                yield event
        finally:
            if feed.over:
                self._asked.forget(rid)
            else:
                # Where it is not heard now, the host hears it when it is back.
                self._say(self._asked.take_back(rid))

    def stop(self) -> None:
        """End the one that is answered, or take back the newest that waits."""
        # By name: it may have ended by now, and then the next must not be hit.
        if self._is_away or not self._say(self._asked.stop()):
            self._asked.stop_here()

    def read(self, message: Message) -> bool:
        """Take a message of the host; whether it was about a question of this device."""
        mine = self._asked.read(message, self._mesh.id)
        for answer in self._asked.says():
            self._say(answer)
        return mine

    def is_replay(self, message: Message) -> bool:
        """As of `Asked.is_replay`; asked before `read`."""
        return self._asked.is_replay(message)

    def tell(self, why: str) -> None:
        """A sentence for the reader of the answer under way."""
        self._asked.tell(why)

    def away(self) -> None:
        """The link to the host broke: questions are kept."""
        self._is_away = True
        self._asked.away()

    def back(self) -> None:
        """It stands again: what was asked is asked again, under the name that it had."""
        self._is_away = False
        for message in self._asked.back():
            self._say(message)

    def close(self, error: PooledError) -> None:
        """The room is over."""
        self._asked.close(error)

    def _say(self, message: Message) -> bool:
        return self._mesh.send(self._mesh.creator, message)
