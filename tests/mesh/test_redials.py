"""Links between two devices that broke, or are wanted anew (PROTOCOL sections 3 and 6)."""

from __future__ import annotations

import asyncio

import pytest

from pooled_nb.errors import LinkFailed
from pooled_nb.mesh.frame import Encoding, Frame, Kind
from pooled_nb.mesh.linkactions import Cause
from pooled_nb.mesh.redials import Redials
from pooled_nb.mesh.stripes import STRIPE
from tests.mesh.recorder import ROOM, Recorder, leave, room
from tests.sim.clock import simulate
from tests.sim.network import SimConnection, SimNetwork


def frame(pos: int) -> Frame:
    return Frame(kind=Kind.HIDDEN, pos=pos, n=1, payload=bytes(100), enc=Encoding.BF16)


async def chained(net: SimNetwork) -> list[Recorder]:
    """A host, and two workers that are neighbours; the first dialed the second."""
    host, one, two = await room(net, "host", "one", "two")
    one.mesh.chain([ROOM, two.mesh.id])
    two.mesh.chain([ROOM, one.mesh.id])
    await one.mesh.connect(two.mesh.id)
    await asyncio.sleep(10)
    return [host, one, two]


def between(net: SimNetwork, one: Recorder, two: Recorder) -> list[SimConnection]:
    return [c for c in net.connections(one.mesh.id, two.mesh.id) if c.label != STRIPE]


def test_when_a_link_is_dialed_again() -> None:
    """PROTOCOL section 3, dead links: at once, then as a device knocks, for as long as a seat is kept."""
    redials = Redials()
    for cause in (Cause.LEFT, Cause.REFUSED, Cause.LATE, Cause.OURS, Cause.FLOOD):
        redials.lost("a", cause, 100.0)
    assert redials.due(100.0, {"a"}) == []
    redials.lost("a", Cause.BROKEN, 100.0)
    redials.lost("b", Cause.SILENT, 100.0)
    assert redials.due(100.0, {"a", "b"}) == ["a", "b"]
    redials.lost("a", Cause.BROKEN, 101.0)  # the dial failed: that is no new loss
    assert redials.due(102.9, {"a", "b"}) == []
    assert redials.due(103.0, {"a"}) == ["a"]
    assert redials.due(106.0, {"a", "b"}) == ["a"]  # it was no neighbour for a moment: then it is none
    redials.settled("a")
    assert redials.due(109.0, {"a"}) == []
    redials.lost("a", Cause.SILENT, 200.0)
    times = [now / 2 for now in range(400, 600) if redials.due(now / 2, {"a"})]
    assert times == [200.0 + 3.0 * n for n in range(15)]


def test_a_neighbours_link_is_dialed_again_by_its_dialer() -> None:
    """PROTOCOL section 3: "redialed by the side that dialed it": at once, and frames pass over the new link;
    both rooms hear of the break.
    """

    async def scenario() -> None:
        net = SimNetwork()
        host, one, two = await chained(net)
        (old,) = between(net, one, two)
        for _ in range(3):
            (link,) = between(net, one, two)
            link.become("failed")
            link.other.become("failed")
            await asyncio.sleep(1)
        assert [name for name, _, _ in one.gone] == ["two"] * 3
        assert [name for name, _, _ in two.gone] == ["one"] * 3
        (new,) = between(net, one, two)
        assert new.dialed
        assert new is not old
        assert one.mesh.send_frame(two.mesh.id, frame(1))
        assert two.mesh.send_frame(one.mesh.id, frame(2))
        await asyncio.sleep(1)
        assert (len(one.frames), len(two.frames)) == (1, 1)
        assert one.away == two.away == host.gone == []
        await leave(two, one, host)

    simulate(scenario)


