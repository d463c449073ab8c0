"""An answer in a notebook's output: its panel while it runs, then Markdown (DESIGN section 7)."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from typing import TYPE_CHECKING, Any, Protocol

from pooled_nb.errors import PooledError
from pooled_nb.output import PanelOutput
from pooled_nb.progress import NotebookWaiting, Waiting, in_notebook, waiting
from pooled_nb.show import line_bundle

if TYPE_CHECKING:
    from pooled_nb.widgets.answer_panel import AnswerPanel

KEEP_S = 10.0
"""What is kept for a page without the kernel is renewed so often while the answer grows."""
KEEP_SHARE = 0.01
"""Of the time, at most, for that: all of the text is rendered each time."""
GRACE_S = 3.0
"""A frontend with widgets has drawn a panel by then; where none has, the output tells it as text."""
THREAD = "pooled-output"

log = logging.getLogger("pooled_nb")


class Shown(Protocol):
    """What of an answer this needs."""

    def make_panel(self) -> AnswerPanel:
        """A panel of its own for one output."""

    def done(self) -> bool:
        """Whether it has ended."""

    def result(self, *, view: Waiting | None = None) -> Any:
        """Block until it is whole."""

    def show_in(self, view: Waiting) -> None:
        """Show how it stands."""

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]: ...


class AnswerView(NotebookWaiting):
    """The output of one answer.

    Its panel, as long as somebody sees that; else text that is updated in place. What ends it
    (`Waiting.finish`) leaves no widget behind: a saved notebook reads well without a kernel.

    Parameters
    ----------
    outlives
        It goes on when the cell has ended, which can have no new output then.
    """

    def __init__(self, answer: Shown, *, outlives: bool = False) -> None:
        super().__init__("asking")
        self._answer = answer
        self._outlives = outlives
        self._both = PanelOutput(self.output)
        self._panel: AnswerPanel | None = None
        self._since: float | None = None
        self._due_to_keep = 0.0
        self._is_text = False
        self._shows = 0
        self._views = 0

    @property
    def reads(self) -> bool:
        """See `Waiting.reads`: what is on the panel needs no words here."""
        return self._panel is None or self._views == 0

    def tick(self) -> None:
        """See `Waiting.tick`."""
        now = time.monotonic()
        if self._since is None:
            self._since = now
            self._panel = self._made()
            if self._panel is None:
                super().tick()
        elif self._panel is None:
            super().tick()
        elif self._looked_at(self._panel):
            if self._is_text:  # a page came late
                self._is_text = False
                self._shows += 1
                self._both.show(self._panel, None)
            elif now >= self._due_to_keep:
                self._both.keep(self._answer._repr_mimebundle_())
                end = time.monotonic()
                self._due_to_keep = end + max(KEEP_S, (end - now) / KEEP_SHARE)
        elif now - self._since >= GRACE_S:
            if not self._is_text:
                self._is_text = True
                self._both.end(line_bundle(self._now[1]))
            super().tick()

    def _made(self) -> AnswerPanel | None:
        try:
            panel = self._answer.make_panel()
            # A short answer that its own cell waits for needs nothing to be kept.
            self._both.show(panel, self._answer._repr_mimebundle_() if self._outlives else None)
            self._shows, self._due_to_keep = 1, time.monotonic() + KEEP_S
        except Exception:  # no widgets in this environment, or others than those we know
            log.warning("an answer is shown as text: its panel could not be made", exc_info=True)
            return None
        return panel

    def _looked_at(self, panel: AnswerPanel) -> bool:
        """Whether a view of the panel has said that it is there; counts them."""
        if panel.viewed:
            panel.viewed = False
            self._views += 1
        return self._views > 0

    def finish(self, bundle: dict[str, str]) -> bool:
        """See `Waiting.finish`."""
        self._finished = True
        self._both.end(bundle)
        panel, self._panel = self._panel, None
        if panel is None:
            return True
        # A page that was reloaded meanwhile has a view, and hears of no update of its outputs any more.
        if not self._looked_at(panel) or self._views <= self._shows:
            with contextlib.suppress(Exception):  # the page is gone
                panel.close()
        return True


def answering(answer: Shown, *, quiet: bool) -> Waiting:
    """Return the right view for a blocking wait for this answer; see `pooled_nb.progress.waiting`."""
    if quiet or threading.current_thread() is not threading.main_thread() or not in_notebook():
        return waiting("asking", quiet=quiet)
    return AnswerView(answer)


def leave(view: Waiting, answer: Shown) -> bool:
    """End a wait with its answer as it is now; an interrupt amid that is raised when it is done."""
    try:
        return view.finish(answer._repr_mimebundle_())
    except KeyboardInterrupt:
        view.finish(answer._repr_mimebundle_())  # else a panel without a kernel behind it would stay
        raise


def follow(answer: Shown) -> None:
    """Show an answer in the cell that runs, and on when that cell has ended."""
    view = AnswerView(answer, outlives=True)
    if answer.done():
        leave(view, answer)
        return
    view.tick()  # here and now, whatever it does meanwhile: later it would be in another cell
    threading.Thread(target=_until_whole, args=(answer, view), name=THREAD, daemon=True).start()


def show_panel(answer: Shown, panel: AnswerPanel) -> None:
    """Show a panel of an answer, which stays as long as the kernel does, in the cell that runs."""
    both = PanelOutput()
    both.show(panel, answer._repr_mimebundle_())

    def until_whole() -> None:
        with contextlib.suppress(PooledError):
            answer.result()
        both.keep(answer._repr_mimebundle_())

    if not answer.done():
        threading.Thread(target=until_whole, name=THREAD, daemon=True).start()


def _until_whole(answer: Shown, view: AnswerView) -> None:
    try:
        with contextlib.suppress(PooledError):  # what is left in the output says why
            answer.result(view=view)
        view.finish(answer._repr_mimebundle_())
    except Exception:
        log.warning("an answer's output could not be updated", exc_info=True)
