"""How a device that lost its creator comes back (PROTOCOL sections 3 and 8)."""

from __future__ import annotations

import asyncio

import pytest

from pooled_nb.mesh.knocking import FOR_S, RESUME_S, Knocks
from pooled_nb.mesh.linkactions import Cause
from pooled_nb.mesh.messages import chat
from pooled_nb.mesh.newcomer import Credentials
from tests.mesh.knocktools import endpoint, now, restarted, until
from tests.mesh.rawpeer import RawPeer
from tests.mesh.recorder import CODE, ROOM, device, leave, room
from tests.sim import network
from tests.sim.clock import simulate
from tests.sim.network import SimNetwork


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server says at once that nobody is registered under an id."""
    monkeypatch.setattr(network, "EXPIRE_S", 0.1)


def test_when_to_knock() -> None:
    """PROTOCOL section 3: every 3 s for 60 s; after that every 15 s, as long as a host may take its room back
    (section 8, host resume: 15 min).
    """
    knocks = Knocks(1_000.0)
    times = [at / 2 for at in range(2_000, 4_000) if knocks.due(at / 2)]
    first = [1_000.0 + 3 * n for n in range(int(FOR_S / 3))]
    later = [1_072.0 + 15 * n for n in range(56)]
    assert times == first + later
    assert times[-1] < 1_000.0 + RESUME_S
    assert knocks.over(1_900.0)
    assert not knocks.over(1_899.9)
    knocks = Knocks(1_000.0)
    assert knocks.due(1_000.0)
    assert not knocks.due(1_001.0)
    knocks.soon()
    assert knocks.due(1_001.0)
    assert not knocks.due(1_003.9)


@pytest.mark.parametrize("how", ["failed", "closed", "silent", "kept"])
def test_a_lost_host_is_knocked_at(how: str) -> None:
    """PROTOCOL section 3: "A device that lost the creator knocks": the first time at once, with the whole
    gate and its pass; `hello {back: 1}`; the same name and place, and all goes on.
    """

    async def scenario() -> None:
        net = SimNetwork()
        host, one, two = await room(net, "host", "one", "two")
        told = one.gates.newcomer.credentials
        (link,) = net.connections(one.mesh.id, ROOM)
        one.diary.clear()
        began = now()
        if how == "failed":
            link.become("failed")
        elif how == "closed":
            await link.other.close()
        elif how == "silent":
            net.partition(ROOM, one.mesh.id)
            await asyncio.sleep(31)
            assert one.mesh.knocking is not None
            net.heal(ROOM, one.mesh.id)
            began = now()
        else:  # the creator's end alone is gone, and no word of it came
            net.say_closed, say = lambda c: None, net.say_closed  # type: ignore[method-assign]
            link.other.become("failed")
            await asyncio.sleep(0.1)
            net.say_closed = say  # type: ignore[method-assign]
            began = await until(lambda: one.mesh.knocking) + began
        await until(lambda: "back" in one.diary, 20)
        assert now() - began < (16 if how == "silent" else 0.2)
        assert one.diary == ["away host", "roster", "back"]
        assert one.mesh.knocking is None
        assert [m.id for m in host.mesh.roster] == [ROOM, one.mesh.id, two.mesh.id] or how == "silent"
        assert sorted(host.names) == sorted(one.names) == ["host", "one", "two"]
        assert one.gates.newcomer.credentials == told
        assert one.closed == one.gone == []
        assert one.mesh.send(ROOM, chat.Stop())
        assert host.mesh.send(one.mesh.id, chat.Queue(n=1))
        await asyncio.sleep(1)
        assert host.messages == [(one.mesh.id, chat.Stop())]
        assert one.messages == [(ROOM, chat.Queue(n=1))]
        assert len(net.connections(one.mesh.id, ROOM)) == 1
        await leave(two, one, host)

    simulate(scenario)


def test_what_is_said_at_the_gate() -> None:
    """PROTOCOL section 3: `hello {…, back: 1}`: was here before; the commitment and the pass's id as ever."""

    async def scenario() -> None:
        net = SimNetwork()
        host, one = await room(net, "host", "one")
        token = host.mesh.token
        await host.mesh.abandon()
        raw = await net.register(ROOM, ["local"], token=token)
        creators: list[RawPeer] = []
        raw.on_connection = lambda connection: creators.append(RawPeer(connection))
        await until(lambda: creators and creators[0].told)
        (hello,) = creators[0].told_of("hello")
        assert (hello["back"], hello["join"], hello["auth"]) == (1, 1, 1)
        assert hello["pid"]
        assert "jc" in hello
        await leave(one)

    simulate(scenario)


