"""PROTOCOL section 2, ICE: which ways to this device libwebrtc offers, and whom it asks; what may wait."""

from __future__ import annotations

import asyncio
import contextlib
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pooled_nb.errors import LinkFailed
from pooled_nb.mesh import descriptions, ice, relay, stacks
from pooled_nb.mesh.ice import IcePolicy, TurnServer
from pooled_nb.mesh.stacks import wrtcchannel, wrtcgathering
from pooled_nb.mesh.stacks.wrtcchannel import LOOK_EVERY, MAX_WAITING, MAX_WAITING_BYTES, Flood
from pooled_nb.mesh.stacks.wrtcgathering import Gathered, offered
from tests.front.udpservers import answering, binding
from tests.front.udpservers import relay as turn_server
from tests.mesh.rtctools import Pair, join, nothing_left, until

needs_wrtc = pytest.mark.skipif("wrtc" not in stacks.available(), reason="the package wrtc is not installed")
LAN = "candidate:1 1 udp 2122194687 192.0.2.2 43283 typ host generation 0 network-id 1"
LOOP = "candidate:2 1 udp 2122063615 127.0.0.1 57523 typ host generation 0 network-id 3"
LOOP6 = "candidate:3 1 udp 2122136831 ::1 42769 typ host generation 0 network-id 4"
TCP = "candidate:4 1 tcp 1518214911 192.0.2.2 9 typ host tcptype active generation 0 network-id 1"
SEEN = "candidate:5 1 udp 1686052607 203.0.113.7 40000 typ srflx raddr 192.0.2.2 rport 43283 generation 0"
RELAYED = "candidate:6 1 udp 41885439 198.51.100.1 50000 typ relay raddr 192.0.2.2 rport 43283 generation 0"


def at(port: int, password: str = "sesame", transport: str = "udp") -> TurnServer:
    return TurnServer(
        url=f"turn:127.0.0.1:{port}?transport={transport}", username="alice", credential=password
    )


async def gathered(policy: IcePolicy) -> tuple[Any, list[tuple[str, str]]]:
    """The peer, closed, and (type, address) of what it offers."""
    peer: Any = stacks.get("wrtc").peer(policy, "far")
    peer.channel("x")
    sdp = descriptions.outgoing(await peer.offer(), relay_only=policy.relay_only and not policy.local_only)
    if policy.relay_only and not policy.local_only:  # no check of a path leaves from an address of its own
        assert "typ host" not in peer.pc.local_description.sdp
    await peer.close()
    lines = [line[2:] for line in sdp.splitlines() if line.startswith("a=candidate:")]
    assert all("raddr 0.0.0.0 rport 9" in line for line in lines if " typ relay" in line)
    return peer, sorted({(descriptions.kind(line), descriptions.address(line)) for line in lines})


def test_what_is_offered():
    """DESIGN section 4: in a room on one machine the loopback and nothing else; elsewhere all but that."""
    everything = [LAN, LOOP, LOOP6, TCP, SEEN, RELAYED]
    assert offered(IcePolicy.local(), everything) == {LOOP}
    assert offered(IcePolicy.local(), [LAN, LOOP6]) == {LOOP6}
    assert offered(IcePolicy.local(), [LAN, TCP]) == {LAN}
    assert offered(IcePolicy(), everything) == {LAN, SEEN, RELAYED}
    assert offered(IcePolicy(), [LOOP, LOOP6, TCP]) == {LOOP, LOOP6}


def test_how_long_servers_are_waited_for():
    """PROTOCOL section 2: an address that leads nowhere, and a second relay, hold nothing up."""
    both = IcePolicy(stun=("stun:x",), relays=(at(1),))
    found = Gathered(both, 1)
    assert found.wait(0.0) is None
    found.came(SEEN, "stun:x", 5.0)
    assert found.wait(5.0) is None  # the relay may still come
    found.came(RELAYED, "turn:x", 5.2)
    assert found.wait(5.2) == pytest.approx(0.3)
    assert found.wait(6.0) == 0.0
    assert found.urls == {"stun:x", "turn:x"}
    only = Gathered(IcePolicy(stun=("stun:x",), relays=(at(1),), relay_only=True), 1)
    only.came(RELAYED, "turn:x", 1.0)
    assert only.wait(1.0) == 0.0
    assert Gathered(IcePolicy(), 0).wait(0.0) is None  # until libwebrtc says that it is done


