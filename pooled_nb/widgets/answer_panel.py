"""An answer as it grows: its text, what it waits for, Stop, and what follows it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import traitlets

from pooled_nb.errors import PooledError
from pooled_nb.widgets.answers import answer_state, answer_static
from pooled_nb.widgets.base import Fallback, Panel
from pooled_nb.widgets.bundle import script, style
from pooled_nb.widgets.formats import clean, line
from pooled_nb.widgets.heard import Custom
from pooled_nb.widgets.sources import AnswerFacts, AnswerSource
from pooled_nb.widgets.stream import Stream

FACTS_S = 0.25
"""Between two paintings that change words of a wait only; a state shows at once."""


class AnswerPanel(Panel):
    """The panel of one answer, and of those that follow when it is continued or made anew.

    Parameters
    ----------
    source
        The answer.
    fallback
        What stands where no widget can be shown.
    """

    _esm = script("answer.js")
    _css = style("base.css", "answer.css")
    answer = traitlets.Dict().tag(sync=True)
    text = traitlets.Unicode().tag(sync=True)
    seq = traitlets.Int().tag(sync=True)

    def __init__(self, source: AnswerSource, *, fallback: Fallback) -> None:
        self._source = source
        self._seen = 0
        self._problem = ""
        self._facts_at = 0.0
        self._stream = Stream(1)
        super().__init__(fallback=fallback, answer=self._state(source.facts()))

    def _listen(self) -> Callable[[], None]:
        return self._source.watch(self.wake)

    def _state(self, facts: AnswerFacts) -> dict[str, Any]:
        return answer_state(self._stream.id, self._source.question, facts, self._problem)

    def _draw(self, now: float) -> float | None:
        facts = self._source.facts()  # before the text: an answer never looks done without its end
        pieces, ended = self._source.since(self._seen)
        self._seen += len(pieces)
        if not facts.hidden:
            self._stream.add([clean(piece) for piece in pieces])
        if ended:
            self._stream.end()
        sent = self._stream.take(now)
        again = self._stream.due()
        state = self._state(facts)
        with self.hold_sync():  # one message: views tell by it which answer the text is of
            if sent.traits is not None:
                self.text, self.seq = sent.traits
            if self._at_once(state) or now >= self._facts_at:
                self._facts_at = now + FACTS_S
                self.answer = state
            elif state != self.answer:
                again = self._facts_at if again is None else min(again, self._facts_at)
        for message in sent.messages:
            self.send(message)
        return again

    def _at_once(self, state: dict[str, Any]) -> bool:
        now = self.answer
        return any(state[key] != now.get(key) for key in ("id", "state", "problem", "actions"))

    def _rests(self) -> bool:
        return self._stream.ended

    def _do(self, said: Custom, now: float) -> None:
        if said.cmd == "sync":
            self._stream.sync()
            return
        if said.cmd not in self._source.facts().can:
            return  # a click may come late, or twice
        self._problem = ""
        if said.cmd == "stop":
            self._source.stop()
        elif said.cmd == "continue" or said.cmd == "regen":
            try:
                follows = self._source.again(said.cmd)
            except PooledError as error:
                self._problem = str(error)
            else:
                self._follow(follows, self._stream.text if said.cmd == "continue" else "")

    def _follow(self, source: AnswerSource, kept: str) -> None:
        """Show another answer from now on."""
        if self._unwatch is not None:
            self._unwatch()
        self._source, self._seen = source, 0
        self._stream = Stream(self._stream.id + 1, kept)
        self._unwatch = self._listen()
        self._fallback = self._now  # what was given stands for the first answer only

    def _now(self) -> dict[str, str]:
        with self._traits_lock:  # any thread asks; the painter may be in the middle of a message
            text, source = self._stream.text, self._source
        return answer_static(text, line(source.facts().line))
