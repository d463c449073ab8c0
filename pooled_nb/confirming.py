"""Asks this device's person whether the host is the one they mean (PROTOCOL section 4, Device).

The question arises on the mesh loop and is answered wherever the person is: in the thread that waits for
the room to open, by a function of theirs, or later by `Room.confirm`.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import sys
import threading
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from pooled_nb._notebook import in_notebook
from pooled_nb.errors import RoomRefused
from pooled_nb.plain import visible
from pooled_nb.progress import Waiting
from pooled_nb.room.doorfacts import Doubt

Answers = Callable[[Doubt], "bool | Awaitable[bool]"]
"""Compares the digits: a function, or an async one, which runs on the mesh loop."""

NOBODY = "The host did not recognise your link, and nobody is here to compare the six digits with its screen."
NEXT = (
    "Join where you can be asked (a notebook, a terminal), pass confirm=, a function that asks somebody, or "
    "ask the host for a new invite link."
)
GRACE_S = 1.0
"""A thread that waits for the room takes the question up at once; after this there is none."""
YES = frozenset({"y", "yes"})

log = logging.getLogger("pooled_nb")


class _Question:
    """One doubt, and what was said of it: that says nothing of a link which came after it.

    Made on the mesh loop.
    """

    def __init__(self, doubt: Doubt) -> None:
        self.doubt = doubt
        self._loop = asyncio.get_running_loop()
        self._said: asyncio.Future[bool] = self._loop.create_future()
        self._lock = threading.Lock()
        self._taken = False

    # On the mesh loop.

    async def said(self) -> bool:
        """Wait for the answer, as long as it takes."""
        return await self._said

    async def follow(self, answer: Awaitable[bool]) -> None:
        """Take what this comes to; it ends with the question."""
        task = asyncio.ensure_future(answer)
        self._said.add_done_callback(lambda _: task.cancel())
        try:
            self._settle(same=await task is True)
        except (Exception, asyncio.CancelledError):
            if not self._said.done():
                log.exception("confirm= failed, which is no yes")
                self._settle(same=False)

    def _settle(self, *, same: bool) -> None:
        if not self._said.done():
            self._said.set_result(same)

    # From any thread.

    @property
    def taken(self) -> bool:
        """Whether somebody asks already."""
        return self._taken

    def take(self) -> bool:
        """Whether it is the caller's to ask: once, by one thread."""
        with self._lock:
            taken, self._taken = self._taken, True
            return not taken

    def answer(self, *, same: bool) -> None:
        """Take what the person says; too late, it says nothing."""
        self._post(lambda: self._settle(same=same))

    def heard(self, answer: bool | Awaitable[bool]) -> None:
        """Take what a function gave."""
        if inspect.isawaitable(answer):
            self._post(lambda: _run(self.follow(answer)))
        else:
            self.answer(same=answer is True)

    def _post(self, do: Callable[[], None]) -> None:
        try:
            self._loop.call_soon_threadsafe(do)
        except RuntimeError:
            log.debug("the room was left before this was answered")


class Confirming:
    """One room's questions to its person, while it opens. What `pooled_nb.room.join` calls ``confirm``.

    Parameters
    ----------
    answers
        What answers in the person's place; None: the person, asked in words.
    """

    def __init__(self, answers: Answers | None = None) -> None:
        self._answers = answers
        self._question: _Question | None = None
        self.on_doubt: Callable[[Doubt], None] = _unheard
        """Called on the mesh loop when a question arises that nobody is there to be asked."""

    # On the mesh loop.

    async def __call__(self, doubt: Doubt) -> bool:
        """Wait for the answer, as long as it takes."""
        question = _Question(doubt)
        if self._answers is not None and inspect.iscoroutinefunction(self._answers):
            question.take()
            _run(question.follow(self._answers(doubt)))
        alone = asyncio.get_running_loop().call_later(GRACE_S, self._nobody_waits, question)
        self._question = question  # from here on other threads see it
        try:
            return await question.said()
        finally:
            alone.cancel()
            if self._question is question:
                self._question = None

    def _nobody_waits(self, question: _Question) -> None:
        if self._answers is None:
            if not question.taken:
                self.on_doubt(question.doubt)
        elif question.take():
            # It may block for minutes.
            threading.Thread(target=self._by_function, args=(question,), name="confirm", daemon=True).start()

    # From any thread.

    @property
    def doubt(self) -> Doubt | None:
        """What is to be decided now."""
        question = self._question
        return question.doubt if question is not None else None

    def answer(self, *, same: bool) -> bool:
        """Take what the person says; whether there was a question."""
        question = self._question
        if question is None:
            return False
        question.answer(same=same)
        return True

    def ask(self, view: Waiting) -> None:
        """Ask the person, in this thread, if there is something to decide and nobody was asked yet.

        Raises
        ------
        RoomRefused
            Nobody is here to answer.
        """
        question = self._question
        if question is None or not question.take():
            return
        view.close()  # nothing may move over a question
        if self._answers is None:
            question.answer(same=_asked(question.doubt))
        else:
            question.heard(self._answers(question.doubt))

    def _by_function(self, question: _Question) -> None:
        assert self._answers is not None
        try:
            question.heard(self._answers(question.doubt))
        except BaseException:
            log.exception("confirm= failed, which is no yes")
            question.answer(same=False)


def _asked(doubt: Doubt) -> bool:
    """Ask in words, in a cell or at a terminal; the default is no."""
    if not can_ask():
        raise RoomRefused(NOBODY, NEXT)
    what = "them" if doubt.digits in doubt.text else doubt.digits
    shows = f"Does the host's screen show {what}?" if doubt.digits else "Join all the same?"
    said = f"{visible(' '.join(doubt.text.split()))} {shows} [y/N] "
    try:
        if in_notebook():
            return input(said).strip().lower() in YES
        # Standard output may be a file, and holds answers alone.
        print(said, end="", file=sys.stderr, flush=True)
        return input().strip().lower() in YES
    except (EOFError, NotImplementedError) as error:  # the notebook's frontend takes no input
        raise RoomRefused(NOBODY, NEXT) from error


def can_ask() -> bool:
    """Whether a person may be asked from this thread."""
    if threading.current_thread() is not threading.main_thread():
        return False
    return in_notebook() or (sys.stdin is not None and sys.stdin.isatty())


_tasks: set[asyncio.Task[None]] = set()


def _run(work: Coroutine[Any, Any, None]) -> None:
    """Run it on this loop, which alone would forget it."""
    task = asyncio.get_running_loop().create_task(work, name="pooled-confirm")
    _tasks.add(task)
    task.add_done_callback(_tasks.discard)


def _unheard(_: Doubt) -> None:
    """Nobody listens yet."""
