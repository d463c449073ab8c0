"""Stripes: connections that carry slices alone, proved by the mesh key (PROTOCOL sections 2, 4 and 5)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from pooled_nb.errors import LinkFailed
from pooled_nb.mesh import proofs
from pooled_nb.mesh.fingerprints import binding
from pooled_nb.mesh.frame import Encoding, Frame, Kind
from pooled_nb.mesh.gate import Side
from pooled_nb.mesh.gatekeeper import GateSettings
from pooled_nb.mesh.linkwire import HELD_SLICES
from pooled_nb.mesh.messages import chat
from pooled_nb.mesh.wire import encode
from pooled_nb.mesh.wiresettings import MAX_STRIPES
from tests.mesh.rawpeer import RawPeer
from tests.mesh.recorder import CODE, ROOM, Recorder, device, leave, room
from tests.sim.clock import simulate
from tests.sim.network import SimConnection, SimNetwork


def frame(pos: int, size: int = 100) -> Frame:
    return Frame(kind=Kind.HIDDEN_B, pos=pos, n=4, payload=bytes([pos % 251]) * size, enc=Encoding.BF16)


def stripes(net: SimNetwork, one: str, other: str) -> list[SimConnection]:
    """As ``one`` sees them."""
    return [c for c in net.connections(one, other) if c.label == "stripe"]


def count(one: Recorder, other: str) -> int:
    facts = one.mesh.facts(other)
    return -1 if facts is None else facts.stripes


def proof(connection: SimConnection, key: str) -> str:
    """What this end of a connection has to say."""
    own, remote = connection.own, connection.remote
    dialer, acceptor = (own, remote) if connection.dialed else (remote, own)
    bound = binding(*connection.fingerprints() or (None, None))
    assert bound
    role: proofs.MeshRole = "dial" if connection.dialed else "accept"
    return proofs.mesh_proof(key, role, binding=bound, dialer=dialer, acceptor=acceptor)


@pytest.mark.parametrize("between", ["one host", "host one", "one two"])
def test_frames_go_over_a_stripe_both_ways(between: str) -> None:
    """PROTOCOL sections 2, 4 and 5: "A stripe is one more, `label: "stripe"`", proved by `mesh` alone, also
    at the creator; then slices go over it, both ways, and frames keep strict order over link and stripe.
    """

    async def scenario() -> None:
        net = SimNetwork(bandwidth=1e6)
        devices = {d.mesh.name: d for d in await room(net, "host", "one", "two")}
        one, other = (devices[name] for name in between.split())
        await one.mesh.connect(other.mesh.id)
        for a, b in ((one, other), (other, one)):
            a.mesh.chain([b.mesh.id])
        await one.mesh._dialing.stripe(other.mesh.id)
        (near,), (far,) = (
            stripes(net, one.mesh.id, other.mesh.id),
            stripes(net, other.mesh.id, one.mesh.id),
        )
        assert near.dialed
        assert count(one, other.mesh.id) == 1
        await asyncio.sleep(0.1)
        assert count(other, one.mesh.id) == 1
        assert near.control.sent == far.control.sent == 1  # `mesh`, and nothing else
        for i in range(30):
            assert one.mesh.send_frame(other.mesh.id, frame(i, 30_000))
            assert other.mesh.send_frame(one.mesh.id, frame(i, 30_000))
        await asyncio.sleep(5)
        assert [f.pos for _, f in other.frames] == [f.pos for _, f in one.frames] == list(range(30))
        assert near.wire.sent > 50
        assert far.wire.sent > 50
        await leave(*devices.values())

    simulate(scenario)


def test_a_dead_stripe_goes_unnoticed() -> None:
    """PROTOCOL section 5, stripes: nobody waits for them; one that dies takes no frame and no link with it,
    and one whose link ends goes with it.
    """

    async def scenario() -> None:
        net = SimNetwork(bandwidth=1e6)
        host, one = await room(net, "host", "one")
        host.mesh.chain([one.mesh.id])
        for _ in range(3):
            await one.mesh._dialing.stripe(ROOM)
        await asyncio.sleep(0.1)
        assert (count(one, ROOM), count(host, one.mesh.id)) == (3, 3)
        first, second, third = stripes(net, one.mesh.id, ROOM)
        first.become("failed")
        first.other.become("failed")
        second.wire.closed()
        second.other.wire.closed()
        assert (count(one, ROOM), count(host, one.mesh.id)) == (1, 1)
        for i in range(10):
            assert one.mesh.send_frame(ROOM, frame(i, 30_000))
        await asyncio.sleep(2)
        assert [f.pos for _, f in host.frames] == list(range(10))
        assert second.state == "closed"
        # The link's own wire closes: the stripe alone carries on, and nothing falls back (section 5).
        (main,) = [c for c in net.connections(one.mesh.id, ROOM) if c.label != "stripe"]
        main.wire.closed()
        main.other.wire.closed()
        assert one.mesh.send_frame(ROOM, frame(10, 30_000))
        await asyncio.sleep(2)
        assert host.frames[-1][1].pos == 10
        assert (facts := one.mesh.facts(ROOM))
        assert not facts.fallback
        assert host.gone == []
        host.mesh.kick(one.mesh.id, "out")
        await asyncio.sleep(1)
        assert third.state == "closed"
        await leave(one, host)

    simulate(scenario)


async def in_the_room(net: SimNetwork) -> tuple[Recorder, RawPeer, str]:
    """A creator, a device played by hand that it admitted, and the room's mesh key."""
    host = device(net, "host")
    await host.mesh.create(CODE, ["local"])
    peer = await RawPeer.dial(net, ROOM, id="hand")
    host.mesh.chain(["hand"])
    peer.say("hello", name="hand", v=4)
    await asyncio.sleep(0.1)
    (admit,) = peer.told_of("admit")
    return host, peer, admit["mk"]


