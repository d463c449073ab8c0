"""An answer's life on the mesh loop: how it begins, grows and ends, whatever happens in between.

`pooled_nb.answer.Answer` is how any thread reads it.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, Protocol

from pooled_nb import forks, left
from pooled_nb.errors import AnswerFailed, PooledError, RoomClosed
from pooled_nb.job import SLICE_S
from pooled_nb.room.core import (
    Again,
    AnswerEvent,
    AskOptions,
    Done,
    Notice,
    Piece,
    Queued,
    Reason,
    Started,
    Stats,
)
from pooled_nb.room.memory import Resumable
from pooled_nb.threads import mesh

if TYPE_CHECKING:
    from pooled_nb.answer import Answer
    from pooled_nb.progress import Waiting
    from pooled_nb.room.core import RoomCore

STOP_S = 5.0
"""A stopped answer ends after the lap in flight; one that takes longer is cut off."""


class Asked(Protocol):
    """Where an answer was asked: the front door's room."""

    def loading(self, percent: int | None, words: str) -> None:
        """Hear how far the loading is that the question has begun."""

    def held(self, told: str = "") -> str:
        """Why nothing is answered now, in a sentence; empty where something is, or may be.

        ``told``: what the answer was told; where that counts seconds, the room knows how many there are now.
        """

    def began(self, answer: Answer) -> None:
        """Hear that the room has begun this answer (on the mesh loop)."""

    def ask_person(self, view: Waiting) -> None:
        """Ask what its person has to decide before anything is answered, in the thread that waits."""

    def may_again(self, answer: Answer) -> tuple[Again, ...]:
        """What may follow this answer now."""

    def ask_again(self, what: Again, answer: Answer | None = None) -> Answer:
        """Continue the newest answer, or make it anew; live. Raises `NotReady` where ``answer`` is not it."""


