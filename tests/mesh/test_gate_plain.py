"""A device and a host of the public project at our gates: they send the messages of PROTOCOL section 4 and
nothing else, reckon by themselves, and take three seconds for each.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
from typing import Any

import pytest

from pooled_nb.errors import RoomRefused
from pooled_nb.mesh.newcomer import Credentials
from tests.mesh.rawpeer import RawPeer
from tests.mesh.recorder import CODE, ROOM, Recorder, device, leave
from tests.sim.clock import simulate
from tests.sim.network import SimNetwork

SLOW = 3.0
JN, HN, MK = "j" * 22, "h" * 22, "m" * 43


def h(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def proof(peer: RawPeer, secret: str, role: str, cred: str, *, jn: str = JN, hn: str = HN) -> str:
    """``kp``, ``pp`` or ``hp`` over this link."""
    link = peer.connection
    pair = link.fingerprints()
    assert pair is not None
    ids = sorted([link.own, link.remote], key=lambda id: id == ROOM)
    lines = [
        "pooled-auth-v1", f"role={role}", f"cred={cred}", f"fp={','.join(sorted(set(pair)))}",
        f"ids={','.join(ids)}", f"jn={jn}", f"hn={hn}",
    ]  # fmt: skip
    return hmac.new(secret.encode(), "\n".join(lines).encode(), hashlib.sha256).hexdigest()


async def slow(peer: RawPeer, t: str, **fields: Any) -> None:
    await asyncio.sleep(SLOW)
    peer.say(t, **fields)


async def host() -> tuple[SimNetwork, Recorder]:
    net = SimNetwork()
    made = device(net, "host", ask=True)
    await made.mesh.create(CODE, ["local"])
    return net, made


async def knocks(
    net: SimNetwork, *, key: str | None = None, pass_: str | None = None, **more: Any
) -> dict[str, Any]:
    """A plain device under the id "tab" comes in, or waits; what it was told last, with its peer."""
    peer = await RawPeer.dial(net, ROOM, id="tab")
    ps = h(pass_) if pass_ else None
    holds = {"kc": 1} if key else {}
    if ps:
        holds["pid"] = h(f"pooled-pass-id-v1\n{ps}")[:32]  # type: ignore[assignment]
    jc = h(f"pooled-commit-v1\n{JN}")
    await slow(peer, "hello", name="tab", meta={"ua": "Mac"}, v=4, join=1, auth=1, jc=jc, **holds, **more)
    await asyncio.sleep(0.5)
    (challenge,) = peer.told_of("auth")
    assert challenge["v"] == 1
    proofs = {
        name: proof(peer, secret, "join", cred, hn=challenge["hn"])
        for name, secret, cred in (("kp", key, "key"), ("pp", ps, "pass"))
        if secret
    }
    await slow(peer, "auth-proof", jn=JN, **proofs)
    await asyncio.sleep(0.5)
    return {"peer": peer, "hn": challenge["hn"], "ps": ps}


def test_a_plain_device_at_our_gate() -> None:
    """PROTOCOL section 4, gate transcript: in with the key and a pass for it, and again under the same id,
    while its old link still looks open, with that pass (section 3, dead links).
    """

    async def scenario() -> None:
        net, made = await host()
        key = made.gates.keeper.key
        told = await knocks(net, key=key)
        (admit,) = told["peer"].told_of("admit")
        assert admit["via"] == "key"
        assert admit["hp"] == proof(told["peer"], key, "host", "key", hn=told["hn"])
        assert admit["mk"] == made.gates.keeper.mesh_key
        roster = told["peer"].told_of("roster")[-1]["members"]
        assert [(line["name"], line.get("a")) for line in roster] == [("host", 1), ("tab", 1)]
        seat = made.mesh.seat("tab")

        back = await knocks(net, key=key, pass_=admit["pass"], back=1)
        (again,) = back["peer"].told_of("admit")
        assert (again["via"], "pass" in again) == ("pass", False)
        assert again["hp"] == proof(back["peer"], back["ps"], "host", "pass", hn=back["hn"])
        assert made.mesh.seat("tab") == seat != ""
        assert made.gates.keeper.lobby == ()
        assert told["peer"].connection.state == "closed"
        assert made.names == ["host", "tab"]
        await leave(made)

    simulate(scenario)


@pytest.mark.parametrize("auth", [True, False])
def test_a_plain_device_in_our_lobby(auth: bool) -> None:
    """PROTOCOL section 4, gate transcript: "else the person is asked: `lobby {}`, later `admit`"; the digits
    are those that the device reckons; "a device without `auth` goes to the lobby without digits".
    """

    async def scenario() -> None:
        net, made = await host()
        if auth:
            told = await knocks(net)
            peer = told["peer"]
            binding = ",".join(sorted(peer.connection.fingerprints()))
            number = int(h(f"pooled-sas-v1\n{binding}\n{JN}\n{told['hn']}")[:8], 16) % 1_000_000
            digits = f"{number:06d}"
            digits = f"{digits[:3]} {digits[3:]}"
        else:
            peer, digits = await RawPeer.dial(net, ROOM, id="tab"), ""
            await slow(peer, "hello", name="tab", meta={}, v=4, join=1)
            await asyncio.sleep(0.5)
        assert peer.told_of("lobby") == [{"t": "lobby"}]
        (request,) = made.gates.keeper.lobby
        assert request.digits == digits
        made.gates.keeper.decide(request.number, allow=True)
        made.mesh.decided()
        await asyncio.sleep(0.5)
        (admit,) = peer.told_of("admit")
        assert set(admit) == {"t", "pass", "mk"}
        members = peer.told_of("roster")[-1]["members"]
        assert ("a" in members[-1]) == auth
        await leave(made)

    simulate(scenario)


@pytest.mark.parametrize("holds", ["key", "pass", "nothing"])
@pytest.mark.parametrize("lobby", [False, True])
def test_our_device_at_a_plain_host(holds: str, lobby: bool) -> None:
    """PROTOCOL section 4, device: what it says is all that the host needs, whatever it holds, and it waits
    for a host that takes its time.
    """

    async def scenario() -> None:
        net = SimNetwork()
        links = await RawPeer.listen(net, ROOM)
        held = {"key": Credentials("k" * 22), "pass": Credentials(pass_="p" * 22), "nothing": Credentials()}
        joins = device(net, "laptop", credentials=held[holds])
        task = asyncio.create_task(joins.mesh.join(CODE, ["local"]))
        await asyncio.sleep(0.5)
        (peer,) = links
        await slow(peer, "hello", name="host", meta={}, v=4, gate=1, ask=1, auth=1)
        await asyncio.sleep(0.5)
        (hello,) = peer.told_of("hello")
        assert [flag for flag in ("join", "auth", "kc", "pid") if hello.get(flag)] == [
            "join", "auth", *{"key": ["kc"], "pass": ["pid"], "nothing": []}[holds],
        ]  # fmt: skip
        await slow(peer, "auth", v=1, hn=HN)
        await asyncio.sleep(0.5)
        (said,) = peer.told_of("auth-proof")
        assert hello["jc"] == h(f"pooled-commit-v1\n{said['jn']}")
        admit: dict[str, Any] = {"mk": MK, "pass": "q" * 22}
        if holds != "nothing":
            secret = "k" * 22 if holds == "key" else h("p" * 22)
            name = "kp" if holds == "key" else "pp"
            assert said[name] == proof(peer, secret, "join", holds, jn=said["jn"])
            admit |= {"via": holds, "hp": proof(peer, secret, "host", holds, jn=said["jn"])}
        else:
            assert set(said) == {"t", "jn"}
        if lobby:
            await slow(peer, "lobby")
        await slow(peer, "admit", **admit)
        await slow(
            peer,
            "roster",
            members=[{"id": ROOM, "name": "host", "a": 1}, {"id": joins.mesh.id, "name": "laptop"}],
        )
        await task
        assert joins.gates.newcomer.trust == ("first" if holds == "nothing" else "proved")
        assert joins.gates.newcomer.mesh_key == MK
        assert joins.names == ["host", "laptop"]
        await leave(joins)

    simulate(scenario)


@pytest.mark.parametrize("holds", [True, False])
def test_our_device_at_a_host_without_proofs(holds: bool) -> None:
    """PROTOCOL section 4, device: without `auth` it says no secret; what holds nothing comes in on first use,
    what holds a link not without a person's word.
    """

    async def scenario() -> None:
        net = SimNetwork()
        links = await RawPeer.listen(net, ROOM)
        joins = device(net, "laptop", credentials=Credentials("k" * 22 if holds else None))
        task = asyncio.create_task(joins.mesh.join(CODE, ["local"]))
        await asyncio.sleep(0.5)
        (peer,) = links
        await slow(peer, "hello", name="host", meta={}, v=4, gate=1)
        await slow(peer, "admit", mk=MK)
        if holds:
            with pytest.raises(RoomRefused, match="without recognising its invite link"):
                await task
        else:
            await slow(
                peer,
                "roster",
                members=[{"id": ROOM, "name": "host"}, {"id": joins.mesh.id, "name": "laptop"}],
            )
            await task
            assert joins.gates.newcomer.trust == "first"
            await leave(joins)
        assert "k" * 22 not in str(peer.told)
        assert not peer.told_of("auth-proof")

    simulate(scenario)
