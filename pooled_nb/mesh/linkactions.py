"""What a link's life asks for, and how it ends: what `linkstate` decides and `link` does."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from pooled_nb.mesh.messages import Message


class Cause(enum.Enum):
    """Why a link ended."""

    LEFT = "left"
    """The other end said ``leaving``."""
    BYE = "bye"
    """The creator said ``bye``."""
    CLOSED = "closed"
    """The creator said ``bye {closed: 1}``: the room is over."""
    REFUSED = "refused"
    """This end refused the other."""
    VERSION = "version"
    """They speak different versions."""
    NO_HELLO = "no-hello"
    """Open, but no ``hello``: its dialer dials again."""
    NO_PATH = "no-path"
    """No network path between the two opened."""
    LATE = "late"
    """It was not admitted in time."""
    FLOOD = "flood"
    """The other end sent more than it may."""
    BROKEN = "broken"
    """The connection failed or was closed under it."""
    SILENT = "silent"
    """Nothing was heard for too long."""
    OURS = "ours"
    """This end closed it."""


@dataclass(frozen=True, slots=True)
class Send:
    """Send this over the link."""

    message: Message


@dataclass(frozen=True, slots=True)
class Answered:
    """The ping ``ts`` was answered."""

    ts: object


@dataclass(frozen=True, slots=True)
class Admitted:
    """The room and this link may speak from now on."""


@dataclass(frozen=True, slots=True)
class Deliver:
    """A message for the room, or a ``roster`` or ``pledge`` that may come from there."""

    message: Message


@dataclass(frozen=True, slots=True)
class Notice:
    """A sentence for people."""

    text: str


@dataclass(frozen=True, slots=True)
class End:
    """Close the link in ``linger`` seconds; nothing follows. ``why`` and ``next_step`` are for people."""

    cause: Cause
    why: str
    next_step: str = ""
    linger: float = 0.0


Action = Send | Answered | Admitted | Deliver | Notice | End
