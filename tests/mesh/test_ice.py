"""PROTOCOL section 2, ICE: which ways to this device are offered."""

import asyncio

import pytest

from pooled_nb.mesh import ice, stacks
from pooled_nb.mesh.ice import IcePolicy
from pooled_nb.mesh.stacks.over_aiortc import configuration
from tests.mesh.rtctools import nothing_left


async def candidates(policy: IcePolicy) -> set[tuple[str, str]]:
    """(type, address) of what a connection under this policy offers."""
    peer = stacks.get().peer(policy, "far")
    peer.channel("x")
    lines = [x.split() for x in (await peer.offer()).splitlines() if x.startswith("a=candidate:")]
    await peer.close()
    return {(line[7], line[4]) for line in lines}


def test_servers_are_always_explicit():
    """DESIGN section 4: never the library's default servers; ours are asked by `gathering` alone."""
    assert configuration().iceServers == []


async def test_local_only_offers_loopback_and_nothing_else():
    """DESIGN section 4: a room on one machine offers 127.0.0.2 and nothing else where the system has it."""
    if not ice.can_bind(ice.LOOPBACK):
        pytest.skip("this system has no 127.0.0.2")
    async with nothing_left():
        assert await candidates(IcePolicy.local()) == {("host", "127.0.0.2")}


async def test_policies_do_not_touch_each_other(monkeypatch):
    """DESIGN section 4: the policy is the connection's own; two of them gather side by side."""
    monkeypatch.setattr("aioice.ice.get_host_addresses", lambda use_ipv4, use_ipv6: ["127.0.0.3"])
    async with nothing_left():
        one, other = await asyncio.gather(candidates(IcePolicy.local()), candidates(IcePolicy()))
    assert one == {("host", "127.0.0.2")}
    assert other == {("host", "127.0.0.3")}


@pytest.mark.parametrize("policy", [IcePolicy(), IcePolicy.local()])
async def test_no_network_at_all(monkeypatch, policy):
    """DESIGN section 1: a machine without any network must work."""
    monkeypatch.setattr("aioice.ice.get_host_addresses", lambda use_ipv4, use_ipv6: [])
    async with nothing_left():
        assert await candidates(policy) == {("host", "127.0.0.2")}


async def test_relay_only_offers_no_address():
    """PROTOCOL section 2: relay-only shows no address of this device."""
    async with nothing_left():
        assert await candidates(IcePolicy(relay_only=True)) == set()


def test_without_the_second_loopback(monkeypatch):
    """DESIGN section 4: else its interface address; without one, plain loopback."""
    monkeypatch.setattr(ice, "can_bind", lambda address: False)
    assert IcePolicy.local().addresses(["10.0.0.7"]) == ["10.0.0.7"]
    assert IcePolicy.local().addresses([]) == ["127.0.0.1"]
    assert IcePolicy().addresses([]) == ["127.0.0.1"]


async def test_a_black_hole_costs_little(monkeypatch):
    """DESIGN section 4: a STUN server that does not answer holds the offer up for a bounded time only."""
    monkeypatch.setattr("pooled_nb.mesh.stacks.over_aiortc.GATHER_S", 0.2)
    monkeypatch.setattr("aioice.ice.get_host_addresses", lambda use_ipv4, use_ipv6: ["127.0.0.3"])
    async with nothing_left():
        hole, _ = await asyncio.get_running_loop().create_datagram_endpoint(
            asyncio.DatagramProtocol, local_addr=("127.0.0.1", 0)
        )
        port = hole.get_extra_info("sockname")[1]
        offered = await asyncio.wait_for(candidates(IcePolicy(stun=(f"stun:127.0.0.1:{port}",))), 4)
        hole.close()
    assert offered == {("host", "127.0.0.3")}
