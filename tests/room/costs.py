"""Recorded costs: SmolLM2-135M, one thread of an AMD EPYC with AVX-512 and bf16, CPU time (median of 12).

Milliseconds of all 30 layers and of the head, by columns of the frame. A room of two devices adds what the
frame waits on the wire: twice one way, and 3 ms of links (benchmarks/RESULTS.md).
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from pooled_nb.room.drafting import Drafting
from pooled_nb.shard import Source, Want

COLUMNS = (1, 2, 3, 4, 6, 8, 11, 16)
LAYERS = {
    "exact bf16": (45.1, 46.3, 48.9, 47.9, 49.7, 47.6, 49.5, 50.3),
    "fast bf16": (33.1, 34.6, 34.0, 34.3, 38.0, 42.0, 44.8, 51.0),
    "exact f32": (66.9, 67.5, 65.5, 64.5, 65.2, 66.4, 67.3, 67.1),
    "fast f32": (35.5, 39.1, 42.9, 42.4, 45.1, 50.8, 55.1, 61.2),
}
HEAD = {
    "exact bf16": (5.0, 5.1, 5.3, 5.5, 10.8, 10.8, 16.3, 21.8),
    "fast bf16": (4.9, 5.4, 5.7, 5.8, 6.9, 7.3, 8.7, 12.7),
    "exact f32": (14.2, 14.0, 14.6, 14.1, 28.9, 29.7, 43.6, 59.3),
    "fast f32": (8.3, 16.8, 24.9, 14.8, 17.2, 16.1, 21.4, 24.4),
}


@dataclass(frozen=True)
class Machine:
    """A room as its costs: ``wait`` ms of a lap on the wire, ``draft`` ms of one guess of a draft model."""

    mode: str
    wait: float = 0.0
    draft: float | None = None

    def lap(self, columns: int) -> float:
        return (_between(LAYERS[self.mode], columns) + self.wait) / 1e3

    def head(self, columns: int) -> float:
        return _between(HEAD[self.mode], columns) / 1e3

    def drafting(self) -> Drafting:
        return Drafting(exact=self.mode.startswith("exact"), drafter=self.draft is not None)


def two_devices(mode: str, one_way: float, draft: float | None = None) -> Machine:
    return Machine(mode, 2 * one_way + 3, draft)


@dataclass(frozen=True)
class Speech:
    """How what is said can be guessed: how often lookup finds something, and how often guesses are right.

    ``first`` and ``later`` of lookup; ``drafted`` each of a draft model's.
    """

    found: float = 0.0
    first: float = 0.0
    later: float = 0.0
    drafted: float = 0.0


EDIT = Speech(found=0.95, first=0.9, later=0.97, drafted=0.9)
TALK = Speech(found=0.4, first=0.05, later=0.3, drafted=0.7)
NOISE = Speech(found=0.9, first=0.01, later=0.1, drafted=0.05)


class Run:
    """One long answer over a machine, lap by lap, in its own time.

    Attributes
    ----------
    seconds, tokens
        Up to now.
    sizes
        Drafts of each lap, in order; 0 is a plain one.
    """

    def __init__(self, drafting: Drafting | None, *, seed: int = 0, fixed: Want | None = None) -> None:
        self.drafting, self.fixed = drafting, fixed
        self.seconds = 0.0
        self.tokens = 0
        self.sizes: list[int] = []
        self.sources: list[Source] = []
        self.prompt = 200
        self._read = 0
        self._rng = Random(seed)
        self._pending: tuple[Source, int] = ("", 0)
        if drafting:
            drafting.begin()

    def go(self, machine: Machine, speech: Speech, tokens: int) -> Run:
        """Go on until so many tokens more are there."""
        until = self.tokens + tokens
        while self.tokens < until:
            source, drafts = self._pending
            took = self._noisy(machine.lap(1 + drafts))
            self.seconds += took
            if self.drafting:
                self.drafting.lap(1 + drafts, took)
            self._sample(machine, speech, source, drafts)
        return self

    def _sample(self, machine: Machine, speech: Speech, source: Source, drafts: int) -> None:
        right = self._right(speech, source, drafts)
        self.tokens += 1 + right
        self.sizes.append(drafts)
        self.sources.append(source)
        want = self.drafting.want(999) if self.drafting else self.fixed or Want()
        found = self._rng.random() < speech.found
        drafted = want.draft if machine.draft is not None and not (want.lookup and found) else 0
        took = self._noisy(machine.head(1 + drafts)) + self._noisy((machine.draft or 0.0) / 1e3 * drafted)
        asked = machine.draft is not None and want.draft > 0 and not (want.lookup and found)
        if asked:
            # A draft model that is behind reads first, 64 columns at a time, and guesses only then.
            unread = max(0, self.tokens + self.prompt - self._read - 16)
            took += (unread + 63) // 64 * 2 * (machine.draft or 0.0) / 1e3
            self._read = self.tokens + self.prompt
            drafted = 0 if unread > 64 else drafted
        self.seconds += took
        if self.drafting:
            self.drafting.sampled(1 + drafts, took, drafted, asked=asked)
            self.drafting.tried(source, right, wrong=right < drafts)
        if want.lookup and found:
            self._pending = "lookup", want.lookup
        else:
            self._pending = ("draft", drafted) if drafted else ("", 0)

    def _right(self, speech: Speech, source: Source, drafts: int) -> int:
        if source == "draft":
            chances = [speech.drafted] * drafts
        else:
            chances = [speech.first, *[speech.later] * (drafts - 1)][:drafts]
        return next((i for i, c in enumerate(chances) if self._rng.random() >= c), drafts)

    def _noisy(self, seconds: float) -> float:
        return seconds * self._rng.uniform(0.93, 1.07)


def _between(table: tuple[float, ...], columns: int) -> float:
    for i, known in enumerate(COLUMNS):
        if columns == known:
            return table[i]
        if columns < known:
            part = (columns - COLUMNS[i - 1]) / (known - COLUMNS[i - 1])
            return table[i - 1] + part * (table[i] - table[i - 1])
    raise ValueError(columns)