async def stripe_of(net: SimNetwork, id: str = "hand", to: str = ROOM) -> RawPeer:
    return await RawPeer.dial(net, to, id=id, label="stripe")


@pytest.mark.parametrize("what", ["nothing", "another key", "its own back", "of another stripe", "none"])
def test_a_stripe_that_does_not_prove_itself(what: str) -> None:
    """PROTOCOL section 4, mesh: "a wrong proof closes it", none within 10 s does, too; no slice of it counts,
    and the link hears nothing of it.
    """

    async def scenario() -> None:
        net = SimNetwork()
        host, peer, key = await in_the_room(net)
        replayed = ""
        if what == "of another stripe":
            good = await stripe_of(net)
            replayed = proof(good.connection, key)
            good.say("mesh", v=1, p=replayed)
            await asyncio.sleep(0.1)
            assert count(host, "hand") == 1
        bad = await stripe_of(net)
        await asyncio.sleep(0.1)
        (theirs,) = bad.told_of("mesh")
        for i in range(1, 4):
            bad.connection.wire.send(encode(frame(i), i)[0])
        said: dict[str, Any] | None = {
            "another key": {"p": proof(bad.connection, "k" * 43)},
            "its own back": {"p": theirs["p"]},
            "of another stripe": {"p": replayed},
            "none": {"none": 1},
        }.get(what)
        if said is not None:
            bad.say("mesh", v=1, **said)
            await asyncio.sleep(0.1)
        else:
            await asyncio.sleep(9)
            assert bad.connection.state == "connected"
            await asyncio.sleep(2)
        assert bad.connection.state == "closed"
        assert host.frames == []
        assert host.gone == []
        assert count(host, "hand") == (1 if what == "of another stripe" else 0)
        peer.connection.wire.send(encode(frame(7), 1)[0])
        if what == "of another stripe":  # two channels: the frame is not waited for elsewhere, it is there
            assert stripes(net, ROOM, "hand")
        await asyncio.sleep(0.1)
        assert [f.pos for _, f in host.frames] == [7]
        await leave(host)

    simulate(scenario)


def test_slices_before_the_proof_are_kept() -> None:
    """PROTOCOL section 4, mesh: "its slices count once both are proved (256 kept)", and until then it passes
    nothing but `mesh`, `ping`, `pong`, `leaving`, `bye`; nor does a stripe say more than pings later.
    """

    async def scenario() -> None:
        net = SimNetwork()
        host, peer, key = await in_the_room(net)
        stripe = await stripe_of(net)
        for i in range(300):
            stripe.connection.wire.send(encode(frame(i), i + 1)[0])
        for proved in (False, True):
            stripe.say("ping", ts=7)
            stripe.say("ai-ask", text="over a stripe")
            stripe.say("roster", members=[])
            stripe.say("hello", name="x", v=4)
            await asyncio.sleep(1)
            assert host.messages == []
            assert [m["t"] for m in stripe.told if m["t"] != "ping"] == ["mesh", "pong", "pong"][: 2 + proved]
            if not proved:
                assert host.frames == []
                stripe.say("mesh", v=1, p=proof(stripe.connection, key))
                await asyncio.sleep(0.1)
                assert [f.pos for _, f in host.frames] == list(range(HELD_SLICES))
        assert host.names == ["host", "hand"]
        stripe.say("leaving")
        await asyncio.sleep(0.5)
        assert stripe.connection.state == "closed"
        assert peer.connection.state == "connected"
        assert host.gone == []
        await leave(host)

    simulate(scenario)


