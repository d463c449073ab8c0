"""Names that a quiet device holds (PROTOCOL section 8)."""

from __future__ import annotations

import asyncio

import pytest

from pooled_nb.mesh.messages.link import DeviceMeta
from pooled_nb.mesh.namesakes import Holder, Namesake, Verdict
from tests.mesh.recorder import CODE, ROOM, Recorder, device, leave, room
from tests.sim.clock import simulate
from tests.sim.network import SimNetwork


async def join(one: Recorder) -> float:
    """Seconds that it took."""
    began = asyncio.get_running_loop().time()
    await one.mesh.join(CODE, ["local"])
    return asyncio.get_running_loop().time() - began


def test_what_is_done_about_a_name() -> None:
    """PROTOCOL section 8: "a name asked for while a quiet device holds it | quiet 1 s, probe 1.5 s"."""
    assert Namesake().decide(None, 10.0) is Verdict.GO
    assert Namesake().decide(Holder("a", 0.99), 10.0) is Verdict.GO
    name = Namesake()
    assert name.decide(Holder("a", 1.0), 10.0) is Verdict.PROBE
    assert name.decide(Holder("a", 2.4375), 11.4375) is Verdict.WAIT
    assert name.decide(Holder("a", 2.5), 11.5) is Verdict.DROP
    heard = Namesake()
    heard.decide(Holder("a", 5.0), 10.0)
    assert heard.decide(Holder("a", 0.3), 10.5) is Verdict.GO
    assert heard.decide(Holder("a", 2.0), 12.2) is Verdict.GO  # heard once is heard
    other = Namesake()
    other.decide(Holder("a", 5.0), 10.0)
    assert other.decide(Holder("b", 9.0), 10.5) is Verdict.GO
    gone = Namesake()
    gone.decide(Holder("a", 5.0), 10.0)
    assert gone.decide(None, 10.5) is Verdict.GO


@pytest.mark.parametrize("how", ["silent", "away", "lives", "speaks", "loads", "another"])
def test_who_has_the_name(how: str) -> None:
    """PROTOCOL section 8: a holder that is quiet, or whose link broke, is asked for 1.5 s, and goes when
    nothing comes; one that lives, or loads, keeps its name. Nobody else waits meanwhile.
    """

    async def scenario() -> None:
        net = SimNetwork()
        host, one, two = await room(net, "host", "one", "two")
        await asyncio.sleep(8)
        if how in ("silent", "away", "loads", "another"):
            net.kill(one.mesh.id)
            await asyncio.sleep(4)
        if how == "away":
            for link in net.connections(ROOM, one.mesh.id):
                link.become("failed")
        if how == "loads":
            host.mesh.spare([one.mesh.id])
        if how == "lives":
            while (host.mesh.silence(one.mesh.id) or 0) < 1.2:  # noqa: ASYNC110  # its next ping is far
                await asyncio.sleep(0.05)
        host.diary.clear()
        new, other = device(net, "two" if how == "another" else "one"), device(net, "other")
        took, others = await asyncio.gather(join(new), join(other))
        assert others < 0.5
        if how in ("silent", "away"):
            assert 1.5 <= took < 2.5
            assert host.names == ["host", "two", "other", "one"]
            assert host.diary == ["roster", "admitted other", "roster", "gone one", "roster", "admitted one"]
            assert host.gone == [
                ("one", "another device came in with its name, and it did not answer", False)
            ]
            assert host.was[-1] == ""
        else:
            assert took < (1.1 if how == "lives" else 0.5)
            assert new.mesh.name == ("two 2" if how == "another" else "one 2")
            assert host.gone == []
        await leave(new, other, one, two, host)

    simulate(scenario)


