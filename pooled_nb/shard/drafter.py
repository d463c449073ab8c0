"""Where guesses for the next frame come from: text that stands there already, else a drafter.

A guess never decides a token: the room runs it as a column, and it counts only where it equals what the full
model draws (PROTOCOL section 7). So whatever goes wrong here costs speed, and never an answer.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Sequence, Set
from typing import Any, Literal, Protocol

from pooled_nb.shard.door import Sampling, Source, Want
from pooled_nb.shard.history import History
from pooled_nb.shard.lookup import Lookup

BEHIND_S = 0.1
"""Seconds that a token may wait for a drafter that catches up."""


class Drafter(Protocol):
    """A draft model, or the model's own draft layers; ``weights`` and ``cache`` are bytes."""

    kind: Literal["model", "layers"]
    weights: int
    cache: int

    def begin(self, history: History, ends: Set[int]) -> None:
        """Guess for another answer from now on; its history grows as tokens are drawn. No guess is an end."""

    def saw(self, pos: int, hidden: Any) -> None:
        """Columns of a prompt from ``pos`` on, before its answer begins: a tensor ``[n, dim]``."""

    def accept(self, pos: int, n: int, data: bytes | memoryview) -> None:
        """Columns ``pos`` to ``pos + n - 1`` count: their hidden states, in the room's dtype."""

    def guess(self, most: int, sampling: Sampling) -> list[int]:
        """At most so many tokens after the history's newest, or none where it is not ready."""

    def close(self) -> None:
        """Free what it holds."""


class Pace:
    """How many columns are read at once to catch up: the token that was drawn waits for them.

    Parameters
    ----------
    least, most
        Columns at once. It begins with the least, and goes by how long the last ones took.
    """

    def __init__(self, least: int, most: int) -> None:
        self.columns = self._least = min(least, most)
        self._most = most

    def took(self, columns: int, seconds: float) -> None:
        """So many were read in that time."""
        fit = int(columns / max(seconds, 1e-6) * BEHIND_S)
        self.columns = min(self._most, max(self._least, fit))


class Drafts:
    """Guesses for one loaded model.

    Parameters
    ----------
    vocab
        Tokens that the model can read.
    """

    def __init__(self, drafter: Drafter | None, vocab: int) -> None:
        self._drafter, self._vocab = drafter, vocab
        self._history, self._ends = History(), frozenset[int]()
        self._lookup = Lookup(self._history.tokens)
        self._begun = False

    @property
    def kind(self) -> str:
        """What drafts besides lookup: ``model``, ``layers``, or nothing."""
        return self._drafter.kind if self._drafter else ""

    def begin(self, history: History, ends: Set[int]) -> None:
        """Go on with another answer; nothing is run after one of its ends, so none is a guess."""
        self._history, self._ends = history, frozenset(ends)
        self._lookup, self._begun = Lookup(history.tokens, self._ends), False
        try:
            if self._drafter:
                self._drafter.begin(history, self._ends)
        except Exception as error:
            self._off(error)

    def saw(self, pos: int, hidden: Any) -> None:
        """Take columns of a prompt: see `Drafter`."""
        try:
            if self._drafter:
                self._drafter.saw(pos, hidden)
        except Exception as error:
            self._off(error)

    def next(
        self, pos: int, n: int, data: bytes | memoryview, want: Want | None, sampling: Sampling
    ) -> tuple[list[int], Source]:
        """Guess the tokens after the newest one; lookup is asked first.

        With an answer's first token nothing but lookup guesses: a drafter has the prompt to read.

        Parameters
        ----------
        pos, n, data
            The columns that the newest tokens were drawn from, and their hidden states.
        """
        want, begun, self._begun = want or Want(), self._begun, True
        drafter = self._drafter
        # Without the whole history no place is known: a drafter could only guess nonsense.
        if drafter and len(self._history.tokens) != pos + n + 1:
            drafter = None
        try:
            if drafter:
                drafter.accept(pos, n, data)
            if found := self._lookup.guess(want.lookup):
                return found, "lookup"
            if drafter and begun and want.draft > 0:
                drafted = self._useful(drafter.guess(want.draft, sampling))
                return drafted, "draft" if drafted else ""
        except Exception as error:
            self._off(error)
        return [], ""

    def close(self) -> None:
        """Free the drafter."""
        drafter, self._drafter = self._drafter, None
        if drafter:
            drafter.close()

    def _useful(self, tokens: list[int]) -> list[int]:
        """The tokens before the first that the model cannot read, or does not run."""
        cut = (i for i, token in enumerate(tokens) if token in self._ends or not 0 <= token < self._vocab)
        return tokens[: next(cut, len(tokens))]

    def _off(self, error: Exception) -> None:
        """A drafter that failed guesses no more; the answer goes on without it."""
        words = " ".join(str(error).split())[:200]
        print(f"pooled_nb: drafting is off: {type(error).__name__}: {words}", file=sys.stderr)
        with contextlib.suppress(Exception):  # what failed may fail again as it is freed
            self.close()


def common(one: Sequence[int], other: Sequence[int]) -> int:
    """How many tokens two texts begin with alike."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((i for i, (a, b) in pairs if a != b), min(len(one), len(other)))