@given(
    looks=st.lists(st.integers(0, 300_000), max_size=5),
    rest=st.integers(0, LOOK_EVERY - 1),
    waiting=st.integers(0, MAX_WAITING + 1_000),
)
def test_what_may_wait(looks: list[int], rest: int, waiting: int):
    """Memory is bounded: who brings more than the loop can let wait is told so, once."""
    over: list[str] = []
    flood = Flood(lambda: waiting, lambda: over.append("over"))
    unknown = Flood(None, lambda: over.append("unknown"))
    for size in [mean for mean in looks for _ in range(LOOK_EVERY)] + [1_000_000] * rest:
        flood.came(size)
        unknown.came(size)
    much = any(waiting * mean > MAX_WAITING_BYTES for mean in looks)
    assert over == (["over"] if looks and (waiting > MAX_WAITING or much) else [])


@needs_wrtc
async def test_what_is_reached_for_inside_the_package():
    """Its queue has no public door: a version without these parts is noticed here, not by who is flooded."""
    from webrtc.utils.loops import LoopState

    waiting = wrtcchannel.backlog()
    assert waiting is not None
    assert waiting() == 0
    state = LoopState.of(asyncio.get_running_loop())
    assert LoopState.MAX_DEFERRALS > state.MAX_DEFERRALS == wrtcchannel.TURNS
    assert not state._defers(wrtcchannel.TURNS, resumed=True)


@needs_wrtc
async def test_who_floods_is_gone(monkeypatch: pytest.MonkeyPatch):
    """What comes faster than the loop takes it in ends that connection, in words, and no other."""
    monkeypatch.setattr("pooled_nb.mesh.stacks.wrtcchannel.MAX_WAITING", 300)
    async with nothing_left():
        near, far = Pair("wrtc", "wrtc")()
        await join(near, far)
        far.wire.on_message = lambda data: None
        while far.state == "connected":
            for _ in range(2_000):
                with contextlib.suppress(LinkFailed):
                    near.wire.send(b"x")
            await asyncio.sleep(0.01)
        assert far.failure == "it sends faster than this device can take in"
        await asyncio.gather(near.close(), far.close())


@needs_wrtc
async def test_a_room_on_one_machine_asks_nobody():
    """PROTOCOL section 2: none for a room on one machine; it offers the loopback alone."""
    asked: list[object] = []
    async with nothing_left(), answering(lambda m, a: asked.append(m)) as port:
        policy = IcePolicy(local_only=True, stun=(f"stun:127.0.0.1:{port}",), relays=(at(port),))
        _, found = await gathered(policy)
    assert asked == []
    assert found == [("host", "127.0.0.1")]


@needs_wrtc
async def test_a_relay_and_a_stun_server():
    """Both are asked, their answers offered; a relay's candidate tells no address of this device."""
    async with nothing_left(), answering(turn_server("alice", "sesame")) as port, answering(binding(7)) as o:
        peer, found = await gathered(IcePolicy(stun=(f"stun:127.0.0.1:{o}",), relays=(at(port),)))
    assert ("relay", "127.0.0.1") in found
    assert "srflx" in {kind for kind, _ in found}
    assert peer.trouble == ""


@needs_wrtc
async def test_relay_only():
    """PROTOCOL section 2: relay-only is a setting; nobody but the relay is asked, nothing else offered."""
    asked: list[object] = []
    async with (
        nothing_left(),
        answering(turn_server("alice", "sesame")) as port,
        answering(lambda m, a: asked.append(m)) as other,
    ):
        policy = IcePolicy(stun=(f"stun:127.0.0.1:{other}",), relays=(at(port),), relay_only=True)
        _, found = await gathered(policy)
        assert found == [("relay", "127.0.0.1")]
        peer, found = await gathered(IcePolicy(relay_only=True))
        assert found == []
        assert peer.trouble == "only a relay may be used, and there is none"
    assert asked == []


@needs_wrtc
async def test_what_is_wrong_with_a_relay():
    """In words, and without a secret."""
    async with nothing_left(), answering(turn_server("alice", "sesame")) as port:
        peer, _ = await gathered(IcePolicy(relays=(at(port, "hunter2"),)))
        assert peer.trouble == f"the relay 127.0.0.1:{port}: it refuses this user or password"
        nameless = TurnServer(url=f"turn:127.0.0.1:{port}?transport=udp")
        peer, _ = await gathered(IcePolicy(relays=(nameless,)))
        assert peer.trouble.endswith("without a user and a password the transport wrtc asks no relay")


@needs_wrtc
async def test_a_server_in_the_open_names_no_place_of_this_network():
    """What a deployment says must not send this device's packets round its own network."""
    asked: list[object] = []
    async with nothing_left(), answering(lambda m, a: asked.append(m)) as port:
        named = TurnServer(
            url=f"turn:127.0.0.1:{port}?transport=udp", username="u", credential="p", named_by="198.41.0.4"
        )
        peer, _ = await gathered(IcePolicy(relays=(named,)))
    assert peer.trouble.endswith(relay.INSIDE)
    assert asked == []