def test_how_often_and_how_long() -> None:
    """PROTOCOL section 3: every 3 s for 60 s, then every 15 s until the 15 min of section 8 are over: then
    the room is lost, in words. Nothing is left.
    """

    async def scenario() -> None:
        net = SimNetwork()
        host, one = await room(net, "host", "one")
        assert one.mesh.knocking is None
        await host.mesh.abandon()
        await until(lambda: one.away)
        assert one.away == [("host", "it closed the link")]
        began, before = now(), endpoint(one).dials
        assert one.mesh.silence(ROOM) == pytest.approx(0.0, abs=2.6)
        await asyncio.sleep(59)
        assert endpoint(one).dials - before in (19, 20)
        assert one.mesh.knocking == (pytest.approx(now() - began, abs=0.1), 60.0)
        assert (quiet := one.mesh.silence(ROOM)) is not None
        assert quiet > 59
        await asyncio.sleep(120)
        assert endpoint(one).dials - before in (27, 28)
        assert one.mesh.knocking == (pytest.approx(now() - began, abs=0.1), 900.0)
        assert one.closed == []
        took = await until(lambda: one.closed, 800)
        assert now() - began == pytest.approx(900, abs=1), took
        assert one.closed == [
            "The link to the host is gone (it closed the link). Join again when it is back."
        ]
        assert one.mesh.end is not None
        assert one.mesh.end.cause is Cause.BROKEN
        assert one.diary[-2:] == ["away host", "closed"]
        assert one.mesh.knocking is None
        await leave(one)

    simulate(scenario)


@pytest.mark.parametrize("pause", [0.0, 0.5, 2.0, 20.0, 100.0, 600.0])
def test_a_host_that_was_started_again(pause: float) -> None:
    """PROTOCOL section 8, host resume: its devices are in again without their persons, each once, under their
    names; and who joins then needs no half second more than ever.
    """

    async def scenario() -> None:
        net = SimNetwork()
        host, *others = await room(net, "host", *(f"d{n}" for n in range(40)))
        await host.mesh.abandon()
        assert host.closed == host.gone == []
        await asyncio.sleep(pause)
        again = await restarted(net, host)
        late = device(net, "late")
        began = now()
        await late.mesh.join(CODE, ["local"])
        assert now() - began <= 0.5
        await until(lambda: len(again.names) == 42, 16.0 if pause >= 60 else 4.0)
        assert sorted(again.names) == sorted(["host", "late", *(f"d{n}" for n in range(40))])
        assert sorted(again.admitted) == sorted(["late", *(f"d{n}" for n in range(40))])
        assert set(again.was) == {""}
        await asyncio.sleep(1)
        for one in others:
            assert one.diary.count("back") == 1
            assert one.closed == []
            assert one.names == again.names
        await leave(*others, late, again)

    simulate(scenario)


def test_a_host_that_is_killed_and_started_at_once() -> None:
    """CASES, network: the host's process killed and started again → it reclaims its code with its saved token
    at once; its devices find out by silence, knock, and are in again.
    """

    async def scenario() -> None:
        net = SimNetwork()
        host, one, two = await room(net, "host", "one", "two")
        two.mesh.chain([ROOM])
        net.kill(ROOM)
        await host.mesh.leave()  # what it says reaches nobody
        await asyncio.sleep(1)
        assert one.away == one.closed == []
        again = await restarted(net, host)
        assert 12 < await until(lambda: "back" in two.diary) < 16
        assert 12 < await until(lambda: "back" in one.diary) < 16
        assert sorted(again.names) == ["host", "one", "two"]
        await leave(one, two, again, host)

    simulate(scenario)


