"""How a join speaks, how long it waits, and why it stops (PROTOCOL section 2), in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

import pytest

from pooled_nb.errors import LinkFailed, PooledError, RoomClosed, RoomNotFound, RoomRefused, SignalingDown
from pooled_nb.mesh.newcomer import Credentials
from tests.mesh.rawpeer import RawPeer
from tests.mesh.recorder import CODE, ROOM, Recorder, device, leave
from tests.sim.clock import simulate
from tests.sim.network import SimEndpoint, SimNetwork


async def failed(join: Awaitable[Any]) -> tuple[float, PooledError]:
    """After how many seconds, and with what."""
    start = asyncio.get_running_loop().time()
    with pytest.raises(PooledError) as error:
        await join
    return asyncio.get_running_loop().time() - start, error.value


def told_at(one: Recorder) -> list[tuple[float, str]]:
    """When each notice was told, counted from now."""
    start, told = asyncio.get_running_loop().time(), list[tuple[float, str]]()
    one.on_notice = lambda text: told.append((asyncio.get_running_loop().time() - start, text))  # type: ignore[method-assign]
    return told


def test_the_host_does_not_answer() -> None:
    """PROTOCOL section 2: "A join says so at 5 s", naming what is tried; it stops at 15 s: no answer."""

    async def scenario() -> None:
        net = SimNetwork()
        host, one = device(net, "host"), device(net, "one")
        await host.mesh.create(CODE, ["local"])
        net.kill(ROOM)
        told = told_at(one)
        seconds, error = await failed(one.mesh.join(CODE, ["local"]))
        assert seconds == pytest.approx(15.0, abs=0.1)
        assert isinstance(error, LinkFailed)
        assert error.what == "The host does not answer: nothing came back in 15 s."
        assert "notebook still runs" in error.next_step
        ((at, text),) = told
        assert at == pytest.approx(5.0, abs=0.01)
        assert text == "Still connecting: signaling works (local), and the host has not answered yet …"
        await leave(one, host)

    simulate(scenario)


def test_leaving_ends_an_unanswered_dial_at_once() -> None:
    """DESIGN section 1: every wait can be interrupted, a dial that nobody answers, too."""

    async def scenario() -> None:
        net = SimNetwork()
        host, one = device(net, "host"), device(net, "one")
        await host.mesh.create(CODE, ["local"])
        net.kill(ROOM)
        joining = asyncio.create_task(failed(one.mesh.join(CODE, ["local"])))
        await asyncio.sleep(3)
        await one.mesh.leave()
        seconds, error = await joining
        assert seconds == pytest.approx(3.0, abs=0.1)
        assert isinstance(error, RoomClosed)
        await leave(host)

    simulate(scenario)


def test_paths_are_tried_for_40_s() -> None:
    """PROTOCOL section 2: "at 40 s while paths are still being tried", with the reason and what helps."""

    async def scenario() -> None:
        net = SimNetwork()
        host, one = device(net, "host"), device(net, "one")
        await host.mesh.create(CODE, ["local"])
        net.refuse_open.add(ROOM)
        net.failed_s = 1e9
        told = told_at(one)
        seconds, error = await failed(one.mesh.join(CODE, ["local"]))
        assert 40.0 <= seconds <= 40.6
        assert isinstance(error, LinkFailed)
        assert error.what == "There is no network path to the host: no network path opened within 40 s."
        assert "TURN server" in error.next_step
        assert "%pooled network" in error.next_step
        assert [text for _, text in told] == [
            "Still connecting: the host answered, and network paths to it are still being tried …"
        ]
        await leave(one, host)

    simulate(scenario)


@pytest.mark.parametrize(
    ("says", "doing", "why"),
    [
        ((), "and its gate has not answered yet", "its gate did not answer in 15 s"),
        (("admit",), "and its list of devices is not here yet", "sent no list of its devices"),
    ],
)
def test_the_gate_does_not_answer(says: tuple[str, ...], doing: str, why: str) -> None:
    """PROTOCOL sections 2 and 3: a link that opens is not the end of it: no `admit` in 15 s, or no `roster`,
    is said so, too.
    """

    async def scenario() -> None:
        net = SimNetwork()
        creators = await RawPeer.listen(net, ROOM)
        one = device(net, "one")
        told = told_at(one)
        joining = asyncio.create_task(failed(one.mesh.join(CODE, ["local"])))
        await asyncio.sleep(0.2)
        creators[0].say("hello", name="host", v=4, gate=1, auth=1)
        for t in says:
            creators[0].say(t)
        seconds, error = await joining
        assert 15.0 <= seconds <= 16.0
        assert isinstance(error, LinkFailed)
        assert why in error.what
        assert error.next_step
        ((at, text),) = told
        assert at == pytest.approx(5.0, abs=0.01)
        assert doing in text
        assert len(creators) == 1  # it is not dialed again
        await leave(one)

    simulate(scenario)


def test_no_timer_runs_while_a_person_is_asked() -> None:
    """PROTOCOL section 4, lobby: for ten minutes nothing is said and nothing given up; then it is in."""

    async def scenario() -> None:
        net = SimNetwork()
        creators = await RawPeer.listen(net, ROOM)
        one = device(net, "one")
        joining = asyncio.create_task(one.mesh.join(CODE, ["local"]))
        await asyncio.sleep(0.2)
        creator = creators[0]
        creator.say("hello", name="host", v=4, gate=1, ask=1)
        creator.say("lobby")
        for _ in range(30):
            creator.say("ping", ts=1)
            await asyncio.sleep(20)
        assert not joining.done()
        assert len(one.notices) == 1
        assert "Still connecting" not in one.notices[0]
        creator.say("admit", mk="k" * 43)
        creator.say("roster", members=[{"id": ROOM, "name": "host"}, {"id": one.mesh.id, "name": "one"}])
        await asyncio.wait_for(joining, 0.1)
        await leave(one)

    simulate(scenario)


def test_the_signaling_servers_are_named() -> None:
    """PROTOCOL section 2: what is tried at 5 s may be signaling: the list goes on after 8 s, and a list of
    which none answers says so.
    """

    async def scenario() -> None:
        net = SimNetwork()
        net.dead_servers = {"a.example", "c.example"}
        host, one, two = device(net, "host"), device(net, "one"), device(net, "two")
        await host.mesh.create(CODE, ["b.example"])
        assert not one.mesh.signaling_up
        told = told_at(one)
        await one.mesh.join(CODE, ["a.example", "b.example"])
        assert told[0][0] == pytest.approx(5.0, abs=0.01)
        assert told[0][1].startswith("Still connecting: looking for a signaling server (a.example")
        assert "b.example" in told[0][1]
        assert one.mesh.signaling_up
        assert host.mesh.signaling_up
        _, error = await failed(two.mesh.join(CODE, ["a.example", "c.example"]))
        assert isinstance(error, SignalingDown)
        assert not two.mesh.signaling_up
        await leave(two, one, host)

    simulate(scenario)


def test_the_servers_do_not_know_the_room() -> None:
    """PROTOCOL section 2: "A joiner that finds no such room on one goes on down the list": its error names
    all that were asked.
    """

    async def scenario() -> None:
        net = SimNetwork()
        one = device(net, "one")
        seconds, error = await failed(one.mesh.join(CODE, ["a.example", "b.example"]))
        assert isinstance(error, RoomNotFound)
        assert "No room answers under this code" in error.what
        assert error.what.index("a.example") < error.what.index("b.example")
        assert seconds == pytest.approx(10.0, abs=0.2)  # each says so after five
        assert len(one.notices) == 1
        await leave(one)

    simulate(scenario)


@pytest.mark.parametrize("how", ["bye", "closed", "left"])
def test_a_bye_at_the_gate_is_final(how: str) -> None:
    """PROTOCOL section 3, `bye`: refused is refused: it is told in the room's words, and not dialed again."""

    async def scenario() -> None:
        net = SimNetwork()
        creators = await RawPeer.listen(net, ROOM)
        one = device(net, "one")
        joining = asyncio.create_task(failed(one.mesh.join(CODE, ["local"])))
        await asyncio.sleep(0.2)
        endpoint = one.mesh._registration.endpoint
        assert isinstance(endpoint, SimEndpoint)
        creators[0].say("hello", name="host", v=4, gate=1)
        if how == "left":
            creators[0].say("leaving")
        else:
            creators[0].say("bye", reason="The host did not let this device in.", closed=int(how == "closed"))
        seconds, error = await joining
        assert seconds < 1
        assert type(error) is (RoomRefused if how == "bye" else RoomClosed)
        if how != "left":
            assert error.what == "The host did not let this device in."
        await asyncio.sleep(30)
        assert endpoint.dials == len(creators) == 1
        await leave(one)

    simulate(scenario)


