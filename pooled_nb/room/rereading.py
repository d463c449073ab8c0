"""One answer as its reader was shown it, and the same answer told again from its beginning.

Over a new link the host says again what was shown so far, in pieces cut otherwise, and a host that started
anew makes the answer again: what its reader has already is skipped, character by character. Decides only.
"""

from __future__ import annotations

MAX_TEXT = 1_000_000
"""Characters that are kept to compare with: a host that never ends an answer does not fill this device. What
lies beyond is skipped by its length."""


class Reading:
    """The text of one answer."""

    def __init__(self) -> None:
        self._text = ""
        self._pieces: list[str] = []
        self._kept = self._length = 0
        self._at: int | None = None
        """How far it is told again; None: what comes is new."""

    @property
    def lacks(self) -> bool:
        """Whether the answer as it is told again is still shorter than what was shown."""
        return self._at is not None and self._at < self._length

    def again(self) -> None:
        """The answer is told again from its beginning."""
        self._at = 0

    def take(self, text: str) -> str | None:
        """A piece of it: what of that is new, mostly all; None where it is another answer than was shown."""
        if self._at is None:
            self._keep(text)
            return text
        known = min(self._length - self._at, len(text))
        same = min(max(0, self._kept - self._at), known)
        if same and not self._whole.startswith(text[:same], self._at):
            return None
        self._at += known
        if self._at < self._length:
            return ""
        self._at = None
        self._keep(text[known:])
        return text[known:]

    def _keep(self, text: str) -> None:
        self._length += len(text)
        if piece := text[: MAX_TEXT - self._kept]:
            self._pieces.append(piece)
            self._kept += len(piece)

    @property
    def _whole(self) -> str:
        self._text += "".join(self._pieces)
        self._pieces.clear()
        return self._text