def test_knocking_through_an_outage() -> None:
    """PROTOCOL section 2: signaling that is down is tried again at each knock, not after its 30 s, and the
    next knock comes the moment it is back.
    """

    async def scenario() -> None:
        net = SimNetwork()
        host, one = await room(net, "host", "one")
        net.signaling(False)
        (link,) = net.connections(one.mesh.id, ROOM)
        link.become("failed")
        await asyncio.sleep(31)
        assert endpoint(one).hurried in (10, 11)
        assert endpoint(one).dials == 1
        assert one.closed == []
        await asyncio.sleep(1.2)
        net.signaling(True)
        assert await until(lambda: "back" in one.diary) < 0.2
        assert host.was[-1] == one.mesh.id
        await leave(one, host)

    simulate(scenario)


def test_a_knock_that_an_outage_swallowed() -> None:
    """PROTOCOL section 2: what was sent over a signaling server that went is answered by nobody: it is not
    waited for, and the next knock comes the moment the server is back.
    """

    async def scenario() -> None:
        net = SimNetwork()
        host, one = await room(net, "host", "one")
        (link,) = net.connections(one.mesh.id, ROOM)
        net.killed.add(ROOM)  # it takes the dial, and does not answer
        link.become("failed")
        await asyncio.sleep(1)
        net.killed.discard(ROOM)
        assert endpoint(one).dials == 2
        net.signaling(False)
        await asyncio.sleep(0.5)
        net.signaling(True)
        assert await until(lambda: "back" in one.diary) < 0.2
        assert endpoint(one).dials == 3
        await leave(one, host)

    simulate(scenario)


def test_an_attempt_is_not_doubled(monkeypatch: pytest.MonkeyPatch) -> None:
    """PROTOCOL section 3: a dial that nobody answers is given up after 15 s for the next one, however long it
    would go on; a link that is open and waits at the gate is the knock.
    """
    monkeypatch.setattr(network, "ANSWER_S", 1e3)

    async def scenario() -> None:
        net = SimNetwork()
        host, one = await room(net, "host", "one")
        token = host.mesh.token
        await host.mesh.abandon()
        raw = await net.register(ROOM, ["local"], token=token)
        before = endpoint(one).dials
        net.killed.add(ROOM)  # registered, and frozen
        await asyncio.sleep(35)
        assert endpoint(one).dials - before == 3
        net.killed.discard(ROOM)
        creators: list[RawPeer] = []
        raw.on_connection = lambda connection: creators.append(RawPeer(connection))
        await until(lambda: creators and creators[0].told)
        creators[0].say("hello", name="host", v=4, gate=1, auth=1)
        await asyncio.sleep(12)  # the gate's own 15 s are not over
        assert len(creators) == 1
        await asyncio.sleep(5)
        assert len(creators) == 2
        assert one.closed == []
        await leave(one)

    simulate(scenario)


def test_a_device_without_a_pass() -> None:
    """PROTOCOL section 4: `admit` of a room that vouched for nobody gave a pass all the same: with it the
    seat is kept, and the device still trusts its host as much as before, no more.
    """

    async def scenario() -> None:
        net = SimNetwork()
        host, one = await room(net, "host", "one")
        assert one.gates.newcomer.trust == "first"
        (link,) = net.connections(one.mesh.id, ROOM)
        link.become("failed")
        await until(lambda: "back" in one.diary)
        assert one.gates.newcomer.trust == "first"
        keyed = device(net, "keyed", credentials=Credentials(host.gates.keeper.key))
        await keyed.mesh.join(CODE, ["local"])
        (link,) = net.connections(keyed.mesh.id, ROOM)
        link.become("failed")
        await until(lambda: "back" in keyed.diary)
        assert keyed.gates.newcomer.trust == "proved"
        assert host.was[-1] == keyed.mesh.id
        await leave(keyed, one, host)

    simulate(scenario)
