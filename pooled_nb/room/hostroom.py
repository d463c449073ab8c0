"""The host's room: it deals, answers, and is the hub everyone dials (PROTOCOL sections 3, 6 and 7)."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable

from pooled_nb.errors import RoomClosed
from pooled_nb.mesh.clock import Clock
from pooled_nb.mesh.frame import Frame
from pooled_nb.mesh.gatekeeper import Gatekeeper
from pooled_nb.mesh.mesh import KEEPALIVE_MS, Mesh
from pooled_nb.mesh.messages import Message, chat, weights
from pooled_nb.mesh.messages import deal as wire
from pooled_nb.mesh.messages.link import DeviceMeta, Member
from pooled_nb.mesh.network import Network
from pooled_nb.room import sentences, serving
from pooled_nb.room.answering import Answering
from pooled_nb.room.chain import AGAIN
from pooled_nb.room.chaining import chain_of
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
from pooled_nb.room.dealing import Deal
from pooled_nb.room.doorfacts import Starts
from pooled_nb.room.feed import Feed
from pooled_nb.room.hostgate import DoorVerbs, HostGate
from pooled_nb.room.hoststatus import host_status
from pooled_nb.room.keeping import Slot
from pooled_nb.room.leaving import in_turn
from pooled_nb.room.networking import Networking
from pooled_nb.room.planning import Question
from pooled_nb.room.questions import again_of, check_again, check_question, options_of
from pooled_nb.room.starter import Starter
from pooled_nb.room.starting import OnProgress
from pooled_nb.room.style import check_settings, is_default_style, style_message
from pooled_nb.room.ways import Ways
from pooled_nb.shard import ModelFacts, Shard

log = logging.getLogger(__name__)


class HostRoom(DoorVerbs, Networking):
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
        keepalive_ms: float = KEEPALIVE_MS,
        keeper: Gatekeeper | None = None,
        starts: Starts = "all",
        ways: Ways | None = None,
    ) -> None:
        self.code = settings.code
        self.on_change: Callable[[], None] = unheard
        self.on_notice: Callable[[str], None] = unheard
        self.on_close: Callable[[], Awaitable[None]] | None = None
        """Called once when the room is over: whoever opened servers and files for it closes them."""
        keeper = keeper or Gatekeeper()
        self.mesh = Mesh(
            network=network,
            clock=clock,
            name=name,
            meta=meta,
            listener=self,
            gates=keeper,
            keepalive_ms=keepalive_ms,
        )
        self._settings, self._clock, self._ways = settings, clock, ways
        self._gate = HostGate(room=self, mesh=self.mesh, clock=clock, keeper=keeper, starts=starts)
        self._dealer = Dealer(
            mesh=self.mesh,
            clock=clock,
            settings=settings,
            model=model,
            shard=shard,
            new_shard=new_shard,
            on_shard_died=self._on_shard_died,
        )
        self._state: State = "open"
        self._why = ""
        self._degraded = wire.Degraded(why="")
        self._answering: Answering | None = None
        self._starter = Starter(stage=self, dealer=self._dealer, outbox=self.mesh)

    async def open(self, servers: list[str], token: str | None = None) -> None:
        """Register the room's code. Raises `SignalingDown` or `RoomError`."""
        await self.mesh.create(self.code, servers, token=token)
        self._answering = Answering(
            me=self.mesh.id,
            name=self.mesh.name,
            shard=lambda: self._dealer.shard,
            outbox=self.mesh,
            clock=self._clock,
            ctx=lambda: self._settings.ctx,
            on_change=self._answering_changed,
            on_failed=self.say,
        )

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
            network=self.network,
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
        feed = Feed()
        question = Question(text, self.mesh.name, options, feed, again)
        self.answering.offer(self.mesh.id, None, question)
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
        self.changed()

    def keep(self, slot: Slot | None, *, embedded: bool) -> None:
        """Save the gate in this slot from now on: the room is open. See `pooled_nb.room.keeping`."""
        self._gate.save_in(slot, embedded=embedded)

    async def stop(self) -> None:
        """See `RoomCore.stop`."""
        self.answering.stop(self.mesh.id, host=True)

    async def reset(self) -> None:
        """See `RoomCore.reset`."""
        self.answering.reset()

    async def leave(self) -> None:
        """Close the room: everyone is told. Never raises."""
        if self._state == "closed":
            return
        self.set_state("closed", "The room is closed.")
        self._dealer.shard.on_died = None
        answering, on_close = self._answering, self.on_close
        await in_turn(
            self._gate.close,  # first: a kernel that is asked to end has a second for all of this
            self._starter.cancel,
            *([lambda: answering.close(self._why)] if answering else []),
            self.mesh.leave,
            self.close_ways,
            self._dealer.close,
            *([on_close] if on_close else []),
        )

    # -- starting ----------------------------------------------------------------------------------

    def go_online(self, deal: Deal) -> None:
        """Everybody holds what this deal says."""
        self._dealer.loaded(deal)
        chain = chain_of(
            deal, dealer=self._dealer, settings=self._settings, mesh=self.mesh, clock=self._clock
        )
        self.mesh.broadcast(self._dealer.layers(deal))
        self.mesh.broadcast(self._dealer.ready_all())
        self.set_state("online")
        self.answering.online(chain)

    # -- MeshListener ------------------------------------------------------------------------------

    def on_roster(self, members: tuple[Member, ...]) -> None:
        """Who is here changed."""
        self.on_change()

    def on_admitted(self, member: Member) -> None:
        """A newcomer hears what there is (PROTOCOL section 3, order after admission)."""
        chain = self.answering.chain
        if chain and member.id in chain.workers:
            chain.fail(f"{member.name} came over a new link")  # what was under way on the old one is lost
        settings = self.answering.settings
        told: list[Message] = []
        if settings.visibility != "all":
            told.append(chat.Visibility(mode=settings.visibility))
        if not is_default_style(settings):
            told.append(style_message(settings))
        if self._state == "online" and self._dealer.deal:
            told += [self._dealer.layers(self._dealer.deal), self._dealer.ready_all()]
            items = self.answering.conversation.seen_by(member.id, settings.visibility)
            if items or settings.visibility == "all":
                told.append(chat.History(items=items))
        else:
            told.append(wire.Wait())
            if self._state == "degraded":
                told.append(self._degraded)  # else it would think that its first question starts the room
        for message in told:
            self.mesh.send(member.id, message)

    def on_gone(self, id: str, name: str, why: str, *, left: bool) -> None:
        """A device is gone: its questions go; a chain device leaves the room degraded."""
        self.answering.left(id)
        deal, start = self._dealer.deal, self._dealer.start
        if start:
            start.loading.failed(id, "it left." if left else f"it is gone ({why.rstrip('.')}).")
        seat = deal.seat(id) if deal else None
        # After a lost link the device itself may follow: then its name is the better reason.
        if seat and self._state in ("online", "degraded"):
            kicked = self._gate.kicks(id)
            self._degrade(sentences.gone(name, (seat.lo, seat.hi), left=left, kicked=kicked))
        else:
            self.on_change()

    def on_message(self, sender: str, message: Message) -> None:
        """What devices say."""
        match message:
            case chat.Ask():
                name = self._name(sender)
                question = Question(message.text, name, options_of(message.nb))
                if self._state == "open" and not self.answering.holding and message.text.strip():
                    if self._gate.refuses_start(sender, name):
                        self.answering.turn_away(sender, message.rid, question, "open", sentences.HOST_STARTS)
                        return
                    self._starter.by_question(name)
                self.answering.offer(sender, message.rid, question)
            case chat.Cmd():
                self._on_cmd(sender, message)
            case chat.Stop():
                self.answering.stop(sender, rid=message.rid)
            case wire.Progress() | wire.Ready() | wire.Error() | wire.Linked() if self._dealer.start:
                self._dealer.start.heard(sender, message)
            case wire.Error():
                self._on_error(sender, message)
            case wire.LinkLost():
                self._on_link_lost(sender, message.name)
            case weights.Wget():
                self.mesh.send(sender, serving.answer(message, self.mesh.facts(sender), relay=self.has_relay))
            case _:
                pass

    def on_frame(self, sender: str, frame: Frame) -> None:
        """A return of the chain."""
        if self.answering.chain:
            self.answering.chain.on_return(sender, frame)

    def on_closed(self, why: str) -> None:
        """Never of the creator."""

    def _on_cmd(self, sender: str, message: chat.Cmd) -> None:
        what = again_of(message.cmd)
        if what:
            name, options = self._name(sender), options_of(message.nb)
            question = Question("", name, options, again=what, mid=message.mid)
            self.answering.offer(sender, message.rid, question)

    def _on_error(self, sender: str, message: wire.Error) -> None:
        chain = self.answering.chain
        if chain is None or sender not in chain.workers:
            return
        if message.deal is not None and message.deal != self._dealer.number:
            return
        why = f"{self._name(sender)} says: {sentences.first(message.message)}"
        if message.load:  # it holds its layers no more
            self._degrade(f"{why}.")
        elif message.epoch is None or message.epoch == chain.laps.epoch:
            chain.refuse(why, sentences.rest(message.message) or AGAIN)

    def _on_link_lost(self, sender: str, name: str) -> None:
        chain = self.answering.chain
        if chain and sender in chain.workers and self._state == "online":
            ends = f"{self._name(sender)} and {name}"
            self._degrade(f"The link between {ends} is gone.")

    # -- what changes ------------------------------------------------------------------------------

    def _on_shard_died(self, why: str) -> None:
        if self._state == "online":
            self._degrade(f"{self.mesh.name} says: {sentences.first(why)}.")

    def _degrade(self, what: str) -> None:
        """Say what happened; only the host can start the room again, so others hear another next step."""
        there = f"{what} The host can start the room again."
        here = f"{what} Start the room again to deal over the devices here."
        self._degraded = wire.Degraded(why=there[:2_000])
        self.mesh.broadcast(self._degraded)
        self.answering.offline("degraded", there)
        self.set_state("degraded", here)
        self.on_notice(here)

    def _answering_changed(self) -> None:
        chain = self.answering.chain
        self.mesh.watch(chain.workers if chain and self.answering.answering else ())
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

    def _name(self, id: str) -> str:
        return next((m.name for m in self.mesh.roster if m.id == id), "a device")