@pytest.mark.parametrize("at", ["dialer", "dialed"])
def test_a_link_that_is_dead_at_one_end(at: str) -> None:
    """PROTOCOL section 3: the end that noticed dials, if it had dialed; the other keeps what is fresh. Where
    the dialer has not noticed, it does by silence.
    """

    async def scenario() -> None:
        net = SimNetwork()
        host, one, two = await chained(net)
        (old,) = between(net, one, two)
        say, net.say_closed = net.say_closed, lambda c: None  # type: ignore[method-assign]
        (old if at == "dialer" else old.other).become("failed")
        await asyncio.sleep(1)
        net.say_closed = say  # type: ignore[method-assign]
        assert len(one.gone) == (at == "dialer")
        await asyncio.sleep(20)
        (new,) = between(net, one, two)
        assert new is not old
        assert one.mesh.send_frame(two.mesh.id, frame(1))
        await asyncio.sleep(1)
        assert len(two.frames) == 1
        assert len(two.gone) == (at == "dialed")
        await leave(two, one, host)

    simulate(scenario)


def test_who_is_not_dialed_again() -> None:
    """PROTOCOL section 3: links for weights come when they are wanted; a device that left is not dialed, nor
    one that nobody reaches for 45 s.
    """

    async def scenario() -> None:
        net = SimNetwork()
        host, one, two = await chained(net)
        one.mesh.chain([ROOM])
        endpoint = one.mesh._registration.endpoint
        assert endpoint is not None
        before = endpoint.dials  # type: ignore[attr-defined]
        for link in between(net, one, two):
            link.become("failed")
        await asyncio.sleep(10)
        assert endpoint.dials == before  # type: ignore[attr-defined]
        assert between(net, one, two) == []
        one.mesh.chain([ROOM, two.mesh.id])
        await one.mesh.connect(two.mesh.id)
        await asyncio.sleep(1)
        net.refuse_open.add(two.mesh.id)
        net.failed_s = 0.1
        before = endpoint.dials  # type: ignore[attr-defined]
        for link in between(net, one, two):
            link.become("failed")
        await asyncio.sleep(100)
        assert endpoint.dials == before + 15  # type: ignore[attr-defined]
        net.refuse_open.clear()
        await one.mesh.connect(two.mesh.id)
        await asyncio.sleep(1)
        before = endpoint.dials  # type: ignore[attr-defined]
        await two.mesh.leave()
        await asyncio.sleep(10)
        assert endpoint.dials == before  # type: ignore[attr-defined]
        assert one.gone[-1] == ("two", "it left", True)
        await leave(one, host)

    simulate(scenario)


@pytest.mark.parametrize("broken", ["not", "at this end", "at the other end"])
@pytest.mark.parametrize("by", ["dialer", "dialed"])
def test_a_link_anew(broken: str, by: str) -> None:
    """PROTOCOL section 6, `ai-next {relink: 1}`: "close the old link, open a fresh one", with its stripes; no
    room hears that somebody is gone, and callers at one time share one dial.
    """

    async def scenario() -> None:
        net = SimNetwork()
        host, one, two = await chained(net)
        await one.mesh._dialing.stripe(two.mesh.id)
        me, other = (one, two) if by == "dialer" else (two, one)
        (old,) = between(net, me, other)
        assert len(net.connections(me.mesh.id, other.mesh.id)) == 2
        lost = 0
        if broken != "not":
            net.say_closed = lambda c: None  # type: ignore[method-assign]
            (old if broken == "at this end" else old.other).become("failed")
            lost = 1
        jobs = [me.mesh.relink(other.mesh.id), me.mesh.relink(other.mesh.id), me.mesh.connect(other.mesh.id)]
        await asyncio.gather(*jobs)
        await asyncio.sleep(3)
        (new,) = net.connections(me.mesh.id, other.mesh.id)
        assert new is not old
        assert new.label != STRIPE
        facts = me.mesh.facts(other.mesh.id)
        assert facts is not None
        assert (facts.stripes, facts.fallback) == (0, False)
        assert len(me.gone) == (lost if broken == "at this end" else 0)
        assert len(other.gone) == (lost if broken == "at the other end" else 0)
        for sender, to in ((me, other), (other, me)):
            assert sender.mesh.send_frame(to.mesh.id, frame(1))
        await asyncio.sleep(1)
        assert (len(one.frames), len(two.frames)) == (1, 1)
        await me.mesh._dialing.stripe(other.mesh.id)
        await leave(two, one, host)

    simulate(scenario)