class AnswerLife:
    """Asks, takes what comes, ends. The base of `Answer`.

    Parameters
    ----------
    again
        None: ``question`` is asked. Else the room's last answer is continued, or made anew.
    after
        The answer that this one may follow: the newest that the room began here.
    first
        Waits until it may be asked.
    """

    def __init__(
        self,
        core: RoomCore,
        question: str,
        options: AskOptions,
        *,
        room: Asked | None = None,
        again: Again | None = None,
        after: AnswerLife | None = None,
        first: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self.question = question
        self.tokens: list[int] | None = None
        self.stats = Stats()
        self.reason: Reason | None = None
        self.place = 0
        self.notice = ""
        self.loading: tuple[int | None, str] | None = None
        self._core = core
        self._room = room
        self._again = again
        self._after = after if again is not None else None
        self.mid: int | None = None
        self.hidden = False
        self._pieces: list[str] = []
        self._kept = 0
        self._started = False
        self._error: Exception | None = None
        self._changed = threading.Condition()
        self._wakers: set[Callable[[], None]] = set()
        self._stopping = False
        self._over = False
        self._first = first
        self._job = mesh.submit(self._run(options), self._cut)
        forks.known(self)
        # However it ends, also before it began: whoever waits hears of it.
        self._job.on_end(self._settle)

    # On the mesh loop.

    def _report(self, percent: int | None, words: str) -> None:
        self.loading = (percent, words)
        if self._room is not None:
            self._room.loading(percent, words)
        self._wake()

    async def _run(self, options: AskOptions) -> None:
        try:
            if self._first is not None:
                await self._first()
            if self._again is None and self._must_start():
                self._report(None, "dealing the layers")
                with left.kept(self._core, self.question, options):
                    await self._core.start(self._report, fast=options.fast)
            events = self._events(options)
            try:
                async for event in events:
                    self._take(event)
            finally:
                # Closing it early is what takes a question back (see `RoomCore.ask`).
                if (close := getattr(events, "aclose", None)) is not None:
                    await close()
        except asyncio.CancelledError:
            pass  # by `stop`, or because the room is over: what came so far stays

    def _must_start(self) -> bool:
        if self._core.role != "host" or self._core.status().state != "open":
            return False
        return not (isinstance(self._core, Resumable) and self._core.resuming)

    def _events(self, options: AskOptions) -> AsyncIterator[AnswerEvent]:
        if self._again is None:
            return self._core.ask(self.question, options)
        return self._core.again(self._again, options)

    def _cut(self) -> None:
        """Its job never began: it was stopped, or the room was over first."""
        if not self._stopping:
            raise RoomClosed("The room was over before this question was asked.", "Host or join another one.")

    def _settle(self) -> None:
        error = self._job.error()
        with self._changed:
            if isinstance(error, Exception):
                self._error, self.reason = error, "error"
            self.reason = self.reason or "abort"
            self.place, self.notice, self.loading = 0, "", None
            self._over, self._after = True, None
        self._wake()

    def _loads(self) -> tuple[None, str] | None:
        # Nobody is ahead of the question that made the room start.
        loads = self._core.status().state in ("open", "loading")
        return (None, "The room is loading, then it is answered.") if loads else None

    def _take(self, event: AnswerEvent) -> None:
        with self._changed:
            match event:
                case Queued():
                    self.place, self.loading = event.place, self._loads()
                case Started():
                    again, self._started = self._started, True
                    self.place, self.notice, self.loading, self.mid = 0, "", None, event.mid
                    if not again:  # else a host that was started anew makes it again, under another number
                        self._go_on(event.mid)
                case Piece():
                    self._pieces.append(event.text)
                    self.notice = ""
                case Notice():
                    self.notice = event.text
                case Done():
                    self.tokens, self.stats, self.hidden = event.tokens, event.stats, event.hidden
                    if event.reason == "error":
                        why = event.why or "The answer could not be finished."
                        self._error = AnswerFailed(why, "" if event.why else "Ask again.")
                    self.reason = event.reason
        if isinstance(event, Started) and self._room is not None:
            self._room.began(self)  # type: ignore[arg-type] # `Answer` is what is made of this
        self._wake()

    def _go_on(self, mid: int) -> None:
        """Begin with what is continued; of an answer that another device asked for, nothing is known here."""
        before, self._after = self._after, None
        if self._again is None:
            return
        # `mid` counts the room's answers (PROTOCOL section 7): the one before is this device's, or it is not.
        if before is None or before.mid is None or before.mid + 1 != mid:
            self.question = ""
        elif self._again == "continue" and before.text:
            self._pieces.append(before.text)
            self._kept = 1

    def touched(self) -> None:
        """What may follow it has changed, or why nothing of it comes: tell whoever shows it."""
        self._wake()

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify_all()
            wakers = list(self._wakers)
        for wake in wakers:
            with contextlib.suppress(RuntimeError):  # that reader's loop has closed
                wake()

    async def _stop(self) -> None:
        # Told over the room, the answer ends with what it took so far; closing it would lose that.
        if self.reason is not None:
            return  # it ended meanwhile, and the room's answer by now is another one
        with contextlib.suppress(PooledError, TimeoutError):
            await asyncio.wait_for(self._core.stop(), STOP_S)
            for _ in range(int(STOP_S / SLICE_S)):
                if self._over:
                    return
                await asyncio.sleep(SLICE_S)
        self._job.cancel()

    def orphan(self) -> None:
        """See `forks.Orphan`."""
        self._changed = threading.Condition()
        self._wakers = set()
        if not self._over:
            self._over, self._error, self.reason = True, forks.elsewhere(), "error"

    # From any thread.

    @property
    def text(self) -> str:
        """What has come so far."""
        with self._changed:
            return "".join(self._pieces)

    def done(self) -> bool:
        """Whether it has ended."""
        return self._over

    def on_end(self, do: Callable[[], None]) -> None:
        """Call this once it has ended: on the mesh thread, or at once where it has."""
        self._job.on_end(do)

    def stop(self) -> None:
        """End it after the lap in flight, or take it back while it waits. Returns at once; text stays."""
        if self._over or self.reason is not None:
            return
        self._stopping = True
        if not self._started:
            self._job.cancel()
            return
        with contextlib.suppress(PooledError):  # the room ended this very moment
            mesh.submit(self._stop())

    def since(self, seen: int) -> tuple[list[str], bool]:
        """Pieces after the first ``seen``, and whether it has ended: then no piece comes any more."""
        with self._changed:
            ended = self._over  # before the pieces: what comes after the end is nothing
            return self._pieces[seen:], ended

    def added(self, seen: int) -> tuple[list[str], bool]:
        """As `since`, without the text that is continued."""
        with self._changed:
            return self.since(self._kept + seen)

    def watch(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Call this, on any thread, after something has changed; what comes back ends it."""
        with self._changed:
            self._wakers.add(wake)

        def end() -> None:
            with self._changed:
                self._wakers.discard(wake)

        return end
