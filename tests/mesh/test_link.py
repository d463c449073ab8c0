"""One link at work, its other end played by hand (PROTOCOL sections 2, 3 and 5)."""

from __future__ import annotations

import asyncio

from pooled_nb.mesh.binarypack import pack
from pooled_nb.mesh.linkbook import MAX_WAITING
from pooled_nb.mesh.messages import chat
from tests.mesh.linktools import frame, host_and_peer, id_of
from tests.mesh.rawpeer import RawPeer
from tests.mesh.recorder import CODE, ROOM, device, leave
from tests.sim.clock import simulate
from tests.sim.network import SimEndpoint, SimNetwork


def test_what_a_device_is_told_in_order() -> None:
    """PROTOCOL section 3, order after admission: hello at open, admit, roster; ping from `open` on.

    PROTOCOL section 3: the roster says of it what it said itself: "flags true/false or 1", and "largest
    `width` and `cols` it can run".
    """

    async def scenario() -> None:
        host, peer = await host_and_peer(SimNetwork(), admitted=False)
        await asyncio.sleep(2)
        assert [m["t"] for m in peer.told] == ["hello", "ping"]
        hello = peer.told[0]
        assert hello["v"] == 4
        assert hello["name"] == "host"
        assert (hello["gate"], hello["auth"]) == (1, 1)
        assert "ask" not in hello  # this room asks nobody
        peer.say("ping", ts=77)
        nb = {"v": 1, "device": "cuda", "width": 8, "cols": 32, "enc": ["f16"], "lanes": 1, "probe": 1}
        peer.say("hello", name="raw", v=4, meta={"webgpu": True, "contribGB": 2, "phone": 0, "nb": nb})
        await asyncio.sleep(0.1)
        assert [m["t"] for m in peer.told[2:]] == ["pong", "admit", "roster"]
        assert peer.told[2]["ts"] == 77
        assert set(peer.told[3]) == {"t", "pass", "mk"}
        me = peer.told[-1]["members"][1]
        told = me["meta"].pop("nb")
        assert me == {"id": id_of(peer), "name": "raw", "meta": {"webgpu": 1, "contribGB": 2.0}}
        assert {key: told[key] for key in nb if key != "lanes"} == {
            k: v for k, v in nb.items() if k != "lanes"
        }
        await leave(host)
        assert peer.told[-1] == {"t": "bye", "reason": "The room is over.", "closed": 1}

    simulate(scenario)


def test_pings_of_both_ends() -> None:
    """PROTOCOL section 3, ping: `ts` echoed; a peer that answers nothing but sends bytes is alive."""

    async def scenario() -> None:
        host, peer = await host_and_peer(SimNetwork())
        for _ in range(40):
            peer.connection.keepalive.send(b"\0")
            await asyncio.sleep(1)
        assert host.gone == []
        assert len(peer.told_of("ping")) in (16, 17)
        facts = host.mesh.facts(id_of(peer))
        assert facts
        assert facts.rtt_s is None
        assert facts.quiet_s < 1.1
        peer.say("pong", ts=peer.told_of("ping")[-1]["ts"])
        await asyncio.sleep(1)
        assert (facts := host.mesh.facts(id_of(peer)))
        assert facts.rtt_s is not None
        await asyncio.sleep(16)
        assert [name for name, _, _ in host.gone] == ["raw"]
        await leave(host)

    simulate(scenario)


def test_a_refusing_channel_and_a_control_that_breaks() -> None:
    """PROTOCOL section 3, dead links: a control channel that takes nothing is the link's end, not an
    exception.
    """

    async def scenario() -> None:
        host, peer = await host_and_peer(SimNetwork())
        (connection,) = peer.connection.net.connections(ROOM, id_of(peer))
        connection.wire.refuses = True
        assert host.mesh.send_frame(id_of(peer), frame(1))
        connection.control.refuses = True
        assert not host.mesh.send(id_of(peer), chat.Stop())
        await asyncio.sleep(1)
        assert host.away == [("raw", "the connection broke")]
        assert not host.mesh.send_frame(id_of(peer), frame(2))
        await leave(host)

    simulate(scenario)


def test_a_device_that_takes_nothing_is_given_up() -> None:
    """DESIGN section 4: what waits for a device that takes no messages is bounded."""

    async def scenario() -> None:
        host, peer = await host_and_peer(SimNetwork(bandwidth=1e5))
        big, sent = chat.GenStart(mid=1, text="x" * 390_000), 0
        while host.mesh.send(id_of(peer), big):
            sent += 1
        assert 40 <= sent <= 50
        assert host.away == [("raw", "it takes no messages any more")]
        await leave(host)

    simulate(scenario)


