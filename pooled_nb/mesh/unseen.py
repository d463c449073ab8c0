"""A secret text whose repr is not it: a traceback shows what a variable holds (DESIGN section 7)."""

from __future__ import annotations


class Unseen(str):
    """A link or a relay that was asked for unseen, or came from the environment."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "<not shown>"

    def strip(self, chars: str | None = None, /) -> Unseen:
        """As a str's, and as little shown."""
        return Unseen(super().strip(chars))
