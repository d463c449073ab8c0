"""What ranges of the room's model must be, and who says so (PROTOCOL section 6, ``nb-hash``). Decides only.

A range from another device counts only where its SHA-256 is one that the host vouches for: of what it holds
itself, or (`Word.by`) what the first device that read it from the hub said, which people are shown as
unverified. Ranges are ``[lo, hi)`` here; on the wire ``hi`` is inclusive.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from itertools import islice
from typing import Literal, NamedTuple

from pooled_nb.mesh.messages.weights import NbHash, NbHashes
from pooled_nb.room.weights.inventory import range_of, word_of
from pooled_nb.room.weights.urls import split

MOST = 65_536
"""Ranges in a table: a model of 1 TB has as many blocks."""
MOST_BY_ONE = 16_384
"""Ranges that one device may name."""
AT_ONCE = 256
"""Ranges of one message."""


class Span(NamedTuple):
    """Bytes ``[lo, hi)`` of the file that ``url`` names."""

    url: str
    lo: int
    hi: int


class Word(NamedTuple):
    """What a range must be: 64 hex digits. ``by``: whose word the host passes on; empty: its own."""

    sha256: str
    by: str = ""


class Hashes:
    """What this device knows. A worker's is filled by what the host says, and holds that alone."""

    def __init__(self) -> None:
        self._words: dict[Span, Word] = {}

    def __len__(self) -> int:
        return len(self._words)

    def of(self, url: str, lo: int, hi: int) -> Word | None:
        """What exactly this range must be; None: nobody vouches for it."""
        return self._words.get(Span(url, lo, hi))

    def heard(self, message: NbHash | NbHashes) -> None:
        """The host says what ranges must be, or that it does not vouch for some (any more)."""
        if isinstance(message, NbHash) and message.sha256 is None and message.by is not None:
            self._withdrawn(message, message.by)
            return
        for span, word in _said(message):
            self._words.pop(span, None)
            if word is not None:
                self._put(span, word)

    def _withdrawn(self, message: NbHash, by: str) -> None:
        """Nothing counts that a device named within a range."""
        for span in [span for span, word in self._words.items() if word.by == by]:
            if span.url == message.url and message.lo <= span.lo and span.hi <= message.hi + 1:
                del self._words[span]

    def messages(self, *, but: Container[Span] = ()) -> Iterator[NbHash | NbHashes]:
        """All of it, as others are told: `AT_ONCE` ranges at a time, of one file and one device's word.

        Parameters
        ----------
        but
            Of these nothing is said.
        """
        lots: dict[tuple[str, str], dict[str, str]] = {}
        for span, word in self._words.items():
            if span not in but:
                lots.setdefault((span.url, word.by), {})[word_of(span.lo, span.hi)] = word.sha256
        for (url, by), lot in lots.items():
            items = iter(lot.items())
            while some := dict(islice(items, AT_ONCE)):
                yield NbHashes(url=url, all=some, by=by or None)

    def _put(self, span: Span, word: Word) -> None:
        """Keep a word; of too many the oldest goes: who gives that range is not believed then."""
        self._words[span] = word
        while len(self._words) > MOST:
            del self._words[next(iter(self._words))]


Verdict = Literal["new", "known", "wrong", "disputed", "ignored"]
"""Of what a device named: pass it on; it was known; the host's own bytes are others; another device named
another hash, and neither is believed; it does not count."""


class HostHashes(Hashes):
    """The host's: its own words, and those of devices.

    Parameters
    ----------
    sizes
        Of the files that count, in bytes, by url.
    """

    def __init__(self, sizes: Mapping[str, int]) -> None:
        super().__init__()
        self._sizes = sizes
        self._named: dict[str, int] = {}
        """How many ranges each device has named."""
        self._disputed: set[Span] = set()
        self.liars: set[str] = set()
        """Whose words count no more."""

    def vouch(self, span: Span, sha256: str) -> str:
        """The host's own bytes of a range are these; returns whose word that shows to be wrong, if any."""
        before = self._words.pop(span, None)
        self._put(span, Word(sha256))
        wrong = before is not None and before.by and before.sha256 != sha256
        return before.by if before is not None and wrong else ""

    def named(self, by: str, span: Span, sha256: str) -> Verdict:
        """A device says what it read. Only a range that nobody spoke of before is taken over from it."""
        size, known = self._sizes.get(span.url, 0), self._words.get(span)
        if not 0 <= span.lo < span.hi <= size or by in self.liars:
            return "ignored"
        if known is not None:
            if known.sha256 == sha256:
                return "known"
            if not known.by:
                return "wrong"
            del self._words[span]
            self._dispute(span)
            return "disputed"
        count = self._named.get(by, 0)
        if span in self._disputed or count >= MOST_BY_ONE or len(self._words) >= MOST:
            return "ignored"
        self._named[by] = count + 1
        self._words[span] = Word(sha256, by)
        return "new"

    def forget(self, span: Span) -> None:
        """What a device named of a range does not count."""
        if (word := self._words.get(span)) is not None and word.by:
            del self._words[span]

    def disbelieve(self, by: str) -> list[NbHash]:
        """A device named what is wrong: none of its words counts, now and later. What others are told."""
        self.liars.add(by)
        gone = [span for span, word in self._words.items() if word.by == by]
        for span in gone:
            del self._words[span]
        urls = dict.fromkeys(span.url for span in gone)
        return [NbHash(url=url, lo=0, hi=self._sizes[url] - 1, by=by) for url in urls]

    def renamed(self, was: str, id: str) -> None:
        """A device has another id."""
        for span, word in self._words.items():
            if word.by == was:
                self._words[span] = word._replace(by=id)
        self._named[id] = self._named.pop(was, 0)
        if was in self.liars:
            self.liars.add(id)

    def _dispute(self, span: Span) -> None:
        if len(self._disputed) < MOST:
            self._disputed.add(span)


def message_of(span: Span, word: Word | None) -> NbHash:
    """What others are told of one range; None: it is not vouched for."""
    sha256, by = (word.sha256, word.by or None) if word else (None, None)
    return NbHash(url=span.url, lo=span.lo, hi=span.hi - 1, sha256=sha256, by=by)


def span_of(url: str, lo: int, last: int) -> Span | None:
    """The range that a message names, ``last`` inclusive; None: it is none of any file."""
    return Span(url, lo, last + 1) if lo <= last and split(url) else None


def _said(message: NbHash | NbHashes) -> Iterator[tuple[Span, Word | None]]:
    if isinstance(message, NbHash):
        span = span_of(message.url, message.lo, message.hi)
        if span is not None:
            yield span, Word(message.sha256, message.by or "") if message.sha256 else None
        return
    for text, sha256 in message.all.items():
        found = range_of(text)
        if found is not None and (span := span_of(message.url, found[0], found[1] - 1)):
            yield span, Word(sha256, message.by or "")
