"""What every room offers to the front door, whichever part this device plays. Runs on the mesh loop."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Literal, Protocol

from msgspec import Struct, field

Role = Literal["host", "worker", "guest"]
State = Literal["open", "loading", "online", "answering", "degraded", "closed"]
Reason = Literal["stop", "max", "ctx", "abort", "error"]


class AskOptions(Struct, frozen=True, kw_only=True):
    """How one question is to be answered. None: the room's default.

    ``max_tokens`` counts generated tokens; ``temperature`` 0 is greedy.
    """

    max_tokens: int | None = None
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    seed: int | None = None


class Stats(Struct, frozen=True, kw_only=True):
    """What one answer took: tokens, milliseconds, tokens per second (the first token aside)."""

    tokens: int = 0
    prompt: int = 0
    reused: int = 0
    ms: float = 0.0
    first_ms: float = 0.0

    @property
    def tps(self) -> float:
        """Tokens per second after the first; 0 when not measured."""
        span = self.ms - self.first_ms
        return (self.tokens - 1) * 1e3 / span if self.tokens > 1 and span > 0 else 0.0


class Queued(Struct, frozen=True, tag="queued"):
    """The question waits; ``place`` counts from 1."""

    place: int


class Started(Struct, frozen=True, tag="started"):
    """The answer begins."""

    mid: int


class Piece(Struct, frozen=True, tag="piece"):
    """Text that was added."""

    text: str


class Notice(Struct, frozen=True, tag="notice"):
    """A sentence about the answer while it runs (waiting for a device, …)."""

    text: str


class Done(Struct, frozen=True, tag="done"):
    """The answer ended. ``tokens``: the ids, known on the host only."""

    reason: Reason
    stats: Stats
    why: str = ""
    tokens: list[int] | None = None


AnswerEvent = Queued | Started | Piece | Notice | Done


class DeviceLine(Struct, frozen=True, kw_only=True):
    """One device as people see it."""

    id: str
    name: str
    role: Role
    kind: str
    lends_gb: float
    layers: tuple[int, int] | None = None
    """0-based, hi exclusive; people are shown 1-based, inclusive."""
    held_gb: float = 0.0
    progress: int | None = None
    rtt_ms: float | None = None
    path: str = "unknown"
    out: str = ""
    """Why it holds no layers, in a word."""
    me: bool = False


class Status(Struct, frozen=True, kw_only=True):
    """The room, whole, for people and panels. Holds no secret."""

    code: str
    state: State
    sentence: str
    """The state in words, and what to do next."""
    model: str = ""
    label: str = ""
    layers: int = 0
    ctx: int = 0
    used: int = 0
    exact: bool = True
    devices: list[DeviceLine] = field(default_factory=list)
    waiting: int = 0
    answering: str = ""
    signaling: str = ""


def unheard(*_: object) -> None:
    """What `RoomCore.on_change` and `RoomCore.on_notice` are until somebody listens."""


class RoomCore(Protocol):
    """A room on the mesh loop. `pooled_nb.api.Room` wraps it for any thread."""

    code: str
    """Six characters, as typed in links; shown ``4TK-G9P``."""
    on_change: Callable[[], None]
    """Called (mesh loop) after anything `status` shows has changed. Set it to hear; it never is None."""
    on_notice: Callable[[str], None]
    """A sentence for the person: signaling down, a device left, … Set it to hear; it never is None."""

    @property
    def role(self) -> Role:
        """The part this device plays now."""

    def status(self) -> Status:
        """The room now."""

    async def start(self, progress: Callable[[int, str], None] | None = None) -> None:
        """Deal and load over the devices now here; returns when the room is online (host only)."""

    def ask(self, text: str, options: AskOptions) -> AsyncIterator[AnswerEvent]:
        """Ask; the last event is always `Done`. Closing the iterator early stops the answer.

        Raises
        ------
        BadQuestion, QueueFull, NotReady, RoomClosed
        """

    async def stop(self) -> None:
        """End the running answer after the lap in flight, or take back the newest waiting question."""

    async def reset(self) -> None:
        """New chat (host only)."""

    async def leave(self) -> None:
        """Leave the room; the host's leaving closes it. Never raises."""
