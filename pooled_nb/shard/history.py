"""What stands before the next token: prompt and answer so far. Penalties count it, drafts read it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt


class Row:
    """Token ids in a row that only grows, at hand as an array: one more does not copy the others."""

    def __init__(self, ids: Sequence[int] | npt.NDArray[np.int64] = ()) -> None:
        self._kept = np.array(ids, dtype=np.int64)
        self._count = self._kept.size

    def add(self, token: int) -> None:
        """Put one more at the end."""
        if self._count == self._kept.size:
            self._kept = np.concatenate((self._kept, np.zeros(max(64, self._count), dtype=np.int64)))
        self._kept[self._count] = token
        self._count += 1

    def array(self) -> npt.NDArray[np.int64]:
        """All of them; a view, good until the next `add`."""
        return self._kept[: self._count]


class Ids:
    """Different token ids, each kept once."""

    def __init__(self, ids: Iterable[int] = ()) -> None:
        self._known = set(ids)
        self._row = Row(sorted(self._known))

    def add(self, token: int) -> None:
        """Take one more; one that is there already changes nothing."""
        if token not in self._known:
            self._known.add(token)
            self._row.add(token)

    def array(self) -> npt.NDArray[np.int64]:
        """Each id once, in any order; a view, good until the next `add`."""
        return self._row.array()

    def copy(self) -> Ids:
        """Another one that grows by itself."""
        other = Ids()
        other._known, other._row = self._known.copy(), Row(self._row.array())
        return other


class History:
    """Tokens of one answer and of what it answers, in order.

    Parameters
    ----------
    seen
        All tokens up to now; those of an answer that goes on are their end.
    answered
        How many of them are the answer's.

    Attributes
    ----------
    tokens
        All of them, the newest last. Read only; `add` appends.
    start
        How many of ``tokens`` come before the answer.
    seen, said
        Different ids of all of them, and of the answer alone.
    """

    def __init__(self, seen: Sequence[int] = (), answered: int = 0) -> None:
        self.tokens = list(seen)
        self.start = len(self.tokens) - answered
        self.seen = Ids(self.tokens)
        self.said = Ids(self.tokens[self.start :])

    def add(self, token: int) -> None:
        """Take the answer's next token."""
        self.tokens.append(token)
        self.seen.add(token)
        self.said.add(token)

    def copy(self) -> History:
        """Another one that grows by itself; a small part of what it takes to make one from all tokens."""
        other = History()
        other.tokens, other.start = self.tokens.copy(), self.start
        other.seen, other.said = self.seen.copy(), self.said.copy()
        return other
