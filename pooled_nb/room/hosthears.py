"""What a host hears: of devices, and from them (PROTOCOL sections 3, 5, 6 and 7)."""

from __future__ import annotations

import asyncio

from pooled_nb.mesh.frame import Frame
from pooled_nb.mesh.gatekeeper import MAX_PASSES
from pooled_nb.mesh.mesh import Mesh
from pooled_nb.mesh.messages import Message, chat, weights
from pooled_nb.mesh.messages import deal as wire
from pooled_nb.mesh.messages.link import Member
from pooled_nb.room import sentences
from pooled_nb.room.answering import Answering
from pooled_nb.room.core import State
from pooled_nb.room.dealer import Dealer
from pooled_nb.room.greeting import Greeting
from pooled_nb.room.hostgate import HostGate
from pooled_nb.room.losses import AGAIN, LINK, LOST
from pooled_nb.room.mending import Mending
from pooled_nb.room.networking import Networking
from pooled_nb.room.planning import Question
from pooled_nb.room.questions import again_of, options_of
from pooled_nb.room.starter import Starter
from pooled_nb.room.weights.hostside import HostWeights
from pooled_nb.room.weights.supply import Supply


class HostHears(Networking):
    """The part of `HostRoom` that is its `MeshListener`."""

    mesh: Mesh
    _dealer: Dealer
    _starter: Starter
    _mending: Mending
    _greeting: Greeting
    _gate: HostGate
    _weights: HostWeights
    _supply: Supply
    _ids: dict[str, str]
    """Who had a seat last, by the id of its pass."""
    _came: asyncio.Event | None
    _closing: str
    """Why no question is taken any more; empty: they are."""

    @property
    def state(self) -> State:
        """The room's state now."""
        raise NotImplementedError

    @property
    def answering(self) -> Answering:
        """The host's queue and conversation."""
        raise NotImplementedError

    # -- devices -----------------------------------------------------------------------------------

    def on_roster(self, members: tuple[Member, ...]) -> None:
        """Who is here changed, or what somebody lends."""
        self._mending.roster_changed()
        if self._came:
            self._came.set()
        self.on_change()

    def on_admitted(self, member: Member, was: str) -> None:
        """A device is in, or in again: it hears what there is, then what it is to hold."""
        key = self.mesh.seat(member.id)
        before = was or self._ids.get(key, "")
        if before and before != member.id:
            self.answering.renamed(before, member.id)
        if key:
            self._ids.pop(key, None)
            self._ids[key] = member.id
            while len(self._ids) > MAX_PASSES:
                del self._ids[next(iter(self._ids))]
        start = self._dealer.start
        self._weights.back(before or member.id, member.id)
        self._supply.gone(before)
        actions = self._mending.back(member, was)
        self._greeting.greet(member.id, back=bool(before))
        self._dealer.tell_share(key or member.id, member.id)
        if start and was:
            start.back(member.id, was)
        self._mending.obey(actions)

    def on_away(self, id: str, name: str, why: str) -> None:
        """A link broke; its device may come back."""
        if self._dealer.start:
            self._dealer.start.away(id)
        self._weights.away(id)
        self._supply.gone(id)
        self._mending.away(id)
        self.on_change()

    def on_back(self) -> None:
        """Never of the creator."""

    def on_gone(self, id: str, name: str, why: str, *, left: bool) -> None:
        """A device is gone: its questions go; what it held is missing."""
        self.answering.left(id)
        self._greeting.left(id)
        self._weights.left(id)
        self._supply.gone(id)
        kicked = self._gate.kicks(id)
        if start := self._dealer.start:
            reason = "it left." if left else f"it is gone ({why.rstrip('.')})."
            start.lost(id, reason, left=left or kicked)
        self._mending.gone(id, name, left=left, kicked=kicked)
        self.on_change()

    # -- what they say -----------------------------------------------------------------------------

    def on_message(self, sender: str, message: Message) -> None:
        """What devices say."""
        match message:
            case chat.Ask():
                self._on_ask(sender, message)
            case chat.Cmd():
                self._on_cmd(sender, message)
            case chat.Stop():
                self.answering.stop(sender, rid=message.rid)
            case wire.Progress() | wire.Ready() | wire.Error() | wire.Linked() if self._dealer.start:
                self._dealer.start.heard(sender, message)
            case wire.Progress() | wire.Ready() | wire.Linked() | wire.LinkLost():
                self._mending.heard(sender, message)
            case wire.Error():
                self._on_error(sender, message)
            case wire.Telemetry():
                self._dealer.computes(sender, message)
            case weights.Wpart():
                self._supply.heard(sender, message)
            case _:
                self._weights.heard(sender, message)

    def on_frame(self, sender: str, frame: Frame) -> None:
        """A return of the chain."""
        if self.answering.chain:
            self.answering.chain.on_return(sender, frame)

    def on_closed(self, why: str) -> None:
        """Never of the creator."""

    def _on_ask(self, sender: str, message: chat.Ask) -> None:
        name = self._name(sender)
        question = Question(message.text, name, options_of(message.nb))
        if self._closing:
            self.answering.turn_away(sender, message.rid, question, "gone", self._closing)
            return
        if self.state == "open" and not self.answering.holding and message.text.strip():
            if self._gate.refuses_start(sender, name):
                self.answering.turn_away(sender, message.rid, question, "open", sentences.HOST_STARTS)
                return
            self._starter.by_question(name)
        self.answering.offer(sender, message.rid, question)

    def _on_cmd(self, sender: str, message: chat.Cmd) -> None:
        what = again_of(message.cmd)
        if what:
            name, options = self._name(sender), options_of(message.nb)
            question = Question("", name, options, again=what, mid=message.mid)
            if self._closing:
                self.answering.turn_away(sender, message.rid, question, "gone", self._closing)
            else:
                self.answering.offer(sender, message.rid, question)

    def _on_error(self, sender: str, message: wire.Error) -> None:
        chain, deal = self.answering.chain, self._dealer.deal
        if deal is None or deal.seat(sender) is None or not self._dealer.is_current(sender, message.deal):
            return
        why = f"{self._name(sender)} says: {sentences.first(message.message)}"
        if message.load:  # it holds its layers no more
            if message.killed:
                did = "loaded" if sender in self._mending.loading else "computed"
                self._dealer.killed(sender, did=did, needed=True)
            self._mending.unloaded(sender, f"{why}.")
        elif chain and (message.epoch is None or message.epoch == chain.laps.epoch):
            if message.lost in LOST:
                chain.lose(why)
                if message.lost == LINK:
                    self._mending.link_lost(sender)
            else:
                chain.refuse(why, sentences.rest(message.message) or AGAIN)

    def _name(self, id: str) -> str:
        return next((m.name for m in self.mesh.roster if m.id == id), "a device")
