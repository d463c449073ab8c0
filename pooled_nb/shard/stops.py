"""Where an answer's text ends, and what of it may be shown meanwhile (CASES, Answers).

A stop text ends an answer before itself, so whatever may become one is held back. So is what may become one
of the model's own tags (``</think>``), which it may also spell out in several tokens: no piece ends within
one. Works on characters, in any pieces: what is shown does not depend on how the text was cut.
"""

from __future__ import annotations

import bisect
import re
from collections.abc import Iterable, Sequence

from pooled_nb.shard.text import TextStream, Tokenizer

_TAG = re.compile(r"[^\w\s].*\w.*[^\w\s]", re.DOTALL)
"""Marks around a name: ``</think>``, ``[/INST]``, ``<|im_end|>``; a run of spaces is none."""


class Texts:
    """Texts that are looked for where another text ends, and around a place in it."""

    def __init__(self, texts: Iterable[str] = ()) -> None:
        self._sorted = sorted(set(texts))
        self._all = frozenset(self._sorted)
        self._lengths = sorted(set(map(len, self._all)))
        self.longest = max(self._lengths, default=0)

    def first(self, text: str) -> tuple[int, int] | None:
        """Where the first that is complete ends, and where it begins; of several, the longest."""
        return min(((at + len(one), at) for one in self._sorted if (at := text.find(one)) >= 0), default=None)

    def begun(self, text: str) -> int:
        """Where the text's end may become one of them; its length where it cannot."""
        for start in range(max(0, len(text) - self.longest + 1), len(text)):
            tail = text[start:]
            # All that begin with the tail follow it in order, and the tail itself would be the first of them.
            at = bisect.bisect_right(self._sorted, tail)
            if at < len(self._sorted) and self._sorted[at].startswith(tail):
                return start
        return len(text)

    def around(self, text: str, place: int) -> int:
        """Where the outermost begins that lies around this place; the place itself where none does."""
        start = max(0, place - self.longest + 1)
        while start < place:
            ends = (start + n for n in self._lengths if place < start + n <= len(text))
            if any(text[start:end] in self._all for end in ends):
                place, start = start, max(0, start - self.longest + 1)
            else:
                start += 1
        return place


def tags_of(tokenizer: Tokenizer) -> Texts:
    """Tags among the tokens that stand beside a tokenizer's vocabulary."""
    texts = (str(token) for token in tokenizer.added_tokens_decoder.values())
    return Texts(text for text in texts if _TAG.fullmatch(text))


def ends_of(tokenizer: Tokenizer, stops: Sequence[str]) -> frozenset[int]:
    """Control tokens that are asked for as stop texts: they leave no text that could be found."""
    if not stops:
        return frozenset()
    added = tokenizer.added_tokens_decoder.items()
    return frozenset(i for i, token in added if token.special and str(token) in stops)


class Stops:
    """Lets an answer's text through, up to the first stop text that is complete.

    Parameters
    ----------
    stops
        Texts that end the answer; none is empty.
    tags
        Texts that are never half shown.

    Attributes
    ----------
    stopped
        A stop text is complete: nothing is shown any more.
    """

    def __init__(self, stops: Iterable[str] = (), tags: Texts | None = None) -> None:
        self.stopped = False
        self._stops = Texts(stops)
        self._tags = tags or Texts()
        self._held = ""

    def push(self, text: str) -> str:
        """Take the text that comes next; return what is certain to be shown."""
        if self.stopped:
            return ""
        text = self._held + text
        if found := self._stops.first(text):
            self.stopped, self._held = True, ""
            return text[: found[1]]
        cut = min(self._stops.begun(text), self._tags.begun(text))
        # A whole tag may end with what begins a stop text: then all of it waits.
        cut = self._tags.around(text, cut)
        self._held = text[cut:]
        return text[:cut]

    def flush(self) -> str:
        """End the text: what was held back did not become what it might have."""
        text, self._held = self._held, ""
        return text


class AnswerText:
    """Text of one answer as its tokens come: whole characters, no half tag, and nothing of a stop text.

    Parameters
    ----------
    after
        Tokens of an answer that goes on: what of them was held back still is.
    """

    def __init__(
        self, tokenizer: Tokenizer, *, stops: Sequence[str] = (), tags: Texts, after: Sequence[int] = ()
    ) -> None:
        self._stream = TextStream(tokenizer)
        self._stops = Stops(stops, tags)
        for token in after:
            self.push(token)

    @property
    def stopped(self) -> bool:
        """Whether a stop text is complete."""
        return self._stops.stopped

    def push(self, token: int) -> str:
        """Take the next token; return the text that is now certain."""
        return self._stops.push(self._stream.push([token]))

    def flush(self) -> str:
        """End the answer: the text still held back."""
        return self._stops.push(self._stream.flush()) + self._stops.flush()
