"""What a room remembers for a restart of its host (PROTOCOL section 8, host resume).

Plain, bounded values: `roomfile` keeps them in a file, `HostRoom` makes and takes them. What others said is
among them only where everyone may see the chat; what only this device's person and one asker may see is not.
Secrets are not here: they lie with the gate (`keeping`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Protocol, runtime_checkable

from msgspec import Meta, Struct

from pooled_nb.room.core import AskOptions, ChatSettings, Reason, Visibility
from pooled_nb.room.dealing import Split
from pooled_nb.shard import Sampling, Turn

MAX_EXCHANGES = 20
MAX_ASKED = 3
"""The running question of this device and the two that may wait."""

_Text = Annotated[str, Meta(max_length=1_000_000)]
_Name = Annotated[str, Meta(max_length=200)]
_Layer = Annotated[int, Meta(ge=0, le=10_000)]
_Token = Annotated[int, Meta(ge=0, le=2**31 - 1)]


class SavedExchange(Struct, frozen=True, kw_only=True):
    """One question and its answer, as screens show it.

    Attributes
    ----------
    seat
        Whose question it was: the id of a pass (`Mesh.seat`), or empty for this device's own.
    rid
        What its asker called it, so that nobody is answered twice.
    before
        Characters of the reply that were there before it went on: what was asked for last is the rest.
    """

    seat: Annotated[str, Meta(max_length=64)] = ""
    name: _Name
    text: _Text
    reply: _Text
    stats: _Text = ""
    mid: Annotated[int, Meta(ge=0, le=2**31 - 1)]
    mode: Visibility = "all"
    rid: Annotated[str, Meta(max_length=32)] | None = None
    reason: Reason = "stop"
    before: Annotated[int, Meta(ge=0, le=1_000_000)] = 0


class SavedLast(Struct, frozen=True, kw_only=True):
    """What it takes to continue the newest answer, or to make it anew; as `conversation.Last`."""

    turns: list[Turn]
    options: AskOptions
    how: Sampling
    thinking: bool | None
    ids: list[_Token]
    used: int


class SavedChat(Struct, frozen=True, kw_only=True):
    """The conversation: exchanges for people, turns for the model, the counter of answers.

    ``last`` belongs to the newest of ``exchanges``; None where that was left out, or there is none.
    """

    exchanges: Annotated[list[SavedExchange], Meta(max_length=MAX_EXCHANGES)] = []
    turns: list[Turn] = []
    last: SavedLast | None = None
    turns_of_last: Annotated[int, Meta(ge=0, le=2)] = 0
    newest: Annotated[int, Meta(ge=0, le=2**31 - 1)] = 0


class SavedSeat(Struct, frozen=True, kw_only=True):
    """Who held which layers ``[lo, hi)``: the id of its pass, and its name."""

    seat: Annotated[str, Meta(max_length=64)]
    name: _Name
    lo: _Layer
    hi: _Layer


class SavedQuestion(Struct, frozen=True, kw_only=True):
    """A question of this device's person that was not answered yet.

    ``begun``: its answer was under way, so it goes first (see `SavedRunning`).
    """

    text: _Text
    options: AskOptions
    begun: bool = False


class SavedRunning(Struct, frozen=True, kw_only=True):
    """Whose answer was under way, where that is another device, and what it called its question.

    It sends that again when it is back, and is answered first: with another question before it, the model
    would read another conversation, and what that device's screen shows already would not go on.
    """

    seat: Annotated[str, Meta(min_length=1, max_length=64)]
    name: _Name
    rid: Annotated[str, Meta(min_length=1, max_length=32)]


@runtime_checkable
class Resumable(Protocol):
    """What a room can besides that goes on in this host's next process."""

    asked: list[SavedQuestion]
    """Questions of this device's person that the process before left without an answer, next first. Whoever
    asks them again takes them out."""
    on_memory: Callable[[], None]
    """Called when what is saved of it may have changed."""

    @property
    def resuming(self) -> bool:
        """Whether it waits for devices that held layers, or deals by itself after that."""

    async def abandon(self) -> None:
        """End here without a word to the others, who wait for the next process. Never raises."""


class Memory(Struct, frozen=True, kw_only=True):
    """What decides how a room goes on: what its creator chose, what the first start fixed, who held what.

    Attributes
    ----------
    model, revision, folder, label
        As of `ModelFacts`.
    started
        Whether it had been started, or was starting: then a resume deals again by itself.
    fixed_dtype, fixed_cols
        What the first start fixed (PROTOCOL section 5); empty and 0 before it.
    seats
        In chain order, without this device; during the first start, of those who load.
    asked
        This person's own questions without an answer, next first.
    running
        Another device's question, whose answer was under way.
    """

    model: Annotated[str, Meta(min_length=1, max_length=500)]
    revision: _Name = ""
    folder: Annotated[str, Meta(max_length=4_000)] | None = None
    label: Annotated[str, Meta(max_length=500)] = ""
    name: _Name = ""
    split: Split = "speed"
    ctx: Annotated[int, Meta(ge=1, le=2**24)]
    exact: bool = True
    lends_gb: float = 0.0
    dtype: str | None = None
    kv: str = "f16"
    quant: str = ""
    speculate: bool = True
    settings: ChatSettings = ChatSettings()
    started: bool = False
    fixed_dtype: _Name = ""
    fixed_cols: Annotated[int, Meta(ge=0, le=256)] = 0
    seats: Annotated[list[SavedSeat], Meta(max_length=256)] = []
    chat: SavedChat = SavedChat()
    asked: Annotated[list[SavedQuestion], Meta(max_length=MAX_ASKED)] = []
    running: SavedRunning | None = None
