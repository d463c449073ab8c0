"""What befalls a room, as values that print as code, and the network on which it happens.

A `Fault` names devices as people do (``host``, ``w1``, ``g1``), never ids: who is restarted comes back under
another id, and is the same device.
"""

from __future__ import annotations

import asyncio
import hashlib
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any

from pooled_nb.errors import LinkFailed, RoomNotFound, SignalingDown
from tests.sim.clocks import HERE, Machine
from tests.sim.network import (
    ANSWER_S,
    EXPIRE_S,
    FAILED_S,
    REGISTERED_S,
    SimChannel,
    SimConnection,
    SimEndpoint,
    SimNetwork,
)


@dataclass(frozen=True)
class Fault:
    """One fault. ``at`` and ``s`` (how long) are seconds of virtual time.

    ``kind`` is one of `KINDS`; ``who`` the device, ``other`` the second one of what happens between two;
    ``how`` says more: which frame is wrong, which stripe fails.
    """

    at: float
    kind: str
    who: str = ""
    other: str = ""
    s: float = 0.0
    how: str = ""

    def __repr__(self) -> str:
        shown = [f.name for f in fields(self) if getattr(self, f.name) != f.default]
        return f"Fault({', '.join(f'{name}={getattr(self, name)!r}' for name in shown)})"


KINDS = {
    "freeze": "its process stands still for s seconds (SIGSTOP, a closed lid)",
    "stall": "its event loop is blocked for s seconds, and timers fire before the network is read",
    "hidden": "for s seconds its timers fire in steps of a second only (a hidden tab)",
    "slow": "for s seconds it computes so many times slower (how; else ten times)",
    "partition": "nothing passes between two devices for s seconds",
    "half": "nothing passes from who to other for s seconds",
    "alone": "nothing passes between it and anybody for s seconds, signaling included",
    "fail": "the connections between two devices fail (how: 'all', 'link' or 'stripe')",
    "stripe": "of the stripes between two devices one fails, or carries nothing for s seconds, or all fail "
    "and the next ones open late (how: 'fail', 'hole' or 'late')",
    "signaling": "no signaling server is reachable for s seconds",
    "noise": "for s seconds a fifth of all packets is lost, and jitter is 200 ms",
    "kill": "its process is killed",
    "restart": "its process is killed, and comes back s seconds later with its pass (the host: its memory)",
    "reboot": "the host's kernel restarts: it abandons the room, and takes it back after s seconds",
    "leave": "it leaves on purpose",
    "politely": "it leaves on purpose, after the answer",
    "join": "another device joins, which lends s GB",
    "shard": "its compute process dies",
    "memory": "its next load runs out of memory (how: 'refused' or 'killed')",
    "frame": "its next frame is wrong (how: see tests.sim.tamper)",
}


TRY_S = 0.5
"""Between two looks for a path of a connection that does not open."""


