"""What the devices of a room have of its weights, as its host knows it (PROTOCOL section 6, ``ai-inv``)."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping

from pooled_nb.mesh.clock import Clock
from pooled_nb.mesh.messages.deal import Inv, InvReq
from pooled_nb.room.outbox import Outbox
from pooled_nb.room.weights.inventory import Ranges, ranges_of, words_of
from pooled_nb.room.weights.urls import split

ANSWER_S = 1.5
"""So long the host waits for answers before it deals (section 6). What comes later counts, too."""
TURN = 8
"""Questions that are sent in one turn of the loop."""
MOST_FILES = 512
"""Weights files that are asked about; larger models do not come in more."""
MOST_WORDS = 4_096
"""Ranges of one device, and of one ``ai-load``: what it says must stay one message (section 2)."""
MOST_LISTS = 1_024
"""Files of all devices in one ``ai-load``."""


class Stock:
    """Asks, waits, and remembers what each device said last.

    Parameters
    ----------
    sizes
        Of the model's weights files, in bytes, by url.
    """

    def __init__(self, *, outbox: Outbox, clock: Clock, sizes: Mapping[str, int]) -> None:
        self._outbox, self._clock = outbox, clock
        self._sizes = dict(list(sizes.items())[:MOST_FILES])
        self._has: dict[str, dict[str, Ranges]] = {}
        """By the device's id, and by url."""
        self._struck: set[str] = set()
        self._owed: set[tuple[str, str]] = set()
        self._told = asyncio.Event()

    async def ask(self, ids: Iterable[str]) -> None:
        """Ask these devices what they have now; return when all have answered, after 1.5 s at most."""
        questions = [(id, url) for id in ids for url in self._sizes]
        self._owed = set(questions)
        self._told.clear()
        timer = self._clock.call_later(ANSWER_S, self._told.set)
        try:
            for n, (id, url) in enumerate(questions):
                if not self._outbox.send(id, InvReq(url=url)):
                    self._no_more(id, url)
                if n % TURN == TURN - 1:
                    await asyncio.sleep(0)
            if self._owed:
                await self._told.wait()
        finally:
            timer.cancel()

    def heard(self, sender: str, message: Inv) -> None:
        """A device says what it has of a file."""
        size = self._sizes.get(message.url)
        if size is None:
            return
        self.put(sender, message.url, ranges_of(message.have, size))
        self._no_more(sender, message.url)

    def put(self, id: str, url: str, ranges: Ranges) -> None:
        """A device has this, and nothing else, of a file."""
        files = self._has.setdefault(id, {})
        files.pop(url, None)
        if ranges and len(ranges) + sum(map(len, files.values())) <= MOST_WORDS:
            files[url] = ranges

    def strike(self, id: str) -> None:
        """What a device gave was wrong: it is listed no more."""
        self._struck.add(id)

    def renamed(self, was: str, id: str) -> None:
        """A device has another id; what it has may have changed with its process, and what it did has not."""
        self._has.pop(was, None)
        if was in self._struck:
            self._struck.add(id)

    def left(self, id: str) -> None:
        """A device is gone: nobody waits for it."""
        self._has.pop(id, None)
        for url in self._sizes:
            self._no_more(id, url)

    def have(self, ids: Collection[str]) -> dict[str, dict[str, Ranges]]:
        """What these devices have, by id and by the file's name."""
        return {
            id: {_name(url): ranges for url, ranges in self._has[id].items()}
            for id in ids
            if self._has.get(id) and id not in self._struck
        }

    def listing(self, ids: Collection[str]) -> dict[str, dict[str, list[str]]] | None:
        """The same as ``ai-load`` says it, within what one message may hold; None: nobody has anything."""
        words, lists = MOST_WORDS, MOST_LISTS
        found: dict[str, dict[str, list[str]]] = {}
        for id, files in self.have(ids).items():
            for name, ranges in files.items():
                said = words_of(ranges)
                if len(said) <= words and lists:
                    found.setdefault(id, {})[name] = said
                    words, lists = words - len(said), lists - 1
        return found or None

    def _no_more(self, id: str, url: str) -> None:
        self._owed.discard((id, url))
        if not self._owed:
            self._told.set()


def _name(url: str) -> str:
    file = split(url)
    return file.name if file else ""
