"""What a host does about its deals: start, go on, lose something, deal again (PROTOCOL sections 6 and 8)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from pooled_nb.errors import PooledError
from pooled_nb.mesh.clock import Clock
from pooled_nb.mesh.mesh import Mesh
from pooled_nb.mesh.messages import deal as wire
from pooled_nb.room import sentences
from pooled_nb.room.answering import Answering
from pooled_nb.room.chaining import chain_of
from pooled_nb.room.core import State
from pooled_nb.room.dealer import Dealer, Settings
from pooled_nb.room.dealing import Deal
from pooled_nb.room.greeting import Greeting
from pooled_nb.room.mending import Mending
from pooled_nb.room.starter import Starter

log = logging.getLogger(__name__)


class HostDeals:
    """The part of `HostRoom` that is `starter.Stage` and `mending.Bench`."""

    mesh: Mesh
    on_change: Callable[[], None]
    on_memory: Callable[[], None]
    on_notice: Callable[[str], None]
    _state: State
    _clock: Clock
    _settings: Settings
    _dealer: Dealer
    _starter: Starter
    _mending: Mending
    _greeting: Greeting

    @property
    def answering(self) -> Answering:
        """The host's queue and conversation."""
        raise NotImplementedError

    def set_state(self, state: State, why: str = "") -> None:
        """The state changed."""
        raise NotImplementedError

    def _held(self, deal: Deal) -> None:
        """This deal's devices hold their layers."""
        raise NotImplementedError

    # -- starting ----------------------------------------------------------------------------------

    def dealing(self) -> None:
        """A start begins."""
        self.answering.turns_away = None
        self._mending.begin()
        self.on_memory()

    def go_online(self, deal: Deal) -> None:
        """Everybody holds what this deal says."""
        self._dealer.loaded(deal)
        self._held(deal)
        self._tell_all()
        self.set_state("online")
        self._answer_on()
        self._mending.online(deal)
        self._greeting.online()
        self.on_memory()

    def not_dealt(self, why: str) -> None:
        """No deal could be made: everything is as it was."""
        if self._state == "open":
            self.set_state("open", f"{sentences.not_started(again=False)} {why}")
            return
        known = self._mending.trouble
        self._mending.not_dealt(why)
        if self._state == "degraded" and self._mending.trouble != known:
            self._tell_degraded(why)
        if self._state == "online" and not self._mending.held and (chain := self.answering.chain):
            self.answering.online(chain)

    def not_started(self, why: str, *, again: bool) -> None:
        """The start did not work, and nobody holds anything now."""
        queue = self.answering.queue
        waits = queue.running is not None or len(queue) > 0
        if self._state != "closed" and again and (waits or self._mending.mends):
            self._mending.failed(why)
            return
        self._mending.over()
        self.answering.offline("open", why)
        self.set_state("open", why)
        self.on_memory()

    # -- a deal that loses something -----------------------------------------------------------------

    def degrade(self, why: str) -> None:
        """Something of the deal is gone; what comes next is the host's affair, so others hear other words."""
        self.set_state("degraded")
        m = self._mending
        self._tell_degraded(sentences.degraded_there(why, auto=m.by_itself, heals=m.heals))

    def _tell_degraded(self, there: str) -> None:
        """``there``: what is so and what comes, to everybody but this device's person."""
        self._greeting.degraded = wire.Degraded(why=there[:2_000])
        self.mesh.broadcast(self._greeting.degraded)
        # No deal fits on those who are here: who asks now is told so, and does not wait for a chance.
        self.answering.turns_away = ("degraded", there) if self._mending.trouble else None
        self.answering.hold(there)
        self.on_notice(self._mending.sentence)

    def go_on(self, *, degraded: bool, moved: bool, reloaded: Sequence[str]) -> None:
        """The deal is whole again."""
        deal = self._dealer.deal
        if deal is None:
            return
        if degraded:
            self._tell_all()
        elif moved:
            self.mesh.broadcast(self._dealer.layers(deal))
        if not degraded:  # who was told to load waits for the word
            for id in reloaded:
                self.mesh.send(id, self._dealer.layers(deal))
                self.mesh.send(id, self._dealer.ready_all())
        self.set_state("online")
        self._answer_on()
        self._held(deal)
        if degraded:
            self._greeting.online()
        self.on_memory()

    def loads_on(self) -> None:
        """A device that loads again got on: everybody sees how far (section 6, ``ai-hostprog``)."""
        deal, pct = self._dealer.deal, self._mending.loading
        if deal and self._state == "degraded":  # else nobody but that device is told when it is over
            names = {seat.name: pct[seat.id] for seat in deal.seats if seat.id in pct}
            self.mesh.broadcast(wire.HostProgress(all=names))
        self.on_change()

    def deal_again(self) -> None:
        """Deal anew, by itself, where that can be done."""
        try:
            self._dealer.make({})
        except PooledError as error:
            self.not_dealt(str(error))
            return
        except Exception as error:  # whatever it is, the room must not wait for this deal for ever
            log.exception("a deal could not be made")
            self.not_dealt(f"The deal could not be made ({type(error).__name__}).")
            return
        self.on_notice(sentences.DEALS)
        self._starter.by_itself()

    def _tell_all(self) -> None:
        if self._dealer.deal:
            self.mesh.broadcast(self._dealer.layers(self._dealer.deal))
        self.mesh.broadcast(self._dealer.ready_all())

    def _answer_on(self) -> None:
        """Over a new chain: its first frame resets what devices hold, whatever that was."""
        deal, answering = self._dealer.deal, self.answering
        answering.turns_away = None
        if deal:
            answering.online(
                chain_of(
                    deal,
                    dealer=self._dealer,
                    settings=self._settings,
                    mesh=self.mesh,
                    epoch=answering.epoch,
                )
            )

    def _on_shard_died(self, why: str) -> None:
        if self._state in ("online", "degraded"):
            self._mending.unloaded(self.mesh.id, f"{self.mesh.name} says: {sentences.first(why)}.")