class FaultyNetwork(SimNetwork):
    """A network between machines: jitter, loss, reordering, and everything of `KINDS` that is its affair.

    Attributes
    ----------
    jitter
        Each message takes up to so many seconds longer; those of one reliable channel keep their order.
    machines
        Whose id is whose, now.
    digest
        Of everything that arrived anywhere: equal for two runs only if they were the same run.
    """

    def __init__(self, *, jitter: float = 0.0, **more: Any) -> None:
        super().__init__(**more)
        self.jitter = jitter
        self.machines: dict[str, Machine] = {}
        self.digest = hashlib.blake2b(digest_size=16)
        self.arrivals = 0
        self.heard: dict[tuple[Machine, Machine], float] = {}
        """When the first last heard the second, in seconds that it was awake."""
        self.on_arrival: Callable[[SimChannel, bytes], None] | None = None
        self._ways: dict[tuple[str, str], int] = {}
        """How many faults cut the way from one machine to another now."""
        self._mended: dict[tuple[str, str], float] = {}
        self._holed: set[SimConnection] = set()
        self._late: dict[frozenset[str], float] = {}
        """Between whom stripes open late, and when."""
        self._away: dict[str, int] = {}
        """Machines that reach no signaling server."""
        self._of_end: dict[SimConnection, Machine | None] = {}

    # -- faults ------------------------------------------------------------------------------------

    def cut(self, a: str, b: str) -> None:
        """Nothing passes from ``a`` to ``b``; consent is lost at both ends after `FAILED_S`."""
        self._ways[a, b] = self._ways.get((a, b), 0) + 1
        for c in self._between(a, b):
            self._later(FAILED_S, lambda c=c: self._lost_consent(c))

    def mend(self, a: str, b: str) -> None:
        """It passes again, and what was reliable and waited arrives."""
        self._ways[a, b] -= 1
        self._mended[a, b] = self._now()
        if self._ways[a, b]:
            return
        for c in self._between(a, b):
            while c.waiting and not self._gone(c):
                c.waiting.popleft()()

    def was_cut(self, a: str, b: str, within: float) -> bool:
        """Whether something did not pass between two machines in the last seconds, either way."""
        since = self._now() - within
        return any(self._ways.get(way) or self._mended.get(way, 0.0) > since for way in ((a, b), (b, a)))

    def _lost_consent(self, c: SimConnection) -> None:
        if self._gone(c):
            for end in (c, c.other):
                self._at(end, lambda end=end: end.become("failed"))

    def _open(self, end: SimConnection, since: float | None = None) -> None:
        """Paths are tried until one works (ICE): a cut that is mended in time only delays the opening."""
        began = self._now() if since is None else since
        if (wait := self._lateness(end)) > 0:
            self._later(wait, lambda: self._open(end))
        elif end.state == "connecting" and self._gone(end) and self._now() - began < self.failed_s - TRY_S:
            self._later(TRY_S, lambda: self._open(end, began))
        elif end.state == "connecting" and self._gone(end):
            self._at(end, lambda: end.become("failed"))
        else:
            super()._open(end)

    def isolate(self, name: str, *, away: bool) -> None:
        """A machine reaches no signaling server from now on, or does again."""
        self._away[name] = self._away.get(name, 0) + (1 if away else -1)
        for endpoint in list(self._registered.values()):
            machine = self.machines.get(endpoint.id)
            if machine and machine.name == name and self.up:
                self._say_outage(endpoint, self._away[name] > 0)

    def frozen(self, machine: Machine) -> None:
        """A machine froze: whoever it is linked with loses consent if it stays so."""
        at = machine.frozen_at

        def look() -> None:
            if machine.frozen and machine.frozen_at == at:
                for c in self._ends_of(machine):
                    self._at(c.other, lambda c=c: c.other.become("failed"))

        self._later(FAILED_S, look)

    def end(self, machine: Machine) -> None:
        """A machine was killed: nobody is told; its id stays registered for a while."""
        for c in self._ends_of(machine):
            self._later(FAILED_S, lambda c=c: self._at(c.other, lambda: c.other.become("failed")))
        for endpoint in [e for e in self._registered.values() if self.machines.get(e.id) is machine]:
            self._later(REGISTERED_S, lambda e=endpoint: self.unregister(e))

    def fail(self, a: str, b: str, which: str) -> None:
        """Connections between two machines fail at once, at both ends."""
        for c in self._between(a, b):
            stripe = c.label == "stripe"
            if which == "all" or stripe == (which == "stripe"):
                for end in (c, c.other):
                    self._at(end, lambda end=end: end.become("failed"))
                if which == "stripe":
                    return

    def stripe(self, a: str, b: str, how: str, s: float) -> None:
        """See `KINDS`."""
        stripes = [c for c in self._between(a, b) if c.label == "stripe"]
        if how == "late":
            self._late[frozenset((a, b))] = self._now() + s
        if how == "hole":
            for c in stripes[:1]:
                self._hole(c, s)
        else:
            for c in stripes if how == "late" else stripes[:1]:
                for end in (c, c.other):
                    self._at(end, lambda end=end: end.become("failed"))

    def _hole(self, c: SimConnection, s: float) -> None:
        """Neither end hears anything over this connection, and both believe in it until consent is lost."""
        ends = (c, c.other)
        self._holed.update(ends)

        def over() -> None:
            self._holed.difference_update(ends)
            for end in ends:
                while end.waiting and not self._gone(end):
                    end.waiting.popleft()()

        self._later(s, over)
        self._later(FAILED_S, lambda: self._lost_consent(c))

    def _lateness(self, end: SimConnection) -> float:
        """Seconds until a stripe may open."""
        own, other = self._of_end.get(end), self._of_end.get(end.other)
        if end.label != "stripe" or own is None or other is None:
            return 0.0
        return self._late.get(frozenset((own.name, other.name)), 0.0) - self._now()

    def signaling(self, up: bool) -> None:
        """All signaling servers go, or come back."""
        if up != self.up:
            self.up = up
            for endpoint in list(self._registered.values()):
                self._say_outage(endpoint, not up)

    def _say_outage(self, endpoint: SimEndpoint, down: bool) -> None:
        machine = self.machines.get(endpoint.id)
        if machine is not None:
            machine.call(lambda: endpoint.on_outage and endpoint.on_outage(down))

    # -- Network -----------------------------------------------------------------------------------

    async def register(
        self, id: str | None, servers: Sequence[str], *, token: str | None = None
    ) -> SimEndpoint:
        """See `Network.register`."""
        machine = _here()
        await machine.awake()
        while self._away.get(machine.name):
            await machine.clock.sleep(1.0)
        endpoint = await super().register(id, servers, token=token)
        self.machines[endpoint.id] = machine
        await machine.awake()
        return endpoint

    async def connect(self, caller: SimEndpoint, remote: str, label: str) -> SimConnection:
        """See `Endpoint.dial`."""
        machine = _here()
        await machine.awake()
        if not self.up or self._away.get(machine.name):
            raise SignalingDown("The signaling server is not reachable.", "Try again.")
        callee = self._registered.get((caller.server, remote))
        if callee is None:
            await machine.clock.sleep(EXPIRE_S)
            raise RoomNotFound(f"Nobody is registered as {remote}.", "Check the code.")
        await asyncio.sleep(self._delay(caller.id, remote))
        answered: asyncio.Future[SimConnection] = machine.loop.create_future()
        there = self.machines[remote]
        no_answer = LinkFailed("It did not answer.", "Try again.")

        def offered() -> None:
            if answered.done() or self._away.get(there.name) or not self.up or callee.on_connection is None:
                return
            near, far = self.pair(caller.id, remote, label)
            self._of_end[near], self._of_end[far] = machine, there
            callee.on_connection(far)
            self.opens(far)
            self._later(self._delay(caller.id, remote), lambda: answered.done() or answered.set_result(near))

        there.call(offered)
        late = machine.loop.call_later(ANSWER_S, lambda: answered.done() or answered.set_exception(no_answer))
        try:
            near = await answered
        finally:
            late.cancel()
        await machine.awake()
        self.opens(near)
        return near

    # -- the wire ----------------------------------------------------------------------------------

    def carry(self, channel: SimChannel, data: bytes) -> None:
        """See `SimNetwork.carry`; over a connection that failed nothing goes."""
        c = channel.connection
        if c.state == "failed" or c.other.state == "failed":
            return
        super().carry(channel, data)

    def say_closed(self, c: SimConnection) -> None:
        """The other end hears it, unless nothing passes: then it loses consent (RFC 7675)."""
        self._later(FAILED_S, lambda: self._at(c.other, lambda: c.other.become("failed")))
        if c.state != "failed":
            super().say_closed(c)

    def _receive(self, channel: SimChannel, data: bytes) -> None:
        c = channel.connection
        said = f"{self._now():.9f} {c.own} {c.remote} {channel.kind} {len(data)} {zlib.crc32(data)}\n"
        self.digest.update(said.encode())
        self.arrivals += 1
        if self.on_arrival:
            self.on_arrival(channel, data)
        to, of = self._of_end.get(c.other), self._of_end.get(c)
        if to is not None and of is not None:
            self.heard[to, of] = to.loop.time() - to.slept
        if c.other.state == "connecting":  # what arrives says that it is open
            self._at(c.other, c.other.opens)
        super()._receive(channel, data)

    def _at(self, end: SimConnection, callback: Callable[[], object]) -> None:
        machine = self._of_end.get(end)
        if machine is not None:
            machine.call(callback)

    def _gone(self, c: SimConnection) -> bool:
        own, other = self._of_end.get(c), self._of_end.get(c.other)
        if own is None or other is None or own.dead or other.dead:
            return True
        return c in self._holed or bool(self._ways.get((own.name, other.name)))

    def _delay(self, a: str, b: str) -> float:
        return super()._delay(a, b) + (self.random.random() * self.jitter if self.jitter else 0.0)

    def _ends_of(self, machine: Machine) -> list[SimConnection]:
        return [c for c in self._connections if self._of_end.get(c) is machine and c.state != "closed"]

    def _between(self, a: str, b: str) -> list[SimConnection]:
        """Ends at machine ``a`` of its living connections to ``b``."""
        found = []
        for c in self._connections:
            own, other = self._of_end.get(c), self._of_end.get(c.other)
            if own and other and (own.name, other.name) == (a, b) and c.state != "closed":
                found.append(c)
        return found

    def open_ends(self) -> list[SimConnection]:
        """Connections that a living machine has not closed."""
        return [c for c, m in self._of_end.items() if m is not None and not m.dead and c.state != "closed"]


def _here() -> Machine:
    machine = HERE.get()
    assert machine is not None, "only a machine's code dials"
    return machine
