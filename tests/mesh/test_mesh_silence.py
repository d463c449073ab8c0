"""Pings, silence and stalls of whole meshes (PROTOCOL sections 3 and 8)."""

from __future__ import annotations

import asyncio

import pytest

from pooled_nb.mesh.linkstate import HELLO_WAIT_S
from pooled_nb.mesh.messages.link import DeviceMeta
from tests.mesh.rawpeer import RawPeer
from tests.mesh.recorder import CODE, ROOM, device, leave, room
from tests.sim.clock import simulate
from tests.sim.network import SimNetwork


def test_a_killed_worker_is_noticed_by_pings() -> None:
    """PROTOCOL section 8, dropped: silent 15 s (computer), 60 s (phone); DESIGN section 4: our own pings
    notice.
    """

    async def scenario() -> None:
        net = SimNetwork()
        host, one, two = await room(net, "host", "one", "two")
        await one.mesh.connect(two.mesh.id)
        await asyncio.sleep(10)
        net.kill(one.mesh.id)
        await asyncio.sleep(14)
        assert host.gone == []
        await asyncio.sleep(4)
        assert (
            [(name, left) for name, _, left in host.gone]
            == [("one", False)]
            == [(name, left) for name, _, left in two.gone]
        )
        assert "nothing was heard of it for 15 s" in host.gone[0][1]
        assert host.names == two.names == ["host", "two"]
        await leave(two, host, one)

    simulate(scenario)


def test_a_phone_is_waited_for_longer_and_a_loading_device_always() -> None:
    """PROTOCOL section 8, dropped: 60 s (phone); never while it loads."""

    async def scenario() -> None:
        net = SimNetwork()
        host = device(net, "host")
        await host.mesh.create(CODE, ["local"])
        phone, loads = device(net, "phone", DeviceMeta(phone=True)), device(net, "loads")
        for one in (phone, loads):
            await one.mesh.join(CODE, ["local"])
        host.mesh.spare([loads.mesh.id])
        for one in (phone, loads):
            net.partition(ROOM, one.mesh.id)
        await asyncio.sleep(20)
        assert host.gone == []
        net.heal(ROOM, loads.mesh.id)
        net.heal(ROOM, phone.mesh.id)
        host.mesh.spare([])
        await asyncio.sleep(1)
        assert host.gone == []
        assert host.names == ["host", "phone", "loads"]
        await leave(phone, loads, host)

    simulate(scenario)


@pytest.mark.parametrize("chain", [False, True])
def test_how_long_a_device_waits_for_its_host(chain: bool) -> None:
    """PROTOCOL section 8: "the host as a guest sees it 30 s"; who holds layers is no guest, and an answer
    waits for it: 15 s. Then it knocks.
    """

    async def scenario() -> None:
        net = SimNetwork()
        host, one = await room(net, "host", "one")
        seconds = 15 if chain else 30
        assert one.mesh.patience(ROOM) == 30
        one.mesh.chain([ROOM] if chain else [])
        assert one.mesh.patience(ROOM) == seconds
        net.kill(ROOM)
        await asyncio.sleep(seconds - 3)
        assert one.away == []
        await asyncio.sleep(5)
        assert one.away == [("host", f"nothing was heard of it for {seconds} s")]
        assert one.closed == one.gone == []
        await leave(one, host)

    simulate(scenario)


def test_round_trips_are_measured() -> None:
    """PROTOCOL section 3, ping: every 2.5 s; CASES, devices: the new value is used after a slow first round
    trip.
    """

    async def scenario() -> None:
        net = SimNetwork(latency=0.025)
        host, one = await room(net, "host", "one")
        await asyncio.sleep(12)
        facts = host.mesh.facts(one.mesh.id)
        assert facts
        assert facts.rtt_s == pytest.approx(0.05, abs=0.005)
        assert facts.path == "direct"
        assert facts.quiet_s <= 2.6
        assert facts.answered_s is not None
        assert not facts.dialed
        net.between[frozenset((ROOM, one.mesh.id))] = 1.3
        await asyncio.sleep(20)
        assert (slow := host.mesh.facts(one.mesh.id))
        assert slow.rtt_s
        assert slow.rtt_s > 2
        net.between.clear()
        await asyncio.sleep(11)
        assert (fast := host.mesh.facts(one.mesh.id))
        assert fast.rtt_s == pytest.approx(0.05, abs=0.005)
        await leave(one, host)

    simulate(scenario)


def test_watched_devices_are_pinged_every_500_ms() -> None:
    """PROTOCOL section 3, ping: every 500 ms each chain device while an answer runs."""

    async def scenario() -> None:
        net = SimNetwork()
        host, one = await room(net, "host", "one")
        (connection,) = net.connections(ROOM, one.mesh.id)

        async def sent_in(seconds: float) -> int:
            before = connection.control.sent
            await asyncio.sleep(seconds)
            return connection.control.sent - before

        calm = await sent_in(20)
        host.mesh.watch([one.mesh.id])
        busy = await sent_in(20)
        host.mesh.watch([])
        assert 14 <= calm <= 18
        assert 46 <= busy <= 50
        assert 14 <= await sent_in(20) <= 18
        await leave(one, host)

    simulate(scenario)


def test_a_link_is_not_given_up_on_a_late_tick() -> None:
    """PROTOCOL section 8, a timer that fired late: it judges no link that is coming to be either: a `hello`
    that came meanwhile is read first.
    """

    async def scenario() -> None:
        net, loop = SimNetwork(), asyncio.get_running_loop()
        (host,) = await room(net, "host")
        peer = await RawPeer.dial(net, ROOM)
        await asyncio.sleep(0.1)
        assert host.mesh._links is not None
        (link,) = host.mesh._links.book
        while not link.state._since + HELLO_WAIT_S - 0.49 < host.mesh._awake._awake._ticked:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        assert link.ended is None
        loop.call_later(1.0, lambda: peer.say("hello", name="raw", v=4))
        loop.pass_time(5.0)  # type: ignore[attr-defined]
        await asyncio.sleep(1)
        assert host.names == ["host", "raw"]
        await leave(host)

    simulate(scenario)


def test_a_stalled_device_judges_nobody() -> None:
    """PROTOCOL section 8: a timer that fired late means this device stalled; it judges nobody on
    that tick.
    """

    async def scenario() -> None:
        net = SimNetwork()
        host, one = await room(net, "host", "one")
        asyncio.get_running_loop().pass_time(20.0)  # type: ignore[attr-defined]  # a 20 s stall of this process
        await asyncio.sleep(5)
        assert host.gone == []
        assert one.closed == []
        await leave(one, host)

    simulate(scenario)
