"""A toy's text: one character a token, held back while it may become a stop text; and prompt lookup."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

SIZES = (4, 3, 2)


class ToyText:
    """Characters as they may be shown; ``after``: tokens whose text went before."""

    def __init__(self, stops: Sequence[str] = (), after: Iterable[int] = ()) -> None:
        self.stopped = False
        self._stops, self._held = stops, ""
        for token in after:
            self.push(token)

    def push(self, token: int) -> str:
        text = self._held + chr(31 + token)
        found = [at for stop in self._stops if (at := text.find(stop)) >= 0]
        if found:
            self.stopped, self._held = True, ""
            return text[: min(found)]
        keep = next(
            i
            for i in range(len(text) + 1)
            if not text[i:] or any(stop.startswith(text[i:]) for stop in self._stops)
        )
        self._held = text[keep:]
        return text[:keep]

    def flush(self) -> str:
        text, self._held = self._held, ""
        return text


def looked_up(history: Sequence[int], most: int) -> list[int]:
    """What followed where the last tokens stood before, the longest n-gram and its newest place first."""
    for size in SIZES:
        tail = list(history[-size:])
        for at in range(len(history) - size - 1, -1, -1):
            if list(history[at : at + size]) == tail:
                return list(history[at + size : at + size + most])
    return []
