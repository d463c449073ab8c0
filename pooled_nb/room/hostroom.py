"""The host's room: it deals, answers, and is the hub everyone dials (PROTOCOL sections 3, 6 and 7)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable

from pooled_nb.errors import NotReady, PooledError, RoomClosed
from pooled_nb.mesh.clock import Clock
from pooled_nb.mesh.frame import Frame
from pooled_nb.mesh.mesh import KEEPALIVE_MS, Mesh
from pooled_nb.mesh.messages import Message, chat
from pooled_nb.mesh.messages import deal as wire
from pooled_nb.mesh.messages.link import DeviceMeta, Member
from pooled_nb.mesh.network import Network
from pooled_nb.room import sentences
from pooled_nb.room.answering import Answering, Question
from pooled_nb.room.chain import Chain
from pooled_nb.room.core import AnswerEvent, AskOptions, DeviceLine, Role, State, Status, unheard
from pooled_nb.room.dealer import Dealer, Settings
from pooled_nb.room.dealing import Deal
from pooled_nb.room.feed import Feed
from pooled_nb.room.lines import device_line
from pooled_nb.room.questions import check_question, options_of
from pooled_nb.room.starting import OnProgress
from pooled_nb.shard import ModelFacts, Shard

log = logging.getLogger(__name__)


class HostRoom:
    """`RoomCore` and `MeshListener` of the creator. Everything runs on the mesh loop.

    Parameters
    ----------
    new_shard
        Makes another shard when the one before died.
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
    ) -> None:
        self.code = settings.code
        self.on_change: Callable[[], None] = unheard
        self.on_notice: Callable[[str], None] = unheard
        self.on_close: Callable[[], Awaitable[None]] | None = None
        """Called once when the room is over: whoever opened servers and files for it closes them."""
        self.mesh = Mesh(
            network=network, clock=clock, name=name, meta=meta, listener=self, keepalive_ms=keepalive_ms
        )
        self._settings, self._clock = settings, clock
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
        self._starting: asyncio.Task[None] | None = None
        self._by_question: asyncio.Task[None] | None = None
        self._answering: Answering | None = None

    async def open(self, servers: list[str], token: str | None = None) -> None:
        """Register the room's code. Raises `SignalingDown` or `RoomError`."""
        await self.mesh.create(self.code, servers, token=token)
        self._answering = Answering(
            shard=lambda: self._dealer.shard,
            outbox=self.mesh,
            clock=self._clock,
            ctx=lambda: self._settings.ctx,
            on_change=self._answering_changed,
            on_failed=self._failed,
        )

    @property
    def answering(self) -> Answering:
        """The host's queue and conversation."""
        if self._answering is None:
            raise RoomClosed("The room is not open yet.", "Wait until it is.")
        return self._answering

    # -- RoomCore ----------------------------------------------------------------------------------

    def status(self) -> Status:
        """See `RoomCore.status`."""
        answering, model, deal = self._answering, self._dealer.model, self._dealer.deal
        busy = bool(answering and answering.answering)
        state: State = "answering" if busy and self._state == "online" else self._state
        return Status(
            code=self.code,
            state=state,
            sentence=self._sentence(state),
            model=model.repo,
            label=model.label,
            layers=model.layers,
            ctx=self._settings.ctx,
            used=answering.used if answering else 0,
            exact=self._settings.exact and (deal is None or deal.one_sig),
            devices=[self._line(m) for m in self.mesh.roster],
            waiting=len(answering.queue) if answering else 0,
            answering=answering.answering if answering else "",
            signaling=self.mesh.server,
        )

    async def start(self, progress: OnProgress | None = None) -> None:
        """See `RoomCore.start`."""
        if self._state == "closed":
            raise RoomClosed("The room is over.", "Host a new one.")
        if (same := self._starting) is not None:  # whoever asks for a start meanwhile waits for the same one
            await asyncio.wait([same])
            if same.cancelled():
                raise NotReady("The start was stopped.", "Start the room again.")
            same.result()
            return
        try:
            self._dealer.make({})  # what cannot be dealt leaves everything as it was
        except PooledError as error:
            if self._state == "open":
                self._set_state("open", f"The room did not start: {error}")
            raise
        self._starting = asyncio.create_task(self._start_anew(progress), name="pooled-start")
        try:
            await self._starting
        except asyncio.CancelledError:
            if self.status().state == "closed":
                raise RoomClosed("The room was closed while it loaded.", "Host a new one.") from None
            raise
        finally:
            self._starting = None

    async def _start_anew(self, progress: OnProgress | None) -> None:
        again = self._dealer.deal is not None
        excluded: dict[str, str] = {}
        try:
            self._set_state("loading")
            if not self.answering.holding:
                self.answering.offline("loading", "The room is loading. Ask again when it is online.")
            self.answering.holding = True
            await self.answering.idle()
            while True:
                deal = self._dealer.make(excluded)
                self._dealer.announce(again=again or bool(excluded))
                trouble = await self._dealer.load(deal, lambda pct, words: self._told(progress, pct, words))
                if trouble is None:
                    break
                excluded[trouble.id] = trouble.why
                self.on_notice(
                    f"{trouble.name} cannot hold its layers: {trouble.why} Dealing again without it."
                )
        except BaseException as error:
            why = str(error) if isinstance(error, PooledError) else "the host stopped it."
            sentence = f"The room did not start: {why}"
            self._dealer.deal = None
            self.mesh.broadcast(wire.StartFailed(why=sentence[:2_000]))
            self.answering.offline("open", sentence)
            self._set_state("open", sentence)
            raise
        self._go_online(deal)

    def ask(self, text: str, options: AskOptions) -> AsyncIterator[AnswerEvent]:
        """See `RoomCore.ask`."""
        return self._ask(text, options)

    async def _ask(self, text: str, options: AskOptions) -> AsyncIterator[AnswerEvent]:
        options = check_question(text, options)
        feed = Feed()
        question = Question(text, self.mesh.name, options, feed)
        self.answering.offer(self.mesh.id, None, question)
        try:
            async for event in feed:
                yield event
        finally:
            if not feed.over:
                self.answering.stop(self.mesh.id, feed=feed)

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
        self._set_state("closed", "The room is closed.")
        self._dealer.shard.on_died = None
        if self._starting:
            self._starting.cancel()
            await asyncio.gather(self._starting, return_exceptions=True)
        steps: list[Callable[[], Awaitable[None]]] = [self.mesh.leave, self._dealer.close]
        if self._answering:
            steps.insert(0, lambda: self.answering.close("The room is closed."))
        if self.on_close:
            steps.append(self.on_close)
        for step in steps:  # one that fails must not keep the next from being done
            try:
                await step()
            except Exception:
                log.exception("leaving was not clean")

    # -- starting ----------------------------------------------------------------------------------

    def _go_online(self, deal: Deal) -> None:
        self._dealer.loaded(deal)
        workers = deal.seats[1:]
        chain = Chain(
            shard=self._dealer.shard,
            sender=self.mesh,
            clock=self._clock,
            workers=[s.id for s in workers],
            names=[s.name for s in workers],
            dtype=deal.dtype,
            dim=self._dealer.model.dim,
            width=deal.width,
            cols=deal.cols,
            rtt=self._worst_rtt,
        )
        self.mesh.broadcast(self._dealer.layers(deal))
        self.mesh.broadcast(self._dealer.ready_all())
        self._set_state("online")
        self.answering.online(chain)

    def _worst_rtt(self) -> float:
        deal = self._dealer.deal
        facts = [self.mesh.facts(s.id) for s in deal.seats[1:]] if deal else []
        return max((f.rtt_s or 0.0 for f in facts if f), default=0.0)

    # -- MeshListener ------------------------------------------------------------------------------

    def on_roster(self, members: tuple[Member, ...]) -> None:
        """Who is here changed."""
        self.on_change()

    def on_admitted(self, member: Member) -> None:
        """A newcomer hears what there is (PROTOCOL section 3, order after admission)."""
        chain = self.answering.chain
        if chain and member.id in chain.workers:
            chain.fail(f"{member.name} came over a new link")  # what was under way on the old one is lost
        if self._state == "online" and self._dealer.deal:
            self.mesh.send(member.id, self._dealer.layers(self._dealer.deal))
            self.mesh.send(member.id, self._dealer.ready_all())
            self.mesh.send(member.id, chat.History(items=self.answering.conversation.recent()))
        else:
            self.mesh.send(member.id, wire.Wait())

    def on_gone(self, id: str, name: str, why: str, *, left: bool) -> None:
        """A device is gone: its questions go; a chain device leaves the room degraded."""
        self.answering.left(id)
        deal, start = self._dealer.deal, self._dealer.start
        if start:
            start.loading.failed(id, "it left." if left else f"it is gone ({why.rstrip('.')}).")
        seat = deal.seat(id) if deal else None
        # After a lost link the device itself may follow: then its name is the better reason.
        if seat and self._state in ("online", "degraded"):
            self._degrade(sentences.gone(name, (seat.lo, seat.hi), left=left))
        else:
            self.on_change()

    def on_message(self, sender: str, message: Message) -> None:
        """What devices say."""
        match message:
            case chat.Ask():
                name = self._name(sender)
                if self._state == "open" and not self.answering.holding and message.text.strip():
                    self._start_by_question(name)
                self.answering.offer(
                    sender, message.rid, Question(message.text, name, options_of(message.nb))
                )
            case chat.Stop():
                self.answering.stop(sender, rid=message.rid)
            case wire.Progress() | wire.Ready() | wire.Error() | wire.Linked() if self._dealer.start:
                self._dealer.start.heard(sender, message)
            case wire.Error():
                self._on_error(sender, message)
            case wire.LinkLost():
                self._on_link_lost(sender, message.name)
            case _:
                pass

    def on_frame(self, sender: str, frame: Frame) -> None:
        """A return of the chain."""
        if self.answering.chain:
            self.answering.chain.on_return(sender, frame)

    def on_closed(self, why: str) -> None:
        """Never of the creator."""

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
            chain.fail(why)

    def _on_link_lost(self, sender: str, name: str) -> None:
        chain = self.answering.chain
        if chain and sender in chain.workers and self._state == "online":
            ends = f"{self._name(sender)} and {name}"
            self._degrade(f"The link between {ends} is gone.")

    # -- what changes ------------------------------------------------------------------------------

    def _on_shard_died(self, why: str) -> None:
        if self._state == "online":
            self._degrade(f"{sentences.first(why)}.")

    def _degrade(self, what: str) -> None:
        """Say what happened; only the host can start the room again, so others hear another next step."""
        there = f"{what} The host can start the room again."
        here = f"{what} Start the room again to deal over the devices here."
        self.mesh.broadcast(wire.Degraded(why=there[:2_000]))
        self.answering.offline("degraded", there)
        self._set_state("degraded", here)
        self.on_notice(here)

    def _answering_changed(self) -> None:
        chain = self.answering.chain
        self.mesh.watch(chain.workers if chain and self.answering.answering else ())
        self.on_change()

    def _start_by_question(self, name: str) -> None:
        """The first question starts the room, whoever asks: it was opened around a model to answer."""
        try:
            self._dealer.make({})
        except PooledError as error:
            self.answering.why_not = ("open", f"The room did not start: {error}")
            return
        self.answering.holding = True
        self.on_notice(f"{name} asks: the room starts.")
        self._by_question = asyncio.create_task(self._start_quietly(), name="pooled-start-by-question")

    async def _start_quietly(self) -> None:
        try:
            await self.start()
        except PooledError as error:
            log.info("a start by a question failed: %s", error)
            # It may have ended before it began, since devices come and go: nobody may wait for it then.
            if self.answering.holding and self._starting is None:
                self.answering.offline("open", f"The room did not start: {error}")

    def _told(self, progress: OnProgress | None, pct: int, words: str) -> None:
        if progress:
            progress(pct, words)
        self.on_change()

    def _failed(self, why: str) -> None:
        self.on_notice(why)

    def _set_state(self, state: State, why: str = "") -> None:
        if self._state != "closed":
            self._state, self._why = state, why
            self.on_change()

    def _name(self, id: str) -> str:
        return next((m.name for m in self.mesh.roster if m.id == id), "a device")

    def _sentence(self, state: State) -> str:
        if self._why:
            return self._why
        deal, start = self._dealer.deal, self._dealer.start
        if state == "loading":
            return f"Loading {self._dealer.model.label}: {start.loading.total if start else 0} %."
        if state == "answering":
            return f"Answering {self.answering.answering}."
        if state == "online" and deal:
            names = [s.name for s in deal.seats]
            return sentences.online(names, one_sig=deal.one_sig, exact=self._settings.exact)
        return sentences.opened(len(self.mesh.roster) - 1, is_host=True)

    def _line(self, member: Member) -> DeviceLine:
        deal, start = self._dealer.deal, self._dealer.start
        seat = deal.seat(member.id) if deal else None
        return device_line(
            member,
            self.mesh,
            layers=(seat.lo, seat.hi) if seat else None,
            held_gb=seat.gb if seat and self._state == "online" else 0.0,
            progress=start.loading.pct.get(member.id, 0) if start and seat else None,
            dealt=deal is not None,
            out=deal.reasons.get(member.id) or deal.out.get(member.id, "") if deal else "",
        )
