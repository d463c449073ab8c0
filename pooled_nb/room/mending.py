"""Keeps the deal whole: obeys `Recovery` and `Watching`, gives them time (PROTOCOL sections 3, 6 and 8)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from pooled_nb.errors import PooledError
from pooled_nb.mesh.clock import SOON, Clock, Timer
from pooled_nb.mesh.mesh import Mesh
from pooled_nb.mesh.messages import deal as wire
from pooled_nb.mesh.messages.link import Member
from pooled_nb.room import sentences
from pooled_nb.room.answering import Answering
from pooled_nb.room.core import State
from pooled_nb.room.dealer import Dealer
from pooled_nb.room.dealing import Deal, Seat, grew
from pooled_nb.room.flapping import Flapping
from pooled_nb.room.recovery import Action, Degrade, Hold, Moved, Recovery, Redeal, Relink, Reload, Whole
from pooled_nb.room.watching import Heard, Stopped, Watching

TICK_S = 0.5
POLITE_S = 1.0
"""Devices that want their memory back within so long cost one deal."""


class Bench(Protocol):
    """What mending needs of the room around it."""

    @property
    def state(self) -> State:
        """The room's state now."""

    @property
    def answering(self) -> Answering:
        """The host's queue and conversation."""

    def degrade(self, why: str) -> None:
        """Something of the deal is gone."""

    def go_on(self, *, degraded: bool, moved: bool, reloaded: Sequence[str]) -> None:
        """The deal is whole again: after a room that was degraded, with other ids, of these devices."""

    def deal_again(self) -> None:
        """Deal anew, by itself."""

    def loads_on(self) -> None:
        """A device that loads again got on."""

    def say(self, sentence: str) -> None:
        """A sentence for the person."""

    def changed(self) -> None:
        """Something that is shown changed."""


