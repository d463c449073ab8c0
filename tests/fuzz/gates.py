"""Hellos and proofs in any order, nearly right: nobody comes in without a proof or a person (PROTOCOL 4).

The other end of each link here is an attacker that knows the protocol, the ids, the fingerprints and all that
was ever said over other links of the room, and neither invite key, pass nor mesh key. At times it is given a
true proof, so that the way in is walked, too; then, and when a person decides, the link is ``entitled``.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from random import Random
from typing import Any

from pooled_nb.mesh import proofs
from pooled_nb.mesh.binarypack import PackError, pack, unpack
from pooled_nb.mesh.gate import Doorway, Side
from pooled_nb.mesh.gatekeeper import MAX_LOBBY, MAX_PASSES, Gatekeeper, GateSettings
from pooled_nb.mesh.linkactions import Admitted, End, Send
from pooled_nb.mesh.linkstate import LinkState
from pooled_nb.mesh.messages import read, write
from pooled_nb.mesh.messages.link import DeviceMeta, Hello
from pooled_nb.mesh.newcomer import Credentials, Newcomer
from pooled_nb.mesh.versions import PROTOCOL
from tests.fuzz import values

ROOM = "pooled-room-4TKG9P"
WAYS = ("key", "pass")


@dataclass
class World:
    """One room: its secrets, and what an attacker could have written down."""

    rng: Random
    key: str = ""
    pass_: str = ""
    mesh_key: str = ""
    heard: list[str] = field(default_factory=list)
    """Digests and secrets that were sent over links: to be played again."""

    def __post_init__(self) -> None:
        self.key = proofs.new_nonce(self.rng.randbytes)
        self.pass_ = proofs.new_nonce(self.rng.randbytes)
        self.mesh_key = proofs.new_mesh_key(self.rng.randbytes)

    @property
    def ps(self) -> str:
        return proofs.pass_secret(self.pass_)

    def note(self, message: dict[str, Any]) -> None:
        self.heard += [value for value in message.values() if isinstance(value, str) and len(value) >= 22]
        del self.heard[:-60]

    def digest(self) -> str:
        """A wrong proof: random, said elsewhere, or of a key that is not the room's."""
        said = [text for text in self.heard if len(text) == 64]
        if said and self.rng.random() < 0.6:
            return self.rng.choice(said)
        return values.text(self.rng, values.DIGITS, 64)


