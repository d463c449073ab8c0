"""What a device knows of its links: pings, packets and stripes meet here (PROTOCOL sections 3 and 8)."""

from __future__ import annotations

import asyncio

import pytest

from pooled_nb.mesh.network import ConnectionStats
from pooled_nb.mesh.telemetry import TRIPS
from tests.mesh.recorder import leave, room
from tests.sim.clock import simulate
from tests.sim.network import SimConnection, SimNetwork


def test_round_trips_of_a_link() -> None:
    """CASES: 25 ms of delay each way, and a first round trip that was far longer. Time-outs follow the newest
    five, people see those of a minute.
    """

    async def scenario() -> None:
        net = SimNetwork(latency=1.3)
        host, one = await room(net, "host", "one")
        await asyncio.sleep(10)
        net.latency = 0.025
        await asyncio.sleep(2.5 * (TRIPS + 4))
        facts = host.mesh.facts(one.mesh.id)
        assert facts is not None
        assert facts.rtt_s == pytest.approx(0.05)
        assert facts.recent.rtt_s == pytest.approx(0.05)
        assert facts.recent.rtt_p95_s == pytest.approx(2.6)
        await asyncio.sleep(60)
        facts = host.mesh.facts(one.mesh.id)
        assert facts is not None
        assert facts.recent.rtt_p95_s == pytest.approx(0.05)
        assert facts.recent.loss is None, "the simulator's connections count no packets"
        await leave(one, host)

    simulate(scenario)


def test_packets_of_a_link_and_of_its_stripes(monkeypatch: pytest.MonkeyPatch) -> None:
    """What every connection of a link counts is one number; one that is gone takes nothing back."""
    rates = {"stripe": (100, 20)}

    def stats(connection: SimConnection) -> ConnectionStats:
        sent, again = rates.get(connection.label, (100, 0))
        ticks = int(asyncio.get_running_loop().time() / 0.5)
        return ConnectionStats(sent=sent * ticks, resent=again * ticks)

    async def scenario() -> None:
        net = SimNetwork()
        host, one = await room(net, "host", "one")
        await asyncio.sleep(30)
        facts = host.mesh.facts(one.mesh.id)
        assert facts is not None
        assert (facts.recent.loss, facts.stripes) == (0.0, 0)
        host.mesh.chain([one.mesh.id])
        one.mesh.chain([host.mesh.id])
        await one.mesh._dialing.stripe(host.mesh.id)
        await asyncio.sleep(70)
        facts = host.mesh.facts(one.mesh.id)
        assert facts is not None
        stripes = facts.stripes
        assert stripes >= 1
        lost = 20 * stripes
        assert facts.recent.loss == pytest.approx(lost / (100 + 120 * stripes), rel=0.02)
        await leave(one, host)

    monkeypatch.setattr(SimConnection, "stats", stats)
    simulate(scenario)
