"""How devices enter a room, or do not, over the simulated network (PROTOCOL sections 2 and 3)."""

from __future__ import annotations

import asyncio

import pytest

from pooled_nb.errors import (
    LinkFailed,
    RoomClosed,
    RoomError,
    RoomNotFound,
    RoomRefused,
    SignalingDown,
)
from pooled_nb.mesh.messages import chat
from tests.mesh.rawpeer import RawPeer
from tests.mesh.recorder import CODE, ROOM, device, leave, room
from tests.sim.clock import simulate
from tests.sim.network import SimNetwork


@pytest.mark.parametrize(("v", "older"), [(3, "that device"), (5, "this room"), (None, "that device")])
def test_another_version_is_refused_in_words_on_both_ends(v: int | None, older: str) -> None:
    """PROTOCOL section 3, hello: the creator refuses another `v`, or none, after its own hello, with `bye
    {reason}`.
    """

    async def scenario() -> None:
        net = SimNetwork()
        host = device(net, "host")
        await host.mesh.create(CODE, ["local"])
        peer = await RawPeer.dial(net, ROOM)
        peer.say("hello", name="old", **({} if v is None else {"v": v}))
        await asyncio.sleep(0.2)
        assert [m["t"] for m in peer.told if m["t"] != "ping"] == ["hello", "bye"]
        assert peer.told[0]["v"] == 4
        said = peer.told_of("bye")[0]["reason"]
        assert ("yours is older" if older == "that device" else "this end is older") in said
        assert f"{older} is older" in host.notices[-1]
        assert "Update" in host.notices[-1]
        await asyncio.sleep(1)
        assert peer.connection.state == "closed"
        assert host.names == ["host"]
        assert host.admitted == []
        await leave(host)

    simulate(scenario)


@pytest.mark.parametrize(("v", "older"), [(3, "the other end"), (5, "this device"), (None, "the other end")])
def test_a_device_refuses_a_creator_of_another_version(v: int | None, older: str) -> None:
    """PROTOCOL section 3, hello: others refuse with `leaving`; their person reads who is older and what to
    update.
    """

    async def scenario() -> None:
        net = SimNetwork()
        creators = await RawPeer.listen(net, ROOM)
        one = device(net, "one")
        joining = asyncio.create_task(one.mesh.join(CODE, ["local"]))
        await asyncio.sleep(0.5)
        creators[0].say("hello", name="host", **({} if v is None else {"v": v}))
        with pytest.raises(RoomRefused, match=f"{older} is older") as refused:
            await joining
        assert "pdate" in refused.value.next_step
        await asyncio.sleep(1)
        assert [m["t"] for m in creators[0].told if m["t"] != "ping"] == ["hello", "leaving"]
        assert creators[0].connection.state == "closed"
        await leave(one)

    simulate(scenario)


def test_no_such_room_goes_down_the_list() -> None:
    """PROTOCOL section 2: a joiner that finds no such room on one server goes on down the list."""

    async def scenario() -> None:
        net = SimNetwork()
        host, one, two = device(net, "host"), device(net, "one"), device(net, "two")
        await host.mesh.create(CODE, ["b.example"])
        await one.mesh.join(CODE, ["a.example", "b.example"])
        assert one.mesh.server == "b.example"
        with pytest.raises(RoomNotFound):
            await two.mesh.join(CODE, ["a.example", "c.example"])
        assert two.mesh.roster == ()
        await two.mesh.join(CODE, ["b.example"])  # everything was left as it was
        await leave(two, one, host)

    simulate(scenario)


def test_signaling_down() -> None:
    """PROTOCOL section 2: no server answers → said so; a room that is there goes on without signaling."""

    async def scenario() -> None:
        net = SimNetwork()
        host, one = await room(net, "host", "one")
        for _ in range(20):
            net.signaling(False)
            await asyncio.sleep(0.7)
            net.signaling(True)
            await asyncio.sleep(0.7)
        assert len(host.notices) == 1
        assert "goes on" in host.notices[0]
        await asyncio.sleep(30)
        assert host.notices[1:] == ["The signaling server is back."]
        net.signaling(False)
        late = device(net, "late")
        with pytest.raises(SignalingDown):
            await late.mesh.join(CODE, ["local"])
        with pytest.raises(SignalingDown):
            await device(net, "x").mesh.create("AAAAAA", ["local"])
        assert one.mesh.send(ROOM, chat.Stop())
        await asyncio.sleep(60)
        assert host.messages == [(one.mesh.id, chat.Stop())]
        net.signaling(True)
        await late.mesh.join(CODE, ["local"])  # CASES, network: a new device joins as soon as it is back
        await leave(late, one, host)

    simulate(scenario)


