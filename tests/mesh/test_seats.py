"""Who keeps a seat and who does not, over whole meshes with the real gates (PROTOCOL section 3)."""

from __future__ import annotations

import asyncio

import pytest

from pooled_nb.errors import RoomRefused
from pooled_nb.mesh.mesh import LinkFacts
from pooled_nb.mesh.messages import chat
from pooled_nb.mesh.newcomer import Credentials
from tests.mesh.rawpeer import RawPeer
from tests.mesh.recorder import CODE, ROOM, Recorder, device, leave, room
from tests.sim.clock import simulate
from tests.sim.network import SimNetwork


def back(net: SimNetwork, one: Recorder, name: str = "whatever") -> Recorder:
    """The same device in a new process: it has the pass that ``one`` was given."""
    held = one.gates.newcomer.credentials
    assert held.pass_
    return device(net, name, credentials=Credentials(pass_=held.pass_))


def facts(host: Recorder, one: Recorder) -> LinkFacts:
    found = host.mesh.facts(one.mesh.id)
    assert found is not None
    return found


def test_who_comes_back_keeps_place_and_name() -> None:
    """PROTOCOL section 3, dead links: "Who comes back keeps place and layers: a **seat** goes to the device
    that proves the pass given for it", under whatever id; the room hears that the new line is in, and under
    which id it was before.
    """

    async def scenario() -> None:
        net = SimNetwork()
        host, one, two = await room(net, "host", "one", "two")
        seat = host.mesh.seat(one.mesh.id)
        assert seat
        assert seat != host.mesh.seat(two.mesh.id)
        assert host.mesh.roster[1].a
        net.kill(one.mesh.id)
        await asyncio.sleep(5)
        host.diary.clear()
        again = back(net, one)
        await again.mesh.join(CODE, ["local"])
        await asyncio.sleep(1)
        assert host.diary == ["roster", "admitted one"]
        assert host.was[-1] == one.mesh.id
        assert again.mesh.id != one.mesh.id
        assert [m.id for m in host.mesh.roster] == [ROOM, again.mesh.id, two.mesh.id]
        assert host.names == two.names == again.names == ["host", "one", "two"]
        assert again.mesh.name == "one"
        assert host.mesh.seat(again.mesh.id) == seat
        assert host.mesh.seat(one.mesh.id) == ""
        await asyncio.sleep(40)  # the dead link is no news any more
        assert (host.gone, host.away) == ([], [])
        assert host.mesh.send(again.mesh.id, chat.Queue(n=1))
        await leave(again, two, host, one)

    simulate(scenario)


def test_a_copied_pass_moves_no_seat() -> None:
    """PROTOCOL section 3: a pass is proved whose device is here and answers: one of the two is a copy, and
    the seat stays where it is.
    """

    async def scenario() -> None:
        net = SimNetwork()
        host, one = await room(net, "host", "one")
        while not 1.0 < facts(host, one).quiet_s < 1.1:  # noqa: ASYNC110  # it will be pinged
            await asyncio.sleep(0.05)
        (connection,) = net.connections(ROOM, one.mesh.id)
        before = connection.control.sent
        copy = back(net, one)
        joining = asyncio.create_task(copy.mesh.join(CODE, ["local"]))
        await asyncio.sleep(0.3)
        assert connection.control.sent == before + 1
        with pytest.raises(RoomRefused):
            await joining
        await asyncio.sleep(1)
        assert host.names == ["host", "one"]
        assert host.gone == []
        assert one.closed == []
        assert host.mesh.send(one.mesh.id, chat.Queue(n=1))
        await leave(one, host)

    simulate(scenario)


def test_a_seat_that_was_left_keeps_the_name_only() -> None:
    """PROTOCOL section 3: "a pass belongs to a seat, not to a name: a name taken meanwhile is made unique
    again": who left comes in by its pass, asked for nothing, at the end, and is called as before.
    """

    async def scenario() -> None:
        net = SimNetwork()
        host, one, two = await room(net, "host", "one", "two")
        await one.mesh.leave()
        again = back(net, one)
        await again.mesh.join(CODE, ["local"])
        assert again.gates.newcomer.trust == "proved"
        assert again.names == ["host", "two", "one"]
        await again.mesh.leave()
        thief = device(net, "one")
        await thief.mesh.join(CODE, ["local"])
        third = back(net, one)
        await third.mesh.join(CODE, ["local"])
        assert third.names == ["host", "two", "one", "one 2"]
        await leave(third, thief, two, host)

    simulate(scenario)


