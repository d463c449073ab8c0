"""The host's starts: one at a time, by its person or by the first question (PROTOCOL section 6)."""

from __future__ import annotations

import asyncio
import logging
from typing import Protocol

from pooled_nb.errors import NotReady, PooledError, RoomClosed
from pooled_nb.mesh.messages import deal as wire
from pooled_nb.room import sentences
from pooled_nb.room.answering import Answering
from pooled_nb.room.core import State
from pooled_nb.room.dealer import Dealer
from pooled_nb.room.dealing import Deal
from pooled_nb.room.outbox import Outbox
from pooled_nb.room.starting import OnProgress

log = logging.getLogger(__name__)


class Stage(Protocol):
    """What a start needs of the room around it."""

    @property
    def state(self) -> State:
        """The room's state now."""

    @property
    def answering(self) -> Answering:
        """The host's queue and conversation."""

    def set_state(self, state: State, why: str = "") -> None:
        """The room's state changed."""

    def go_online(self, deal: Deal) -> None:
        """Everybody holds what this deal says."""

    def say(self, sentence: str) -> None:
        """A sentence for the person."""

    def changed(self) -> None:
        """Something that is shown changed."""


class Starter:
    """Deals and loads until the room is online, or as it was before."""

    def __init__(self, *, stage: Stage, dealer: Dealer, outbox: Outbox) -> None:
        self._stage, self._dealer, self._outbox = stage, dealer, outbox
        self._starting: asyncio.Task[None] | None = None
        self._by_question: asyncio.Task[None] | None = None

    async def start(self, progress: OnProgress | None, *, fast: bool) -> None:
        """See `RoomCore.start`."""
        stage = self._stage
        if self._closed():
            raise RoomClosed("The room is over.", "Host a new one.")
        if (same := self._starting) is not None:  # whoever asks for a start meanwhile waits for the same one
            await asyncio.wait([same])
            if same.cancelled():
                raise NotReady("The start was stopped.", "Start the room again.")
            same.result()
            if fast and self._dealer.exact:
                stage.say(sentences.EXACT_ROOM)
            return
        if not self._dealer.prefer(fast=fast):
            stage.say(sentences.EXACT_ROOM)
        try:
            self._dealer.make({})  # what cannot be dealt leaves everything as it was
        except PooledError as error:
            if stage.state == "open":
                stage.set_state("open", f"The room did not start: {error}")
            raise
        self._starting = asyncio.create_task(self._start_anew(progress), name="pooled-start")
        try:
            await self._starting
        except asyncio.CancelledError:
            if self._closed():
                raise RoomClosed("The room was closed while it loaded.", "Host a new one.") from None
            raise
        finally:
            self._starting = None

    async def _start_anew(self, progress: OnProgress | None) -> None:
        stage, answering = self._stage, self._stage.answering
        again = self._dealer.deal is not None
        excluded: dict[str, str] = {}

        def told(pct: int, words: str) -> None:
            if progress:
                progress(pct, words)
            stage.changed()

        try:
            stage.set_state("loading")
            if not answering.holding:
                answering.offline("loading", "The room is loading. Ask again when it is online.")
            answering.holding = True
            await answering.idle()
            while True:
                deal = self._dealer.make(excluded)
                self._dealer.announce(again=again or bool(excluded))
                trouble = await self._dealer.load(deal, told)
                if trouble is None:
                    break
                excluded[trouble.id] = trouble.why
                stage.say(f"{trouble.name} cannot hold its layers: {trouble.why} Dealing again without it.")
        except BaseException as error:
            why = str(error) if isinstance(error, PooledError) else "the host stopped it."
            sentence = f"The room did not start: {why}"
            self._dealer.deal = None
            self._outbox.broadcast(wire.StartFailed(why=sentence[:2_000]))
            answering.offline("open", sentence)
            stage.set_state("open", sentence)
            raise
        stage.go_online(deal)
        if note := self._dealer.note:
            stage.say(note)

    def by_question(self, name: str) -> None:
        """The first question starts the room, whoever asks: it was opened around a model to answer."""
        answering = self._stage.answering
        if self._starting is None:  # else it is made as the host's person wished
            self._dealer.prefer(fast=False)
        try:
            self._dealer.make({})
        except PooledError as error:
            answering.why_not = ("open", f"The room did not start: {error}")
            return
        answering.holding = True
        self._stage.say(f"{name} asks: the room starts.")
        self._by_question = asyncio.create_task(self._start_quietly(), name="pooled-start-by-question")

    async def _start_quietly(self) -> None:
        answering = self._stage.answering
        try:
            await self.start(None, fast=False)
        except PooledError as error:
            log.info("a start by a question failed: %s", error)
            # It may have ended before it began, since devices come and go: nobody may wait for it then.
            if answering.holding and self._starting is None:
                answering.offline("open", f"The room did not start: {error}")

    def _closed(self) -> bool:
        return self._stage.state == "closed"

    async def cancel(self) -> None:
        """End a start that is under way."""
        if self._starting:
            self._starting.cancel()
            await asyncio.gather(self._starting, return_exceptions=True)
