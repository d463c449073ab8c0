"""Whatever is said at a gate, in any order: nothing raises, and nobody passes without proof or a person
(PROTOCOL section 4).
"""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from pooled_nb.mesh.gate import Doorway, Pass, Refuse, Say, Side, Wait
from pooled_nb.mesh.gatekeeper import MAX_DENIED, MAX_LOBBY, MAX_PASSES, Gatekeeper, GateSettings
from pooled_nb.mesh.messages import Message
from pooled_nb.mesh.messages.link import Admit, Auth, AuthProof, DeviceMeta, Hello, Lobby, MeshProof
from pooled_nb.mesh.newcomer import Credentials, Newcomer
from tests.mesh.gatetools import CREATOR, PRINTS, Pair, creator, invited, joiner, pair, peer

FEW = settings(deadline=None, max_examples=120)

nonces = st.sampled_from(["n" * 22, "h" * 22, "z" * 64])
digests = st.sampled_from(["0" * 64, "f" * 64, None])
ids = st.sampled_from(["device-a", "device-b", "device-c", "\ud800", "a,b\njn=x", ""])
words: st.SearchStrategy[Message] = st.one_of(
    st.builds(Auth, v=st.integers(0, 3), hn=nonces),
    st.builds(AuthProof, jn=nonces, kp=digests, pp=digests),
    st.builds(Lobby),
    st.builds(
        Admit,
        pass_=st.sampled_from([None, "q" * 22]),
        via=st.sampled_from([None, "key", "pass", "x"]),
        hp=digests,
        mk=st.sampled_from([None, "m" * 43]),
    ),
    st.builds(MeshProof, v=st.sampled_from([None, 1]), p=digests, none=st.booleans()),
)
hellos = st.builds(
    Hello,
    name=st.text(max_size=60),
    meta=st.builds(DeviceMeta, api=st.sampled_from([None, 0, 1])),
    v=st.just(4),
    auth=st.booleans(),
    join=st.booleans(),
    jc=digests,
    kc=st.booleans(),
    pid=st.sampled_from([None, "a" * 32]),
    key=st.sampled_from([None, "k" * 22]),
    pass_=st.sampled_from([None, "p" * 22]),
)
prints = st.sampled_from([None, PRINTS, ("", ""), ("sha-256 \ud800", "x")])


def ends(actions: list[Any]) -> list[Any]:
    assert all(isinstance(a, (Say, Pass, Refuse, Wait)) for a in actions)
    return [a for a in actions if isinstance(a, (Pass, Refuse))]


@FEW
@given(
    ids,
    prints,
    hellos,
    st.booleans(),
    st.lists(st.one_of(words, st.sampled_from(["tick", "allow", "deny", "closed"])), max_size=25),
)
def test_a_stranger_at_the_creator(
    id: str, fp: tuple[str, str] | None, hello: Hello, older: bool, steps: list[Any]
) -> None:
    """PROTOCOL section 4, gate transcript: "then the key; else the person is asked": with asking on, whatever
    a stranger says, it passes only when a person allowed it; it is admitted or refused once; the lobby holds
    it exactly while it waits.
    """
    keeper = Gatekeeper(GateSettings(api=True, older=older))
    gate = creator(keeper, id=id, prints=lambda: fp)
    gate.hello(Hello(v=4))
    now, allowed, over = 0.0, False, ends(gate.greeted(hello, 0.0))
    for step in steps:
        if step == "closed":
            gate.closed()
            break
        if step in ("allow", "deny"):
            for request in keeper.lobby:
                keeper.decide(request.number, allow=step == "allow")
            allowed |= bool(keeper.lobby) and step == "allow"
            over += ends(gate.tick(now))
        elif step == "tick":
            now += 1.0
            over += ends(gate.tick(now))
        else:
            over += ends(gate.message(step, now))
        assert len(over) <= 1
        assert not over or keeper.lobby == ()
        if over and isinstance(over[0], Pass):
            assert allowed
    gate.closed()
    assert keeper.lobby == ()


@FEW
@given(prints, st.sampled_from(["", "key", "pass", "both"]), hellos, st.lists(words, max_size=25))
def test_a_liar_before_a_device(
    fp: tuple[str, str] | None, holds: str, hello: Hello, steps: list[Message]
) -> None:
    """PROTOCOL section 4, device: a host that proves nothing gets a device that holds something in only when
    its person confirms; nothing of it is kept before; and what it says makes nothing raise.
    """
    held = Credentials(
        key="k" * 22 if holds in ("key", "both") else None,
        pass_="p" * 22 if holds in ("pass", "both") else None,
    )
    newcomer = Newcomer(held)
    gate = joiner(newcomer, prints=lambda: fp)
    gate.hello(Hello(v=4))
    over = ends(gate.greeted(hello, 0.0))
    proofs = 0
    for n, step in enumerate(steps):
        actions = gate.message(step, n / 2) + gate.tick(n / 2)
        proofs += sum(isinstance(a, Say) for a in actions)
        over += ends(actions)
    assert proofs <= 1
    assert len(over) <= 1
    if any(isinstance(end, Pass) for end in over):
        assert not holds
        assert newcomer.trust == "first"
    elif newcomer.waiting != "confirm":
        assert newcomer.mesh_key is None
        assert newcomer.credentials == held
    if newcomer.waiting == "confirm":
        assert holds
        assert newcomer.mesh_key is None
        newcomer.confirm(same=True)
        assert gate.tick(99.0) == [Pass()]


