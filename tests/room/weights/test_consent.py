"""Whether a download is allowed (PROTOCOL section 6)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from pooled_nb.errors import ModelNotFound, NotReady
from pooled_nb.mesh.clock import LoopClock
from pooled_nb.room.weights.ask import DownloadAsk
from pooled_nb.room.weights.consent import ANSWER_S, Consent
from tests.sim.clock import simulate


def ask(gb: float, *, model: str = "some/model", lo: int = 0, hi: int = 10) -> DownloadAsk:
    return DownloadAsk(model=model, lo=lo, hi=hi, gb=gb, free_gb=40.0)


class Sleepy(LoopClock):
    """Its timers fire late, as on a device that slept."""

    late = 0.0

    def call_later(self, delay: float, callback: Callable[[], None]) -> Any:
        return super().call_later(delay + self.late, callback)


def run(scenario: Callable[[Consent, list[bool], Sleepy], Awaitable[None]]) -> None:
    async def whole() -> None:
        clock = Sleepy()
        shown: list[bool] = []
        consent = Consent(clock=clock, allowance_gb=8.0, on_change=lambda: shown.append(bool(consent.asks)))
        await scenario(consent, shown, clock)

    simulate(whole)


def test_below_the_setting_nobody_is_asked() -> None:
    """PROTOCOL section 6: "before it downloads more than its setting allows": 8 GB is not more than 8 GB."""

    async def scenario(consent: Consent, shown: list[bool], clock: Sleepy) -> None:
        await consent.may(ask(8.0))
        assert shown == []
        with pytest.raises(NotReady):
            consent.answer(yes=True)

    run(scenario)


def test_a_yes_holds_for_as_much_of_that_model() -> None:
    """PROTOCOL section 6: a load that was broken off is not asked for again; more of it, or another, is."""

    async def scenario(consent: Consent, shown: list[bool], clock: Sleepy) -> None:
        asking = asyncio.ensure_future(consent.may(ask(20.0)))
        await asyncio.sleep(1)
        assert consent.asks == ask(20.0)
        consent.answer(yes=True)
        with pytest.raises(NotReady):
            consent.answer(yes=False)
        await asking
        assert shown == [True, False]
        await consent.may(ask(20.0))
        assert consent.agreed(ask(20.0))
        assert consent.needed(ask(20.1))
        assert consent.needed(ask(9.0, model="another/model"))
        assert not consent.agreed(ask(1.0, model="another/model"))
        assert shown == [True, False]

    run(scenario)


@pytest.mark.parametrize("answer", [False, None])
def test_no_says_what_and_what_next(answer: bool | None) -> None:
    """PROTOCOL section 6: two minutes, as with the digits: no answer is no; the host hears the sentence."""

    async def scenario(consent: Consent, shown: list[bool], clock: Sleepy) -> None:
        began = clock.now()
        asking = asyncio.ensure_future(consent.may(ask(20.0, lo=3, hi=4)))
        await asyncio.sleep(1)
        if answer is not None:
            consent.answer(yes=answer)
        with pytest.raises(ModelNotFound) as error:
            await asking
        said = "said no" if answer is False else "did not answer"
        assert error.value.what == (
            "20 GB would have to be downloaded for layer 4 of some/model, and its person " + said + "."
        )
        assert error.value.next_step
        assert clock.now() - began == (1.0 if answer is False else ANSWER_S)
        assert consent.asks is None
        assert shown == [True, False]
        assert consent.needed(ask(20.0))

    run(scenario)


def test_a_device_that_slept_waits_anew() -> None:
    """PROTOCOL section 8: a timer that fired late: nobody could answer meanwhile."""

    async def scenario(consent: Consent, shown: list[bool], clock: Sleepy) -> None:
        clock.late = 600.0
        asking = asyncio.ensure_future(consent.may(ask(20.0)))
        await asyncio.sleep(1)
        clock.late = 0.0
        await asyncio.sleep(ANSWER_S + 600.0)
        assert not asking.done()
        consent.answer(yes=True)
        await asking

    run(scenario)


def test_who_stops_asking_leaves_no_question() -> None:
    """PROTOCOL section 6: the load was stopped: nothing is asked any more."""

    async def scenario(consent: Consent, shown: list[bool], clock: Sleepy) -> None:
        asking = asyncio.ensure_future(consent.may(ask(20.0)))
        await asyncio.sleep(1)
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        assert consent.asks is None
        assert shown == [True, False]

    run(scenario)


def test_the_question_in_words() -> None:
    """DESIGN section 2: layers count from 1 and inclusive for people; sizes are in GB."""
    assert ask(12.3456).text == (
        "Loading layers 1–10 of some/model makes this device download 12.3 GB, "
        "and 40 GB are free on its disk. May it?"
    )
    assert DownloadAsk(model="m", lo=3, hi=4, gb=9).text == (
        "Loading layer 4 of m makes this device download 9 GB. May it?"
    )