def test_both_ends_want_it_anew() -> None:
    """PROTOCOL section 2: "Two ends that dial each other keep the connection whose dialer has the lower id",
    also where both had lost one: else each keeps another, and closes the other's.
    """

    async def scenario() -> None:
        for ms in range(60):
            # Some packets come late, so that the two ends do not see the two links in one order.
            net = SimNetwork(latency=0.01, loss=0.3, seed=ms)
            host, one, two = await chained(net)

            async def late(ms: int, one: Recorder = one, two: Recorder = two) -> None:
                await asyncio.sleep(ms / 1e3)
                await two.mesh.relink(one.mesh.id)

            await asyncio.gather(one.mesh.relink(two.mesh.id), late(ms))
            await asyncio.sleep(5)
            assert len(between(net, one, two)) == 1
            assert one.gone == two.gone == []
            assert one.mesh.send_frame(two.mesh.id, frame(1))
            assert two.mesh.send_frame(one.mesh.id, frame(2))
            await asyncio.sleep(1)
            assert (len(one.frames), len(two.frames)) == (1, 1)
            await leave(two, one, host)

    simulate(scenario)


def test_no_fresh_link() -> None:
    """PROTOCOL section 6, `ai-linked {ok}`: where no fresh link comes to be the old one goes, too, and that
    is said to who asked; the host and the creator are never dialed.
    """

    async def scenario() -> None:
        net = SimNetwork()
        host, one, two = await chained(net)
        net.refuse_open.add(two.mesh.id)
        net.failed_s = 1.0
        with pytest.raises(LinkFailed):
            await one.mesh.relink(two.mesh.id)
        assert one.mesh.facts(two.mesh.id) is None
        assert one.gone == []
        for to in (ROOM, "stranger", one.mesh.id):
            with pytest.raises(LinkFailed):
                await one.mesh.relink(to)
        with pytest.raises(LinkFailed):
            await host.mesh.relink(one.mesh.id)
        assert one.mesh.facts(ROOM) is not None
        await leave(two, one, host)

    simulate(scenario)


def test_no_fresh_link_while_signaling_is_down() -> None:
    """PROTOCOL section 6, `ai-linked {ok}`: a device that cannot be dialed now is told by the same kind of
    error as any other, and the old link goes as well; nothing else does.
    """

    async def scenario() -> None:
        net = SimNetwork()
        host, one, two = await chained(net)
        net.signaling(False)
        with pytest.raises(LinkFailed, match="two cannot be dialed"):
            await one.mesh.relink(two.mesh.id)
        with pytest.raises(LinkFailed, match="two cannot be dialed"):
            await one.mesh.connect(two.mesh.id)
        await asyncio.sleep(1)
        assert between(net, one, two) == []
        assert one.mesh.facts(ROOM) is not None
        assert [name for name, _, _ in two.gone] == ["one"]
        net.signaling(True)
        await one.mesh.relink(two.mesh.id)
        assert len(between(net, one, two)) == 1
        await leave(two, one, host)

    simulate(scenario)


def test_leaving_ends_a_relink() -> None:
    """DESIGN section 1: every wait ends in words when this device leaves."""

    async def scenario() -> None:
        net = SimNetwork()
        host, one, two = await chained(net)
        net.refuse_open.add(two.mesh.id)
        waits = asyncio.create_task(one.mesh.relink(two.mesh.id))
        await asyncio.sleep(1)
        await one.mesh.leave()
        with pytest.raises(LinkFailed, match="left the room"):
            await waits
        await leave(two, host)

    simulate(scenario)
