"""A network in memory that fills `pooled_nb.mesh.network`: latency, bandwidth, loss, partitions, kills.

Devices are named by the id under which they registered. One seed replays one run. Messages are carried
as SCTP would: ``control`` and ``wire`` in order and without loss (a lost packet only comes later),
``keepalive`` as it comes.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from pooled_nb.errors import LinkFailed, RoomError, RoomNotFound, SignalingDown
from pooled_nb.mesh.network import ConnectionStats, NoServer, Path

EXPIRE_S = 5.0
"""A message to an absent id comes back after this."""
FAILED_S = 32.0
"""When aiortc reports a peer that is gone (DESIGN section 4)."""
ANSWER_S = 15.0
REGISTERED_S = 75.0
"""How long a killed device stays registered."""
RTO_S = 0.2


class SimChannel:
    """One data channel's end."""

    def __init__(self, connection: SimConnection, kind: str) -> None:
        self.connection = connection
        self.kind = kind
        self.reliable = kind != "keepalive"
        self.other: SimChannel
        self.on_open: Callable[[], None] | None = None
        self.on_close: Callable[[], None] | None = None
        self.on_low: Callable[[], None] | None = None
        self.low_threshold = 0
        self.is_open = False
        self.buffered = 0
        self.refuses = False
        self.sent = 0
        self._on_message: Callable[[bytes], None] | None = None
        self._early: list[bytes] = []
        self._last_arrival = 0.0

    @property
    def on_message(self) -> Callable[[bytes], None] | None:
        return self._on_message

    @on_message.setter
    def on_message(self, callback: Callable[[bytes], None] | None) -> None:
        self._on_message = callback
        early, self._early = self._early, []
        for data in early:
            self.receive(data)

    def send(self, data: bytes) -> None:
        if not self.is_open or self.refuses:
            raise LinkFailed("The channel is not open.")
        assert isinstance(data, bytes)
        self.sent += 1
        self.connection.net.carry(self, data)

    def receive(self, data: bytes) -> None:
        if not self.is_open:
            return
        if self._on_message is None:
            self._early.append(data)
        else:
            self._on_message(data)

    def drained(self, n: int) -> None:
        before, self.buffered = self.buffered, self.buffered - n
        if before > self.low_threshold >= self.buffered and self.on_low and self.is_open:
            self.on_low()

    def arrival(self, at: float) -> float:
        """In order, where the channel is."""
        if self.reliable:
            # Never at one instant: asyncio keeps no order among timers of one time.
            at = self._last_arrival = max(at, self._last_arrival + 1e-9)
        return at

    def opened(self) -> None:
        self.is_open = True
        if self.on_open:
            self.on_open()

    def closed(self) -> None:
        if self.is_open:
            self.is_open = False
            if self.on_close:
                self.on_close()


class SimConnection:
    """One end of an RTCPeerConnection."""

    def __init__(
        self, net: SimNetwork, own: str, remote: str, connection_id: str, label: str, dialed: bool
    ) -> None:
        self.net = net
        self.own = own
        self.remote = remote
        self.connection_id = connection_id
        self.label = label
        self.dialed = dialed
        # A certificate for each connection, as aiortc makes one; None: what signaling carried has no one.
        self.prints: tuple[str, str] | None = (
            f"sha-256 {connection_id}:{own}",
            f"sha-256 {connection_id}:{remote}",
        )
        self.failure = ""
        self.control = SimChannel(self, "control")
        self.wire = SimChannel(self, "wire")
        self.keepalive = SimChannel(self, "keepalive")
        self.on_state: Callable[[str], None] | None = None
        self.state = "connecting"
        self.path: Path = "direct"
        self.other: SimConnection
        self.free_at = 0.0
        self.last_arrival = 0.0
        self.in_flight = 0
        self.progress_at = 0.0
        self.waiting: deque[Callable[[], None]] = deque()

    @property
    def channels(self) -> tuple[SimChannel, SimChannel, SimChannel]:
        return self.control, self.wire, self.keepalive

    def fingerprints(self) -> tuple[str, str] | None:
        return self.prints

    def stats(self) -> ConnectionStats | None:
        """What is reliable and has not arrived; an acknowledgement takes no time."""
        stuck = self.net._now() - self.progress_at if self.in_flight else 0.0
        return ConnectionStats(in_flight=self.in_flight, stuck_s=stuck)

    def left(self, size: int) -> None:
        """Something reliable went on its way."""
        if not self.in_flight:
            self.progress_at = self.net._now()
        self.in_flight += size

    def arrived(self, size: int) -> None:
        """The other end has it."""
        if self.other.state not in ("failed", "closed"):
            self.in_flight -= size
            self.progress_at = self.net._now()

    def opens(self) -> None:
        if self.state != "connecting":
            return
        self.become("connected")
        for channel in self.channels:
            channel.opened()

    def become(self, state: str) -> None:
        if self.state in ("closed", state):
            return
        self.state = state
        if state == "failed":
            self.failure = "the path broke"
        if self.on_state:
            self.on_state(state)

    def shut(self) -> None:
        for channel in self.channels:
            channel.closed()
        self.become("closed")

    async def close(self) -> None:
        if self.state == "closed":
            return
        self.net.say_closed(self)
        self.shut()
        await asyncio.sleep(0)


