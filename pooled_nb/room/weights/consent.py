"""Decides whether this device may download what a load needs: its person is asked above an allowance.

PROTOCOL section 6: "A worker asks its person before it downloads more than its setting allows". What comes
from devices of the room counts as what comes from the hub: it fills the disk and the line all the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from pooled_nb.errors import ModelNotFound, NotReady
from pooled_nb.mesh.clock import Clock, Timer
from pooled_nb.mesh.liveness import LATE_S
from pooled_nb.room import sentences
from pooled_nb.room.weights.ask import DownloadAsk

ANSWER_S = 120.0
"""So long its person is waited for, as with the six digits; no answer is no."""
DOWNLOAD_GB = 8.0
"""What a load may make a device download without asking, unless its person says otherwise."""


class Consent:
    """One question at a time.

    Parameters
    ----------
    allowance_gb
        GB that one load may bring without asking.
    on_change
        `asks` changed.

    Attributes
    ----------
    asks
        What its person is asked now.
    """

    def __init__(self, *, clock: Clock, allowance_gb: float, on_change: Callable[[], None]) -> None:
        self.asks: DownloadAsk | None = None
        self._clock, self._allowance, self._on_change = clock, allowance_gb, on_change
        self._said: asyncio.Future[bool | None] | None = None
        self._timer: Timer | None = None
        self._agreed: dict[str, float] = {}
        """GB that its person said yes to, by model: a load that was broken off is not asked for again."""

    def needed(self, ask: DownloadAsk) -> bool:
        """Whether its person has to be asked."""
        return not ask.gb <= max(self._allowance, self._agreed.get(ask.model, 0.0))

    def agreed(self, ask: DownloadAsk) -> bool:
        """Whether its person said yes to so much of this model before."""
        return ask.gb <= self._agreed.get(ask.model, -1.0)

    async def may(self, ask: DownloadAsk) -> None:
        """Return once this much may be downloaded.

        Raises
        ------
        ModelNotFound
            Its person said no, or nothing.
        """
        if not self.needed(ask):
            return
        said = self._said = asyncio.get_running_loop().create_future()
        self.asks = ask
        self._wait(said)
        self._on_change()
        try:
            yes = await said
        finally:
            if self._said is said:
                self._stop()
                self._on_change()
        if not yes:
            why = "its person said no" if yes is not None else "its person did not answer"
            raise ModelNotFound(
                # Its host says it of this device, too: no word of it may be "this".
                f"{sentences.size(ask.gb * 1e9)} would have to be downloaded for {ask.layers} of "
                f"{ask.model}, and {why}.",
                "Start again once its person agrees, or let it lend less.",
            )
        self._agreed[ask.model] = ask.gb

    def answer(self, *, yes: bool) -> None:
        """Its person decided. Raises `NotReady` where nothing is asked (any more)."""
        if self._said is None or self._said.done():
            raise NotReady("This device asks for no download now.", "Nothing has to be allowed.")
        self._said.set_result(yes)

    def _stop(self) -> None:
        self.asks = self._said = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _wait(self, said: asyncio.Future[bool | None]) -> None:
        due = self._clock.now() + ANSWER_S

        def over() -> None:
            if said.done():
                return
            if self._clock.now() - due > LATE_S:  # this device slept: its person had no time to answer
                self._wait(said)
            else:
                said.set_result(None)

        self._timer = self._clock.call_later(ANSWER_S, over)
