"""What a host keeps of its room for a restart, and how it goes on (PROTOCOL section 8, host resume)."""

from __future__ import annotations

import asyncio

from pooled_nb.errors import PooledError
from pooled_nb.mesh.clock import SOON
from pooled_nb.mesh.mesh import Mesh
from pooled_nb.room import sentences
from pooled_nb.room.answering import Answering
from pooled_nb.room.core import State
from pooled_nb.room.dealer import Dealer, Settings
from pooled_nb.room.dealing import Deal, Fixed
from pooled_nb.room.memory import MAX_ASKED, Memory, SavedQuestion, SavedSeat
from pooled_nb.room.mending import Mending
from pooled_nb.room.starter import Starter

BACK_S = 25.0
"""So long a host that goes on waits for the devices that held layers."""
ASKER_S = 35.0
"""And so long for another device that was being answered: a guest hears of its host's death after 30 s
of silence (section 8), unless that said that it ends."""
ASKS_S = 2.0
"""Who was being answered asks that again as soon as it is back; one that does not has taken it back."""


class Remembering:
    """The part of `HostRoom` that outlives its process."""

    asked: list[SavedQuestion]
    """This person's own questions that had no answer when the process before ended."""
    mesh: Mesh
    _state: State
    _settings: Settings
    _dealer: Dealer
    _starter: Starter
    _mending: Mending
    _answering: Answering | None
    _ids: dict[str, str]
    _recalled: Memory | None
    _abandoned: Memory | None
    """What it was when this process gave it up."""
    _seats: list[SavedSeat]
    """Who held layers last."""
    _came: asyncio.Event | None
    """Set when somebody came, or the time is over, while `resume` waits."""

    def set_state(self, state: State, why: str = "") -> None:
        """The state changed."""
        raise NotImplementedError

    def memory(self) -> Memory | None:
        """What a restart of this host needs; None: there is no room to go on with."""
        answering, s, model = self._answering, self._settings, self._dealer.model
        if answering is None or self._state == "closed":
            return self._abandoned
        fixed, seats = self._dealer.fixed, self._seats
        starts = fixed is None and self._state == "loading"
        if starts and (deal := self._dealer.deal):
            seats = _seats_of(deal)  # a process that dies in its first load goes on with that
        return Memory(
            model=model.words,
            revision=model.revision,
            folder=model.folder,
            label=model.label,
            name=self.mesh.name,
            split=s.split,
            ctx=s.ctx,
            exact=self._dealer.exact,
            lends_gb=s.lends_gb,
            dtype=s.dtype,
            kv=s.kv,
            quant=s.quant,
            speculate=s.speculate,
            settings=answering.settings,
            # Until its first start has gone well a resumed one is not fixed: it may die again before that.
            started=starts or fixed is not None or self.resuming or self._state == "degraded",
            fixed_dtype=fixed.dtype if fixed else "",
            fixed_cols=fixed.cols if fixed else 0,
            seats=seats,
            chat=answering.chat(self._key_of),
            running=answering.running(self._key_of),
            asked=[*answering.own_questions(), *self.asked][:MAX_ASKED],
        )

    def recall(self, memory: Memory) -> None:
        """Go on with what a process before remembered. Before `open`, and before any start."""
        self._recalled, self._seats, self.asked = memory, list(memory.seats), list(memory.asked)
        if memory.fixed_dtype:
            self._dealer.fix(Fixed(memory.fixed_dtype, memory.fixed_cols, memory.kv, memory.quant))
        self._dealer.exact = memory.exact
        self._dealer.order = [seat.seat for seat in memory.seats]

    def _remind(self, answering: Answering) -> None:
        """The room is open: its conversation is as before."""
        if (memory := self._recalled) is not None:
            answering.settings = memory.settings
            self._mending.allow(memory.settings.redeal)
            # Whoever asked is known by its pass until it is in again, and has an id.
            self._ids |= {e.seat: e.seat for e in memory.chat.exchanges if e.seat}
            answering.recall(memory.chat, lambda seat: seat)
            if running := memory.running:
                self._ids[running.seat] = running.seat
                answering.expected = running.seat, running.rid, running.name

    def _held(self, deal: Deal) -> None:
        """Who holds layers now."""
        self._seats = _seats_of(deal)

    resuming = False
    """Whether it waits for those who held layers, and deals then: a question starts nothing, and waits."""

    async def resume(self) -> None:
        """Wait for those who held layers, and deal again. Once, after `open`; nothing where none did."""
        memory, answering = self._recalled, self._answering
        if memory is None or answering is None or not memory.started or self._state != "open":
            return
        self.resuming = answering.holding = True  # who asks meanwhile waits with us
        try:
            await self._wait(answering, [seat.seat for seat in memory.seats])
            answering.expected = None  # whoever is not back yet finds the room gone on
            if self._state == "open" and not self._starter.running:
                await self._go_on()
        finally:
            self.resuming = False

    async def _wait(self, answering: Answering, keys: list[str]) -> None:
        """Wait until those are back who held layers, and who was being answered has asked that again."""
        clock = self.mesh.clock  # awake: who could not knock while this device slept is not late
        since = clock.now()
        until, asks = since + BACK_S, since + ASKER_S
        while self._state == "open" and not self._starter.running:
            now, here = clock.now(), {self.mesh.seat(m.id): m.id for m in self.mesh.roster}
            back, expected = sum(key in here for key in keys), answering.expected
            if expected and expected[0] in here.values():
                asks = min(asks, now + ASKS_S)
            if now >= asks:
                expected = answering.expected = None
            held = back < len(keys) and now < until
            if not held and expected is None:
                break
            waits = sentences.going_on(back, len(keys), BACK_S)
            if not held and expected:
                waits = sentences.going_on_for(expected[2], ASKER_S)
            self.set_state("open", waits)
            came = self._came = asyncio.Event()
            rest = min(end for end in (until, asks) if end > now) - now
            timer = clock.call_later(max(SOON, rest), came.set)
            try:
                await came.wait()
            finally:
                timer.cancel()
                self._came = None

    async def _go_on(self) -> None:
        try:
            await self._starter.start(None, fast=False)
        except PooledError as error:
            if self._state == "open":  # it is tried again, and who asked goes on waiting
                self._mending.failed(f"{sentences.CANNOT_GO_ON} {error}")

    def _key_of(self, id: str) -> str:
        """The id of a device's pass, also of one that has left; empty: it has none, or it is forgotten."""
        return self.mesh.seat(id) or next((key for key, known in self._ids.items() if known == id), "")


def _seats_of(deal: Deal) -> list[SavedSeat]:
    return [SavedSeat(seat=s.key, name=s.name, lo=s.lo, hi=s.hi) for s in deal.seats[1:] if s.key]
