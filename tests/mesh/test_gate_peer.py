"""Links between two devices prove the room's key (PROTOCOL section 4, mesh)."""

from __future__ import annotations

from typing import Any

import pytest

from pooled_nb.mesh.gate import Doorway, Gate, GateAction, Pass, Refuse, Say, Side
from pooled_nb.mesh.gatepeer import NO_CERTIFICATE, NO_KEY, UNPROVED, MeshExchange
from pooled_nb.mesh.messages.link import Admit, Hello, Lobby, MeshProof
from pooled_nb.mesh.newcomer import Newcomer
from tests.mesh.gatetools import PRINTS, peer
from tests.vectors import load

MK = "m" * 43


def member(mk: str | None = MK) -> Newcomer:
    newcomer = Newcomer()
    newcomer.admitted(pass_=None, mesh_key=mk, trust="first")
    return newcomer


def opened(gate: Gate, now: float = 0.0) -> list[GateAction]:
    return gate.greeted(gate.hello(Hello(v=4)), now)


def proof(actions: list[GateAction]) -> MeshProof:
    (said,) = actions
    assert isinstance(said, Say)
    assert isinstance(said.message, MeshProof)
    return said.message


@pytest.mark.parametrize("v", load("proofs"), ids=lambda v: v["host"])
def test_vectors_through_the_exchange(v: dict[str, Any]) -> None:
    """PROTOCOL section 4, mesh: "over `pooled-mesh-v1`, `role=dial|accept`", digit for digit, both ends."""
    one, other = (line.lower() for line in v["sdp_fingerprints"])
    dial = MeshExchange(
        lambda: v["mk"], Doorway(Side.PEER, v["joiner"], v["host"], True, lambda: (one, other))
    )
    accept = MeshExchange(
        lambda: v["mk"], Doorway(Side.PEER, v["host"], v["joiner"], False, lambda: (other, one))
    )
    assert dial.opened(0.0) == [Say(MeshProof(v=1, p=v["mesh_dial"]))]
    assert accept.opened(0.0) == [Say(MeshProof(v=1, p=v["mesh_accept"]))]
    assert accept.message(MeshProof(v=1, p=v["mesh_dial"]), 0.1) == [Pass()]
    assert dial.message(MeshProof(v=1, p=v["mesh_accept"]), 0.1) == [Pass()]


def test_both_ends_prove_at_once() -> None:
    """PROTOCOL section 4, mesh: "Sent right after `hello` on device-device links", by both."""
    a = peer(member(), "a", "b", dialed=True)
    b = peer(member(), "b", "a", dialed=False, prints=lambda: PRINTS[::-1])
    from_a, from_b = proof(opened(a)), proof(opened(b))
    assert from_a != from_b
    assert a.message(from_b, 0.1) == b.message(from_a, 0.1) == [Pass()]
    # Once and for all: nothing that follows is taken.
    assert a.message(MeshProof(p="0" * 64), 0.2) == a.tick(60.0) == []


@pytest.mark.parametrize(
    "wrong",
    ["own back", "nothing", "none", "none and a", "digits", "other key", "other link", "other ids"],
)
def test_a_wrong_proof_closes(wrong: str) -> None:
    """PROTOCOL section 4, mesh: "a wrong proof closes it"; "`none: 1` is refused"; the own proof reflected,
    that of another link or of another pair of devices are wrong, too.
    """
    gate = peer(member(), "a", "b", dialed=True)
    mine = proof(opened(gate))
    stranger = peer(member("n" * 43), "b", "a", dialed=False, prints=lambda: PRINTS[::-1])
    elsewhere = peer(member(), "b", "a", dialed=False, prints=lambda: ("sha-256 cc", PRINTS[0]))
    another = peer(member(), "c", "a", dialed=False, prints=lambda: PRINTS[::-1])
    said = {
        "own back": mine,
        "nothing": MeshProof(v=1),
        "none": MeshProof(v=1, none=True),
        "none and a": MeshProof(v=1, none=True, p="0" * 64),
        "digits": MeshProof(v=1, p="0" * 64),
        "other key": proof(opened(stranger)),
        "other link": proof(opened(elsewhere)),
        "other ids": proof(opened(another)),
    }[wrong]
    assert gate.message(said, 0.1) == [Refuse(UNPROVED)]
    right = proof(opened(peer(member(), "b", "a", dialed=False, prints=lambda: PRINTS[::-1])))
    assert gate.message(right, 0.2) == []  # the first counts


def test_the_binding_is_waited_for() -> None:
    """PROTOCOL section 4, binding: wait for both descriptions, 5 s; only then is there none."""
    known: list[tuple[str, str]] = []
    gate = peer(member(), "a", "b", dialed=True, prints=lambda: known[0] if known else None)
    other = proof(opened(peer(member(), "b", "a", dialed=False, prints=lambda: PRINTS[::-1])))
    assert opened(gate, 10.0) == gate.message(other, 10.1) == gate.tick(14.9) == []
    assert gate.tick(15.0) == [Refuse(NO_CERTIFICATE)]
    gate = peer(member(), "a", "b", dialed=True, prints=lambda: known[0] if known else None)
    assert opened(gate, 10.0) == gate.message(other, 10.1) == []
    known.append(PRINTS)
    said, passed = gate.tick(14.0)
    assert isinstance(said, Say)
    assert passed == Pass()


def test_dialed_before_its_own_admission_was_read() -> None:
    """PROTOCOL section 3, roster: others may dial a device before it has read its `admit`: its key counts
    from then on, not from when the link came.
    """
    newcomer = Newcomer()
    gate = peer(newcomer, "a", "b", dialed=False)
    assert opened(gate) == gate.tick(0.5) == []
    newcomer.admitted(pass_=None, mesh_key=MK, trust="first")
    assert proof(gate.tick(1.0)).p is not None
    early = peer(newcomer := Newcomer(), "a", "b", dialed=False)
    opened(early)
    right = proof(opened(peer(member(), "b", "a", dialed=True, prints=lambda: PRINTS[::-1])))
    assert early.message(MeshProof(p="0" * 64), 0.1) == early.message(right, 0.2) == []
    newcomer.admitted(pass_=None, mesh_key=MK, trust="first")
    assert early.tick(1.0)[-1] == Refuse(UNPROVED)  # the first counts
    never = peer(Newcomer(), "a", "b", dialed=False)
    opened(never)
    assert never.tick(5.0) == [Refuse(NO_KEY)]


def test_other_words_are_nothing() -> None:
    """PROTOCOL section 4, mesh: "a link passes only `hello`, `mesh`, …": no words of the gate."""
    gate = peer(member(), "a", "b", dialed=True)
    proof(opened(gate))
    assert gate.message(Admit(mk="n" * 43), 0.1) == gate.message(Lobby(), 0.1) == []
    gate.closed()
    assert gate.message(MeshProof(p="0" * 64), 0.2) == gate.tick(99.0) == []
