"""Links between devices, over the simulated network (PROTOCOL sections 2 and 3)."""

from __future__ import annotations

import asyncio

import pytest

from pooled_nb.errors import (
    LinkFailed,
)
from pooled_nb.mesh.frame import Encoding, Frame, Kind
from pooled_nb.mesh.gate import Side
from pooled_nb.mesh.messages import chat
from tests.mesh.recorder import CODE, ROOM, device, leave, room
from tests.sim.clock import simulate
from tests.sim.network import SimNetwork


def frame(pos: int, size: int = 100, n: int = 1) -> Frame:
    return Frame(
        kind=Kind.HIDDEN_B if n > 1 else Kind.HIDDEN,
        pos=pos,
        n=n,
        payload=bytes([pos % 251]) * size,
        enc=Encoding.BF16,
    )


def test_devices_link_on_demand() -> None:
    """PROTOCOL section 2, who links whom: others link on demand, one link serves both directions."""

    async def scenario() -> None:
        net = SimNetwork()
        host, one, two = await room(net, "host", "one", "two")
        assert one.mesh.facts(two.mesh.id) is None
        one.mesh.chain([two.mesh.id])
        two.mesh.chain([one.mesh.id])
        await asyncio.gather(*(one.mesh.connect(two.mesh.id) for _ in range(3)))
        assert len(net.connections(one.mesh.id, two.mesh.id)) == 1
        await asyncio.sleep(1)
        assert two.mesh.send_frame(one.mesh.id, frame(3))
        assert one.mesh.send_frame(two.mesh.id, frame(4))
        await two.mesh.connect(one.mesh.id)
        await asyncio.sleep(1)
        assert one.frames == [(two.mesh.id, frame(3))]
        assert two.frames == [(one.mesh.id, frame(4))]
        assert len(net.connections(one.mesh.id, two.mesh.id)) == 1
        await one.mesh.connect(ROOM)  # exists
        with pytest.raises(LinkFailed, match="not in the room"):
            await one.mesh.connect("stranger")
        await leave(two, one, host)

    simulate(scenario)


@pytest.mark.parametrize("ms", [0, 1, 5, 19, 21, 40])
def test_two_ends_that_dial_each_other_keep_one(ms: int) -> None:
    """PROTOCOL section 2: two ends that dial each other keep the connection whose dialer has the lower id."""

    async def scenario() -> None:
        net = SimNetwork(latency=0.02)
        host, one, two = await room(net, "host", "one", "two")

        async def late() -> None:
            await asyncio.sleep(ms / 1e3)
            await one.mesh.connect(two.mesh.id)

        await asyncio.gather(late(), two.mesh.connect(one.mesh.id))
        assert one.mesh.send(two.mesh.id, chat.Queue(n=1))
        assert two.mesh.send(one.mesh.id, chat.Queue(n=2))
        await asyncio.sleep(5)
        assert one.messages == [(two.mesh.id, chat.Queue(n=2))]
        assert two.messages == [(one.mesh.id, chat.Queue(n=1))]
        (kept,) = net.connections(one.mesh.id, two.mesh.id)
        if ms <= 5:  # both dialed before either heard of the other
            assert kept.dialed == (one.mesh.id < two.mesh.id)
        assert one.gone == two.gone == []
        await leave(two, one, host)

    simulate(scenario)


def test_the_used_link_breaks_while_another_comes_to_be() -> None:
    """PROTOCOL section 2: of two links to one device either may end; it is gone when the last one has."""

    async def scenario() -> None:
        net = SimNetwork()
        host, one, two = await room(net, "host", "one", "two")
        await one.mesh.connect(two.mesh.id)
        await asyncio.sleep(1)
        links, endpoint = one.mesh._links, one.mesh._registration.endpoint
        assert links is not None
        assert endpoint is not None
        for lives in (True, False):
            (old,) = links.book.of(two.mesh.id)
            new = links.add(await endpoint.dial(two.mesh.id), Side.PEER)
            old._broken("lost")
            assert one.gone == []
            if not lives:
                new._broken("lost, too")
            await asyncio.sleep(1)
            assert (links.book.used(two.mesh.id) is new) == lives
        assert one.gone == [("two", "lost", False)]
        await leave(one, two, host)

    simulate(scenario)


