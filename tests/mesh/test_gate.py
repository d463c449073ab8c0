"""A device at the creator's gate (PROTOCOL section 4); what it believes of its host: `test_gate_joiner`."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import msgspec
import pytest

from pooled_nb.mesh import gatecreator, proofs
from pooled_nb.mesh.gate import BINDING_S, Gate, Pass, Refuse, Say, Wait
from pooled_nb.mesh.gatekeeper import Gatekeeper, GateSecrets, GateSettings
from pooled_nb.mesh.messages import read, write
from pooled_nb.mesh.messages.link import Admit, Auth, AuthProof, DeviceMeta, Hello, Lobby, MeshProof
from pooled_nb.mesh.newcomer import Credentials, Newcomer
from tests.mesh.gatetools import DEVICE, PRINTS, creator, drawn, invited, joiner, pair
from tests.vectors import load

VECTORS = load("proofs")


def prints_of(v: dict[str, Any]) -> tuple[str, str]:
    one, other = (line.lower() for line in v["sdp_fingerprints"])
    return one, other


def _same(prints: tuple[str, str]) -> tuple[str, str]:
    return prints


def saved(v: dict[str, Any]) -> GateSecrets:
    return GateSecrets(key=v["key"], mesh_key=v["mk"], passes=((v["pid"], v["ps"], "laptop"),))


def doors(v: dict[str, Any], held: Credentials) -> tuple[Gatekeeper, Newcomer, Gate, Gate]:
    """Both gates, that will draw the nonces of the vector."""
    prints = prints_of(v)
    keeper = Gatekeeper(saved=saved(v), random_bytes=drawn(v["hn"]))
    newcomer = Newcomer(held, random_bytes=drawn(v["jn"]))
    far = creator(keeper, id=v["joiner"], room=v["host"], prints=lambda: prints)
    near = joiner(newcomer, id=v["joiner"], room=v["host"], prints=lambda: prints[::-1])
    return keeper, newcomer, far, near


@pytest.mark.parametrize("v", VECTORS, ids=lambda v: v["host"])
@pytest.mark.parametrize("via", ["key", "pass"])
def test_vectors_through_both_gates(v: dict[str, Any], via: str) -> None:
    """PROTOCOL section 4, gate transcript: "both `hello`s; 2. creator, on `auth: 1` and a valid `jc`" and
    "creator: `jn` must match `jc`", `hp` "the same MAC with `role=host`": digit for digit what the vectors
    say.
    """
    held = Credentials(key=v["key"], pass_=v["pass"] if via == "pass" else None)
    _, newcomer, far, near = doors(v, held)
    hello = near.hello(Hello(name="laptop", v=4))
    assert hello.jc == v["jc"]
    assert hello.kc is True
    assert hello.pid == (v["pid"] if via == "pass" else None)
    assert near.greeted(far.hello(Hello(v=4)), 0.0) == []
    assert far.greeted(hello, 0.0) == [Say(Auth(v=1, hn=v["hn"]))]
    proof = AuthProof(jn=v["jn"], kp=v["kp"], pp=v["pp"] if via == "pass" else None)
    assert near.message(Auth(v=1, hn=v["hn"]), 0.1) == [Say(proof)]
    (let_in,) = far.message(proof, 0.2)
    assert isinstance(let_in, Pass)
    admit = let_in.admit
    assert admit is not None
    assert (admit.via, admit.mk) == (via, v["mk"])
    assert admit.hp == v["hp_pass" if via == "pass" else "hp_key"]
    assert (admit.pass_ is None) == (via == "pass")
    assert near.message(admit, 0.3) == [Pass()]
    assert newcomer.trust == "proved"
    assert newcomer.mesh_key == v["mk"]


@pytest.mark.parametrize("v", VECTORS, ids=lambda v: v["host"])
def test_vectors_of_the_six_digits_in_the_lobby(v: dict[str, Any]) -> None:
    """PROTOCOL section 4, six digits: "shown `482 019` on both ends", as the vectors have them."""
    keeper, newcomer, far, near = doors(v, Credentials())
    near.greeted(far.hello(Hello(v=4)), 0.0)
    (challenge,) = far.greeted(near.hello(Hello(name="laptop", v=4)), 0.0)
    assert isinstance(challenge, Say)
    (answer,) = near.message(challenge.message, 0.1)
    assert isinstance(answer, Say)
    lobby, wait = far.message(answer.message, 0.2)
    assert lobby == Say(Lobby())
    assert isinstance(wait, Wait)
    assert v["sas"] in wait.text
    assert [request.digits for request in keeper.lobby] == [v["sas"]]
    near.message(Lobby(), 0.3)
    assert (newcomer.waiting, newcomer.digits) == ("lobby", v["sas"])


# -- what the creator does -------------------------------------------------------------------------


def test_hellos_of_both_ends() -> None:
    """PROTOCOL section 3: "`hello {…, gate: 1, ask?, auth: 1}`" to any link it did not open, and
    `hello {…, join: 1, auth: 1, jc, kc?, pid?}`: "commits to a nonce; what it can prove", no secret.
    """
    keeper = Gatekeeper()
    assert write(creator(keeper).hello(Hello(name="host", v=4))) == {
        "t": "hello", "name": "host", "meta": {}, "v": 4, "gate": 1, "ask": 1, "auth": 1,
    }  # fmt: skip
    keeper.settings = GateSettings(ask=False)
    assert "ask" not in write(creator(keeper).hello(Hello(v=4)))
    held = Credentials(key=keeper.key, pass_="p" * 22)
    said = write(joiner(Newcomer(held)).hello(Hello(name="laptop", v=4)))
    assert set(said) == {"t", "name", "meta", "v", "join", "auth", "jc", "kc", "pid"}
    assert said["kc"] == 1
    assert said["pid"] == proofs.pass_id(proofs.pass_secret("p" * 22))
    assert keeper.key not in str(said)
    assert "p" * 22 not in str(said)


def test_pass_then_key_then_a_person() -> None:
    """PROTOCOL section 4, gate transcript: "then the pass (found by `pid`), then the key; else the person is
    asked: `lobby {}`, later `admit`"; "`pass` a new one unless `via` is `pass`".
    """
    keeper = Gatekeeper()
    first = invited(keeper)
    link = pair(keeper, first)
    admit = link.creator.said[-1]
    assert isinstance(admit, Admit)
    assert admit.via == "key"
    assert admit.pass_ is not None
    assert admit.mk == keeper.mesh_key
    assert first.credentials.pass_ == admit.pass_
    assert first.trust == "proved"

    link.creator.gate.closed()
    back = pair(keeper, first)  # holds both now: the pass is found first
    admit = back.creator.said[-1]
    assert isinstance(admit, Admit)
    assert (admit.via, admit.pass_) == ("pass", None)
    (passed,) = back.creator.passes
    assert passed.came_back
    assert passed.seat == proofs.pass_id(proofs.pass_secret(str(first.credentials.pass_)))
    assert passed.name == "laptop"

    new = Newcomer()
    asked = pair(keeper, new, id="device-0002")
    assert asked.creator.kinds == ["hello", "auth", "lobby"]
    assert not asked.creator.is_over
    (request,) = keeper.lobby
    assert request.digits == new.digits != ""
    assert keeper.decide(request.number, allow=True) is request
    asked.at(0.5)
    admit = asked.creator.said[-1]
    assert isinstance(admit, Admit)
    assert (admit.via, admit.hp) == (None, None)
    assert admit.pass_ is not None
    assert keeper.lobby == ()
    assert new.trust == "first"  # it holds nothing: on first use
    assert new.digits == ""


def test_asking_off_lets_everybody_in_with_a_pass() -> None:
    """PROTOCOL section 4: "with asking off: `admit`"; "(also after Allow and with asking off; at most 500
    kept, each with the name it was given for".
    """
    keeper = Gatekeeper(GateSettings(ask=False))
    newcomer = Newcomer()
    link = pair(keeper, newcomer, name="  Ann's <laptop>\n")
    (passed,) = link.creator.passes
    assert not passed.came_back
    assert keeper.name_of(passed.seat) == "Anns laptop"
    assert newcomer.trust == "first"


def test_a_wrong_proof_is_no_error() -> None:
    """PROTOCOL section 4: "A wrong `kp` or `pp` is no error, the person is asked", and is told of it."""
    keeper, stranger = Gatekeeper(), Gatekeeper()
    for held in (
        Credentials(key=stranger.key),
        Credentials(pass_="p" * 22),
        Credentials(stranger.key, "q" * 22),
    ):
        link = pair(keeper, Newcomer(held), id=f"device-{held.any}-{held.key}-{held.pass_}")
        assert link.creator.kinds == ["hello", "auth", "lobby"]
        assert keeper.lobby[-1].note == gatecreator.OLD_LINK
    # The right pass's id with another pass's proof is no proof either.
    first = invited(keeper)
    pair(keeper, first, id="device-a")
    forged = joiner(Newcomer(Credentials(pass_="x" * 22)), id="device-b")
    gate = creator(keeper, id="device-b")
    hello = forged.hello(Hello(name="thief", v=4))
    pid = proofs.pass_id(proofs.pass_secret(str(first.credentials.pass_)))
    (challenge,) = gate.greeted(msgspec.structs.replace(hello, pid=pid), 0.0)
    assert isinstance(challenge, Say)
    (answer,) = forged.message(challenge.message, 0.0)
    assert isinstance(answer, Say)
    assert gate.message(answer.message, 0.0)[0] == Say(Lobby())
    assert keeper.lobby[-1].name == "thief"


def test_another_nonce_than_the_committed_one() -> None:
    """PROTOCOL section 4: "`jn` must match `jc`, and there must be a binding, else `bye`"."""
    keeper = Gatekeeper()
    gate, near = creator(keeper), joiner(invited(keeper))
    (challenge,) = gate.greeted(near.hello(Hello(v=4)), 0.0)
    assert isinstance(challenge, Say)
    (answer,) = near.message(challenge.message, 0.0)
    assert isinstance(answer, Say)
    other = msgspec.structs.replace(answer.message, jn="n" * 22)
    assert gate.message(other, 0.1) == [Refuse(gatecreator.WRONG_NONCE)]
    assert gate.message(answer.message, 0.2) == gate.tick(20.0) == []


@pytest.mark.parametrize("known_at", [None, 4.5])
def test_the_binding_is_waited_for(known_at: float | None) -> None:
    """PROTOCOL section 4, binding: "A data channel may open before both descriptions are set: wait for them
    (5 s), only then is there no binding": the creator says `bye`, the device answers without `kp` and `pp`.
    """
    now = 0.0

    def late() -> tuple[str, str] | None:
        return PRINTS if known_at is not None and now >= known_at else None

    keeper = Gatekeeper(GateSettings(ask=False))
    link = pair(keeper, invited(keeper), prints=(late, late))
    for now in (1.0, 4.4, 4.6, 4.9):
        link.at(now)
    if known_at is not None:
        assert link.device.passes
        return
    assert link.device.kinds == ["hello"]
    now = BINDING_S
    link.at(now)
    (proof,) = link.device.said[1:]
    assert isinstance(proof, AuthProof)
    assert (proof.kp, proof.pp) == (None, None)
    assert link.creator.refusals == [Refuse(gatecreator.NO_BINDING)]


def test_one_end_alone_cannot_read_the_certificates() -> None:
    """PROTOCOL section 4, binding: "otherwise there is no binding and nothing is proved", whichever end."""
    keeper = Gatekeeper()
    far = pair(keeper, invited(keeper), prints=(lambda: None, lambda: PRINTS))
    far.at(5.0)
    assert far.creator.refusals == [Refuse(gatecreator.NO_BINDING)]
    near = pair(keeper, invited(keeper), id="device-b", prints=(lambda: PRINTS, lambda: None))
    assert near.device.kinds == ["hello"]
    near.at(5.0)
    assert near.creator.kinds[-1] == "lobby"  # nothing was proved: the person is asked


def test_who_does_not_answer_the_challenge() -> None:
    """PROTOCOL section 4: "`auth-proof {jn, kp?, pp?}`, always, once per link": who says none is refused in
    10 s.
    """
    keeper = Gatekeeper(GateSettings(ask=False))
    gate = creator(keeper)
    gate.greeted(joiner(Newcomer()).hello(Hello(v=4)), 100.0)
    assert gate.tick(109.9) == []
    assert gate.tick(110.0) == [Refuse(gatecreator.NO_PROOF)]


def test_proofs_of_another_link_are_worth_nothing() -> None:
    """PROTOCOL section 4, binding; "Signaling can swap certificate fingerprints, so a secret is never sent to
    prove it: each end proves it over this very link": another fingerprint, id or nonce, and it proves
    nothing.
    """
    keeper = Gatekeeper()
    newcomer = invited(keeper)
    gate, near = creator(keeper), joiner(newcomer)
    (challenge,) = gate.greeted(near.hello(Hello(v=4)), 0.0)
    (answer,) = near.message(challenge.message, 0.0)  # type: ignore[union-attr]
    recorded = answer.message  # type: ignore[union-attr]
    hello = near.hello(Hello(v=4))
    # The same words over a new link meet a new nonce; with the old nonce, other certificates or ids.
    hn = challenge.message.hn  # type: ignore[union-attr]
    for random, id, prints in (
        (drawn(), DEVICE, PRINTS),
        (drawn(hn), DEVICE, ("sha-256 aa", "sha-256 cc")),
        (drawn(hn), "device-0002", PRINTS),
    ):
        keeper._random = random
        again = creator(keeper, id=id, prints=functools.partial(_same, prints))
        again.greeted(hello, 1.0)
        assert again.message(recorded, 1.0)[0] == Say(Lobby())
    keeper._random = drawn(hn)
    same = creator(keeper)
    same.greeted(hello, 1.0)
    (passed,) = same.message(recorded, 1.0)  # only all three together, which never come twice, are that link
    assert isinstance(passed, Pass)


def test_api_clients() -> None:
    """PROTOCOL section 9: "allow API clients" is checked first: `bye`, also with the key in hand; and for one
    that waits when it is switched off.
    """
    keeper = Gatekeeper()
    api = DeviceMeta(api=1, ua="API")
    link = pair(keeper, invited(keeper), meta=api)
    assert link.creator.refusals == [Refuse(gatecreator.NO_API)]
    assert link.creator.kinds == ["hello"]
    keeper.settings = GateSettings(api=True)
    assert pair(keeper, invited(keeper), meta=api).device.passes
    waits = pair(keeper, meta=api, id="device-b")
    keeper.settings = GateSettings()
    keeper.decide(keeper.lobby[0].number, allow=True)
    waits.at(1.0)
    assert waits.creator.refusals == [Refuse(gatecreator.NO_API)]
    assert keeper.lobby == ()


def test_a_device_without_proofs() -> None:
    """PROTOCOL section 4: "A device without `auth` goes to the lobby without digits"; one that cannot wait
    there is told what to do.
    """
    keeper = Gatekeeper()
    gate = creator(keeper)
    actions = gate.greeted(Hello(name="old", v=4, join=True), 0.0)
    assert actions[0] == Say(Lobby())
    assert (keeper.lobby[0].digits, keeper.lobby[0].note) == ("", gatecreator.NO_DIGITS)
    # `auth` without a valid commitment is no `auth`.
    broken = read({"t": "hello", "v": 4, "join": 1, "auth": 1, "jc": "zz"})
    assert isinstance(broken, Hello)
    assert creator(keeper, id="device-b").greeted(broken, 0.0)[0] == Say(Lobby())
    assert keeper.lobby[1].digits == ""
    assert creator(keeper, id="device-c").greeted(Hello(v=4), 0.0) == [Refuse(gatecreator.CANNOT_WAIT)]
    keeper.settings = GateSettings(ask=False)
    (passed,) = creator(keeper, id="device-d").greeted(Hello(v=4), 0.0)
    assert isinstance(passed, Pass)


def test_raw_keys_of_older_devices() -> None:
    """PROTOCOL section 4: "Raw keys and passes of older devices count only when the owner switched that
    on".
    """
    keeper = Gatekeeper()
    with_key = read({"t": "hello", "v": 4, "join": 1, "key": keeper.key})
    assert isinstance(with_key, Hello)
    assert creator(keeper).greeted(with_key, 0.0)[0] == Say(Lobby())
    keeper.settings = GateSettings(older=True)
    (passed,) = creator(keeper, id="device-b").greeted(with_key, 0.0)
    assert isinstance(passed, Pass)
    assert passed.admit is not None
    assert passed.admit.via is None
    assert passed.admit.pass_ is not None
    with_pass = read({"t": "hello", "v": 4, "join": 1, "pass": passed.admit.pass_})
    assert isinstance(with_pass, Hello)
    (back,) = creator(keeper, id="device-c").greeted(with_pass, 0.0)
    assert isinstance(back, Pass)
    assert (back.seat, back.came_back) == (passed.seat, True)
    for wrong in ({"key": "k" * 22}, {"pass": "p" * 22}, {}):
        hello = read({"t": "hello", "v": 4, "join": 1, **wrong})
        assert isinstance(hello, Hello)
        assert creator(keeper, id=f"device-{wrong}").greeted(hello, 0.0)[0] == Say(Lobby())
    # Who knows proofs proves: what it says raw does not count.
    proving = msgspec.structs.replace(joiner(Newcomer()).hello(Hello(v=4)), key=keeper.key)
    (challenge,) = creator(keeper, id="device-e").greeted(proving, 0.0)
    assert isinstance(challenge, Say)
    assert isinstance(challenge.message, Auth)


def test_messages_for_another_end_are_nothing() -> None:
    """PROTOCOL section 4: each end takes what the other may say, and only once."""
    keeper = Gatekeeper()
    gate = creator(keeper)
    proof = AuthProof(jn="n" * 22)
    assert gate.message(proof, 0.0) == []  # before any challenge
    gate.greeted(joiner(Newcomer()).hello(Hello(v=4)), 0.0)
    for message in (Admit(mk="m" * 43), Lobby(), Auth(v=1, hn="h" * 22), MeshProof(p="0" * 64)):
        assert gate.message(message, 0.1) == []
    near = joiner(Newcomer())
    near.greeted(Hello(v=4), 0.0)
    assert near.message(proof, 0.1) == near.message(MeshProof(p="0" * 64), 0.1) == []


def test_no_secret_in_any_text() -> None:
    """DESIGN section 7: "Secrets … never reach … logs or exceptions": not by any text form here."""
    keeper = Gatekeeper()
    newcomer = invited(keeper)
    link = pair(keeper, newcomer)
    secrets = [keeper.key, keeper.mesh_key, str(newcomer.credentials.pass_), keeper.secrets.passes[0][1]]
    texts = [
        repr(x)
        for x in (
            keeper, newcomer, keeper.secrets, newcomer.credentials, link.creator.gate, link.device.gate,
            *link.creator.passes, *link.creator.said, *link.device.said, *keeper._passes.values(),
            Say(link.creator.said[-1]), Hello(key=keeper.key, pass_=newcomer.credentials.pass_),
        )
    ]  # fmt: skip
    texts += [str(x) for x in link.creator.said]
    texts += [str(dict(link.creator.said[-1].__rich_repr__()))]
    for secret in secrets:
        assert len(secret) >= 22
        assert not [text for text in texts if secret in text]
    assert dataclasses.is_dataclass(keeper.secrets)
    waits = Gatekeeper()
    pair(waits)
    assert waits.lobby[0].digits not in repr(waits.lobby)


def test_each_link_has_its_own_nonces() -> None:
    """PROTOCOL section 4: nonces are 16 random bytes of each link; none is used twice."""
    keeper, newcomer = Gatekeeper(), Newcomer()
    seen: list[str] = []
    for n in range(50):
        link = pair(keeper, newcomer, id=f"device-{n}")
        seen += [m.hn for m in link.creator.said if isinstance(m, Auth)]
        seen += [m.jn for m in link.device.said if isinstance(m, AuthProof)]
        link.creator.gate.closed()
    assert len(seen) == len(set(seen)) == 100
