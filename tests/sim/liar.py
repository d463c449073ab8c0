"""A signaling server that lies, and who stands between two devices because of it.

`Liar` is the simulated network with a server that hands out other certificates than the ends have: a dial to
an id that it `stands_before` becomes two connections, one to each end, that meet in a `Middle`. Nobody can
read a connection that nobody ended in between, so this is all that a server can do beside refusing, and
beside registering a name that is free.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from pooled_nb.mesh.gate import Doorway, Gate, Pass, Refuse, Say, Side
from pooled_nb.mesh.messages import read, write
from pooled_nb.mesh.messages.link import Hello
from pooled_nb.mesh.newcomer import Credentials, Newcomer
from tests.mesh.rawpeer import RawPeer
from tests.sim.network import SimConnection, SimEndpoint, SimNetwork

Map = dict[str, Any]
Edit = Callable[[str, Map], Iterable[Map]]
"""What becomes of a message: ``"in"`` on its way to who was dialed, ``"out"`` on its way back."""


def everything(_way: str, message: Map) -> Iterable[Map]:
    return [message]


class Middle:
    """It ends DTLS at both, reads all, and passes on what ``edit`` makes of it."""

    def __init__(self, dialer: SimConnection, dialed: SimConnection, edit: Edit) -> None:
        self.dialer, self.dialed = _Ear(dialer, self, "in"), _Ear(dialed, self, "out")
        self.edit = edit
        self.heard: list[tuple[str, Map]] = []
        for one, other in ((self.dialer, self.dialed), (self.dialed, self.dialer)):
            one.connection.control.on_close = lambda other=other: other.hang_up()

    def pass_on(self, way: str, message: Map) -> None:
        self.heard.append((way, message))
        to = self.dialed if way == "in" else self.dialer
        for edited in self.edit(way, message):
            to.raw(edited)

    def told(self, t: str) -> list[Map]:
        return [message for _, message in self.heard if message.get("t") == t]


class _Ear(RawPeer):
    def __init__(self, connection: SimConnection, middle: Middle, way: str) -> None:
        self._middle, self._way = middle, way
        self._over = False
        super().__init__(connection)

    def _message(self, data: bytes) -> None:
        before = len(self.told)
        super()._message(data)
        for message in self.told[before:]:
            self._middle.pass_on(self._way, message)

    def hang_up(self) -> None:
        if not self._over:
            self._over = True
            self.connection.net.say_closed(self.connection)
            self.connection.shut()


class Liar(SimNetwork):
    """See the module."""

    def __init__(self, **more: Any) -> None:
        super().__init__(**more)
        self._edits: dict[str, Edit] = {}
        self.middles: list[Middle] = []
        self.two_prints: set[str] = set()
        """Ids in whose descriptions the server writes a second fingerprint, both ways."""

    async def register(
        self, id: str | None, servers: Sequence[str], *, token: str | None = None
    ) -> SimEndpoint:
        """Under an id that somebody has, too: the server then says that this one's calls come from there."""
        held = self._registered.get((servers[0], id or ""))
        if held is None or held.token == token:
            return await super().register(id, servers, token=token)
        return SimEndpoint(self, held.id, held.server, token or "")

    def free(self, id: str) -> None:
        """Whoever has this id is away from signaling; its links live on."""
        for endpoint in [e for e in self._registered.values() if e.id == id]:
            self.unregister(endpoint)

    def stands_before(self, id: str, edit: Edit = everything) -> None:
        """From now on who dials ``id`` reaches a `Middle`."""
        self._edits[id] = edit

    def steps_aside(self) -> None:
        self._edits.clear()

    async def connect(self, caller: SimEndpoint, remote: str, label: str) -> SimConnection:
        edit = self._edits.get(remote)
        callee = self._registered.get((caller.server, remote))
        if edit is None or callee is None:
            return await super().connect(caller, remote, label)
        await asyncio.sleep(self.latency)
        near, here = self.pair(caller.id, remote, label)
        there, far = self.pair(caller.id, remote, label)
        self.middles.append(Middle(here, there, edit))
        if callee.on_connection:
            callee.on_connection(far)
        self.opens(near, here, there, far)
        return near

    def pair(self, a: str, b: str, label: str) -> tuple[SimConnection, SimConnection]:
        near, far = super().pair(a, b, label)
        if {a, b} & self.two_prints:
            near.prints = far.prints = None
        return near, far


class Knocker(RawPeer):
    """A device at somebody's gate that can say anything, and prove what it holds, if it is let."""

    gate: Gate

    @classmethod
    async def at(
        cls,
        net: SimNetwork,
        room: str,
        *,
        id: str | None = None,
        held: Credentials | None = None,
        name: str = "knocker",
        answers: bool = True,
        **hello: Any,
    ) -> Knocker:
        """Dial, say ``hello`` (changed by ``hello``), and answer the challenge where it ``answers``."""
        peer = await cls.dial(net, room, id=id)
        assert isinstance(peer, Knocker)
        peer.newcomer = Newcomer(held)
        peer.ends = []
        link = peer.connection
        way = Doorway(Side.JOINER, link.own, link.remote, True, link.fingerprints)
        peer.gate = peer.newcomer.door(way)
        peer.answers = answers
        said = write(peer.gate.hello(Hello(name=name, v=4)))
        peer.raw({key: value for key, value in (said | hello).items() if value is not None})
        return peer

    newcomer: Newcomer
    ends: list[Pass | Refuse]
    answers: bool

    def _message(self, data: bytes) -> None:
        before = len(self.told)
        super()._message(data)
        for value in self.told[before:]:
            message = read(value)
            if message is None or not getattr(self, "answers", False):
                continue
            hello = isinstance(message, Hello)
            for action in self.gate.greeted(message, 0.0) if hello else self.gate.message(message, 0.0):  # type: ignore[arg-type]
                if isinstance(action, Say):
                    self.raw(write(action.message))
                elif isinstance(action, (Pass, Refuse)):
                    self.ends.append(action)

    @property
    def is_in(self) -> bool:
        return bool(self.told_of("admit"))

    @property
    def byes(self) -> list[str]:
        return [message.get("reason", "") for message in self.told_of("bye")]

    @property
    def is_closed(self) -> bool:
        return self.connection.state == "closed"