def test_a_frame_over_a_stripe_that_is_not_proved_yet_is_waited_for() -> None:
    """PROTOCOL section 5, receiving: the other end may use a stripe as soon as it has our proof, before its
    own was read here; what comes over the link meanwhile makes no gap of that frame.
    """

    async def scenario() -> None:
        net = SimNetwork()
        host, peer, key = await in_the_room(net)
        stripe = await stripe_of(net)
        await asyncio.sleep(0.1)
        stripe.connection.wire.send(encode(frame(1), 1)[0])
        peer.connection.wire.send(encode(frame(2), 2)[0])
        await asyncio.sleep(0.1)
        assert host.frames == []
        stripe.say("mesh", v=1, p=proof(stripe.connection, key))
        await asyncio.sleep(0.1)
        assert [f.pos for _, f in host.frames] == [1, 2]
        stripe.connection.wire.send(encode(frame(2), 2)[0])
        for _ in range(7):  # and those that never prove themselves delay a frame for a second, no longer
            await stripe_of(net)
        await asyncio.sleep(0.1)
        for wire in (peer.connection.wire, stripe.connection.wire):
            wire.send(encode(frame(4), 4)[0])
        await asyncio.sleep(0.5)
        assert [f.pos for _, f in host.frames] == [1, 2]
        await asyncio.sleep(1.2)
        assert len(stripes(net, ROOM, "hand")) == 8
        assert [f.pos for _, f in host.frames] == [1, 2, 4]
        assert host.gone == []
        await leave(host)

    simulate(scenario)


def test_who_gets_no_stripe() -> None:
    """PROTOCOL sections 4 and 5: "A stripe is taken whenever a link of any state to that id exists", and
    "at most 8 are taken per link".
    """

    async def scenario() -> None:
        net = SimNetwork()
        host, _, key = await in_the_room(net)
        stranger = await stripe_of(net, id="nobody")
        await asyncio.sleep(0.1)
        assert stranger.connection.state == "closed"
        assert stranger.told == []
        many = [await stripe_of(net) for _ in range(MAX_STRIPES + 1)]
        await asyncio.sleep(0.1)
        assert [s.connection.state for s in many] == ["connected"] * 8 + ["closed"]
        for one in many[:8]:
            one.say("mesh", v=1, p=proof(one.connection, key))
        await asyncio.sleep(0.1)
        assert count(host, "hand") == 8
        # A link in any state will do, but only the mesh key proves it.
        waits = await RawPeer.dial(net, ROOM, id="waits")
        early = await stripe_of(net, id="waits")
        await asyncio.sleep(0.1)
        assert early.connection.state == "connected"
        early.say("mesh", v=1, p=proof(early.connection, key))
        early.connection.wire.send(encode(frame(3), 1)[0])
        await asyncio.sleep(0.1)
        assert host.mesh.facts("waits") is None
        host.mesh.chain(["waits"])
        waits.say("hello", name="waits", v=4)
        await asyncio.sleep(0.1)
        assert count(host, "waits") == 1
        assert host.frames[-1] == ("waits", frame(3))
        waits.say("leaving")
        await asyncio.sleep(0.5)
        assert early.connection.state == "closed"
        await leave(host)

    simulate(scenario)


def test_stripes_that_are_not_proved_are_few() -> None:
    """PROTOCOL section 4, mesh: strangers may hold few places, each for 10 s only, and none of those of who
    is in the room.
    """

    async def scenario() -> None:
        net = SimNetwork()
        host, _, key = await in_the_room(net)
        for i in range(8):
            await RawPeer.dial(net, ROOM, id=f"stranger {i}")
            for _ in range(8):
                await stripe_of(net, id=f"stranger {i}")
        await RawPeer.dial(net, ROOM, id="one more")
        shut_out = await stripe_of(net, id="one more")
        good = await stripe_of(net)
        await asyncio.sleep(0.1)
        assert shut_out.connection.state == "closed"
        good.say("mesh", v=1, p=proof(good.connection, key))
        await asyncio.sleep(0.1)
        assert count(host, "hand") == 1
        await asyncio.sleep(10)
        in_time = await stripe_of(net, id="one more")
        await asyncio.sleep(0.1)
        assert in_time.connection.state == "connected"
        await leave(host)

    simulate(scenario)


