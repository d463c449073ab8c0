"""The host's starts: one at a time, by person, by first question, or by itself (PROTOCOL section 6)."""

from __future__ import annotations

import asyncio
import logging
from typing import Protocol

from pooled_nb.errors import ModelTooBig, NotReady, OutOfMemory, PooledError, RoomClosed, ShardDied
from pooled_nb.mesh.messages import deal as wire
from pooled_nb.room import sentences
from pooled_nb.room.answering import Answering
from pooled_nb.room.core import State
from pooled_nb.room.dealer import Dealer
from pooled_nb.room.dealing import Deal
from pooled_nb.room.loading import Trouble
from pooled_nb.room.outbox import Outbox
from pooled_nb.room.shares import Less
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

    def dealing(self) -> None:
        """A start begins."""

    def go_online(self, deal: Deal) -> None:
        """Everybody holds what this deal says."""

    def not_dealt(self, why: str) -> None:
        """No deal could be made: everything is as it was."""

    def not_started(self, why: str, *, again: bool) -> None:
        """The start did not work, and nobody holds anything now. ``again``: it was a new deal of a room."""

    def say(self, sentence: str) -> None:
        """A sentence for the person."""

    def changed(self) -> None:
        """Something that is shown changed."""


class Starter:
    """Deals and loads until the room is online, or as it was before."""

    def __init__(self, *, stage: Stage, dealer: Dealer, outbox: Outbox) -> None:
        self._stage, self._dealer, self._outbox = stage, dealer, outbox
        self._starting: asyncio.Task[None] | None = None
        self._quiet: set[asyncio.Task[None]] = set()

    @property
    def running(self) -> bool:
        """Whether a start is under way."""
        return self._starting is not None

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
            stage.not_dealt(str(error))
            raise
        except Exception as error:
            stage.not_dealt(f"The deal could not be made ({type(error).__name__}).")
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
        again = self._dealer.deal is not None or stage.state == "degraded"
        excluded: dict[str, str] = {}

        def told(pct: int, words: str) -> None:
            if progress:
                progress(pct, words)
            stage.changed()

        try:
            stage.dealing()
            stage.set_state("loading")
            if again:
                answering.hold(sentences.DEALS_AGAIN)
            elif not answering.holding:
                answering.offline("loading", "The room is loading. Ask again when it is online.")
                answering.holding = True
            await answering.idle()
            while True:
                deal = self._dealer.make(excluded)
                self._dealer.announce(again=again or bool(excluded))
                if await self._load(deal, told, excluded):
                    break
                again = True
        except BaseException as error:
            why = str(error) if isinstance(error, PooledError) else "the host stopped it."
            self._dealer.drop()
            self._outbox.broadcast(
                wire.StartFailed(why=f"{sentences.not_started(again=again)} {why}"[:2_000])
            )
            try:
                await self._dealer.free()
            finally:
                stage.not_started(f"{sentences.not_started(again=again)} {why}", again=again)
            raise
        stage.go_online(deal)
        if note := self._dealer.note:
            stage.say(note)

    async def _load(self, deal: Deal, told: OnProgress, excluded: dict[str, str]) -> bool:
        """One attempt: whether everybody holds this deal. Else the next one is over others, or smaller."""
        try:
            trouble = await self._dealer.load(deal, told)
        except (ShardDied, OutOfMemory):
            if self._host_gets_less(deal, excluded):
                return False
            raise
        if trouble is not None:
            self._cope(trouble, excluded)
        return trouble is None

    def _host_gets_less(self, deal: Deal, excluded: dict[str, str]) -> bool:
        """Whether the others can take half of what this device was killed with (section 6, ``ai-share``)."""
        me = deal.seats[0].id
        word = self._dealer.killed(me)
        try:
            if isinstance(word, Less):
                self._dealer.make(excluded)
                self._stage.say(word.why)
                return True
        except ModelTooBig:
            pass
        self._dealer.shares.forgive(deal.seats[0].key or me)
        return False

    def _cope(self, trouble: Trouble, excluded: dict[str, str]) -> None:
        word = self._dealer.killed(trouble.id) if trouble.killed else None
        if isinstance(word, Less):
            self._stage.say(f"{word.why} Dealing again.")
            return
        excluded[trouble.id] = trouble.why
        why = trouble.why.rstrip(".")
        self._stage.say(f"{trouble.name} cannot hold its layers: {why}. Dealing again without it.")

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
        self._spawn("pooled-start-by-question")

    def by_itself(self) -> None:
        """The room deals again, since something of its deal is gone; what comes of it, the stage hears."""
        self._spawn("pooled-start-by-itself")

    def _spawn(self, name: str) -> None:
        task = asyncio.create_task(self._start_quietly(), name=name)
        self._quiet.add(task)
        task.add_done_callback(self._quiet.discard)

    async def _start_quietly(self) -> None:
        answering = self._stage.answering
        try:
            await self.start(None, fast=False)
        except PooledError as error:
            log.info("a start that nobody waits for failed: %s", error)
            # It may have ended before it began, since devices come and go: nobody may wait for it then.
            if answering.holding and self._starting is None:
                answering.offline("open", f"The room did not start: {error}")
        except Exception:
            log.exception("a start that nobody waits for failed")

    def _closed(self) -> bool:
        return self._stage.state == "closed"

    async def cancel(self) -> None:
        """End a start that is under way."""
        if self._starting:
            self._starting.cancel()
            await asyncio.gather(self._starting, return_exceptions=True)
        quiet = list(self._quiet)
        for task in quiet:
            task.cancel()
        await asyncio.gather(*quiet, return_exceptions=True)