def test_connect_again_after_a_link_that_only_one_end_lost() -> None:
    """PROTOCOL section 3: who dials again says `back` ("was here before"), and its new link replaces the
    dead one.
    """

    async def scenario() -> None:
        net = SimNetwork()
        host, one, two = await room(net, "host", "one", "two")
        for dialer, other in ((one, two), (two, one)):
            await dialer.mesh.connect(other.mesh.id)
            await asyncio.sleep(2)
            net.partition(one.mesh.id, two.mesh.id)
            (link,) = dialer.mesh._links.book.of(other.mesh.id)  # type: ignore[union-attr]
            link._broken("lost")
            assert dialer.gone[-1][:2] == (other.mesh.name, "lost")
            await asyncio.sleep(0.2)
            for connection in net.connections(other.mesh.id, dialer.mesh.id):
                connection.other.waiting.clear()  # the word that it closed is lost
            net.heal(one.mesh.id, two.mesh.id)
            await dialer.mesh.connect(other.mesh.id)
            await asyncio.sleep(3)
            assert other.gone == [] or dialer is two
            assert dialer.mesh.send(other.mesh.id, chat.Queue(n=1))
            assert other.mesh.send(dialer.mesh.id, chat.Queue(n=2))
            await asyncio.sleep(1)
            assert other.messages[-1] == (dialer.mesh.id, chat.Queue(n=1))
            assert dialer.messages[-1] == (other.mesh.id, chat.Queue(n=2))
            assert len(net.connections(one.mesh.id, two.mesh.id)) == 1
        await leave(two, one, host)

    simulate(scenario)


def test_leaving_ends_a_connect() -> None:
    """DESIGN section 1: every wait ends in words; a dial to a device that does not answer ends when this one
    leaves.
    """

    async def scenario() -> None:
        net = SimNetwork()
        host, one, two = await room(net, "host", "one", "two")
        net.refuse_open.add(two.mesh.id)
        waits = [asyncio.create_task(one.mesh.connect(two.mesh.id)) for _ in range(2)]
        await asyncio.sleep(1)
        waits[0].cancel()
        await asyncio.sleep(1)
        assert waits[0].cancelled()
        assert not waits[1].done()
        await one.mesh.leave()
        with pytest.raises(LinkFailed, match="left the room"):
            await waits[1]
        net.refuse_open.clear()
        net.kill(two.mesh.id)
        late = device(net, "late")
        await late.mesh.join(CODE, ["local"])
        with pytest.raises(LinkFailed):
            await late.mesh.connect(two.mesh.id)
        await leave(late, host, two)

    simulate(scenario)


def test_a_room_of_one_id_twice() -> None:
    """PROTOCOL section 3: a new connection under the id of an admitted device replaces the old link once
    admitted.
    """

    async def scenario() -> None:
        net = SimNetwork()
        host, one, two = await room(net, "host", "one", "two")
        (old,) = net.connections(one.mesh.id, ROOM)
        assert one.mesh._registration.endpoint is not None
        assert one.mesh._links is not None
        one.mesh._links.add(await one.mesh._registration.endpoint.dial(ROOM), Side.JOINER)
        await asyncio.sleep(2)
        assert old.state == "closed"
        assert host.gone == []
        assert one.closed == []
        assert host.names == ["host", "one", "two"]
        assert host.admitted == ["one", "two", "one"]
        assert host.mesh.send(one.mesh.id, chat.Queue(n=1))
        assert one.mesh.send(ROOM, chat.Stop())
        await asyncio.sleep(1)
        assert one.messages == [(ROOM, chat.Queue(n=1))]
        assert host.messages == [(one.mesh.id, chat.Stop())]
        await leave(one, two, host)

    simulate(scenario)


@pytest.mark.parametrize("linked", ["proved", "not yet"])
def test_a_roster_that_takes_a_device_out_names_it(linked: str) -> None:
    """PROTOCOL section 3, roster: a device that the creator threw out is told to people by its name."""

    async def scenario() -> None:
        net = SimNetwork()
        host, one, two = await room(net, "host", "one", "two")
        await one.mesh.connect(two.mesh.id)
        if linked == "proved":
            await asyncio.sleep(1)
        host.mesh.kick(two.mesh.id, "out")
        await asyncio.sleep(2)
        assert one.names == ["host", "one"]
        assert [name for name, _, _ in one.gone] == ["two"]
        with pytest.raises(LinkFailed, match=r"^a device is not in the room"):
            await one.mesh.connect("nobody")
        await leave(one, host)

    simulate(scenario)