class Mending:
    """The actor around the two deciders."""

    def __init__(self, *, bench: Bench, dealer: Dealer, mesh: Mesh, clock: Clock) -> None:
        self._bench, self._dealer, self._mesh, self._clock = bench, dealer, mesh, clock
        self._awake = mesh.clock
        self._recovery, self._watching = Recovery(), Watching()
        self._timer: Timer | None = None
        self._closed = False
        self._moved = self._said = False
        self._flapping = Flapping()
        self._reloaded: dict[str, int] = {}
        """Who was told its layers again since the deal was whole: how many percent it has loaded."""
        self._lent: dict[str, float] = {}
        self._shown: object = None
        self._polite_at: float | None = None
        self._kept: dict[str, float] = {}
        """Who could not be let go, and what it lends: that is said once."""

    # -- what is shown -----------------------------------------------------------------------------

    @property
    def held(self) -> bool:
        """Whether nothing can be computed now, and nobody is given up."""
        return self._recovery.health == "held" and not self._recovery.dealing

    @property
    def trouble(self) -> str:
        """Why the newest attempt to deal without what is missing did not work."""
        return self._recovery.trouble

    @property
    def mends(self) -> bool:
        """Whether something of the deal was missing when the start began that is under way."""
        return self._recovery.health == "degraded"

    @property
    def stopped(self) -> bool:
        """Whether a device of the chain does not respond to the answer that runs."""
        return bool(self._watching.silent)

    @property
    def waits_for(self) -> list[str]:
        """Names of devices that the answer, or the room, waits for."""
        if self._recovery.dealing:
            return []
        silent = [seat.name for seat in self._workers if seat.id in self._watching.silent]
        return list(dict.fromkeys([*self._recovery.names, *silent]))

    @property
    def heals(self) -> bool:
        """Whether a degraded room gets whole without a new deal: what it misses is back, or on its way."""
        return bool(self._recovery.loading) or not self._recovery.given_up

    @property
    def by_itself(self) -> bool:
        """Whether the room deals again by itself."""
        return self._recovery.by_itself

    @property
    def redeal_in(self) -> int | None:
        """Whole seconds until the room deals again by itself."""
        left = None if self._recovery.dealing else self._recovery.redeal_in(self._awake.now())
        return None if left is None else int(-(-left // 1))

    @property
    def loading(self) -> dict[str, int]:
        """Devices that load again, by id: how many percent."""
        ids = [] if self._recovery.dealing else self._recovery.loading
        return {id: self._reloaded.get(id, 0) for id in ids}

    def silent(self, id: str) -> tuple[int, int]:
        """Whole seconds for which a device is waited for without a word, and how many it gets; else zeros."""
        away = self._recovery.health != "whole" and self._mesh.facts(id) is None
        quiet = self._mesh.silence(id)
        if quiet is None or not (away or id in self._watching.silent):
            return 0, 0
        return max(1, int(quiet)), int(self._mesh.patience(id))

    @property
    def sentence(self) -> str:
        """What is so, and what happens next; empty while all is well."""
        r = self._recovery
        if r.dealing:
            return ""
        if r.health == "degraded":
            auto = r.redeal_in(self._awake.now()) is not None
            return sentences.degraded_here(r.sentence, auto=auto, heals=self.heals, trouble=r.trouble)
        for seat in self._workers:
            silent_s, patience_s = self.silent(seat.id)
            if seat.id in self._watching.silent and silent_s and r.health == "whole":
                return sentences.stopped_responding(seat.name, silent_s, patience_s)
        return r.sentence

    @property
    def _workers(self) -> Sequence[Seat]:
        return self._dealer.deal.seats[1:] if self._dealer.deal else ()

    # -- starts ------------------------------------------------------------------------------------

    def begin(self) -> None:
        """A start begins."""
        self._recovery.begin()
        self._polite_at = None
        self._watching.end()
        self._arm()

    def online(self, deal: Deal) -> None:
        """A start ended well. Whoever was lost in its last moment is missed now."""
        now = self._awake.now()
        self._recovery.online(deal.seats, now)
        self._moved, self._said, self._reloaded = False, False, {}
        self._flapping.back()  # what broke before is over with its deal: the next break is news
        self._lent, self._kept = self._dealer.lenders(), {}
        here = {member.id for member in self._mesh.roster}
        for seat in deal.seats[1:]:
            if seat.id not in here:
                why = sentences.gone(seat.name, (seat.lo, seat.hi), left=False)
                self.obey(self._recovery.gone(seat.id, why, now, left=False))
            elif self._mesh.facts(seat.id) is None:
                self.obey(self._recovery.away(seat.id, now))
        self._let_go_soon()  # a wish of the time in which the room loaded
        self.answer_changed()

    def not_dealt(self, why: str) -> None:
        """A deal could not be made; the one there is goes on as it can."""
        self.obey(self._recovery.not_dealt(why, self._awake.now()))

    def failed(self, why: str) -> None:
        """A new deal ended badly: nobody holds anything, and it is tried again."""
        self.obey(self._recovery.failed(f"{sentences.first(why)}.", self._awake.now()))

    def over(self) -> None:
        """Nothing is dealt, and nothing is to be."""
        self._recovery.over()
        self._watching.end()
        self._arm()

    def close(self) -> None:
        """The room is over."""
        self._closed = True
        self.over()

    def allow(self, auto: bool) -> None:
        """See `ChatSettings.redeal`."""
        self.obey(self._recovery.allow(auto, self._awake.now()))

    # -- devices -----------------------------------------------------------------------------------

    def away(self, id: str) -> None:
        """Its link broke."""
        self.obey(self._recovery.away(id, self._awake.now()))

    def gone(self, id: str, name: str, *, left: bool, kicked: bool) -> None:
        """It is out of the roster."""
        seat = self._dealer.deal.seat(id) if self._dealer.deal else None
        if seat:
            why = sentences.gone(name, (seat.lo, seat.hi), left=left, kicked=kicked)
            self.obey(self._recovery.gone(id, why, self._awake.now(), left=left or kicked))

    def back(self, member: Member, was: str) -> list[Action]:
        """It is admitted: what is to be done once it has heard of the room (`obey`)."""
        now, key = self._awake.now(), self._mesh.seat(member.id)
        actions = self._recovery.back(member.id, member.name, now, was=was, key=key)
        for action in actions:
            if isinstance(action, Moved):  # what it hears of the room names it right
                self._move(action)
        return [action for action in actions if not isinstance(action, Moved)]

    def unloaded(self, id: str, why: str) -> None:
        """It holds its layers no more."""
        self.obey(self._recovery.unloaded(id, why, self._awake.now()))

    def heard(self, sender: str, message: wire.Progress | wire.Ready | wire.Linked | wire.LinkLost) -> None:
        """A worker reports, while no start is under way."""
        r, now = self._recovery, self._awake.now()
        match message:
            case wire.Progress() if self._dealer.is_current(sender, message.deal):
                r.progress(sender, now)
                if message.pct > self._reloaded.get(sender, 100):
                    self._reloaded[sender] = message.pct
                    self._bench.loads_on()
            case wire.Ready() if self._dealer.is_current(sender, message.deal):
                self.obey(r.ready(sender, now))
            case wire.Linked():
                self.obey(r.linked(sender, message.next, now, ok=message.ok))
            case wire.LinkLost():
                self.obey(r.link_lost(sender, message.name, now))

    def roster_changed(self) -> None:
        """Somebody came or went, lends more, or less than it holds (``pledge``)."""
        before, self._lent = self._lent, self._dealer.lenders()
        if grew(before, self._lent):
            self._kept.clear()
            self.obey(self._recovery.joined(self._awake.now()))
        self._let_go_soon()

    def answer_changed(self) -> None:
        """An answer began or ended, or something of it changed."""
        if self._bench.answering.answering and not self._recovery.dealing:
            self._watching.begin(self._clock.now())
            self._arm()
        else:
            self._watching.end()
        self._let_go()

    def link_lost(self, sender: str) -> None:
        """A worker found no link to the next one."""
        deal = self._dealer.deal
        after = deal.seat(deal.neighbours(sender)[1]) if deal and deal.seat(sender) else None
        if after:
            self.obey(self._recovery.link_lost(sender, after.name, self._awake.now()))

    def obey(self, actions: Sequence[Action]) -> None:
        """Do what was decided."""
        if self._closed:
            return
        for action in actions:
            match action:
                case Reload():
                    self._reloaded[action.id] = 0
                    self._dealer.reload(action.id)
                case Relink():
                    self._mesh.send(action.id, wire.Next(next=action.next, relink=True))
                case Hold():
                    self._hold(action.why)
                case Degrade():
                    self._said = True
                    self._bench.degrade(action.why)
                case Whole():
                    self._whole(degraded=action.degraded)
                case Redeal():
                    self._bench.deal_again()
                case Moved():
                    self._move(action)
        if not self._recovery.dealing:
            self._mesh.spare(self._recovery.loading)
        self._arm()
        self._bench.changed()

    # -- inside ------------------------------------------------------------------------------------

    def _move(self, action: Moved) -> None:
        self._dealer.moved(action.was, action.id, action.name)
        self._moved = True

    def _hold(self, why: str) -> None:
        answering = self._bench.answering
        if answering.answering and not self._said and self._flapping.broken(self._awake.now()):
            self._said = True
            self._bench.say(why)
        answering.hold(why)

    def _whole(self, *, degraded: bool) -> None:
        reloaded, moved, said = list(self._reloaded), self._moved, self._said
        self._reloaded, self._moved, self._said = {}, False, False
        self._bench.go_on(degraded=degraded, moved=moved, reloaded=reloaded)
        if self._flapping.back() or said:
            self._bench.say(sentences.WHOLE)
        self._let_go_soon()

    def _leavers(self) -> dict[str, float]:
        """Who holds more than it lends any more, where that wish is new: what it lends, by id."""
        lent = {m.id: m.meta.contrib_gb or 0.0 for m in self._mesh.roster}
        held = {s.id: s.gb * (1 - 1e-6) for s in self._workers if s.id in lent}
        return {id: lent[id] for id, gb in held.items() if lent[id] < gb and self._kept.get(id) != lent[id]}

    def _let_go_soon(self) -> None:
        if self._leavers():
            self._polite_at = self._awake.now() + POLITE_S
            self._arm()

    def _let_go(self) -> None:
        """Between two answers, deal without those that want their memory back."""
        due = self._polite_at
        if due is None or self._awake.now() < due or self._bench.answering.queue.running:
            return
        self._polite_at = None
        leavers = self._leavers()
        if not leavers or self._recovery.dealing or self._recovery.health == "degraded":
            return  # they are looked for again once the room is whole
        try:
            self._dealer.make({})
        except PooledError as error:
            self._kept |= leavers
            names = [seat.name for seat in self._workers if seat.id in leavers]
            self._bench.say(sentences.not_without(names, str(error)))
            return
        self._bench.answering.hold(sentences.DEALS_AGAIN)  # at once: the next question must not begin
        self._recovery.begin()
        self._bench.deal_again()

    def _watch(self) -> None:
        devices: dict[str, Heard] = {}
        for seat in self._workers:
            silence = self._mesh.silence(seat.id)
            if silence is not None and seat.id not in self._recovery.loading:
                facts = self._mesh.facts(seat.id)
                devices[seat.id] = Heard(
                    silence, facts.rtt_s if facts else None, facts.answered_s if facts else None
                )
        names = {seat.id: seat.name for seat in self._workers}
        for told in self._watching.tick(self._clock.now(), devices):
            if isinstance(told, Stopped) and self._mesh.facts(told.id):  # of a lost link was told already
                patience = int(self._mesh.patience(told.id))
                self._bench.say(sentences.stopped_responding(names[told.id], int(told.silent_s), patience))

    def _arm(self) -> None:
        if self._timer:
            self._timer.cancel()
            self._timer = None
        busy = self._watching.on or self._polite_at is not None
        if self._closed or (self._recovery.health == "whole" and not busy):
            return
        now = self._awake.now()
        at = self._recovery.next_at(now)
        wait = TICK_S if at is None else min(TICK_S, max(SOON, at - now))
        self._timer = self._clock.call_later(wait, self._tick)

    def _tick(self) -> None:
        self._timer = None
        if self._watching.on:
            self._watch()
        if self._watching.silent:
            self._bench.answering.not_awaited()
        self._let_go()
        actions = self._recovery.tick(self._awake.now())
        if actions:
            self.obey(actions)
        self._arm()
        shown = (self.waits_for, self.redeal_in, [self.silent(s.id) for s in self._workers])
        if shown != self._shown:
            self._shown = shown
            self._bench.changed()