def test_back_while_its_name_is_asked_for() -> None:
    """PROTOCOL section 8: a device that was away, and is in again within the 1.5 s, keeps its name."""

    async def scenario() -> None:
        net = SimNetwork()
        host, one = await room(net, "host", "one")
        net.signaling(False)
        for link in net.connections(ROOM, one.mesh.id):
            link.become("failed")
        await asyncio.sleep(5)
        net._registered[
            ("local", one.mesh.id)
        ].on_outage = None  # it does not hear yet that signaling is back
        net.signaling(True)
        new = device(net, "one")
        joining = asyncio.create_task(join(new))
        await asyncio.sleep(1)
        assert not joining.done()
        one.mesh._registration._on_outage(False)
        await joining
        assert host.names == ["host", "one", "one 2"]
        assert host.mesh.roster[1].id == one.mesh.id
        assert host.gone == []
        assert host.was[-2:] == [one.mesh.id, ""]
        await leave(new, one, host)

    simulate(scenario)


@pytest.mark.parametrize("holds", [True, False])
def test_with_the_pass_it_is_the_same_device(holds: bool) -> None:
    """PROTOCOL section 3: a newcomer that proves the holder's pass takes the seat itself, at once, and is
    asked for nothing; a name alone is no pass, and the seat's key does not go with it.
    """

    async def scenario() -> None:
        net = SimNetwork()
        host, one = await room(net, "host", "one")
        seat = host.mesh.seat(one.mesh.id)
        net.kill(one.mesh.id)
        for link in net.connections(ROOM, one.mesh.id):
            link.become("failed")
        await asyncio.sleep(3)
        held = one.gates.newcomer.credentials if holds else None
        new = device(net, "one", credentials=held)
        took = await join(new)
        assert new.mesh.name == "one"
        assert (host.mesh.seat(new.mesh.id) == seat) == holds
        assert host.was[-1] == (one.mesh.id if holds else "")
        assert (took < 0.5) == holds
        await leave(new, one, host)

    simulate(scenario)


def test_a_pass_whose_seat_is_gone_asks_for_its_name() -> None:
    """PROTOCOL sections 3 and 8: "a name taken meanwhile is made unique again", unless who took it is a
    ghost.
    """

    async def scenario() -> None:
        net = SimNetwork()
        host, one = await room(net, "host", "one")
        await one.mesh.leave()
        thief = device(net, "one")
        await join(thief)
        net.kill(thief.mesh.id)
        await asyncio.sleep(3)
        back = device(net, "whatever", credentials=one.gates.newcomer.credentials)
        assert 1.5 <= await join(back) < 2.5
        assert host.names == ["host", "one"]
        assert host.mesh.roster[1].id == back.mesh.id
        await leave(back, thief, host)

    simulate(scenario)


def test_the_hosts_name_and_a_person_who_is_asked() -> None:
    """PROTOCOL section 8: nobody drops the creator; where a person decides, the name is asked for after its
    yes, and not before.
    """

    async def scenario() -> None:
        net = SimNetwork()
        host = device(net, "host", ask=True)
        await host.mesh.create(CODE, ["local"])
        gate = host.gates.keeper

        async def let_in(one: Recorder) -> None:
            joining = asyncio.create_task(one.mesh.join(CODE, ["local"]))
            await asyncio.sleep(0.5)
            gate.decide(gate.lobby[0].number, allow=True)
            host.mesh.decided()
            await joining

        first, twin = device(net, "one", DeviceMeta(gpu="T4")), device(net, "host")
        await let_in(first)
        await let_in(twin)
        assert host.names == ["host", "one", "host 2"]
        await asyncio.sleep(8)
        net.kill(first.mesh.id)
        await asyncio.sleep(4)
        new = device(net, "one")
        joining = asyncio.create_task(new.mesh.join(CODE, ["local"]))
        await asyncio.sleep(5)
        assert host.gone == []
        gate.decide(gate.lobby[0].number, allow=True)
        host.mesh.decided()
        await asyncio.sleep(1)
        assert not joining.done()
        assert host.gone == []
        await joining
        assert host.names == ["host", "host 2", "one"]
        assert gate.lobby == ()
        await leave(new, twin, first, host)

    simulate(scenario)