def test_a_host_that_is_not_believed_is_not_dialed_again() -> None:
    """PROTOCOL section 4, device: "a wrong `hp`: leave, say so loudly, never knock again": it is a refusal,
    with what to do, not a link that broke.
    """

    async def scenario() -> None:
        net = SimNetwork()
        creators = await RawPeer.listen(net, ROOM)
        one = device(net, "one", credentials=Credentials(key="k" * 22))
        joining = asyncio.create_task(failed(one.mesh.join(CODE, ["local"])))
        await asyncio.sleep(0.2)
        creator = creators[0]
        creator.say("hello", name="host", v=4, gate=1, auth=1)
        creator.say("auth", v=1, hn="n" * 22)
        await asyncio.sleep(0.2)
        assert creator.told_of("auth-proof")
        creator.say("admit", via="key", hp="0" * 64, mk="k" * 43)
        _, error = await joining
        assert isinstance(error, RoomRefused)
        assert error.next_step
        await asyncio.sleep(0.5)
        assert creator.told[-1]["t"] == "leaving"
        await asyncio.sleep(30)
        assert len(creators) == 1
        await leave(one)

    simulate(scenario)


def test_a_room_goes_on_without_signaling() -> None:
    """PROTOCOL section 2: "the room goes on when it is down": it is known to be down, devices come when it is
    back, and twenty outages in half a minute are one notice.
    """

    async def scenario() -> None:
        net = SimNetwork()
        host, one = device(net, "host"), device(net, "one")
        await host.mesh.create(CODE, ["local"])
        for _ in range(20):
            net.signaling(False)
            assert not host.mesh.signaling_up
            await asyncio.sleep(0.7)
            net.signaling(True)
            assert host.mesh.signaling_up
            await asyncio.sleep(0.7)
        assert len(host.notices) == 1
        await one.mesh.join(CODE, ["local"])
        net.signaling(False)
        await asyncio.sleep(100)
        assert host.names == ["host", "one"]
        assert host.gone == []
        assert not one.mesh.signaling_up
        await leave(one, host)

    simulate(scenario)


@pytest.mark.parametrize(
    ("server", "ended"), [("ws://127.0.0.1:9000/", True), ("ws://192.0.2.7:9000/", False)]
)
def test_a_server_of_this_machine_that_is_gone_is_its_host_that_has_ended(server: str, ended: bool) -> None:
    """PROTOCOL section 2, servers in order: the next step is one that can help."""

    async def scenario() -> None:
        net = SimNetwork()
        net.dead_servers.add(server)
        one = device(net, "one")
        _, error = await failed(one.mesh.join(CODE, [server]))
        assert isinstance(error, SignalingDown)
        assert ("host of this room has ended" in error.next_step) is ended
        await leave(one)

    simulate(scenario)