@pytest.mark.parametrize("allowed", [True, False])
def test_an_id_is_no_seat(allowed: bool) -> None:
    """PROTOCOL section 3, before admission: "A new connection under the id of an admitted device waits at the
    gate beside the old link; it replaces it only when admitted", and then it is another device.
    """

    async def scenario() -> None:
        net = SimNetwork()
        host = device(net, "host", ask=True)
        await host.mesh.create(CODE, ["local"])
        old = await RawPeer.dial(net, ROOM, id="same")
        old.say("hello", name="old", v=4, join=1)
        await asyncio.sleep(0.1)
        (request,) = host.gates.keeper.lobby
        host.gates.keeper.decide(request.number, allow=True)
        host.mesh.decided()
        after = await RawPeer.dial(net, ROOM, id="after")
        after.say("hello", name="after", v=4, join=1)
        await asyncio.sleep(0.1)
        host.gates.keeper.decide(host.gates.keeper.lobby[0].number, allow=True)
        host.mesh.decided()
        seat = host.mesh.seat("same")
        host.diary.clear()
        new = await RawPeer.dial(net, ROOM, id="same")
        new.say("hello", name="new", v=4, join=1, back=1)
        new.say("ai-ask", text="early")
        old.say("ai-ask", text="mine")
        await asyncio.sleep(0.2)
        (request,) = host.gates.keeper.lobby
        assert request.note
        assert host.names == ["host", "old", "after"]
        assert host.messages == [("same", chat.Ask(text="mine"))]
        host.gates.keeper.decide(request.number, allow=allowed)
        host.mesh.decided()
        await asyncio.sleep(1)
        if allowed:
            assert host.diary == ["message ai-ask", "roster", "gone old", "admitted new", "message ai-ask"]
            assert host.gone == [("old", "another device took its id", False)]
            assert host.names == ["host", "after", "new"]
            assert host.mesh.seat("same") not in ("", seat)
            assert old.told[-1]["t"] == "bye"
            assert (old.connection.state, new.connection.state) == ("closed", "connected")
        else:
            assert host.names == ["host", "old", "after"]
            assert host.mesh.seat("same") == seat
            assert host.gone == []
            assert (old.connection.state, new.connection.state) == ("connected", "closed")
        await leave(host)

    simulate(scenario)


def test_thrown_out_at_once_with_all_its_links() -> None:
    """PROTOCOL section 3, `bye`: who is thrown out hears why; its place goes at once, and a link of it that
    waits at the gate goes with it.
    """

    async def scenario() -> None:
        net = SimNetwork()
        host = device(net, "host", ask=True)
        await host.mesh.create(CODE, ["local"])
        links = []
        for _ in range(2):
            links.append(await RawPeer.dial(net, ROOM, id="loud"))
            links[-1].say("hello", name="loud", v=4, join=1)
            await asyncio.sleep(0.1)
            if len(links) == 1:
                host.gates.keeper.decide(host.gates.keeper.lobby[0].number, allow=True)
                host.mesh.decided()
        assert host.names == ["host", "loud"]
        assert len(host.gates.keeper.lobby) == 1
        host.mesh.kick("loud", "Too loud.")
        assert host.names == ["host"]
        assert host.gone == [("loud", "Too loud.", False)]
        assert not host.gates.keeper.lobby
        await asyncio.sleep(1)
        for link in links:
            assert link.told[-1] == {"t": "bye", "reason": "Too loud."}
            assert link.connection.state == "closed"
        assert len(host.gone) == 1
        host.mesh.kick(ROOM, "me")
        assert host.names == ["host"]
        await leave(host)

    simulate(scenario)


def test_a_revoked_pass_is_no_seat() -> None:
    """PROTOCOL section 3, `bye`: "A device thrown out loses its passes"."""

    async def scenario() -> None:
        net = SimNetwork()
        host, one = await room(net, "host", "one")
        host.gates.keeper.revoke(host.mesh.seat(one.mesh.id))
        host.mesh.kick(one.mesh.id, "out")
        await asyncio.sleep(1)
        assert one.closed == ["The room's owner took this device out. out"]
        with pytest.raises(RoomRefused):  # it holds a pass, and the room knows none: no room to believe
            await back(net, one).mesh.join(CODE, ["local"])
        assert host.names == ["host"]
        await leave(one, host)

    simulate(scenario)
