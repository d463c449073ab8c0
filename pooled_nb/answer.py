"""One answer, as any thread sees it: text that grows while the room works, then text that stays."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterator
from typing import TYPE_CHECKING, Any

from pooled_nb import forks, show
from pooled_nb._notebook import cell
from pooled_nb.errors import AnswerFailed, PooledError, RoomClosed
from pooled_nb.job import SLICE_S, Budget
from pooled_nb.room.core import AnswerEvent, AskOptions, Done, Notice, Piece, Queued, Reason, Started, Stats
from pooled_nb.threads import mesh

if TYPE_CHECKING:
    from pooled_nb.progress import Waiting
    from pooled_nb.room.core import RoomCore

STOP_S = 5.0
"""A stopped answer ends after the lap in flight; one that takes longer is cut off."""


class Answer:
    """An answer of the room.

    `Room.ask` returns it when it is whole. With ``wait=False``, or from `Room.stream`, it is live:
    iterate it (``for`` or ``async for``) for its pieces, await it or call `result` for the whole.
    Leaving such a loop early stops the answer.

    Attributes
    ----------
    question
        As asked.
    tokens
        Token ids; known on the host only, once the answer is whole.
    stats
        Counts and times, once the answer is whole.
    reason
        Why it ended: ``stop``, ``max``, ``ctx``, ``abort`` or ``error``; None while it runs.
    place
        Its place in the queue, from 1; 0 when it does not wait.
    notice
        A sentence about it while it runs (a device is waited for, …).
    loading
        Percent and words while the room has to load first; else None.
    """

    def __init__(self, core: RoomCore, question: str, options: AskOptions) -> None:
        self.question = question
        self.tokens: list[int] | None = None
        self.stats = Stats()
        self.reason: Reason | None = None
        self.place = 0
        self.notice = ""
        self.loading: tuple[int | None, str] | None = None
        self._core = core
        self._pieces: list[str] = []
        self._started = False
        self._error: Exception | None = None
        self._changed = threading.Condition()
        self._wakers: set[Callable[[], None]] = set()
        self._stopping = False
        self._over = False
        self._shown_in: int | None = None
        self._job = mesh.submit(self._run(options), self._cut)
        forks.known(self)
        # However it ends, also before it began: whoever waits hears of it.
        self._job.on_end(self._settle)

    # On the mesh loop.

    def _report(self, percent: int, words: str) -> None:
        self.loading = (percent, words)

    async def _run(self, options: AskOptions) -> None:
        try:
            if self._core.role == "host" and self._core.status().state == "open":
                self.loading = (None, "dealing the layers")
                await self._core.start(self._report)
            events = self._core.ask(self.question, options)
            try:
                async for event in events:
                    self._take(event)
            finally:
                # Closing it early is what takes a question back (see `RoomCore.ask`).
                if (close := getattr(events, "aclose", None)) is not None:
                    await close()
        except asyncio.CancelledError:
            pass  # by `stop`, or because the room is over: what came so far stays

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
            self.place, self.notice = 0, ""
            self._over = True
        self._wake()

    def _take(self, event: AnswerEvent) -> None:
        with self._changed:
            match event:
                case Queued():
                    self.place, self.loading = event.place, None
                case Started():
                    self._started, self.place, self.notice, self.loading = True, 0, "", None
                case Piece():
                    self._pieces.append(event.text)
                    self.notice = ""
                case Notice():
                    self.notice = event.text
                case Done():
                    self.tokens, self.stats = event.tokens, event.stats
                    if event.reason == "error":
                        why = event.why or "The answer could not be finished."
                        self._error = AnswerFailed(why, "" if event.why else "Ask again.")
                    self.reason = event.reason
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

    def result(
        self,
        timeout: float | None = None,
        *,
        on_text: Callable[[str], None] | None = None,
        view: Waiting | None = None,
    ) -> Answer:
        """Block until it is whole. An interrupt stops this answer, keeps the room, and is raised.

        Parameters
        ----------
        timeout
            Seconds; the answer goes on after it.
        on_text
            Called in this thread with each piece of text.
        view
            Shows the wait, and the text unless ``on_text`` does.

        Raises
        ------
        AnswerFailed, QueueFull, NotReady, RoomClosed, ModelError
            Why there is no whole answer; `text` keeps what came.
        TimeoutError
            Not whole within ``timeout``.
        """
        if not self._over:
            mesh.refuse()
        budget = Budget(float("inf") if timeout is None else timeout)
        seen = 0
        try:
            while True:
                pieces, ended = self._since(seen)
                seen += len(pieces)
                if on_text is not None:
                    for piece in pieces:
                        on_text(piece)
                if view is not None:
                    self._show(view, text=on_text is None)
                if ended:
                    break
                if not budget.left():
                    break
                self._pause(seen, min(SLICE_S, budget.left()))
        except BaseException:
            self.stop()
            with self._changed:
                self._changed.wait_for(self.done, STOP_S)
            raise
        if not ended:
            raise TimeoutError("The answer is still running.")
        self._raise()
        return self

    def _pause(self, seen: int, seconds: float) -> None:
        with self._changed:
            if len(self._pieces) == seen and not self.done():
                self._changed.wait(seconds)

    def _since(self, seen: int) -> tuple[list[str], bool]:
        with self._changed:
            ended = self.done()  # before the pieces: what comes after the end is nothing
            return self._pieces[seen:], ended

    def _raise(self) -> None:
        if self._error is not None:
            raise self._error

    def __iter__(self) -> Iterator[str]:
        seen = 0
        try:
            while True:
                pieces, ended = self._since(seen)
                seen += len(pieces)
                yield from pieces
                if ended:
                    break
                self._pause(seen, SLICE_S)
            self._raise()
        finally:
            self.stop()

    def __aiter__(self) -> AsyncIterator[str]:
        return self._stream()

    async def _stream(self) -> AsyncIterator[str]:
        seen = 0
        try:
            async with contextlib.aclosing(self._changes()) as changes:
                async for _ in changes:
                    pieces, ended = self._since(seen)
                    seen += len(pieces)
                    for piece in pieces:
                        yield piece
                    if ended:
                        break
            self._raise()
        finally:
            self.stop()

    async def _changes(self) -> AsyncGenerator[None, None]:
        """Once now, then whenever something has changed."""
        loop, changed = asyncio.get_running_loop(), asyncio.Event()

        def wake() -> None:
            loop.call_soon_threadsafe(changed.set)

        with self._changed:
            self._wakers.add(wake)
        try:
            while True:
                yield
                await changed.wait()
                changed.clear()
        finally:
            with self._changed:
                self._wakers.discard(wake)

    async def _whole(self) -> Answer:
        try:
            async with contextlib.aclosing(self._changes()) as changes:
                async for _ in changes:
                    if self.done():
                        break
        except BaseException:
            self.stop()
            raise
        self._raise()
        return self

    def __await__(self) -> Generator[Any, None, Answer]:
        return self._whole().__await__()

    # For people.

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        state = f"ended: {self.reason}" if self.reason else "running"
        return f"<Answer, {state}, {len(self.text)} characters>"

    def shown(self) -> None:
        """Say that the cell that runs shows it already: as that cell's last value it is not shown again."""
        self._shown_in = cell()

    def _ipython_display_(self) -> None:
        shown_in, self._shown_in = self._shown_in, None
        if shown_in is None or shown_in != cell():
            raise NotImplementedError  # IPython then shows it in the ordinary way

    def _repr_markdown_(self) -> str:
        return show.answer_markdown(self.text, self.summary())

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        return show.answer_bundle(self.text, self.summary())

    def _show(self, view: Waiting, *, text: bool) -> None:
        if self.done():
            return
        if self._pieces and not text:
            # The text goes to the same screen: a bar would wipe it away.
            view.note(self.notice)
            return
        if self.loading is not None:
            view.report(*self.loading)
        else:
            waits = f"Waiting for its turn, place {self.place}." if self.place else self.notice
            shown = "\n\n".join(part for part in (self.text, waits) if part)
            view.report(None, shown or "asking")
        view.tick()

    def summary(self) -> str:
        """Why it ended and what it took, in one line; empty while it runs."""
        return show.answer_line(self.reason, self.stats) if self.reason else ""
