"""Who may come in, and by which ways: what the front door sees and chooses (PROTOCOL sections 2 and 4)."""

from __future__ import annotations

import ipaddress
from collections.abc import Awaitable, Callable
from typing import Any, Literal
from urllib.parse import urlsplit

from msgspec import Struct, field

Trust = Literal["", "proved", "confirmed", "first"]
"""How this device knows its host: key or pass was proved; a person compared the digits; not at all."""
Starts = Literal["all", "host"]
RelayFrom = Literal["", "settings", "environment", "server"]
Auto = Literal["auto"]


class GateChoices(Struct, frozen=True, kw_only=True):
    """Who comes in. The host's person chooses.

    ``ask``: a person is asked before a device comes in that proves neither the invite key nor a pass; off,
    the code is enough. ``api``: API clients may come. ``older``: devices that can prove nothing count by
    raw keys. ``starts``: whose question may start the room.
    """

    ask: bool = True
    api: bool = False
    older: bool = False
    starts: Starts = "all"


class LobbyLine(Struct, frozen=True, kw_only=True):
    """One device that waits to be let in (host only).

    ``number`` names it to `RoomCore.allow`; ``digits`` (``482 019``) are what its own screen shows, empty
    where it can show none; ``note``: what to know besides, in one sentence.
    """

    number: int
    name: str
    kind: str = ""
    lends_gb: float = 0.0
    digits: str = ""
    note: str = ""


class Invite(Struct, frozen=True, kw_only=True):
    """A link that lets its holder in without asking.

    ``link`` is a secret: in no repr, trait, log or saved output (DESIGN section 7).
    """

    code: str
    link: str

    @property
    def here_only(self) -> bool:
        """Whether the link leads to a signaling server that only this machine reaches."""
        host = urlsplit(self.link).hostname or ""
        try:
            return ipaddress.ip_address(host).is_loopback
        except ValueError:
            return host == "localhost"

    def __repr__(self) -> str:
        return f"Invite(code={self.code!r}, link=…)"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [("code", self.code)]


class WireChoice(Struct, frozen=True, kw_only=True):
    """How frames travel (PROTOCOL section 5); None: not said. ``"auto"``: what fits the place.

    ``stripes``: more connections for a link of the chain that this device dials, 0 to 8; ``twice``: small
    frames go over two of them; ``keepalive_ms``: milliseconds without a slice after which a link in use sends
    a byte, 0: never; ``transport``: what makes the connections, ``"aiortc"`` or ``"wrtc"`` (an extra).
    """

    stripes: int | Auto | None = None
    twice: bool | Auto | None = None
    keepalive_ms: float | Auto | None = None
    transport: str | None = None


class NetworkFacts(Struct, frozen=True, kw_only=True):
    """By which ways this device reaches others. Holds no secret.

    ``signaling``: the server that answered, as people know it, and whether it is ``up`` now; ``relay``: host
    and port of the TURN server, empty where there is none, and whence it is known; ``wire``: how frames
    travel, None where no room says so; ``later``: what of it will be otherwise in the next room.
    """

    signaling: str = ""
    up: bool = True
    stun: list[str] = field(default_factory=list)
    relay: str = ""
    relay_from: RelayFrom = ""
    relay_only: bool = False
    wire: WireChoice | None = None
    later: WireChoice = WireChoice()


class NetworkChoice(Struct, frozen=True, kw_only=True):
    """What a person sets in the network box; None: as it was.

    ``turn`` as of ``POOLED_TURN`` (a secret; empty: none); ``stun``: URLs in order, empty: none;
    ``remember``: also for later rooms, in a file that only this user can read; the last four as of
    `WireChoice`: those of an open room stay as they are.
    """

    turn: str | None = None
    stun: list[str] | None = None
    relay_only: bool | None = None
    remember: bool = False
    stripes: int | Auto | None = None
    twice: bool | Auto | None = None
    keepalive_ms: float | Auto | None = None
    transport: str | None = None

    def __repr__(self) -> str:
        turn = None if self.turn is None else "…"
        return f"NetworkChoice(turn={turn!r}, stun={self.stun!r}, relay_only={self.relay_only!r})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [("stun", self.stun), ("relay_only", self.relay_only)]


class Doubt(Struct, frozen=True, kw_only=True):
    """The host let this device in and did not recognise its link: its person is to compare the digits.

    ``digits`` are empty where this host cannot prove itself at all; ``text`` says it, in words for people.
    """

    digits: str
    text: str


Confirm = Callable[[Doubt], Awaitable[bool]]
"""Asks this device's person; runs on the mesh loop. False: leave."""
