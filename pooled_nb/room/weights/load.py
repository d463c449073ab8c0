"""How far one load is, fetching and reading together, and how that is said."""

from __future__ import annotations

from collections.abc import Callable

from pooled_nb.room.weights.fetching import Tally
from pooled_nb.room.weights.meter import Meter

Progress = Callable[[int, str], None]
"""Percent of all, and a few words."""
FETCH = 70
"""Percent of a load that fetching all of it from devices is."""
ASKS = "asking the host whether what is here of other rooms is right"
PERSON = "waiting for this device's person to allow the download"


class Load:
    """One load; its percent never goes back.

    Attributes
    ----------
    words
        What it does now.
    tally
        What devices gave.
    meter
        None before anything is missing.
    draft
        Bytes that are missing of a model which drafts.
    """

    def __init__(self, progress: Progress) -> None:
        self.words = ""
        self.tally = Tally()
        self.meter: Meter | None = None
        self.draft = 0
        self._progress = progress
        self._pct = self._base = 0

    def lacks(self, missing: int, now: float) -> None:
        """So many bytes are missing yet."""
        if self.meter is None:
            self.meter = Meter(missing, now)
        # What headers say is more than what was known before them.
        self.meter.total = max(self.meter.total, self.tally.bytes + missing)

    def fetches(self, now: float, name_of: Callable[[str], str], *, asks: bool) -> None:
        """Say how far it is. ``asks``: its person is waited for."""
        if self.meter is None:
            return
        self.meter.at(self.tally.bytes, now)
        names = [name_of(id) for id in self.tally.givers]
        words = PERSON if asks else self.meter.words(names, hub=self.tally.hub)
        self._say(int(FETCH * self.meter.part), words)

    def checks(self) -> None:
        """The host is asked for hashes of what is here."""
        self._say(self._pct, ASKS)

    def begins_to_read(self) -> None:
        """What devices gave is behind it; the shard counts the rest from 0 to 100."""
        self._base = self._pct

    def reads(self, pct: int, words: str) -> None:
        """The shard is so far."""
        self._say(self._base + (100 - self._base) * max(0, min(100, pct)) // 100, words)

    def _say(self, pct: int, words: str) -> None:
        self._pct, self.words = max(self._pct, pct), words
        self._progress(self._pct, words)