def test_peerjs_close_ends_the_link() -> None:
    """PROTOCOL section 2: PeerJS's own `{__peerData: {type: "close"}}` closes."""

    async def scenario() -> None:
        host, peer = await host_and_peer(SimNetwork())
        peer.connection.control.send(pack({"__peerData": {"type": "close"}}))
        await asyncio.sleep(0.5)
        assert host.away == [("raw", "it closed the link")]
        assert peer.connection.state == "closed"
        await leave(host)

    simulate(scenario)


def test_who_may_not_come_in() -> None:
    """PROTOCOL section 3, before admission: silent links are closed, and few may wait; stripes are not taken
    yet.
    """

    async def scenario() -> None:
        net = SimNetwork()
        host, quiet = await host_and_peer(net, admitted=False)
        stripe = await RawPeer.dial(net, ROOM, label="stripe")
        endpoint = await net.register("greedy", ["local"])
        many = [await RawPeer.over(endpoint, ROOM) for _ in range(6)]
        await asyncio.sleep(0.1)
        assert stripe.connection.state == "closed"
        assert [p.connection.state for p in many] == ["connected"] * 4 + ["closed"] * 2
        await asyncio.sleep(17)
        assert quiet.connection.state == many[0].connection.state == "closed"
        assert host.names == ["host"]
        assert host.diary == ["roster"]
        await leave(host)

    simulate(scenario)


def test_a_path_that_opened_is_tried_for_40_seconds() -> None:
    """PROTOCOL section 2, ICE: "at 40 s while paths are still being tried"; so where handshakes go on."""

    async def scenario() -> None:
        net = SimNetwork()
        host, _ = await host_and_peer(net)
        net.refuse_open.add("slow")
        net.failed_s = 1_000.0
        endpoint = await net.register("slow", ["local"])
        await endpoint.dial(ROOM)
        (end,) = [c for c in net._connections if c.own == ROOM and c.remote == "slow"]
        end.become("connected")  # and no channel opens
        await asyncio.sleep(30)
        assert end.state == "connected"
        await asyncio.sleep(11)
        assert end.state == "closed"
        await leave(host)

    simulate(scenario)


def test_silent_links_lock_nobody_out() -> None:
    """PROTOCOL section 3, before admission: where 64 links wait that have not even said `hello`, the oldest
    gives way to a new one.
    """

    async def scenario() -> None:
        net = SimNetwork()
        host = device(net, "host", ask=True)
        await host.mesh.create(CODE, ["local"])
        knocks = await RawPeer.dial(net, ROOM, id="knocks")
        knocks.say("hello", name="knocks", v=4, join=1)
        await asyncio.sleep(0.1)
        silent = [await RawPeer.dial(net, ROOM) for _ in range(MAX_WAITING)]
        await asyncio.sleep(0.1)
        states = [peer.connection.state for peer in silent]
        assert states == ["closed"] + ["connected"] * (MAX_WAITING - 1)
        late = await RawPeer.dial(net, ROOM, id="late")
        late.say("hello", name="late", v=4, join=1)
        await asyncio.sleep(0.1)
        assert [request.id for request in host.gates.keeper.lobby] == ["knocks", "late"]
        assert silent[1].connection.state == "closed"
        assert knocks.connection.state == "connected"
        await leave(host)

    simulate(scenario)


def test_a_device_takes_links_of_its_roster_only() -> None:
    """PROTOCOL section 4, mesh: the other end must be in the roster; nobody but the creator comes under its
    id.
    """

    async def scenario() -> None:
        net = SimNetwork()
        host, one = device(net, "host"), device(net, "one")
        await host.mesh.create(CODE, ["local"])
        await one.mesh.join(CODE, ["local"])
        stranger = await RawPeer.dial(net, one.mesh.id)
        stranger.say("hello", name="x", v=4)
        stranger.say("roster", members=[{"id": ROOM, "name": "evil"}, {"id": one.mesh.id, "name": "evil"}])
        stranger.say("ai-ask", text="psst")
        stranger.say("bye", reason="out", closed=1)
        await asyncio.sleep(9)
        assert one.messages == []
        assert one.names == ["host", "one"]
        assert one.closed == []
        await asyncio.sleep(3)
        assert stranger.connection.state == "closed"
        assert one.gone == []
        thief = await RawPeer.over(SimEndpoint(net, ROOM, "local", "its own"), one.mesh.id)
        await asyncio.sleep(0.1)
        assert thief.connection.state == "closed"
        assert thief.told == []
        await leave(one, host)

    simulate(scenario)