class Attack:
    """One link of ours with the attacker at the other end."""

    def __init__(self, world: World, side: Side, gates: Gatekeeper | Newcomer, remote: str, own: str) -> None:
        rng = self.rng = world.rng
        self.world, self.side, self.gates = world, side, gates
        self.prints = tuple("sha-256 " + ":".join(f"{b:02x}" for b in rng.randbytes(32)) for _ in range(2))
        self.bound = rng.random() < 0.95
        self.is_member = rng.random() < 0.8
        self.doorway = Doorway(
            side,
            own,
            remote,
            side is Side.JOINER or (side is Side.PEER and rng.random() < 0.5),
            lambda: (self.prints[0], self.prints[1]) if self.bound else None,
            seat=lambda: self.seat,
        )
        self.seat = rng.choice((None, None, "", "of somebody"))
        """At the creator: whether a device that is in has the id under which this one comes."""
        self.now = 0.0
        self.state = LinkState(
            side,
            self.doorway.dialed,
            gates.door(self.doorway),
            Hello(name="me", meta=DeviceMeta(), v=PROTOCOL),
            0.0,
            member=self.is_member,
        )
        self.entitled = self.proved_pass = False
        self.person = self.over = self.admitted = False
        self.said: dict[str, dict[str, Any]] = {}
        """What our end said, by type."""
        self.jn = proofs.new_nonce(rng.randbytes)
        self.hn = proofs.new_nonce(rng.randbytes)
        self.run(self.state.opened(0.0))

    def run(self, actions: list[Any]) -> None:
        for action in actions:
            match action:
                case Send(message):
                    said = write(message)
                    self.said.setdefault(said["t"], said)
                    self.world.note(said)
                case Admitted():
                    self.admitted = True
                    assert self.entitled or self.person, f"{self.side} let somebody in who proved nothing"
                    assert self.side is not Side.PEER or self.state.member
                    passed = self.state.passed
                    assert passed is None or not passed.came_back or self.proved_pass, "a seat, and no pass"
                case End():
                    self.over = True

    def tell(self, message: dict[str, Any]) -> None:
        value = read(message)
        if value is not None:
            self.run(self.state.message(value, 300, self.now))

    def anything(self) -> None:
        """As it comes over a channel: what cannot be packed cannot be sent."""
        with contextlib.suppress(PackError):
            message = unpack(pack(values.message(self.rng)))
            if isinstance(message, dict):
                self.tell(message)

    def transcript(self, secret: str, role: str, cred: str, jn: str, hn: str, *, swap: bool = False) -> str:
        ids = (self.doorway.remote, self.doorway.own)
        joiner, creator = ids if (self.side is Side.CREATOR) != swap else ids[::-1]
        text = proofs.gate_transcript(
            role,  # type: ignore[arg-type]
            cred,  # type: ignore[arg-type]
            binding=self.doorway.binding() or "",
            joiner=joiner,
            creator=creator,
            jn=jn,
            hn=hn,
        )
        return proofs.mac(secret, text)

    def wrong(self, role: str, cred: str, jn: str, hn: str) -> str:
        """A proof that is nearly right: of another key, role, credential or nonce; or one that was said."""
        rng, other = self.rng, proofs.new_nonce(self.rng.randbytes)
        other_role = "host" if role == "join" else "join"
        match rng.randrange(6):
            case 0:
                return self.transcript(other, role, cred, jn, hn)
            case 1:  # of the right key, as our own end says it: a reflection
                return self.said.get("auth-proof", {}).get("kp", self.world.digest())
            case 2:
                return self.transcript(other, other_role, cred, jn, hn)
            case 3:
                return self.transcript("", role, cred, jn, hn)
            case 4:
                return self.transcript(other, role, cred, hn, jn, swap=True)
        return self.world.digest()

    def step(self) -> None:
        """Something that the attacker, time or a person does."""
        rng = self.rng
        match rng.randrange(10):
            case 0:
                self.now += rng.choice((0.0, 0.3, 0.3, 1.0, 1.0, 4.9, 5.1, 11.0, 31.0, 601.0))
                self.run(self.state.tick(self.now))
            case 1:
                self.decide()
            case 2:
                self.bound = rng.random() < 0.9
            case 3:
                self.run(self.state.roster(rng.random() < 0.7, self.now))
            case 4:
                self.anything()
            case _:
                {Side.CREATOR: self.knock, Side.JOINER: self.pretend, Side.PEER: self.mesh}[self.side]()

    def decide(self) -> None:
        rng = self.rng
        if isinstance(self.gates, Gatekeeper):
            assert len(self.gates.lobby) <= MAX_LOBBY
            for request in self.gates.lobby:
                if request.id == self.doorway.remote and rng.random() < 0.5:
                    allow = rng.random() < 0.5
                    self.gates.decide(request.number, allow=allow)
                    self.person |= allow
        elif self.gates.waiting == "confirm" and rng.random() < 0.5:
            same = rng.random() < 0.5
            self.gates.confirm(same=same)
            self.person |= same
        self.run(self.state.tick(self.now))

    # -- as a device that knocks ---------------------------------------------------------------------

    def knock(self) -> None:
        rng, world = self.rng, self.world
        hn = self.said.get("auth", {}).get("hn", self.hn)
        if rng.random() < (0.9 if "auth" not in self.said else 0.1):
            pid = rng.choice((proofs.pass_id(world.ps), values.text(rng, values.DIGITS, 32), None))
            right, other = proofs.commitment(self.jn), proofs.commitment(self.hn)
            jc = rng.choice((right, right, right, right, other, None, world.digest()))
            hello = {
                "t": "hello",
                "v": PROTOCOL,
                "name": "x",
                "join": rng.random() < 0.9,
                "auth": rng.random() < 0.9,
            }
            self.tell(hello | ({"jc": jc} if jc else {}) | ({"pid": pid} if pid else {}))
            return
        jn = rng.choice((self.jn, self.jn, self.jn, self.hn, hn))
        proof = {"t": "auth-proof", "jn": jn}
        cred, name = rng.choice((("key", "kp"), ("pass", "pp")))
        if rng.random() < 0.15 and self.bound:
            secret = world.key if cred == "key" else world.ps
            proof[name] = self.transcript(secret, "join", cred, jn, hn)
            # With the id of a device that is in, the key alone does not do (section 3).
            self.entitled |= cred == "pass" or self.seat is None
            self.proved_pass |= cred == "pass"
        elif rng.random() < 0.9:
            proof[name] = self.wrong("join", cred, jn, hn)
        self.tell(proof)

    # -- as the creator ------------------------------------------------------------------------------

    def pretend(self) -> None:
        rng, proof = self.rng, self.said.get("auth-proof", {})
        what = rng.randrange(4)
        if rng.random() < 0.7:  # what comes next where all is well
            what = 0 if self.state.hello is None else 1 if not proof else rng.choice((2, 3))
        match what:
            case 0:
                self.tell({"t": "hello", "v": PROTOCOL, "gate": 1, "ask": 1, "auth": rng.random() < 0.9})
            case 1:
                self.tell({"t": "auth", "v": 1, "hn": self.hn})
            case 2:
                self.tell({"t": "lobby"})
            case 3:
                admit: dict[str, Any] = {"t": "admit", "mk": self.hn + self.hn[:21], "pass": self.jn}
                cred = rng.choice((*WAYS, "luck", None))
                if cred:
                    admit["via"] = cred
                    jn = proof.get("jn", self.jn)
                    if rng.random() < 0.2 and "jn" in proof and cred in WAYS and self.answered_bound:
                        secret = self.world.key if cred == "key" else self.world.ps
                        admit["hp"] = self.transcript(secret, "host", cred, jn, self.hn)
                        self.entitled |= self.holds(cred)
                    else:
                        admit["hp"] = self.wrong("host", cred, jn, self.hn)
                self.tell(admit)

    def holds(self, cred: str) -> bool:
        held = self.gates.credentials  # type: ignore[union-attr]
        return (held.key if cred == "key" else held.pass_) is not None

    @property
    def answered_bound(self) -> bool:
        return self.doorway.binding() is not None

    # -- as another device ---------------------------------------------------------------------------

    def mesh(self) -> None:
        rng, way = self.rng, self.doorway
        if rng.random() < 0.3:
            self.tell({"t": "hello", "v": PROTOCOL, "name": "x"})
            return
        mine = self.said.get("mesh", {}).get("p")
        ids = (way.own, way.remote) if way.dialed else (way.remote, way.own)
        theirs = "accept" if way.dialed else "dial"
        binding = way.binding() or ""
        match rng.randrange(6):
            case 0 if mine:
                self.tell({"t": "mesh", "v": 1, "p": mine})  # our own proof, said back
            case 1:
                self.tell({"t": "mesh", "v": 1, "none": 1})
            case 2 if self.bound:
                right = proofs.mesh_proof(
                    self.world.mesh_key, theirs, binding=binding, dialer=ids[0], acceptor=ids[1]
                )
                self.entitled = True
                self.tell({"t": "mesh", "v": 1, "p": right})
            case 3:
                other = proofs.new_mesh_key(rng.randbytes)
                p = proofs.mesh_proof(other, theirs, binding=binding, dialer=ids[0], acceptor=ids[1])
                self.tell({"t": "mesh", "v": 1, "p": p})
            case _:
                self.tell({"t": "mesh", "v": 1, "p": self.world.digest()})


