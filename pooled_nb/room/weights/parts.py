"""Decides whether the parts of one piece are what was asked for (PROTOCOL section 6, ``ai-wpart``).

Links are reliable and in order, so that a part at a wrong place is no accident: who sends one, or more or
fewer bytes than were asked for, is not asked again. That the bytes are the right ones, only their hash says.
"""

from __future__ import annotations

from typing import Literal

from pooled_nb.mesh.messages.weights import Wpart

Over = Literal["", "done", "miss", "bad"]


class Parts:
    """Of one request, from the first byte that was asked for.

    Parameters
    ----------
    size
        Bytes that were asked for.
    win
        Bytes that may come before they are acknowledged.

    Attributes
    ----------
    got
        Bytes that came, all in order.
    over
        How it ended; empty: it goes on.
    why
        What was wrong, where something was.
    """

    def __init__(self, size: int, win: int) -> None:
        self.got = 0
        self.over: Over = ""
        self.why = ""
        self._size, self._win, self._acknowledged = size, win, 0

    def heard(self, part: Wpart) -> bytes:
        """The bytes to keep of a part; nothing once it is over."""
        if self.over:
            return b""
        data = self._data(part) if part.data is not None else b""
        if self.over:
            return b""
        if part.miss:
            self.over = "miss"
        elif part.done and self.got < self._size:
            self._bad(f"it ended after {self.got:,} of {self._size:,} bytes")
        elif part.done:
            self.over = "done"
        return data

    def acknowledged(self, got: int) -> None:
        """The other end is told that so many bytes were taken."""
        self._acknowledged = got

    def _data(self, part: Wpart) -> bytes:
        data = part.data or b""
        if part.off != self.got:
            self._bad(f"a part for byte {part.off} came where byte {self.got} was due")
        elif self.got + len(data) > self._size:
            self._bad(f"more came than the {self._size:,} bytes that were asked for")
        elif self.got + len(data) - self._acknowledged > self._win:
            self._bad(f"more than {self._win:,} bytes came at once")
        else:
            self.got += len(data)
            return data
        return b""

    def _bad(self, why: str) -> None:
        self.over, self.why = "bad", why