def test_a_taken_code_and_a_kept_token() -> None:
    """CASES, network: the creator takes its code back with its saved token, at once."""

    async def scenario() -> None:
        net = SimNetwork()
        host, again, thief = device(net, "host"), device(net, "host"), device(net, "thief")
        await host.mesh.create(CODE, ["local"], token="secret")
        with pytest.raises(RoomError):
            await thief.mesh.create(CODE, ["local"], token="other")
        net.kill(ROOM)
        await again.mesh.create(CODE, ["local"], token="secret")
        one = device(net, "one")
        await one.mesh.join(CODE, ["local"])
        assert again.names == ["host", "one"]
        await leave(one, again, host, thief)

    simulate(scenario)


def test_no_path_says_so() -> None:
    """PROTOCOL section 2: a join says so at 5 s, and stops at 15 s or 40 s with the reason."""

    async def scenario() -> None:
        net = SimNetwork()
        host, one = device(net, "host"), device(net, "one")
        await host.mesh.create(CODE, ["local"])
        net.refuse_open.add(ROOM)
        start = asyncio.get_running_loop().time()
        with pytest.raises(LinkFailed, match="no network path to the host"):
            await one.mesh.join(CODE, ["local"])
        assert 15 <= asyncio.get_running_loop().time() - start <= 41
        assert one.notices == [
            "Still connecting: the host answered, and network paths to it are still being tried …"
        ]
        await leave(one, host)

    simulate(scenario)


def test_a_silent_room_is_dialed_once_more() -> None:
    """PROTOCOL section 3, dead links: a dialer that has no `hello` 5 s after `open` closes and
    dials again.
    """

    async def scenario() -> None:
        net = SimNetwork()
        host, one = device(net, "host"), device(net, "one")
        await host.mesh.create(CODE, ["local"])
        mute = host.mesh._registration.endpoint
        assert mute is not None
        answer, mute.on_connection = mute.on_connection, lambda connection: None
        asyncio.get_running_loop().call_later(3, lambda: setattr(mute, "on_connection", answer))
        start = asyncio.get_running_loop().time()
        await one.mesh.join(CODE, ["local"])
        assert 5 <= asyncio.get_running_loop().time() - start < 7
        await asyncio.sleep(1)
        assert host.names == ["host", "one"]
        mute.on_connection = lambda connection: None
        with pytest.raises(LinkFailed, match="said nothing"):
            await device(net, "two").mesh.join(CODE, ["local"])
        await leave(one, host)

    simulate(scenario)


def test_leaving_while_joining() -> None:
    """DESIGN section 1: every wait can be interrupted; leaving ends a join at any moment and
    leaves no task.
    """

    async def scenario() -> None:
        net = SimNetwork(latency=0.5)
        host = device(net, "host")
        await host.mesh.create(CODE, ["local"])
        for moment in (0.1, 1.2, 1.8, 2.3, 2.8, 3.3):
            one = device(net, "one")
            joining = asyncio.create_task(one.mesh.join(CODE, ["local"]))
            await asyncio.sleep(moment)
            await one.mesh.leave()
            with pytest.raises((RoomClosed, LinkFailed)):
                await joining
        again = device(net, "again")
        joining = asyncio.create_task(again.mesh.join(CODE, ["local"]))
        await asyncio.sleep(2.2)
        joining.cancel()
        with pytest.raises(asyncio.CancelledError):
            await joining
        await again.mesh.join(CODE, ["local"])
        await leave(again, host)

    simulate(scenario)


def test_the_token_of_a_room() -> None:
    """CASES, network: the creator saves `Mesh.token` with the room, and takes its code back with it."""

    async def scenario() -> None:
        net = SimNetwork()
        host, one = device(net, "host"), device(net, "one")
        assert host.mesh.token == ""
        await host.mesh.create(CODE, ["local"])
        await one.mesh.join(CODE, ["local"])
        token = host.mesh.token
        assert token
        assert one.mesh.token not in ("", token)
        with pytest.raises(AttributeError):
            host.mesh.token = "another"  # type: ignore[misc]
        net.kill(ROOM)
        thief, again = device(net, "host"), device(net, "host")
        with pytest.raises(RoomError):
            await thief.mesh.create(CODE, ["local"], token="guessed")
        await again.mesh.create(CODE, ["local"], token=token)
        assert again.mesh.token == token
        await leave(again, one)

    simulate(scenario)