def run(seed: str) -> None:
    """Some links of one room, one after the other and side by side."""
    rng = Random(seed)
    world = World(rng)
    keeper = Gatekeeper(GateSettings(ask=True), random_bytes=rng.randbytes)
    keeper._key, keeper._mesh_key = world.key, world.mesh_key
    _honest(world, keeper)
    links = [_attack(world, keeper, number) for number in range(rng.randint(1, 3))]
    for _ in range(rng.randint(8, 80)):
        link = rng.choice(links)
        if not link.over:
            link.step()
    for link in links:
        if not link.over:
            link.run(link.state.leave())
        assert link.over
    assert keeper.lobby == (), "nobody waits whose link is gone"
    assert len(keeper._passes) <= MAX_PASSES
    assert keeper.mesh_key == world.mesh_key


def _attack(world: World, keeper: Gatekeeper, number: int) -> Attack:
    rng, id = world.rng, f"device{number}"
    match rng.randrange(3):
        case 0:
            return Attack(world, Side.CREATOR, keeper, id, ROOM)
        case 1:
            key = world.key if rng.random() < 0.7 else None
            pass_ = world.pass_ if key is None or rng.random() < 0.5 else None
            newcomer = Newcomer(Credentials(key=key, pass_=pass_), random_bytes=rng.randbytes)
            return Attack(world, Side.JOINER, newcomer, ROOM, id)
    newcomer = Newcomer(random_bytes=rng.randbytes)
    newcomer.admitted(pass_=None, mesh_key=world.mesh_key, trust="proved")
    return Attack(world, Side.PEER, newcomer, id, "me")


def _honest(world: World, keeper: Gatekeeper) -> None:
    """A device with the key comes in, over two real ends: what it says can be played again."""
    rng = world.rng
    newcomer = Newcomer(Credentials(key=world.key), random_bytes=rng.randbytes)
    prints = ("sha-256 11:11", "sha-256 22:22")
    ends = {}
    for side, gates, own, other in (
        (Side.CREATOR, keeper, ROOM, "first"),
        (Side.JOINER, newcomer, "first", ROOM),
    ):
        way = Doorway(side, own, other, side is Side.JOINER, lambda: prints)
        ends[side] = LinkState(side, way.dialed, gates.door(way), Hello(name="f", v=PROTOCOL), 0.0)
    waiting = [(side, action) for side, end in ends.items() for action in end.opened(0.0)]
    admitted = set()
    while waiting:
        side, action = waiting.pop(0)
        if isinstance(action, Admitted):
            admitted.add(side)
        if isinstance(action, Send):
            world.note(write(action.message))
            other = Side.JOINER if side is Side.CREATOR else Side.CREATOR
            waiting += [(other, more) for more in ends[other].message(action.message, 300, 0.0)]
    assert admitted == {Side.CREATOR, Side.JOINER}
    assert newcomer.credentials.pass_
    world.pass_ = newcomer.credentials.pass_
