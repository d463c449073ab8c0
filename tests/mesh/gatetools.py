"""Two gates with a link in memory between them, and what tests of gates share.

Every message goes through `write` and `read`, so that a field the wire does not carry is missed here, too.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from pooled_nb.mesh.gate import Doorway, Gate, GateAction, Pass, Refuse, Say, Side, Wait
from pooled_nb.mesh.gatekeeper import Gatekeeper, GateSettings
from pooled_nb.mesh.messages import Message, read, write
from pooled_nb.mesh.messages.link import DeviceMeta, Hello
from pooled_nb.mesh.newcomer import Credentials, Newcomer

CREATOR, DEVICE = "pooled-room-4TKG9P", "device-0001"
PRINTS = ("sha-256 aa", "sha-256 bb")

Prints = Callable[[], tuple[str, str] | None]


def raw(nonce: str) -> bytes:
    """The random bytes behind a nonce of base64url."""
    return base64.urlsafe_b64decode(nonce + "=" * (-len(nonce) % 4))


def drawn(*nonces: str) -> Callable[[int], bytes]:
    """Random bytes that give these nonces, then others."""
    left = [raw(nonce) for nonce in nonces]
    count = iter(range(1, 1_000_000))
    return lambda n: left.pop(0) if left else next(count).to_bytes(n, "big")


def creator(
    keeper: Gatekeeper, *, id: str = DEVICE, room: str = CREATOR, prints: Prints = lambda: PRINTS, **more: Any
) -> Gate:
    """The creator's gate of a link that a device dialed."""
    return keeper.door(Doorway(Side.CREATOR, room, id, False, prints, **more))


def joiner(
    newcomer: Newcomer, *, id: str = DEVICE, room: str = CREATOR, prints: Prints = lambda: PRINTS
) -> Gate:
    """A device's gate of its link to the creator."""
    return newcomer.door(Doorway(Side.JOINER, id, room, True, prints))


def peer(
    newcomer: Newcomer,
    own: str,
    remote: str,
    *,
    dialed: bool,
    prints: Prints = lambda: PRINTS,
) -> Gate:
    """One end's gate of a link between two devices."""
    return newcomer.door(Doorway(Side.PEER, own, remote, dialed, prints))


@dataclass
class End:
    """One end of the link: its gate, what it said, and how it ended."""

    gate: Gate
    own: Hello
    inbox: list[Message] = field(default_factory=list)
    said: list[Message] = field(default_factory=list)
    waits: list[str] = field(default_factory=list)
    passes: list[Pass] = field(default_factory=list)
    refusals: list[Refuse] = field(default_factory=list)
    other: End = field(init=False)

    @property
    def is_over(self) -> bool:
        return bool(self.passes or self.refusals)

    def say(self, message: Message) -> None:
        """Send, as it would arrive."""
        self.said.append(message)
        arrived = read(write(message))
        assert arrived is not None
        self.other.inbox.append(arrived)

    def do(self, actions: Iterable[GateAction]) -> None:
        for action in actions:
            assert not self.is_over, f"{action} after its end"
            match action:
                case Say(message):
                    self.say(message)
                case Wait(text):
                    self.waits.append(text)
                case Pass(admit):
                    self.passes.append(action)
                    if admit is not None:
                        self.say(admit)
                case Refuse():
                    self.refusals.append(action)
        if self.refusals:
            self.gate.closed()

    def take(self, now: float) -> bool:
        """Handle what came; False: nothing had."""
        if not self.inbox:
            return False
        message = self.inbox.pop(0)
        if self.is_over:
            return True
        if isinstance(message, Hello):
            self.do(self.gate.greeted(message, now))
        else:
            self.do(self.gate.message(message, now))
        return True

    def tick(self, now: float) -> None:
        if not self.is_over:
            self.do(self.gate.tick(now))

    @property
    def kinds(self) -> list[str]:
        return [message.t for message in self.said]


class Pair:
    """A link between two gates; `run` carries everything that is on its way."""

    def __init__(
        self, far: Gate, near: Gate, *, name: str = "laptop", meta: DeviceMeta | None = None
    ) -> None:
        self.creator = End(far, Hello(name="host", v=4))
        self.device = End(near, Hello(name=name, meta=meta or DeviceMeta(), v=4))
        self.creator.other, self.device.other = self.device, self.creator
        self.now = 0.0

    def open(self) -> Pair:
        for end in (self.creator, self.device):
            end.say(end.gate.hello(end.own))
        return self.run()

    def run(self) -> Pair:
        while self.device.take(self.now) | self.creator.take(self.now):
            pass
        return self

    def at(self, now: float) -> Pair:
        """Time passes."""
        self.now = now
        self.device.tick(now)
        self.creator.tick(now)
        return self.run()


def pair(
    keeper: Gatekeeper | None = None,
    newcomer: Newcomer | None = None,
    *,
    id: str = DEVICE,
    name: str = "laptop",
    meta: DeviceMeta | None = None,
    prints: tuple[Prints, Prints] = (lambda: PRINTS, lambda: PRINTS[::-1]),
    now: float = 0.0,
    **more: Any,
) -> Pair:
    """A creator's gate and a device's, opened; nothing has waited yet."""
    near = newcomer or Newcomer()
    far = keeper or Gatekeeper(GateSettings(ask=False))
    link = Pair(
        creator(far, id=id, prints=prints[0], **more),
        joiner(near, id=id, prints=prints[1]),
        name=name,
        meta=meta,
    )
    link.now = now
    return link.open()


def invited(keeper: Gatekeeper) -> Newcomer:
    """A device that has the invite link."""
    return Newcomer(Credentials(key=keeper.key))
