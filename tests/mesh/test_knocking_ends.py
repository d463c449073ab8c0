"""What a device that knocks is told, and what ends its knocking (PROTOCOL sections 3 and 4)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from pooled_nb.errors import AlreadyInRoom, RoomRefused
from pooled_nb.mesh.linkactions import Cause
from pooled_nb.mesh.linkstate import State
from pooled_nb.mesh.messages import chat
from tests.mesh.knocktools import endpoint, now, restarted, until
from tests.mesh.machines import OnMachine, machines
from tests.mesh.rawpeer import RawPeer
from tests.mesh.recorder import CODE, ROOM, leave, room
from tests.sim.clock import simulate
from tests.sim.faults import FaultyNetwork
from tests.sim.network import SimConnection, SimNetwork


@pytest.mark.parametrize("how", ["closed", "bye", "left", "version", "impostor"])
def test_what_ends_knocking(how: str) -> None:
    """PROTOCOL section 3, `bye {closed: 1}`: "the room is over, do not knock"; section 4: who cannot prove
    that it knows the pass is left loudly, and never knocked at again.
    """

    async def scenario() -> None:
        net = SimNetwork()
        host, one = await room(net, "host", "one")
        token = host.mesh.token
        await host.mesh.abandon()
        raw = await net.register(ROOM, ["local"], token=token)
        creators: list[RawPeer] = []
        raw.on_connection = lambda connection: creators.append(RawPeer(connection))
        await until(lambda: creators and creators[0].told)
        peer = creators[0]
        if how == "version":
            peer.say("hello", name="host", v=5)
        else:
            peer.say("hello", name="host", v=4, gate=1, auth=1)
        if how == "closed":
            peer.say("bye", reason="The room is over.", closed=1)
        elif how == "bye":
            peer.say("bye", reason="Not you.")
        elif how == "left":
            peer.say("leaving")
        elif how == "impostor":
            peer.say("auth", v=1, hn="n" * 22)
            peer.say("admit", via="pass", hp="0" * 64, mk="m" * 43)
        await asyncio.sleep(1)
        (why,) = one.closed
        assert one.mesh.end is not None
        wanted = {
            "closed": (Cause.CLOSED, "The room is over."),
            "bye": (Cause.BYE, "The host did not take this device back. Not you."),
            "left": (Cause.LEFT, "The host left: the room is over."),
            "version": (Cause.VERSION, "is older"),
            "impostor": (Cause.REFUSED, "somebody may stand between you"),
        }[how]
        assert one.mesh.end.cause is wanted[0]
        assert wanted[1] in why
        before = len(creators)
        await asyncio.sleep(100)
        assert len(creators) == before
        assert one.diary[-1] == "closed"
        assert bool(one.gates.newcomer.distrusts) == (how == "impostor")
        with pytest.raises(AlreadyInRoom):
            await one.mesh.join(CODE, ["local"])
        await leave(one)

    simulate(scenario)


@pytest.mark.parametrize("allowed", [True, False])
def test_a_host_that_knows_no_pass_any_more(allowed: bool) -> None:
    """PROTOCOL section 4: it asks its person, and a device that holds a pass says "the host did not recognise
    your link"; it waits as at a first join, knocks no more meanwhile, and its own person has the last word.
    """

    async def scenario() -> None:
        net = SimNetwork()
        host, one = await room(net, "host", "one")
        await host.mesh.abandon()
        again = await restarted(net, host, ask=True, knows=False)
        keeper: Any = again.mesh._gates
        await until(lambda: keeper.lobby)
        await asyncio.sleep(0.1)
        before = endpoint(one).dials
        assert "Waiting for the host to let this device in" in one.notices[-1]
        await asyncio.sleep(120)
        assert endpoint(one).dials == before
        assert one.mesh.knocking is not None
        keeper.decide(keeper.lobby[0].number, allow=allowed)
        again.mesh.decided()
        await asyncio.sleep(1)
        if not allowed:
            assert one.closed == [
                "The host did not take this device back. The host did not let this device in."
            ]
        else:
            assert one.gates.newcomer.waiting == "confirm"
            assert "compare the six digits" in one.notices[-1]
            assert "back" not in one.diary
            one.gates.newcomer.confirm(same=True)
            one.mesh.decided()
            await asyncio.sleep(1)
            assert one.diary[-2:] == ["roster", "back"]
            assert one.gates.newcomer.trust == "confirmed"
        await leave(one, again)

    simulate(scenario)


def test_a_host_that_takes_anybody_and_knows_no_pass() -> None:
    """PROTOCOL section 4: without a lobby nobody vouches for it: who holds a pass leaves, loudly."""

    async def scenario() -> None:
        net = SimNetwork()
        host, one = await room(net, "host", "one")
        await host.mesh.abandon()
        again = await restarted(net, host, knows=False)
        await until(lambda: one.closed)
        assert "without recognising it" in one.closed[0]
        assert "back" not in one.diary
        await asyncio.sleep(60)
        assert again.names == ["host"]
        await leave(one, again)

    simulate(scenario)


@pytest.mark.parametrize("moment", [0.0, 0.005, 0.02, 0.05, 0.08, 0.1, 0.12, 1.0, 61.0])
@pytest.mark.parametrize("quietly", [False, True])
def test_leaving_while_it_knocks(moment: float, quietly: bool) -> None:
    """DESIGN section 1: every wait can be interrupted: leaving ends knocking at any moment, leaves no task
    and no ghost; nothing is told to the room any more.
    """

    async def scenario() -> None:
        net = SimNetwork(latency=0.02)
        host, one = await room(net, "host", "one")
        if moment >= 1:
            await host.mesh.abandon()
            await asyncio.sleep(0.1)
        else:
            (link,) = net.connections(one.mesh.id, ROOM)
            link.become("failed")
        await asyncio.sleep(moment)
        assert one.mesh.knocking is not None
        diary = list(one.diary)
        began = now()
        await (one.mesh.abandon() if quietly else one.mesh.leave())
        assert now() - began < 0.5
        assert one.mesh.knocking is None
        dials = one.mesh._registration.endpoint
        await asyncio.sleep(50)
        assert dials is None
        assert one.diary == diary
        if moment < 1:
            assert host.names == ["host"]
        assert net.connections(one.mesh.id, ROOM) == []
        await leave(host)

    simulate(scenario)


def test_a_host_that_left_is_not_knocked_at() -> None:
    """PROTOCOL section 3, `bye {closed: 1}`: as ever, a room that was closed is over at once; who is thrown
    out does not come back.
    """

    async def scenario() -> None:
        net = SimNetwork()
        host, one, two = await room(net, "host", "one", "two")
        host.mesh.kick(two.mesh.id, "Out.")
        await asyncio.sleep(1)
        await host.mesh.leave()
        await asyncio.sleep(1)
        assert one.closed == ["The room is over."]
        assert two.closed == ["The room's owner took this device out. Out."]
        assert one.away == two.away == []
        await leave(one, two)

    simulate(scenario)


def test_abandoning_tells_nobody_anything() -> None:
    """PROTOCOL section 3: a host whose kernel restarts says no farewell, and no roster that shrinks:
    neighbours keep their links to each other, and knock.
    """

    async def scenario() -> None:
        net = SimNetwork()
        host, one, two = await room(net, "host", "one", "two")
        await one.mesh.connect(two.mesh.id)
        await asyncio.sleep(1)
        one.diary.clear()
        two.diary.clear()
        await host.mesh.abandon()
        await host.mesh.abandon()
        await host.mesh.leave()
        await asyncio.sleep(2)
        assert one.diary == two.diary == ["away host"]
        assert one.names == two.names == ["host", "one", "two"]
        assert one.mesh.send(two.mesh.id, chat.Queue(n=1))
        await asyncio.sleep(1)
        assert two.messages == [(one.mesh.id, chat.Queue(n=1))]
        assert host.diary[-1] == "admitted two"
        await leave(one, two)

    simulate(scenario)


def test_what_the_room_does_when_it_hears() -> None:
    """DESIGN section 1: a room may leave at any callback, and what it raises breaks nothing."""

    async def scenario() -> None:
        net = SimNetwork()
        host, one, two = await room(net, "host", "one", "two")
        left: list[asyncio.Task[None]] = []

        def leaves(id: str, name: str, why: str) -> None:
            left.append(asyncio.get_running_loop().create_task(one.mesh.leave()))

        def raises() -> None:
            raise ValueError("a mistake of the room")

        one.on_away = leaves  # type: ignore[method-assign]
        two.on_back = raises  # type: ignore[method-assign]
        for each in (one, two):
            (link,) = net.connections(each.mesh.id, ROOM)
            link.become("failed")
        await asyncio.sleep(5)
        assert one.mesh.knocking is None
        assert two.mesh.send(ROOM, chat.Stop())
        await asyncio.gather(*left)
        await asyncio.sleep(50)
        assert host.names == ["host", "two"]
        await leave(two, host)

    simulate(scenario)


@pytest.mark.parametrize("comes", [True, False])
def test_neighbours_outlive_their_host(comes: bool) -> None:
    """PROTOCOL section 3, dead links: a host that was started again names at first only who is back already:
    links to the others are kept as long as a seat is. Who was named and is no longer is out at once.
    """

    async def scenario() -> None:
        net = SimNetwork()
        host, one, two = await room(net, "host", "one", "two")
        await one.mesh.connect(two.mesh.id)
        await asyncio.sleep(1)
        await host.mesh.abandon()
        two.mesh._registration._on_outage(True)  # it reaches no signaling server for a while
        again = await restarted(net, host)
        await until(lambda: "back" in one.diary)
        assert one.names == ["host", "one"]
        assert one.mesh.send(two.mesh.id, chat.Queue(n=1))
        assert two.mesh.send(one.mesh.id, chat.Queue(n=2))
        await asyncio.sleep(40)
        assert one.gone == two.gone == []
        assert one.messages == [(two.mesh.id, chat.Queue(n=2))]
        if comes:
            two.mesh._registration._on_outage(False)
            await until(lambda: "back" in two.diary)
            await asyncio.sleep(10)
            assert one.names == ["host", "one", "two"]
            assert one.gone == two.gone == []
            net.kill(two.mesh.id)  # it does not go by itself
            again.mesh.kick(two.mesh.id, "Out.")
            await asyncio.sleep(0.1)
            assert one.gone == [("two", "it is no longer in the room", False)]
        else:
            await asyncio.sleep(6)
            assert one.gone == [("two", "it is no longer in the room", False)]
        assert not one.mesh.send(two.mesh.id, chat.Queue(n=3))
        await leave(two, one, again)

    simulate(scenario)


@pytest.mark.parametrize("before", [True, False])
def test_a_device_that_froze_at_the_gate(before: bool) -> None:
    """PROTOCOL section 3: who was here before, and is slow with its proof, is not refused: its link closes,
    it knocks again, and it is in. A newcomer is told in words what went wrong.
    """

    async def scenario() -> None:
        net = FaultyNetwork()
        host, one = await machines(net, "host", "one")
        new = OnMachine(net, "new")

        def challenged() -> bool:
            links = host.recorder.mesh._links
            return links is not None and any(link.state.state is State.GATE for link in links.book)

        if before:
            net.fail("host", "one", "all")
            await until(challenged)
            assert one.recorder.mesh.knocking is not None
            await one.freeze(20)
            await asyncio.sleep(5)
            assert one.recorder.closed == []
            assert one.recorder.diary[-1] == "back"
            assert host.recorder.names == one.recorder.names == ["host", "one"]
        else:
            joining = new.machine.spawn(new.recorder.mesh.join("4TKG9P", ["local"]))
            await until(challenged)
            await new.freeze(20)
            with pytest.raises(RoomRefused, match="did not answer the room's challenge"):
                await joining
        for each in (new, one, host):
            await each.leave()

    simulate(scenario)


def test_a_knock_over_a_link_without_a_binding() -> None:
    """PROTOCOL section 4: "only then is there no binding": nothing can be proved over that link. Who was here
    before is not refused for it: it closes without a word, and the next knock is another link.
    """

    async def scenario() -> None:
        net = SimNetwork()
        host, one = await room(net, "host", "one")
        real, blind = net.pair, [True]

        def pair(a: str, b: str, label: str) -> tuple[SimConnection, SimConnection]:
            near, far = real(a, b, label)
            if blind and blind.pop():
                far.prints = None
            return near, far

        net.pair = pair  # type: ignore[method-assign]
        (link,) = net.connections(one.mesh.id, ROOM)
        link.become("failed")
        assert 5 < await until(lambda: "back" in one.diary, 10) < 7
        assert one.closed == []
        assert host.names == ["host", "one"]
        await leave(one, host)

    simulate(scenario)
