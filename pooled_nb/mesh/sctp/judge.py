"""Whether this process tunes its connections: found out once, by trying (DESIGN section 4)."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass

from pooled_nb.mesh.sctp import pin
from pooled_nb.mesh.wiresettings import SCTP, STOCK

log = logging.getLogger(__name__)

SETTING = SCTP
WAIT_S = 5.0
"""Longest wait for the trial, which has limits of its own: one that hangs all the same is a no."""
UPDATE = "Run: pip install -U pooled-nb"
REPORT = "Report it, with what pooled-nb doctor says."


@dataclass(frozen=True, slots=True)
class Verdict:
    """What was found.

    Attributes
    ----------
    tuned
        Whether connections are tuned; else they are aiortc's own, and work the same, slower.
    why
        Why they are not, in words: the rest of a sentence.
    step
        What to do about it; empty where nothing is wrong.
    """

    tuned: bool
    why: str = ""
    step: str = ""


UNTRIED = Verdict(False, "it was not tried yet")


class Judge:
    """Finds the verdict, once, whoever asks first: several rooms, loops and threads may at the same time.

    Parameters
    ----------
    trial
        Tries tuned connections; the reason why they do not work, or nothing. Runs in a thread of its own,
        so that no loop waits for a step of it, nor ends it by being closed.
    misfit
        As `pin.misfit`.
    """

    def __init__(
        self,
        trial: Callable[[], str],
        *,
        misfit: Callable[[], str] = pin.misfit,
        env: Mapping[str, str] = os.environ,
        wait: float = WAIT_S,
    ) -> None:
        self._trial, self._misfit, self._env, self._wait = trial, misfit, env, wait
        self._lock = threading.Lock()
        self._found: Future[Verdict] | None = None

    @property
    def verdict(self) -> Verdict:
        """What was found; `UNTRIED` before that."""
        found = self._found
        return found.result() if found is not None and found.done() else UNTRIED

    async def settle(self) -> Verdict:
        """Find out, or wait for who does. Never raises; returns within seconds."""
        found = self._begin()
        if not found.done():
            try:
                # Cancelling who waits does not cancel what all wait for.
                await asyncio.wait_for(asyncio.wrap_future(found), self._wait)
            except TimeoutError:
                self._say(found, Verdict(False, "the trial of it did not end", REPORT))
        return found.result()

    def _begin(self) -> Future[Verdict]:
        with self._lock:
            if self._found is not None:
                return self._found
            found = self._found = Future()
            found.set_running_or_notify_cancel()  # from here on nobody can cancel it
        if self._env.get(SETTING, "").strip().lower() == STOCK:
            self._say(found, Verdict(False, f"{SETTING}={STOCK} is set", f"To change that, unset {SETTING}."))
        elif why := self._misfit():
            self._say(found, Verdict(False, why, UPDATE))
        else:
            threading.Thread(target=self._try, args=(found,), name="pooled-sctp-trial", daemon=True).start()
        return found

    def _try(self, found: Future[Verdict]) -> None:
        try:
            why = self._trial()
        except BaseException as error:  # also what ends a thread: somebody waits
            why = f"the trial of it failed with {type(error).__name__}"
            log.debug("the trial of tuned connections failed", exc_info=error)
        self._say(found, Verdict(False, why, REPORT) if why else Verdict(True))

    def _say(self, found: Future[Verdict], verdict: Verdict) -> None:
        with self._lock:
            if found.done():  # too late: others go by what was said
                return
            if verdict.tuned:
                log.info("data channels: tuned for %s", pin.SHOWN)
            else:
                asked_for = verdict.why.startswith(SETTING)
                level = logging.INFO if asked_for else logging.WARNING
                text = "data channels: stock aiortc (%s): links are slower. %s"
                log.log(level, text, verdict.why, verdict.step)
            found.set_result(verdict)
