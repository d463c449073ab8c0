"""What a panel shows, as it sees it: the front door's `Room` and `Answer` fit these and know no panels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, Protocol

from msgspec import Struct

from pooled_nb.room.core import Reason, Role, Status
from pooled_nb.room.doorfacts import Invite

Watch = Callable[[], None]
"""Called on any thread after something changed; it must only post."""
Told = Callable[[str], None]
"""Called once, on any thread, when a command has ended: empty when it was done, else the sentence why not."""


class Coming(Protocol):
    """A link that the room looks up meanwhile."""

    def on_end(self, do: Callable[[], None]) -> None:
        """Call this once it is there, or is not to be had; on any thread, or at once."""

    def error(self) -> BaseException | None:
        """Then: why there is none."""

    def result(self) -> Invite:
        """Then: it."""


class RoomSource(Protocol):
    """A room. Every member may be used from any thread, and none blocks."""

    @property
    def role(self) -> Role | None:
        """None while it opens."""

    @property
    def left(self) -> bool:
        """Over for this device."""

    @property
    def progress(self) -> tuple[int | None, str]:
        """How far opening or loading is: percent (None: not known) and words."""

    @property
    def notices(self) -> list[str]:
        """The newest sentences for the person, newest last."""

    def seen(self) -> Status | None:
        """The status as it was at the last change; None while it opens."""

    def watch(self, wake: Watch) -> Callable[[], None]:
        """Hear of changes; what comes back ends it."""

    def command(self, name: str, options: dict[str, object], done: Told | None = None) -> None:
        """Do what a button says (a `Verb`); returns at once. What it refuses is heard as a notice, or by
        ``done`` alone.

        ``allow`` and ``deny`` take ``{"number"}``, ``download`` ``{"yes"}``, ``kick`` ``{"id"}``, ``gate``
        ``{"ask"}``, ``network`` ``{"turn", "relay_only", "remember"}`` (``turn`` is a secret; what is not
        there stays as it was).
        """

    def invite(self, *, wait: Literal[False]) -> Coming:
        """The link that lets its holder in. Raises a `PooledError`."""

    def renew_invite(self, *, wait: Literal[False]) -> Coming:
        """A new link; those given out before only lead to the lobby. As `invite`."""


class AnswerFacts(Struct, frozen=True, kw_only=True):
    """An answer apart from its text.

    ``line``: what it took and why it ended; ``error``: why there is no more.
    """

    reason: Reason | None = None
    place: int = 0
    started: bool = False
    notice: str = ""
    loading: tuple[int | None, str] | None = None
    line: str = ""
    error: str = ""
    hidden: bool = False
    can: tuple[Literal["stop", "continue", "regen"], ...] = ()


class AnswerSource(Protocol):
    """An answer that grows. Every member may be used from any thread, and none blocks."""

    question: str

    def since(self, seen: int) -> tuple[list[str], bool]:
        """Pieces after the first ``seen``, and whether it has ended (no piece comes after that)."""

    def facts(self) -> AnswerFacts:
        """What there is beside the text."""

    def watch(self, wake: Watch) -> Callable[[], None]:
        """Hear of changes; what comes back ends it."""

    def stop(self) -> None:
        """End it; returns at once."""

    def again(self, what: Literal["continue", "regen"]) -> AnswerSource:
        """Continue it or make it anew: the live answer that follows. Raises a `PooledError`."""
