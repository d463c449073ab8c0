"""What answers stand on: a chain, nothing for now, or nothing any more."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from pooled_nb.mesh.clock import Clock
from pooled_nb.room.chain import Chain


@dataclass(slots=True)
class Ground:
    """What there is to compute with; wakes whoever waits for it.

    Attributes
    ----------
    chain
        The newest chain; None before the first, and after `give_up`.
    held
        Why nothing can be computed now, in a sentence; empty: it can.
    gone
        Code and words for why nobody is answered any more; None: somebody may be.
    times
        How often the room was said to be whole.
    """

    chain: Chain | None = None
    held: str = ""
    gone: tuple[str, str] | None = None
    times: int = 0
    epoch: int = 0
    """Where the epochs of the newest chain stood when it was closed."""
    _sleepers: list[asyncio.Future[None]] = field(default_factory=list)

    @property
    def ready(self) -> Chain | None:
        """The chain that laps run over now; None: there is none."""
        return self.chain if self.chain and not self.held and not self.chain.closed else None

    def stand(self, chain: Chain) -> None:
        """The room is whole: over the same chain, or over a new one."""
        if self.chain is not chain:
            self._leave("the room dealt anew")
        self.chain, self.held, self.gone = chain, "", None
        self.times += 1
        chain.resume()
        self.wake()

    def hold(self, why: str) -> None:
        """Nothing can be computed for now: laps in flight are lost."""
        self.held, self.gone = why or "The room waits.", None
        if self.chain:
            self.chain.suspend(self.held)
        self.wake()

    def give_up(self, code: str, why: str) -> None:
        """Nobody is answered any more."""
        self.held, self.gone = "", (code, why)
        self._leave(why)
        self.wake()

    def _leave(self, why: str) -> None:
        chain, self.chain = self.chain, None
        if chain:
            chain.close(why)
            self.epoch = chain.laps.epoch

    def wake(self) -> None:
        """Something changed for who waits."""
        sleepers, self._sleepers = self._sleepers, []
        for sleeper in sleepers:
            if not sleeper.done():
                sleeper.set_result(None)

    async def changed(self, clock: Clock, seconds: float) -> None:
        """Wait for the next change, at most so long."""
        sleeper: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._sleepers.append(sleeper)
        timer = clock.call_later(seconds, lambda: None if sleeper.done() else sleeper.set_result(None))
        try:
            await sleeper
        finally:
            timer.cancel()
            if sleeper in self._sleepers:
                self._sleepers.remove(sleeper)
