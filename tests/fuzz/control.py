"""Any control message, at any moment of a link's life, with the real gates (PROTOCOL section 3)."""

from __future__ import annotations

from random import Random

from pooled_nb.mesh.binarypack import PackError, pack, unpack
from pooled_nb.mesh.chunks import CHUNK
from pooled_nb.mesh.gate import Doorway, Gates, Side
from pooled_nb.mesh.gatekeeper import MAX_LOBBY, Gatekeeper, GateSettings
from pooled_nb.mesh.link import packed
from pooled_nb.mesh.linkactions import Action, Admitted, Deliver, End, Send
from pooled_nb.mesh.linkstate import HELD_BYTES, HELD_PEER, LinkState, State
from pooled_nb.mesh.messages import read
from pooled_nb.mesh.messages.link import DeviceMeta, Hello, Pledge, Roster
from pooled_nb.mesh.newcomer import Credentials, Newcomer
from pooled_nb.mesh.versions import PROTOCOL
from tests.fuzz import values
from tests.mesh.opengate import OpenGates

PRINTS = ("sha-256 aa:aa", "sha-256 bb:bb")
STEPS = (0.0, 0.02, 0.25, 1.0, 4.9, 5.1, 16.0, 700.0)


def run(seed: str) -> None:
    """One link: messages, time, and whatever else may happen to it."""
    rng = Random(seed)
    side = rng.choice(tuple(Side))
    gates = _gates(rng, side)
    known = rng.random() < 0.9
    doorway = Doorway(
        side,
        "me",
        "them",
        rng.random() < 0.5,
        lambda: PRINTS if known else None,
    )
    now = 0.0
    own = Hello(name="me", meta=DeviceMeta(), v=PROTOCOL)
    state = LinkState(side, doorway.dialed, gates.door(doorway), own, now, member=rng.random() < 0.5)
    check = _Checker(state)
    if rng.random() < 0.9:
        check(state.opened(now))
    if rng.random() < 0.9:  # most of the others are refused at once
        hello = {**values.fields(rng, Hello), "t": "hello", "v": PROTOCOL}
        _say(check, state, hello, now)
    for _ in range(rng.randint(1, 40)):
        match rng.randrange(20):
            case 0:
                now += rng.choice(STEPS)
                check(state.tick(now, trying=rng.random() < 0.5))
            case 1:
                check(state.roster(rng.random() < 0.5, now))
            case 2 if rng.random() < 0.1:
                ends = (state.leave, state.replaced, lambda: state.broken("x"), lambda: state.refuse("x"))
                check(rng.choice(ends)())
            case 3:
                _person(rng, gates)
            case _:
                _say(check, state, values.message(rng), now)
    check(state.leave())
    if isinstance(gates, Gatekeeper):
        assert gates.lobby == ()


def _say(check: _Checker, state: LinkState, value: object, now: float) -> None:
    """As it comes over a channel: what cannot be packed cannot be sent."""
    try:
        data = pack(value)
    except PackError:
        return
    message = read(unpack(data))
    if message is not None and (state.state is State.ADMITTED or len(data) <= CHUNK):
        check(state.message(message, len(data), now))


def _gates(rng: Random, side: Side) -> Gates:
    if rng.random() < 0.3:
        return OpenGates()
    if side is Side.CREATOR:
        return Gatekeeper(
            GateSettings(ask=rng.random() < 0.8, api=rng.random() < 0.5, older=rng.random() < 0.2),
            random_bytes=rng.randbytes,
        )
    key = values.text(rng, values.BASE64, 22) if rng.random() < 0.5 else None
    newcomer = Newcomer(Credentials(key=key), random_bytes=rng.randbytes)
    if side is Side.PEER and rng.random() < 0.9:
        newcomer.admitted(pass_=None, mesh_key=values.text(rng, values.BASE64, 43), trust="first")
    return newcomer


def _person(rng: Random, gates: Gates) -> None:
    if isinstance(gates, Gatekeeper):
        assert len(gates.lobby) <= MAX_LOBBY
        for request in gates.lobby:
            gates.decide(request.number, allow=rng.random() < 0.5)
        gates.decide(rng.randrange(99), allow=True)
    elif isinstance(gates, Newcomer) and gates.waiting:
        gates.confirm(same=rng.random() < 0.5)


class _Checker:
    """What must hold of every list of actions."""

    def __init__(self, state: LinkState) -> None:
        self._state = state
        self._admitted = self._over = False

    def __call__(self, actions: list[Action]) -> None:
        state = self._state
        assert not (actions and self._over), "something followed the end"
        assert len(actions) <= HELD_PEER + 8
        for action in actions:
            assert not self._over
            match action:
                case Send(message):
                    data = packed(message)
                    assert self._admitted or len(data) <= CHUNK
                case Admitted():
                    assert not self._admitted
                    self._admitted = True
                case Deliver(message):
                    assert self._admitted, "a message of the room before admission"
                    assert state.side is Side.JOINER or not isinstance(message, Roster)
                    assert state.side is Side.CREATOR or not isinstance(message, Pledge)
                case End():
                    self._over = True
        assert len(state._held) <= HELD_PEER
        assert 0 <= state._held_bytes <= HELD_BYTES
        assert (state.state is State.CLOSED) == self._over
