"""Decides a link's life: connecting → hello → gate or proving → admitted → closed (PROTOCOL section 3).

No I/O: events and the time go in, actions come out, in the order in which they must happen.
Nothing that the other end sends can raise here, and what it can make this end keep is bounded.
"""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass, field

from pooled_nb.mesh.gate import Gate, GateAction, Pass, Refuse, Say, Side, Wait
from pooled_nb.mesh.linkactions import Action, Admitted, Answered, Cause, Deliver, End, Notice, Send
from pooled_nb.mesh.messages import Message
from pooled_nb.mesh.messages.link import (
    Admit,
    Auth,
    AuthProof,
    Bye,
    Hello,
    Leaving,
    Lobby,
    MeshProof,
    Ping,
    Pledge,
    Pong,
    Roster,
)
from pooled_nb.mesh.versions import mismatch

OPEN_S, OPEN_TRYING_S = 15.0, 40.0
"""Seconds until a link that does not open is given up, and while paths are still being tried (section 2)."""
HELLO_S, HELLO_WAIT_S = 5.0, 15.0
"""Seconds from ``open`` to the other ``hello``: a dialer dials again then; who was dialed just closes."""
PROVING_S = 10.0
"""Seconds until both ends of a device-device link are proved and in the roster (section 4)."""
ADMIT_S = 15.0
"""Seconds a device waits for ``admit`` where no person is being asked, and then for its first roster."""
LINGER_S = 0.3
"""Seconds that a last message gets before its link closes (section 3)."""
HELD, HELD_PEER = 64, 256
"""Messages kept before admission: at the gate (section 3), between devices (section 4)."""
HELD_BYTES = 1 << 20
"""What those may weigh together, packed: 64 of the largest that a link takes before admission."""
HELD_IN, HELD_IN_BYTES = 4096, 16 << 20
"""What a device keeps that was let in while its own person has still to say that this is the right host: to
the creator it is one of the room already. Nothing of it may be dropped, so at the next one the link ends."""

NO_PATH_NEXT = (
    "Check that both devices are online. A strict network needs a TURN server: name one in the network box "
    "(%pooled network), or in POOLED_TURN before you join."
)
GATE_NEXT = "Its notebook may be busy, or stopped: ask the host, then try again."
FLOOD = "This device sent more than the room can take."

_GATE_TYPES = (Auth, AuthProof, Lobby, Admit, MeshProof)


def _number(ts: object) -> bool:
    # Echoed, so bounded: a map of 4 MB or a NaN is no number that a ping carries.
    return isinstance(ts, (int, float)) and math.isfinite(ts)


class State(enum.Enum):
    """Where a link is in its life."""

    CONNECTING = "connecting"
    HELLO = "hello"
    """Open; this end's ``hello`` is out, the other's is not here."""
    GATE = "gate"
    """Both hellos are here, one end is the creator: the gate decides."""
    PROVING = "proving"
    """Both hellos are here, neither end is the creator: the mesh proofs, and the roster, decide."""
    ADMITTED = "admitted"
    CLOSED = "closed"


