"""One answer, as any thread sees it: text that grows while the room works, then text that stays."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterator
from typing import TYPE_CHECKING, Any, Literal

from pooled_nb import show
from pooled_nb._notebook import cell, in_notebook, while_waiting
from pooled_nb.answer_life import STOP_S, AnswerLife
from pooled_nb.answer_output import follow, show_panel
from pooled_nb.errors import RoomClosed
from pooled_nb.job import SLICE_S, Budget
from pooled_nb.threads import mesh
from pooled_nb.widgets.sources import AnswerFacts, AnswerSource

if TYPE_CHECKING:
    from pooled_nb.progress import Waiting
    from pooled_nb.room.core import Again
    from pooled_nb.widgets.answer_panel import AnswerPanel


class Answer(AnswerLife):
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
    mid
        Its number among the room's answers; None before it begins.
    hidden
        Whether the room shows it elsewhere, and not here (it is known once it is whole).
    notice
        A sentence about it while it runs: which device is waited for, that it goes on, ….
    loading
        Percent and words while the room has to load first; else None.
    """

    _panel: AnswerPanel | None = None
    _shown_in: int | None = None

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
                pieces, ended = self.since(seen)
                seen += len(pieces)
                if on_text is not None:
                    for piece in pieces:
                        on_text(piece)
                if view is not None:
                    self.show_in(view, text=on_text is None)
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
        while_waiting()

    def _raise(self) -> None:
        if self._error is not None:
            raise self._error

    def __iter__(self) -> Iterator[str]:
        if not self._over:
            mesh.refuse()
        seen = 0
        try:
            while True:
                pieces, ended = self.since(seen)
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
                    pieces, ended = self.since(seen)
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

        end = self.watch(wake)
        try:
            while True:
                yield
                await changed.wait()
                changed.clear()
        finally:
            end()

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

    # For panels (see `pooled_nb.widgets.sources.AnswerSource`).

    def facts(self) -> AnswerFacts:
        """What there is beside the text."""
        over = self._over
        can: tuple[Literal["stop", "continue", "regen"], ...] = ("stop",)
        if over:
            can = self._room.may_again(self) if self._room is not None else ()
        with self._changed:
            return AnswerFacts(
                reason=self.reason if over else None,
                place=self.place,
                started=self._started,
                notice=self._held(),
                loading=self.loading,
                line=self.summary() if over else "",
                error=self.why if over else "",
                can=can,
            )

    def again(self, what: Again) -> AnswerSource:
        """Continue it or make it anew; the live answer that follows, without the text that is continued.

        Raises
        ------
        RoomClosed, NotReady
        """
        if self._room is None:
            raise RoomClosed("This answer belongs to no room any more.", "Ask again in a room.")
        return _Added(self._room.ask_again(what, self))

    def panel(self) -> AnswerPanel:
        """The panel of this answer, for a notebook: one, shown as often as wanted."""
        if self._panel is None:
            panel = self._panel = self.make_panel()

            def show_it() -> None:
                if not in_notebook():
                    raise NotImplementedError  # IPython then shows it in the ordinary way
                show_panel(self, panel)

            panel._ipython_display_ = show_it  # IPython's own hook
        return self._panel

    def make_panel(self) -> AnswerPanel:
        """Make another panel of it, which whoever shows it closes."""
        from pooled_nb.widgets.answer_panel import AnswerPanel

        return AnswerPanel(self, fallback=self._repr_mimebundle_)

    # For people.

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        state = f"ended: {self.reason}" if self.reason else "waiting" if self.waits else "running"
        return f"<Answer, {state}, {len(self.text)} characters>"

    def shown(self) -> None:
        """Say that the cell that runs shows it already: as that cell's last value it is not shown again."""
        self._shown_in = cell()

    def _ipython_display_(self) -> None:
        shown_in, self._shown_in = self._shown_in, None
        if shown_in is not None and shown_in == cell():
            return
        if self.done() or not in_notebook():
            raise NotImplementedError  # IPython then shows it in the ordinary way
        follow(self)

    def _repr_markdown_(self) -> str:
        return show.answer_markdown(self.text, self._line(), self.why)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        return show.answer_bundle(self.text, self._line(), self.why)

    def _line(self) -> str:
        if self._over:
            return self.summary()
        # Who interrupts twice does not wait for its end.
        return "stopped" if self._stopping else "on its way when this was shown"

    def show_in(self, view: Waiting, *, text: bool = True) -> None:
        """Show in a view how it stands, its text too unless that goes to the same screen."""
        if self.done():
            return
        if self._room is not None and not self._pieces:
            self._room.ask_person(view)
        if self._pieces and not text:
            # The text goes to the same screen: a bar would wipe it away.
            view.note(self._held())
            return
        if (loading := self.loading) is not None:
            view.report(*loading)
        elif view.reads:
            shown = "\n\n".join(part for part in (self.text, self.waits) if part)
            view.report(None, shown or "asking")
        view.tick()

    @property
    def waits(self) -> str:
        """What it waits for, in words; empty while text comes, and once it has ended."""
        turn = f"Waiting for its turn, place {self.place}." if self.place else ""
        return " ".join(part for part in (turn, self._held()) if part)

    def _held(self) -> str:
        """Why nothing of it comes, its turn aside: as the room told this answer, else as the room is."""
        if self._over or self.loading is not None:
            return ""
        return self._room.held(self.notice) if self._room is not None else self.notice

    def summary(self) -> str:
        """Why it ended and what it took, in one line; empty while it runs."""
        return show.answer_line(self.reason, self.stats, hidden=self.hidden) if self.reason else ""

    @property
    def why(self) -> str:
        """Why there is no whole answer, in a sentence; empty where there is one, and while it runs."""
        return str(self._error) if self._error is not None else ""


class _Added:
    """An answer that follows another on the same panel, which has that one's text already."""

    def __init__(self, answer: Answer) -> None:
        self.question = answer.question
        self.since = answer.added
        self.facts = answer.facts
        self.watch = answer.watch
        self.stop = answer.stop
        self.again = answer.again
