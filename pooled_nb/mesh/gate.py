"""The place of the gate in a link's life: what comes before admission (PROTOCOL section 4).

One `Gate` guards one link, on either end: at the creator, at the device that knocks, and between two
devices (the ``mesh`` proofs). Rooms are open for now: `OpenGate` lets everybody in at once.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import msgspec

from pooled_nb.mesh.messages import Message
from pooled_nb.mesh.messages.link import Admit, Hello, Lobby


class Side(enum.Enum):
    """What this end of a link is to the room."""

    CREATOR = "creator"
    """This device opened the room; the other end is a device."""
    JOINER = "joiner"
    """The other end is the creator."""
    PEER = "peer"
    """Neither is the creator."""


@dataclass(frozen=True, slots=True)
class Doorway:
    """What a gate knows of its link: ids as registered, who dialed, and fingerprints once known."""

    side: Side
    own: str
    remote: str
    dialed: bool
    fingerprints: Callable[[], tuple[str, str] | None]


@dataclass(frozen=True, slots=True)
class Say:
    """Send this."""

    message: Message


@dataclass(frozen=True, slots=True)
class Pass:
    """Admitted. ``admit`` is what the creator sends first."""

    admit: Admit | None = None


@dataclass(frozen=True, slots=True)
class Refuse:
    """Not let in."""

    reason: str


@dataclass(frozen=True, slots=True)
class Wait:
    """A person is being asked: no timer runs meanwhile. ``text`` is said to this end's person."""

    text: str


GateAction = Say | Pass | Refuse | Wait


class Gate(Protocol):
    """A decider; it gets no message before both ``hello``s and none after it passed or refused."""

    def hello(self, hello: Hello) -> Hello:
        """This end's ``hello``, with what the gate offers and asks."""

    def greeted(self, hello: Hello, now: float) -> list[GateAction]:
        """The other end's ``hello`` came, of this version."""

    def message(self, message: Message, now: float) -> list[GateAction]:
        """One of ``auth``, ``auth-proof``, ``lobby``, ``admit``, ``mesh``."""

    def tick(self, now: float) -> list[GateAction]:
        """Time passes."""


GateMaker = Callable[[Doorway], Gate]


class OpenGate:
    """Everybody is let in at once; nothing is proved."""

    def __init__(self, doorway: Doorway) -> None:
        self._side = doorway.side

    def hello(self, hello: Hello) -> Hello:
        """See `Gate.hello`. A device says that it can wait in a lobby."""
        return msgspec.structs.replace(hello, join=True) if self._side is Side.JOINER else hello

    def greeted(self, hello: Hello, now: float) -> list[GateAction]:
        """See `Gate.greeted`."""
        if self._side is Side.JOINER:
            return []
        return [Pass(Admit() if self._side is Side.CREATOR else None)]

    def message(self, message: Message, now: float) -> list[GateAction]:
        """See `Gate.message`."""
        if self._side is not Side.JOINER:
            return []
        match message:
            case Admit():
                return [Pass()]
            case Lobby():
                return [Wait("Waiting for the room's owner to let this device in.")]
        return []

    def tick(self, now: float) -> list[GateAction]:
        """See `Gate.tick`."""
        return []