@dataclass
class LinkState:
    """One link's life.

    Parameters
    ----------
    side, dialed
        What this end is to the room, and whether it dialed.
    gate
        What stands before admission.
    own
        This end's ``hello``, before the gate adds to it.
    now
        Seconds, monotonic: when the dial began.
    member
        Whether the other end is in the roster (asked of device-device links only).
    """

    side: Side
    dialed: bool
    gate: Gate
    own: Hello
    now: float
    member: bool = False
    state: State = field(default=State.CONNECTING, init=False)
    hello: Hello | None = field(default=None, init=False)
    """The other end's, once it came."""
    passed: Pass | None = field(default=None, init=False)
    """What the gate decided, once it let the link pass."""
    entered: bool = field(default=False, init=False)
    """Set by the owner when the first roster is here (devices, on their link to the creator)."""

    def __post_init__(self) -> None:
        self._since = self.now
        self._waiting = False
        self._let_in = False
        self._held: list[Message] = []
        self._held_bytes = 0

    @property
    def is_waiting(self) -> bool:
        """Whether a person is being asked, here or there."""
        return self._waiting and self.state is State.GATE

    @property
    def in_room(self) -> bool:
        """Whether what the other end sends may be the room's, to be taken now or once a person said yes."""
        return self.state is State.ADMITTED or self._let_in

    # -- what happens to the link -------------------------------------------------------------

    def opened(self, now: float) -> list[Action]:
        """The control channel is open: ``hello`` goes out without waiting for the other's."""
        if self.state is not State.CONNECTING:
            return []
        self._enter(State.HELLO, now)
        return [Send(self.gate.hello(self.own))]

    def message(self, message: Message, size: int, now: float) -> list[Action]:
        """A message came; ``size`` in packed bytes."""
        if self.state is State.CLOSED:
            return []
        if self.state is State.CONNECTING:  # some stacks hand over the first message before `open`
            return [*self.opened(now), *self.message(message, size, now)]
        match message:
            case Ping(ts=ts):
                return [Send(Pong(ts=ts if _number(ts) else None))]
            case Pong(ts=ts):
                return [Answered(ts)]
            case Leaving():
                return self._end(Cause.LEFT, "it left")
            case Bye():
                return self._bye(message)
            case Hello():
                return self._greeted(message, now) if self.state is State.HELLO else []
        if isinstance(message, _GATE_TYPES):
            if not self._at_gate:
                return []
            self._let_in |= self.side is Side.JOINER and isinstance(message, Admit)
            return self._gate(self.gate.message(message, now), now)
        if self.state is State.ADMITTED:
            return self._deliver(message)
        return self._hold(message, size)

    def roster(self, member: bool, now: float) -> list[Action]:
        """The other end is, or is no longer, in the roster; matters between devices only."""
        if self.side is not Side.PEER or self.state is State.CLOSED or member == self.member:
            return []
        self.member = member
        if not member and self.state is State.ADMITTED:
            return self._end(Cause.REFUSED, "it is no longer in the room", say=Leaving())
        return self._admit_peer(now)

    def broken(self, why: str, *, failed: bool = False) -> list[Action]:
        """A channel that it needs closed, or (``failed``) the connection found no path or lost it."""
        if failed and self.state is State.CONNECTING:
            return self._end(Cause.NO_PATH, why, NO_PATH_NEXT)
        return self._end(Cause.BROKEN, why)

    def flooded(self) -> list[Action]:
        """The other end sends more than may wait here (decided by `pace`)."""
        say = Bye(reason=FLOOD) if self.side is Side.CREATOR else Leaving()
        return self._end(Cause.FLOOD, "it sent more than a device may", say=say)

    def silent(self, why: str) -> list[Action]:
        """Nothing was heard for too long (decided by `liveness`)."""
        return self._end(Cause.SILENT, why)

    def refuse(self, reason: str, *, closed: bool = False) -> list[Action]:
        """Throw the other end out, or tell it that the room is over; the creator's alone to say."""
        return self._end(Cause.REFUSED, reason, say=Bye(reason=reason, closed=closed))

    def leave(self) -> list[Action]:
        """Leave on purpose."""
        return self._end(Cause.OURS, "this device closed the link", say=Leaving())

    def replaced(self) -> list[Action]:
        """Another link to the same device takes over: close without a word, nobody left."""
        return self._end(Cause.OURS, "another link took over")

    def tick(self, now: float, *, trying: bool = False) -> list[Action]:
        """Time passes; ``trying``: paths are still being tried (ICE has not failed)."""
        waited = now - self._since
        match self.state:
            case State.CONNECTING:
                if waited >= (OPEN_TRYING_S if trying else OPEN_S):
                    return self._end(
                        Cause.NO_PATH, f"no network path opened within {waited:.0f} s", NO_PATH_NEXT
                    )
            case State.HELLO if waited >= (HELLO_S if self.dialed else HELLO_WAIT_S):
                return self._end(Cause.NO_HELLO, "it opened a link and said nothing", "Try again.")
            case State.GATE if not self._waiting:
                if self.side is Side.JOINER and waited >= ADMIT_S:
                    return self._end(Cause.LATE, f"its gate did not answer in {waited:.0f} s", GATE_NEXT)
                return self._gate(self.gate.tick(now), now)
            case State.GATE:
                return self._gate(self.gate.tick(now), now)
            case State.ADMITTED if self.side is Side.JOINER and not self.entered and waited >= ADMIT_S:
                # Who was here before knocks again: it does not leave, and its seat is not given up for that.
                say = None if self.own.back else Leaving()
                return self._end(Cause.LATE, "the room sent no list of its devices", "Try again.", say=say)
            case State.PROVING:
                if waited >= PROVING_S:
                    why = "it did not prove itself" if self.member else "it is not in the room"
                    return self._end(Cause.LATE, why, say=Leaving())
                return self._gate(self.gate.tick(now), now)
        return []

    # -- inside ---------------------------------------------------------------------------------

    @property
    def _at_gate(self) -> bool:
        return self.state in (State.GATE, State.PROVING) and self.passed is None

    def _enter(self, state: State, now: float) -> None:
        self.state = state
        self._since = now

    def _greeted(self, hello: Hello, now: float) -> list[Action]:
        self.hello = hello
        if bad := mismatch(hello.v, creator=self.side is Side.CREATOR):
            # Section 3: refused in words on both ends, this end's own hello is already out.
            say = Bye(reason=bad.theirs) if self.side is Side.CREATOR else Leaving()
            return self._end(Cause.VERSION, bad.what, bad.next_step, say=say)
        self._enter(State.PROVING if self.side is Side.PEER else State.GATE, now)
        return self._gate(self.gate.greeted(hello, now), now)

    def _gate(self, decided: list[GateAction], now: float) -> list[Action]:
        actions: list[Action] = []
        for step in decided:
            if not self._at_gate:
                break
            match step:
                case Say(message):
                    actions.append(Send(message))
                case Wait(text):
                    self._waiting = True
                    actions += [Notice(text)] if text else []
                case Refuse(reason, next_step, again=True):
                    actions += self._end(Cause.LATE, reason, next_step)
                case Refuse(reason, next_step):
                    say = Bye(reason=reason) if self.side is Side.CREATOR else Leaving()
                    actions += self._end(Cause.REFUSED, reason, next_step, say=say)
                case Pass(admit):
                    self.passed = step
                    if self.side is Side.PEER:
                        actions += self._admit_peer(now)
                    else:
                        actions += [Send(admit)] if admit is not None else []
                        actions += self._admit(now)
        return actions

    def _admit_peer(self, now: float) -> list[Action]:
        # Section 4: proofs alone do not do, the other end must also be in the roster.
        if self.state is State.PROVING and self.passed is not None and self.member:
            return self._admit(now)
        return []

    def _admit(self, now: float) -> list[Action]:
        self._enter(State.ADMITTED, now)
        held, self._held, self._held_bytes = self._held, [], 0
        actions: list[Action] = [Admitted()]
        for message in held:
            actions += self._deliver(message)
        return actions

    def _hold(self, message: Message, size: int) -> list[Action]:
        limit, limit_bytes = HELD_PEER if self.side is Side.PEER else HELD, HELD_BYTES
        if self._let_in:
            limit, limit_bytes = HELD_IN, HELD_IN_BYTES
        if len(self._held) < limit and self._held_bytes + size <= limit_bytes:
            self._held.append(message)
            self._held_bytes += size
        elif self._let_in:
            why = "the room went on for too long while this device's person was being asked"
            return self._end(Cause.LATE, why, "Join again, and compare the six digits then.", say=Leaving())
        return []  # later ones are dropped, not the oldest (section 3)

    def _deliver(self, message: Message) -> list[Action]:
        # Where a message may come from: roster only from the creator, pledge only to it.
        if isinstance(message, Roster) and self.side is not Side.JOINER:
            return []
        if isinstance(message, Pledge) and self.side is not Side.CREATOR:
            return []
        return [Deliver(message)]

    def _bye(self, bye: Bye) -> list[Action]:
        if self.side is not Side.JOINER:
            return []
        if bye.closed:
            return self._end(Cause.CLOSED, bye.reason or "The room is over.")
        return self._end(Cause.BYE, bye.reason or "The room's owner refused this device.")

    def _end(
        self, cause: Cause, why: str, next_step: str = "", *, say: Message | None = None
    ) -> list[Action]:
        if self.state is State.CLOSED:
            return []
        was, self.state = self.state, State.CLOSED
        self._held.clear()
        self.gate.closed()
        end = End(cause, why, next_step)
        if say is None or was is State.CONNECTING:
            return [end]
        return [Send(say), End(cause, why, next_step, LINGER_S)]