def test_a_stripe_follows_its_device_to_a_new_link() -> None:
    """PROTOCOL section 3, dead links: a link dialed anew takes over while a stripe comes to be: the stripe is
    of the link that is used then; one that was there before ends with the old link.
    """

    async def scenario() -> None:
        net = SimNetwork()
        host, one, two = await room(net, "host", "one", "two")
        await one.mesh.connect(two.mesh.id)
        two.mesh.chain([one.mesh.id])
        await one.mesh._dialing.stripe(two.mesh.id)
        await asyncio.sleep(0.1)
        (old,) = stripes(net, one.mesh.id, two.mesh.id)
        links, endpoint = one.mesh._links, one.mesh._registration.endpoint
        assert links is not None
        assert endpoint is not None
        links.add(await endpoint.dial(two.mesh.id), Side.PEER)
        await one.mesh._dialing.stripe(two.mesh.id)  # the new link and this stripe come to be together
        await asyncio.sleep(3)
        assert old.state == "closed"
        assert (count(one, two.mesh.id), count(two, one.mesh.id)) == (1, 1)
        for i in range(5):
            assert one.mesh.send_frame(two.mesh.id, frame(i))
        await asyncio.sleep(1)
        assert [f.pos for _, f in two.frames] == list(range(5))
        await leave(one, two, host)

    simulate(scenario)


def test_a_stripe_does_not_outlive_its_device() -> None:
    """PROTOCOL section 3, before admission: another device is let in under the id of one that is here: the
    stripes of that one go with it, and none of its slices counts as the new device's.
    """

    async def scenario() -> None:
        net = SimNetwork()
        host, old, key = await in_the_room(net)
        stripe = await stripe_of(net)
        stripe.say("mesh", v=1, p=proof(stripe.connection, key))
        new = await RawPeer.dial(net, ROOM, id="hand")
        late = await stripe_of(net)  # while both links live: it may be of either
        late.say("mesh", v=1, p=proof(late.connection, key))
        await asyncio.sleep(0.1)
        assert count(host, "hand") == 2
        host.gates.keeper.settings = GateSettings(ask=True)
        new.say("hello", name="new", v=4, join=1)
        await asyncio.sleep(0.1)
        host.gates.keeper.decide(host.gates.keeper.lobby[0].number, allow=True)
        host.mesh.decided()
        await asyncio.sleep(0.1)
        assert old.told[-1]["t"] == "bye"
        assert count(host, "hand") == 0
        assert stripe.connection.state == late.connection.state == "closed"
        assert new.connection.state == "connected"
        await leave(host)

    simulate(scenario)


def test_a_stripe_that_does_not_come_to_be_says_why() -> None:
    """DESIGN section 1: every wait ends in words: no link, too many, no path, no proof, leaving."""

    async def scenario() -> None:
        net = SimNetwork()
        host, one, two = await room(net, "host", "one", "two")
        with pytest.raises(LinkFailed, match="no link"):
            await one.mesh._dialing.stripe(two.mesh.id)
        for _ in range(MAX_STRIPES):
            await one.mesh._dialing.stripe(ROOM)
        with pytest.raises(LinkFailed, match="no stripe to host: it has 8 already"):
            await one.mesh._dialing.stripe(ROOM)
        await one.mesh.connect(two.mesh.id)
        two.gates.newcomer._mesh_key = "x" * 43
        with pytest.raises(LinkFailed, match="stripe to two: it does not hold this room's key"):
            await one.mesh._dialing.stripe(two.mesh.id)
        assert one.mesh.send(two.mesh.id, chat.Queue(n=1))
        net.refuse_open.add(two.mesh.id)
        with pytest.raises(LinkFailed, match="stripe to two: the path broke"):
            await one.mesh._dialing.stripe(two.mesh.id)
        waiting = asyncio.create_task(one.mesh._dialing.stripe(two.mesh.id))
        await asyncio.sleep(1)
        await one.mesh.leave()
        with pytest.raises(LinkFailed, match="left the room"):
            await waiting
        await leave(two, host)

    simulate(scenario)


def test_a_flooded_stripe_is_closed() -> None:
    """PROTOCOL section 4, mesh: what a stripe that proves nothing can cost is bounded."""

    async def scenario() -> None:
        net = SimNetwork()
        host, peer, _ = await in_the_room(net)
        stripe = await stripe_of(net)
        for _ in range(600):
            stripe.raw({"t": "ping", "ts": 1, "pad": "x" * 16_000})
        await asyncio.sleep(1)
        assert stripe.connection.state == "closed"
        assert peer.connection.state == "connected"
        assert host.gone == []
        await leave(host)

    simulate(scenario)