@dataclass
class SimEndpoint:
    """One registration."""

    net: SimNetwork
    id: str
    server: str
    token: str
    passed: tuple[str, ...] = ()
    on_connection: Callable[[SimConnection], None] | None = None
    on_outage: Callable[[bool], None] | None = None
    dials: int = 0
    hurried: int = 0
    connections: list[SimConnection] = field(default_factory=list)

    async def dial(self, remote: str, *, label: str = "") -> SimConnection:
        self.dials += 1
        return await self.net.connect(self, remote, label)

    def hurry(self) -> None:
        self.hurried += 1

    async def close(self) -> None:
        self.net.unregister(self)


class SimNetwork:
    """Everybody's network. ``latency`` is one way, in seconds; ``bandwidth`` in bytes/s, None for any."""

    def __init__(
        self, *, latency: float = 0.01, bandwidth: float | None = None, loss: float = 0.0, seed: int = 0
    ) -> None:
        self.latency = latency
        self.bandwidth = bandwidth
        self.loss = loss
        self.between: dict[frozenset[str], float] = {}
        """One-way latency of single pairs of ids."""
        self.random = random.Random(seed)
        self.up = True
        self.dead_servers: set[str] = set()
        self.killed: set[str] = set()
        self.refuse_open: set[str] = set()
        """Ids whose connections never open: they fail after `failed_s`."""
        self.failed_s = FAILED_S
        self._cut: set[frozenset[str]] = set()
        self._registered: dict[tuple[str, str], SimEndpoint] = {}
        self._connections: list[SimConnection] = []
        self._count = 0

    # -- knobs ------------------------------------------------------------------------------

    def partition(self, a: str, b: str) -> None:
        """Nothing passes between two devices."""
        self._cut.add(frozenset((a, b)))
        for c in self._of(a, b):
            self._later(FAILED_S, lambda c=c: self._gone(c) and self._at(c, lambda: c.become("failed")))

    def heal(self, a: str, b: str) -> None:
        """What was reliable and waited arrives now."""
        self._cut.discard(frozenset((a, b)))
        for c in self._of(a, b):
            while c.waiting and not self._gone(c):
                c.waiting.popleft()()

    def kill(self, id: str) -> None:
        """As SIGKILL: nobody is told, nothing more leaves or reaches the device."""
        self.killed.add(id)
        for c in self._connections:
            if c.remote == id:
                self._later(FAILED_S, lambda c=c: self._at(c, lambda: c.become("failed")))
        for endpoint in [e for e in self._registered.values() if e.id == id]:
            self._later(REGISTERED_S, lambda e=endpoint: self.unregister(e))

    def signaling(self, up: bool) -> None:
        """All signaling servers go, or come back."""
        if up != self.up:
            self.up = up
            for endpoint in list(self._registered.values()):
                if endpoint.on_outage and endpoint.id not in self.killed:
                    endpoint.on_outage(not up)

    def connections(self, a: str, b: str) -> list[SimConnection]:
        """Open connections between two devices, as ``a`` sees them."""
        return [c for c in self._of(a, b) if c.own == a and c.state != "closed"]

    # -- Network ------------------------------------------------------------------------------

    async def register(
        self, id: str | None, servers: Sequence[str], *, token: str | None = None
    ) -> SimEndpoint:
        passed: list[str] = []
        for server in servers:
            await asyncio.sleep(2 * self.latency)
            if not self.up or server in self.dead_servers:
                await asyncio.sleep(8.0)
                passed.append(f"{server} (no answer)")
                continue
            self._count += 1
            id = id or f"device-{self._count:04d}"
            held = self._registered.get((server, id))
            if held and (token is None or held.token != token):
                raise RoomError(f"The id {id} is taken.", "Try another code.")
            token = token or f"token-{self._count:04d}"
            endpoint = self._registered[server, id] = SimEndpoint(self, id, server, token, tuple(passed))
            self.killed.discard(id)
            return endpoint
        raise NoServer(passed, "Check the network.")

    def unregister(self, endpoint: SimEndpoint) -> None:
        if self._registered.get((endpoint.server, endpoint.id)) is endpoint:
            del self._registered[endpoint.server, endpoint.id]

    async def connect(self, caller: SimEndpoint, remote: str, label: str) -> SimConnection:
        if not self.up:
            raise SignalingDown("The signaling server is not reachable.", "Try again.")
        callee = self._registered.get((caller.server, remote))
        if callee is None:
            await asyncio.sleep(EXPIRE_S)
            raise RoomNotFound(f"Nobody is registered as {remote}.", "Check the code.")
        if remote in self.killed or caller.id in self.killed:
            await asyncio.sleep(ANSWER_S)
            raise LinkFailed("It did not answer.", "Try again.")
        await asyncio.sleep(self._delay(caller.id, remote))
        near, far = self.pair(caller.id, remote, label)
        if callee.on_connection:
            callee.on_connection(far)
        await asyncio.sleep(self._delay(caller.id, remote))
        self.opens(near, far)
        return near

    def pair(self, a: str, b: str, label: str) -> tuple[SimConnection, SimConnection]:
        """Both ends of a connection that ``a`` dialed, as far as the two ends were told its ids."""
        self._count += 1
        cid = f"dc_{self._count}"
        near = SimConnection(self, a, b, cid, label, True)
        far = SimConnection(self, b, a, cid, label, False)
        near.other, far.other = far, near
        for one, other in zip(near.channels, far.channels, strict=True):
            one.other, other.other = other, one
        self._connections += [near, far]
        return near, far

    def opens(self, *ends: SimConnection) -> None:
        """Their channels open soon."""
        for end in ends:
            self._later(self._delay(end.own, end.remote), lambda end=end: self._open(end))

    # -- the wire -------------------------------------------------------------------------------

    def carry(self, channel: SimChannel, data: bytes) -> None:
        """Take one message to the other end."""
        c, now = channel.connection, self._now()
        leaves = now
        if self.bandwidth is not None:
            leaves = c.free_at = max(now, c.free_at) + len(data) / self.bandwidth
            channel.buffered += len(data)
            self._later(leaves - now, lambda: self._at(c, lambda: channel.drained(len(data))))
        lost = self.loss and self.random.random() < self.loss
        if channel.reliable:
            c.left(len(data))
        elif lost:
            return
        at = channel.arrival(leaves + self._delay(c.own, c.remote) + (RTO_S if lost else 0.0))
        c.last_arrival = max(at, c.last_arrival)
        self._later(at - now, lambda: self._arrive(channel, data))

    def _arrive(self, channel: SimChannel, data: bytes) -> None:
        c = channel.connection
        if self._gone(c) or c.waiting:
            if channel.reliable:
                c.waiting.append(lambda: self._receive(channel, data))
        else:
            self._receive(channel, data)

    def _receive(self, channel: SimChannel, data: bytes) -> None:
        def arrives() -> None:
            if channel.reliable:
                channel.connection.arrived(len(data))
            channel.other.receive(data)

        self._at(channel.connection.other, arrives)

    def say_closed(self, c: SimConnection) -> None:
        """The other end hears it after everything that was sent before."""

        def told() -> None:
            if self._gone(c) or c.waiting:
                c.waiting.append(lambda: self._at(c.other, c.other.shut))
            else:
                self._at(c.other, c.other.shut)

        now = self._now()
        self._later(max(c.last_arrival, now + self._delay(c.own, c.remote)) - now, told)

    def _open(self, end: SimConnection) -> None:
        if end.state != "connecting":
            return
        if self._gone(end) or {end.own, end.remote} & self.refuse_open:
            self._later(self.failed_s, lambda: self._at(end, lambda: end.become("failed")))
            return
        self._at(end, end.opens)

    def _at(self, end: SimConnection, callback: Callable[[], object]) -> None:
        """What the network brings about at one end: where devices are machines, when its machine runs."""
        callback()

    def _gone(self, c: SimConnection) -> bool:
        return bool({c.own, c.remote} & self.killed) or frozenset((c.own, c.remote)) in self._cut

    def _of(self, a: str, b: str) -> list[SimConnection]:
        return [c for c in self._connections if {c.own, c.remote} == {a, b}]

    def _delay(self, a: str, b: str) -> float:
        return self.between.get(frozenset((a, b)), self.latency)

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    def _later(self, delay: float, callback: Callable[[], object]) -> None:
        asyncio.get_running_loop().call_later(delay, callback)