@needs_wrtc
async def test_a_black_hole_costs_little(monkeypatch: pytest.MonkeyPatch):
    """DESIGN section 4: a server that does not answer holds up the first offer for a bounded time, the next
    ones hardly.
    """
    monkeypatch.setattr("pooled_nb.mesh.stacks.over_wrtc.GATHER_S", 0.4)
    monkeypatch.setattr(wrtcgathering, "HUSHED_S", 0.05)
    loop = asyncio.get_running_loop()
    limits: list[float | None] = []
    timeout = asyncio.timeout
    monkeypatch.setattr(
        wrtcgathering.asyncio, "timeout", lambda seconds: (limits.append(seconds), timeout(seconds))[1]
    )
    async with nothing_left(), answering(lambda m, a: None) as port:
        policy = IcePolicy(stun=(f"stun:127.0.0.1:{port}",), relays=(at(port),))
        peer, found = await gathered(policy)
        assert {kind for kind, _ in found} <= {"host"}
        assert peer.trouble == f"the relay 127.0.0.1:{port} does not answer"
        assert set(policy.silent) == {f"stun:127.0.0.1:{port}", policy.relays[0].url}
        assert all(until > loop.time() for until in policy.silent.values())
        await gathered(policy)
    assert [limit for limit in limits if limit] == [0.4, 0.05]


@needs_wrtc
async def test_a_name_that_nobody_resolves_costs_little(monkeypatch: pytest.MonkeyPatch):
    """DESIGN section 4: a relay whose name is asked for in vain holds nothing up, and others are asked."""
    monkeypatch.setattr("pooled_nb.mesh.stacks.over_wrtc.GATHER_S", 0.6)
    located = relay.located

    async def black_hole(server: TurnServer) -> tuple[str, int, str]:
        if "nowhere" in server.place:
            await asyncio.Event().wait()
        return await located(server)

    monkeypatch.setattr(relay, "located", black_hole)
    lost = TurnServer(url="turn:nowhere.example:3478?transport=udp", username="u", credential="p")
    async with nothing_left(), answering(turn_server("alice", "sesame")) as port:
        async with asyncio.timeout(20):  # it took as long as the resolver did, which here is for ever
            peer, found = await gathered(IcePolicy(relays=(lost, at(port))))
            assert ("relay", "127.0.0.1") in found
            assert peer.trouble == ""
            policy = IcePolicy(relays=(lost,))
            peer, _ = await gathered(policy)
        assert peer.trouble == "the relay nowhere.example:3478: its name is not found"
        assert set(policy.silent) == {lost.url}


def test_what_comes_late_is_no_trouble():
    """PROTOCOL section 2: once one relay let this device in, another that refuses is nobody's business."""
    pc = SimpleNamespace(on=lambda event, call: None)
    gathering = wrtcgathering.WrtcGathering(None, pc, IcePolicy(relays=(at(1), at(2))), limit=1.0)
    gathering._asked = {"a": at(1), "b": at(2)}
    refuses = SimpleNamespace(url="b", error_code=486)
    gathering._gathered.came(RELAYED, "a", 0.0)
    gathering._failed(refuses)
    assert gathering.trouble == ""
    gathering._gathered.is_relayed = False
    gathering._failed(refuses)
    assert "quota" in gathering.trouble


@needs_wrtc
async def test_a_name_is_asked_for_by_mdns(monkeypatch: pytest.MonkeyPatch):
    """PROTOCOL section 2: browsers tell ``….local`` names; what answers to one is tried."""

    class Answers:
        async def resolve(self, name: str) -> str | None:
            return "127.0.0.1" if name == "here.local" else None

    async def protocol(asking: object) -> Answers:
        return Answers()

    monkeypatch.setattr("aioice.ice.get_or_create_mdns_protocol", protocol)
    async with nothing_left():
        near, far = Pair("wrtc", "wrtc")()
        answer = await far.answer(descriptions.take(await near.offer()))
        for name, told in (("nowhere.local", 0), ("here.local", 1)):
            hidden = answer.replace(" 127.0.0.1 ", f" {name} ")
            if not told:
                await near.accept(descriptions.take(hidden))
                await until(lambda: near._names == 1)
            else:
                [line] = [x[2:] for x in hidden.splitlines() if x.startswith("a=candidate:")]
                await near._peer.add(line)
            assert len(near._peer.told) == told
        await until(lambda: near.wire.is_open and far.wire.is_open)
        await asyncio.gather(near.close(), far.close())


@needs_wrtc
def test_servers_are_always_explicit():
    """DESIGN section 4: never the library's default servers."""
    import webrtc

    for policy in (IcePolicy.local(), IcePolicy(), IcePolicy(stun=ice.PUBLIC_STUN, relay_only=True)):
        assert wrtcgathering.configuration(webrtc, policy, {}).ice_servers == []
