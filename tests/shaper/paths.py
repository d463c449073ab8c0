"""The paths of a relay: two ends each, a line in each direction, and what lines are told."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from tests.shaper.candidates import Address
from tests.shaper.line import Line, LineSettings


class Where(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which lines are meant; all, as it stands.

    Attributes
    ----------
    path
        Of this path alone.
    ends
        Of paths that have all of these ends.
    label
        Of connections with this label (``"stripe"``), or with ``"link"`` of those without it.
    sent_by
        The lines that carry what this end sends.
    """

    path: int | None = None
    ends: Annotated[list[str], Meta(max_length=2)] = []
    label: str | None = None
    sent_by: str | None = None


class Befalls(msgspec.Struct, frozen=True, kw_only=True):
    """Something that lines were told, and lines that come later are told, too."""

    where: Where
    what: Literal["settings", "freeze", "swallow"]
    settings: LineSettings = LineSettings()
    until: float = 0.0


@dataclass
class End:
    """One side of a path.

    Attributes
    ----------
    at
        Where it is; None: not known yet.
    socket
        What it knows as the other end.
    line
        What it sends goes into this one.
    last
        When it sent something; 0: never.
    """

    name: str
    at: Address | None
    socket: socket.socket
    line: Line[bytes]
    last: float = 0.0


@dataclass
class Path:
    """Two ends; ``a`` is the one that asked for the other."""

    number: int
    label: str
    a: End
    b: End

    @property
    def for_a(self) -> Address:
        """What end a is told as b's address."""
        return self.a.socket.getsockname()[:2]

    @property
    def for_b(self) -> Address:
        """What end b is told as a's address."""
        return self.b.socket.getsockname()[:2]

    @property
    def ends(self) -> tuple[End, End]:
        return self.a, self.b

    def is_meant(self, end: End, where: Where) -> bool:
        """Whether the line that this end sends into is one of those."""
        names = (self.a.name, self.b.name)
        label = self.label if self.label == "stripe" else "link"
        return (
            where.path in (None, self.number)
            and all(name in names for name in where.ends)
            and where.label in (None, label)
            and where.sent_by in (None, end.name)
        )

    def tell(self, told: Befalls) -> None:
        """Tell those of its lines that are meant."""
        for end in self.ends:
            if not self.is_meant(end, told.where):
                continue
            match told.what:
                case "settings":
                    end.line.settings = told.settings
                case "freeze":
                    end.line.freeze(told.until)
                case "swallow":
                    end.line.swallow(told.until)
