"""Decides how much may be on its way to a device that says what it has taken (section 6, ``ai-wack``).

Each range that is asked for has its own window, and all ranges of one link share one: their parts wait in one
inbox on the other end (`pace`), which closes a link that sends more than it reads.

No I/O: what was sent and what came back go in, whether more may follow comes out.
"""

from __future__ import annotations

from collections.abc import Callable

WINDOW = 8 << 20
"""Bytes that are sent and not acknowledged, of one range, and of all ranges of one link together."""
PART = 65_536
"""Bytes of one part at most (section 6)."""


class Credit:
    """Of one range, or of all ranges of a link.

    Parameters
    ----------
    win
        What the other end asked for, in bytes: more than `WINDOW` counts as that, less is obeyed. None: it
        said nothing.
    of
        The credit of the whole link, which this one takes its bytes from.

    Attributes
    ----------
    win, of
        As they count.
    on_free
        Called when more may be sent, or nothing ever again.
    """

    def __init__(self, win: int | None = None, *, of: Credit | None = None) -> None:
        self.win = WINDOW if win is None else max(1, min(win, WINDOW))
        self.on_free: Callable[[], None] | None = None
        self.of = of
        self._sent = self._got = 0
        self._returned = 0
        """Bytes that came back without an acknowledgement: of ranges that ended."""
        self._closed = False

    @property
    def part(self) -> int:
        """Bytes that one part may have at most, so that it fits the window."""
        return min(PART, self.win, self.of.win if self.of is not None else PART)

    @property
    def unacknowledged(self) -> int:
        """Bytes on their way."""
        return self._sent - self._got - self._returned

    @property
    def is_closed(self) -> bool:
        """Whether the range is over: nothing more of it may be sent."""
        return self._closed

    def may(self, size: int) -> bool:
        """Whether so many bytes more may be sent now.

        Raises
        ------
        ValueError
            They would not fit an empty window either: cut them to `part`.
        """
        if size > self.win:
            raise ValueError(f"{size} bytes for a window of {self.win}")
        inside = self.unacknowledged + size <= self.win
        return inside and not self._closed and (self.of is None or self.of.may(size))

    def sent(self, size: int) -> None:
        """So many bytes were handed over for sending."""
        self._sent += size
        if self.of is not None:
            self.of.sent(size)

    def acknowledged(self, got: int) -> None:
        """The other end has ``got`` bytes in all. More than was sent, or less than before, says nothing."""
        if self._closed or not self._got < got <= self._sent:
            return
        more, self._got = got - self._got, got
        if self.of is not None:
            self.of._back(more)
        self._tell()

    def close(self) -> None:
        """The range is done, cancelled or failed: what of it was on its way no longer counts for the link."""
        if self._closed:
            return
        self._closed = True
        if self.of is not None:
            self.of._back(self.unacknowledged)
        self._tell()

    def _back(self, size: int) -> None:
        self._returned += size
        self._tell()

    def _tell(self) -> None:
        if self.on_free is not None:
            self.on_free()