@FEW
@given(prints, st.booleans(), st.lists(st.one_of(words, st.just("tick")), max_size=20))
def test_a_stranger_on_a_link_between_devices(
    fp: tuple[str, str] | None, dialed: bool, steps: list[Any]
) -> None:
    """PROTOCOL section 4, mesh: without ``mk`` no words pass a link, and one proof goes out at most."""
    newcomer = Newcomer()
    newcomer.admitted(pass_=None, mesh_key="m" * 43, trust="first")
    gate = peer(newcomer, "a", "b", dialed=dialed, prints=lambda: fp)
    actions = gate.greeted(Hello(v=4), 0.0)
    for n, step in enumerate(steps):
        actions += gate.tick(n) if step == "tick" else gate.message(step, n)
    assert not any(isinstance(a, Pass) for a in actions)
    assert sum(isinstance(a, Say) for a in actions) <= 1
    assert len(ends(actions)) <= 1


@FEW
@given(
    st.booleans(),
    st.sampled_from(["", "key", "pass"]),
    st.lists(st.sampled_from(["creator", "device", "tick", "known", "allow"]), max_size=60),
)
def test_two_honest_ends_in_any_order(ask: bool, holds: str, order: list[str]) -> None:
    """PROTOCOL section 4, six digits: "shown … on both ends": whatever arrives first and whenever the
    certificates become known, two honest ends agree: both in, or both with the same digits while a person is
    asked.
    """
    keeper = Gatekeeper(GateSettings(ask=False))
    newcomer = invited(keeper) if holds else Newcomer()
    if holds == "pass":
        pair(keeper, newcomer).creator.gate.closed()
        newcomer = Newcomer(Credentials(pass_=newcomer.credentials.pass_))
    keeper.settings = GateSettings(ask=ask)
    known: list[tuple[str, str]] = []
    link = Pair(
        creator(keeper, prints=lambda: known[0] if known else None),
        joiner(newcomer, prints=lambda: known[0][::-1] if known else None),
    )
    for end in (link.creator, link.device):
        end.say(end.gate.hello(end.own))
    now = 0.0
    for step in [*order, "known"]:
        if step in ("creator", "device"):
            getattr(link, step).take(now)
        elif step == "tick":
            now = min(now + 0.4, 4.9)
            link.creator.tick(now)
            link.device.tick(now)
        elif step == "known":
            known.append(PRINTS)
        else:
            for request in keeper.lobby:
                keeper.decide(request.number, allow=True)
    link.now = now
    link.run()
    link.at(4.9)
    link.at(4.95)
    asked = ask and not holds
    if asked and not link.creator.passes:
        (request,) = keeper.lobby
        assert newcomer.waiting == "lobby"
        assert newcomer.digits == request.digits != ""
        keeper.decide(request.number, allow=True)
        link.at(5.0)
    assert [type(end) for end in link.creator.passes + link.device.passes] == [Pass, Pass]
    assert newcomer.trust == ("proved" if holds else "first")
    assert newcomer.mesh_key == keeper.mesh_key
    assert link.creator.kinds.count("admit") == 1
    assert link.device.kinds.count("auth-proof") == 1


@settings(deadline=None, max_examples=40)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["knock", "knock", "allow", "deny", "leave", "tick", "revoke", "renew"]),
            st.integers(0, 11),
            st.booleans(),
        ),
        max_size=120,
    )
)
def test_the_lobby_over_any_history(steps: list[tuple[str, int, bool]]) -> None:
    """PROTOCOL section 3, before admission: "8 requests wait in the lobby"; each is one living link, an id
    waits once, and what the keeper keeps is bounded.
    """
    keeper = Gatekeeper()
    links: list[Pair] = []
    for n, (what, which, key) in enumerate(steps):
        if what == "knock":
            id = f"device-{which}"
            links.append(pair(keeper, invited(keeper) if key else Newcomer(), id=id, name=f"n{which}"))
        elif what in ("allow", "deny") and keeper.lobby:
            keeper.decide(keeper.lobby[which % len(keeper.lobby)].number, allow=what == "allow")
        elif what == "leave" and links:
            links.pop(which % len(links)).creator.gate.closed()
        elif what == "revoke" and keeper.secrets.passes:
            keeper.revoke(keeper.secrets.passes[which % len(keeper.secrets.passes)][0])
        elif what == "renew":
            keeper.renew_key()
        for link in links:
            link.at(float(n))
        links = [link for link in links if not link.creator.refusals]
        waiting = [link for link in links if not link.creator.is_over]
        assert len(keeper.lobby) == len(waiting) <= MAX_LOBBY
        assert len({request.id for request in keeper.lobby}) == len(keeper.lobby)
        assert len({request.name for request in keeper.lobby}) == len(keeper.lobby)
        assert len(keeper.secrets.passes) <= MAX_PASSES
        assert len(keeper._denied) <= MAX_DENIED
        assert keeper._here.total() == sum(bool(link.creator.passes) for link in links)
    for link in links:
        link.creator.gate.closed()
    assert keeper.lobby == ()
    assert not keeper._here


@FEW
@given(ids, ids, prints, prints)
def test_no_two_links_share_a_proof(
    a: str, b: str, one: tuple[str, str] | None, other: tuple[str, str] | None
) -> None:
    """PROTOCOL section 4, binding: a proof that was overheard is worth nothing over another link."""
    keeper = Gatekeeper()
    heard = joiner(invited(keeper), id=a, prints=lambda: one)
    hello = heard.hello(Hello(v=4))
    first = creator(keeper, id=a, prints=lambda: one)
    (challenge,) = first.greeted(hello, 0.0)
    assert isinstance(challenge, Say)
    said = [x.message for x in heard.message(challenge.message, 0.0) + heard.tick(5.0) if isinstance(x, Say)]
    again = keeper.door(Doorway(Side.CREATOR, CREATOR, b, False, lambda: other))
    again.greeted(hello, 0.0)
    for message in said:
        assert not any(isinstance(x, Pass) for x in again.message(message, 5.0) + again.tick(5.0))
