"""Prompt lookup: what followed, where the same tokens stood before (PROTOCOL section 7). No torch."""

from __future__ import annotations

from collections.abc import Sequence, Set

import numpy as np

from pooled_nb.shard.history import Row

SIZES = (2, 3, 4)
"""Lengths of the n-grams that are looked for; the longest one that is found counts."""


class Lookup:
    """Guesses from the conversation itself.

    The whole of it is looked through for each guess: 0.1 ms where it has 128,000 tokens, and nothing but
    their ids is kept. (A table of all n-grams takes 0.3 s and 60 MB for them, before the first token.)

    Parameters
    ----------
    tokens
        Prompt and answer so far. They are read once each, and may only grow.
    ends
        End tokens: nothing is run after one, so none is ever guessed.
    """

    def __init__(self, tokens: Sequence[int], ends: Set[int] = frozenset()) -> None:
        self._tokens, self._ends = tokens, ends
        self._row, self._known = Row(), 0

    def guess(self, most: int) -> list[int]:
        """What may come next.

        The longest n-gram that ends the conversation is looked for, and its most recent earlier place counts.
        Where what followed there runs into the end of the conversation, it is a period, and goes on as such.

        Parameters
        ----------
        most
            Tokens at most.

        Returns
        -------
        list of int
            Empty where nothing is found, or an end token followed.
        """
        if most <= 0 or (start := self._place()) is None:
            return []
        guessed: list[int] = []
        period = len(self._tokens) - start
        for i in range(most):
            token = self._tokens[start + i] if i < period else guessed[i - period]
            if token in self._ends:
                break
            guessed.append(token)
        return guessed

    def _place(self) -> int | None:
        """Where the token stands that followed the last tokens before."""
        self._read()
        ids, found = self._row.array(), None
        places = np.flatnonzero(ids[:-1] == ids[-1:]) + 1
        for size in SIZES:
            # A longer n-gram stands only where the shorter one does, with one token more before it.
            places = places[places >= size]
            places = places[ids[places - size] == ids[-size]] if places.size else places
            if not places.size:
                break
            found = int(places[-1])
        return found

    def _read(self) -> None:
        if not self._known:
            self._row = Row(self._tokens)
        else:
            for token in self._tokens[self._known :]:
                self._row.add(token)
        self._known = len(self._tokens)
