"""What a PeerJS client does when: a decider without sockets or clocks (PROTOCOL section 2).

One registration: servers in order until one answers, the id refused or taken, then the same id and
token kept over any number of reconnections. Events and ``now`` go in, actions come out::

    trying ──OPEN──▶ registered ──lost──▶ waiting ──backoff──▶ redialing ──open──▶ settling ──▶ registered
       │                                     ▲                     │                  │
       ├─outage─▶ the next server            └──────── lost, no answer, taken ────────┘
       └─answer no / list exhausted─▶ ended
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass

from pooled_nb.mesh.deadline import GRACE_S, LATE_S
from pooled_nb.mesh.peerjs import shapes

HEARTBEAT_S = 5.0
ANSWER_S = 8.0
LAST_ANSWER_S = 20.0
BACKOFF_S = (2.0, 4.0, 8.0, 16.0, 30.0)
"""Seconds before each reconnection; the last one repeats."""


@dataclass(frozen=True, slots=True)
class Dial:
    """Open a WebSocket to the server ``index`` of the list; give up after ``limit`` seconds."""

    attempt: int
    index: int
    limit: float


@dataclass(frozen=True, slots=True)
class Hang:
    """Close the socket of this attempt."""

    attempt: int


@dataclass(frozen=True, slots=True)
class Write:
    """Send this text."""

    text: str


@dataclass(frozen=True, slots=True)
class Registered:
    """The server ``index`` holds our id; said once. ``tries``: how those before it failed."""

    index: int
    tries: tuple[tuple[int, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Refused:
    """A server answered no (``unavailable-id``): no other one is asked."""

    index: int
    why: str


@dataclass(frozen=True, slots=True)
class Exhausted:
    """No server of the list answered; ``tries`` says how each failed, in order."""

    tries: tuple[tuple[int, str], ...]


@dataclass(frozen=True, slots=True)
class Outage:
    """Signaling was lost (``down``) or is back."""

    down: bool
    why: str = ""


@dataclass(frozen=True, slots=True)
class Deliver:
    """A message about another device."""

    message: shapes.PeerMessage


Action = Dial | Hang | Write | Registered | Refused | Exhausted | Outage | Deliver


class State(enum.Enum):
    """Where a registration stands."""

    TRYING = "trying"
    REGISTERED = "registered"
    WAITING = "waiting"
    REDIALING = "redialing"
    SETTLING = "settling"
    ENDED = "ended"


class Client:
    """One id at one signaling server.

    A server that takes an id over says no OPEN (DESIGN section 4). So this device writes to itself: what
    comes back shows that the server has its id. One that accepts sockets and says nothing gives no answer.

    Parameters
    ----------
    servers
        How many servers there are to try, in order. At least one.
    id
        Ours.
    resumes
        The token was kept from an earlier registration, so the very first socket may take the id over
        from one that died (a host that was killed and started again).
    """

    def __init__(self, servers: int, *, id: str, resumes: bool = False) -> None:
        if servers < 1:
            raise ValueError("no server to try")
        self._id = id
        self._servers = servers
        self._resumes = resumes
        self._settling = False
        self._index = 0
        self._attempt = 0
        self._state = State.TRYING
        self._failed = 0
        self._tries: list[tuple[int, str]] = []
        self._deadline: float | None = None
        self._heartbeat: float | None = None

    @property
    def state(self) -> State:
        """Where the registration stands."""
        return self._state

    @property
    def is_up(self) -> bool:
        """Whether a message can be sent now."""
        return self._state in (State.REGISTERED, State.SETTLING)

    @property
    def wake(self) -> float | None:
        """When `tick` wants to be called, in the seconds of ``now``."""
        times = [t for t in (self._deadline, self._heartbeat) if t is not None]
        return min(times, default=None)

    def start(self, now: float) -> list[Action]:
        """Begin with the first server."""
        return [self._dial(now)]

    def opened(self, attempt: int, now: float) -> list[Action]:
        """The WebSocket of this attempt is open."""
        if attempt != self._attempt:
            return [Hang(attempt)]
        if self._state is State.REDIALING:
            self._state = State.SETTLING
        if self._state in (State.TRYING, State.SETTLING):
            self._heartbeat = now + HEARTBEAT_S
        if self._state is State.SETTLING or (self._state is State.TRYING and self._resumes):
            self._settling = True
            return [Write(shapes.to_self(self._id))]
        return []

    def received(self, attempt: int, text: str | bytes, now: float) -> list[Action]:
        """The server of this attempt said something."""
        if attempt != self._attempt or self._state in (State.WAITING, State.ENDED):
            return []
        match shapes.read(text):
            case None:
                return []
            case shapes.Open():
                return self._up(now)
            case shapes.IdTaken(payload=payload):
                return self._taken(shapes.said(payload), now)
            case shapes.Error(payload=payload):
                words = shapes.said(payload)
                return self._lost(f"server-error: {words}" if words else "server-error", now)
            case shapes.InvalidKey():
                return self._lost("server-error: it does not serve this application's key", now)
            case message:
                actions = self._up(now) if self._settling else []
                # Nobody else has our id: what says so is our own question, or a lie.
                wanted = self._state is State.REGISTERED and message.src != self._id
                return [*actions, Deliver(message)] if wanted else actions

    def lost(self, attempt: int, why: str, now: float) -> list[Action]:
        """The socket of this attempt could not be opened, or closed."""
        if attempt != self._attempt or self._state in (State.WAITING, State.ENDED):
            return []
        return self._lost(why, now)

    def tick(self, now: float) -> list[Action]:
        """Time passed: send the heartbeat, judge silence, reconnect."""
        actions: list[Action] = []
        if self._heartbeat is not None and now >= self._heartbeat:
            # From now, not from the due time: a loop that stalled owes no burst of heartbeats.
            self._heartbeat = now + HEARTBEAT_S
            actions.append(Write(shapes.HEARTBEAT))
        if self._deadline is not None and now >= self._deadline:
            if now - self._deadline > LATE_S and self._state is not State.WAITING:
                # This device stalled: what the server said meanwhile may not have been read yet.
                self._deadline = now + GRACE_S
                return actions
            self._deadline = None
            match self._state:
                case State.TRYING | State.REDIALING | State.SETTLING:
                    actions += self._lost("no answer", now)
                case State.WAITING:
                    self._state = State.REDIALING
                    actions.append(self._dial(now))
        return actions

    def hurry(self, now: float) -> list[Action]:
        """Reconnect at once where that waits for its time; the times between attempts stay as they are."""
        if self._state is not State.WAITING:
            return []
        self._state = State.REDIALING
        return [self._dial(now)]

    def close(self) -> list[Action]:
        """Leave for good."""
        was = self._state
        self._end()
        return [] if was in (State.ENDED, State.WAITING) else [Hang(self._attempt)]

    def _dial(self, now: float) -> Dial:
        self._attempt += 1
        self._settling = False
        last = self._state is State.TRYING and self._index == self._servers - 1
        limit = LAST_ANSWER_S if last else ANSWER_S
        self._deadline = now + limit
        return Dial(self._attempt, self._index, limit)

    def _up(self, now: float) -> list[Action]:
        was = self._state
        self._state = State.REGISTERED
        self._settling = False
        self._deadline = None
        self._failed = 0
        if self._heartbeat is None:
            self._heartbeat = now + HEARTBEAT_S
        match was:
            case State.TRYING:
                return [Registered(self._index, tuple(self._tries))]
            case State.REDIALING | State.SETTLING:
                return [Outage(False)]
            case _:
                return []

    def _taken(self, why: str, now: float) -> list[Action]:
        if self._state is State.TRYING:
            index, attempt = self._index, self._attempt
            self._end()
            return [Hang(attempt), Refused(index, why or "the id is taken")]
        # While we were away somebody took the id; whoever holds the token gets it back in time.
        return self._lost("unavailable-id", now)

    def _lost(self, why: str, now: float) -> list[Action]:
        actions: list[Action] = [Hang(self._attempt)]
        self._heartbeat = None
        if self._state is State.TRYING:
            self._tries.append((self._index, why))
            self._index += 1
            if self._index < self._servers:
                return [*actions, self._dial(now)]
            self._end()
            return [*actions, Exhausted(tuple(self._tries))]
        if self._state is State.REGISTERED:
            actions.append(Outage(True, why))
        self._state = State.WAITING
        self._deadline = now + BACKOFF_S[min(self._failed, len(BACKOFF_S) - 1)]
        self._failed += 1
        return actions

    def _end(self) -> None:
        self._state = State.ENDED
        self._deadline = self._heartbeat = None


def tried(shown: Sequence[str], tries: Sequence[tuple[int, str]]) -> tuple[str, ...]:
    """How each server failed, for people: ``cloud (no answer)``."""
    return tuple(f"{shown[i]} ({why})" for i, why in tries)
