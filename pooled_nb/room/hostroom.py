"""The host's room: it deals, answers, and is the hub everyone dials (PROTOCOL sections 3, 6 and 7)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable

from pooled_nb.errors import NotReady, RoomClosed
from pooled_nb.mesh.clock import Clock
from pooled_nb.mesh.gatekeeper import Gatekeeper
from pooled_nb.mesh.mesh import Mesh
from pooled_nb.mesh.messages import chat
from pooled_nb.mesh.messages.link import DeviceMeta
from pooled_nb.mesh.network import Network
from pooled_nb.mesh.wiresettings import DEFAULT, WireSettings
from pooled_nb.room import parting, sentences
from pooled_nb.room.answering import Answering
from pooled_nb.room.core import (
    Again,
    AnswerEvent,
    AskOptions,
    ChatSettings,
    Notice,
    Role,
    State,
    Status,
    unheard,
)
from pooled_nb.room.dealer import Dealer, Settings
from pooled_nb.room.doorfacts import Starts
from pooled_nb.room.feed import Feed
from pooled_nb.room.greeting import Greeting
from pooled_nb.room.hostdeals import HostDeals
from pooled_nb.room.hostgate import DoorVerbs, HostGate
from pooled_nb.room.hosthears import HostHears
from pooled_nb.room.hoststatus import host_status
from pooled_nb.room.keeping import Slot
from pooled_nb.room.leaving import in_turn
from pooled_nb.room.memory import Memory, SavedQuestion, SavedSeat
from pooled_nb.room.mending import Mending
from pooled_nb.room.parting import Parting
from pooled_nb.room.planning import Question
from pooled_nb.room.questions import check_again, check_question
from pooled_nb.room.remembering import Remembering
from pooled_nb.room.roomfile import Opened, SavedWays
from pooled_nb.room.starter import Starter
from pooled_nb.room.starting import OnProgress
from pooled_nb.room.style import check_settings, style_message
from pooled_nb.room.supplied import Supplied
from pooled_nb.room.ways import Ways
from pooled_nb.room.weights.hostside import HostWeights
from pooled_nb.room.weights.means import Means
from pooled_nb.room.weights.supply import Supply
from pooled_nb.shard import ModelFacts, Shard

log = logging.getLogger(__name__)


class HostRoom(DoorVerbs, Remembering, HostDeals, HostHears, Supplied):
    """`RoomCore` and `MeshListener` of the creator. Everything runs on the mesh loop.

    Parameters
    ----------
    new_shard
        Makes another shard when the one before died.
    keeper
        The gate: invite key, passes, lobby. None: a new one, that asks.
    starts
        Whose question may start the room.
    ways
        By which ways its connections go.
    means
        What it may do about weights.
    """

    role: Role = "host"

    def __init__(
        self,
        *,
        settings: Settings,
        model: ModelFacts,
        shard: Shard,
        new_shard: Callable[[], Shard],
        network: Network,
        clock: Clock,
        name: str,
        meta: DeviceMeta,
        wiring: WireSettings = DEFAULT,
        keeper: Gatekeeper | None = None,
        starts: Starts = "all",
        ways: Ways | None = None,
        means: Means | None = None,
    ) -> None:
        self.code = settings.code
        self.on_change: Callable[[], None] = unheard
        self.on_notice: Callable[[str], None] = unheard
        self.on_close: Callable[[], Awaitable[None]] | None = None
        """Called once when the room is over: whoever opened servers and files for it closes them."""
        self.on_memory: Callable[[], None] = unheard
        """Called when what `memory` gives may have changed."""
        self.asked: list[SavedQuestion] = []
        keeper = keeper or Gatekeeper()
        self.mesh = Mesh(
            network=network,
            clock=clock,
            name=name,
            meta=meta,
            listener=self,
            gates=keeper,
            wiring=wiring,
        )
        self._settings, self._clock, self._ways = settings, clock, ways
        self._gate = HostGate(room=self, mesh=self.mesh, clock=clock, keeper=keeper, starts=starts)
        means = means or Means()
        self._weights = HostWeights(
            mesh=self.mesh,
            model=model,
            holdings=means.holdings,
            runner=means.runner,
            gives=means.gives,
            deal=lambda: self._dealer.deal,
            say=self.say,
        )
        self._supply = Supply(
            mesh=self.mesh,
            clock=clock,
            means=means,
            others=self._weights,
            on_change=self.changed,
            say=self.say,
        )
        self._dealer = Dealer(
            mesh=self.mesh,
            clock=clock,
            settings=settings,
            model=model,
            shard=shard,
            new_shard=new_shard,
            on_shard_died=self._on_shard_died,
            weights=self._weights,
            supply=self._supply,
        )
        self._state: State = "open"
        self._why = self._closing = ""
        self._answering: Answering | None = None
        self._ids: dict[str, str] = {}
        self._recalled: Memory | None = None
        self._abandoned: Memory | None = None
        self._seats: list[SavedSeat] = []
        self._came: asyncio.Event | None = None
        self._parting: Parting | None = None
        self._remembered: object = None
        self._greeting = Greeting(house=self, dealer=self._dealer, outbox=self.mesh)
        self._mending = Mending(bench=self, dealer=self._dealer, mesh=self.mesh, clock=clock)
        self._starter = Starter(stage=self, dealer=self._dealer, outbox=self.mesh)

    async def open(self, servers: list[str], token: str | None = None) -> None:
        """Register the room's code. Raises `SignalingDown` or `RoomError`."""
        await self.mesh.create(self.code, servers, token=token)
        self._answering = Answering(
            me=self.mesh.id,
            name=self.mesh.name,
            shard=lambda: self._dealer.shard,
            outbox=self.mesh,
            clock=self.mesh.clock,
            ctx=lambda: self._settings.ctx,
            on_change=self._answering_changed,
            on_failed=self.say,
        )
        self._remind(self._answering)

    @property
    def state(self) -> State:
        """The state, apart from whether somebody is being answered."""
        return self._state

    @property
    def answering(self) -> Answering:
        """The host's queue and conversation."""
        if self._answering is None:
            raise RoomClosed("The room is not open yet.", "Wait until it is.")
        return self._answering

    # -- RoomCore ----------------------------------------------------------------------------------

    def status(self) -> Status:
        """See `RoomCore.status`."""
        return host_status(
            code=self.code,
            state=self._state,
            why=self._why,
            mesh=self.mesh,
            settings=self._settings,
            dealer=self._dealer,
            answering=self._answering,
            gate=self._gate,
            mending=self._mending,
            supply=self._supply,
            given=self._weights.given,
            network=self.network,
            closing=sentences.CLOSING if self._closing else "",
        )

    async def start(self, progress: OnProgress | None = None, *, fast: bool = False) -> None:
        """See `RoomCore.start`."""
        await self._starter.start(progress, fast=fast)

    def ask(self, text: str, options: AskOptions) -> AsyncIterator[AnswerEvent]:
        """See `RoomCore.ask`."""
        return self._put(lambda: check_question(text, options), text)

    def again(self, what: Again, options: AskOptions) -> AsyncIterator[AnswerEvent]:
        """See `RoomCore.again`."""
        return self._put(lambda: check_again(what, options), "", what)

    async def _put(
        self, check: Callable[[], AskOptions], text: str, again: Again | None = None
    ) -> AsyncIterator[AnswerEvent]:
        options = check()
        if self._state == "closed":
            raise RoomClosed("The room is over.", "Host a new one.")
        if self._closing:
            raise NotReady("The room closes after the answer that runs.", "Ask in another room.")
        feed = Feed()
        question = Question(text, self.mesh.name, options, feed, again)
        self.answering.offer(self.mesh.id, None, question)
        self.asked = [known for known in self.asked if known.text != text]  # of a process before: asked again
        if options.fast and self._dealer.exact:
            feed.put(Notice(sentences.EXACT_ROOM))
        try:
            async for event in feed:
                yield event
        finally:
            if not feed.over:
                self.answering.stop(self.mesh.id, feed=feed)

    async def configure(self, settings: ChatSettings) -> None:
        """See `RoomCore.configure`."""
        if self._state == "closed":
            raise RoomClosed("The room is over.", "Host a new one.")
        before, now = self.answering.settings, check_settings(settings)
        self.answering.settings = now
        if now.visibility != before.visibility:
            self.mesh.broadcast(chat.Visibility(mode=now.visibility))
        if style_message(now) != style_message(before):
            self.mesh.broadcast(style_message(now))
        if now.redeal != before.redeal:
            self._mending.allow(now.redeal)
        self.on_memory()
        self.changed()

    def keep(self, slot: Slot | None, *, embedded: bool, opened: Opened | None = None) -> None:
        """Save the gate, and what is remembered, from now on: the room is open. See `keeping`, `roomfile`."""
        chosen = self._ways
        self._gate.save_in(
            slot,
            embedded=embedded,
            opened=opened or Opened(),
            memory=self.memory,
            ways=lambda: SavedWays.of(chosen.choice) if chosen else SavedWays(),
        )
        self.on_memory = self._gate.remember

    async def stop(self) -> None:
        """See `RoomCore.stop`."""
        self.answering.stop(self.mesh.id, host=True)

    async def reset(self) -> None:
        """See `RoomCore.reset`."""
        self.answering.reset()
        self.on_memory()

    async def leave(self, *, after_answer: bool = False) -> None:
        """Close the room: everyone is told. Never raises."""
        if after_answer and self._answering and self._state != "closed" and self._parting is None:
            self._closing = parting.CLOSES
            self._parting = Parting(answering=self._answering, outbox=self.mesh)
            self._parting.refuse_waiting()
            self.changed()
            try:
                await self._parting.wait()
            except BaseException:  # its person thought better of it: the room goes on
                self._closing, self._parting = "", None
                self.changed()
                raise
        await self._end("The room is closed.", self._gate.close, self.mesh.leave)

    async def abandon(self) -> None:
        """This process ends, and the next one takes the room back: nobody is told that it is over."""
        self._abandoned = self.memory()
        await self._end(
            "The host restarts.", lambda: self._gate.close(keep=True), self.mesh.abandon, abandoned=True
        )

    async def _end(
        self,
        why: str,
        keep: Callable[[], Awaitable[None]],
        leave: Callable[[], Awaitable[None]],
        *,
        abandoned: bool = False,
    ) -> None:
        if self._state == "closed":
            return
        self.set_state("closed", why)
        if self._parting:
            self._parting.cut()
        self._dealer.shard.on_died = None
        self._mending.close()
        answering, on_close = self._answering, self.on_close
        await in_turn(
            keep,  # first: a kernel that is asked to end has a second for all of this
            *([leave] if abandoned else []),  # who hears nothing keeps its questions, and asks them again
            self._starter.cancel,
            *([lambda: answering.close(why)] if answering else []),
            *([] if abandoned else [leave]),
            self.close_ways,
            self._dealer.close,
            self._supply.close,
            self._weights.close,
            *([on_close] if on_close else []),
        )

    # -- what changes ------------------------------------------------------------------------------

    def _answering_changed(self) -> None:
        if (answering := self._answering) is None:
            return
        chain = answering.chain
        self.mesh.watch(chain.workers if chain and answering.answering else ())
        self._mending.answer_changed()
        if self._parting:
            self._parting.changed()
        if self._came:
            self._came.set()
        now = (answering.queue.running, answering.queue.waiting, answering.conversation.last)
        if now != self._remembered:
            self._remembered = now
            self.on_memory()
        self.on_change()

    def say(self, sentence: str) -> None:
        """Tell the host's person."""
        self.on_notice(sentence)

    def changed(self) -> None:
        """Something that is shown changed."""
        self.on_change()

    def set_state(self, state: State, why: str = "") -> None:
        """The state changed, and ``why``; a closed room stays closed."""
        if self._state != "closed":
            self._state, self._why = state, why
            self.on_change()
