"""Meshes of several devices over the simulated network (PROTOCOL sections 2, 3 and 5)."""

from __future__ import annotations

import asyncio
import logging

import pytest

from pooled_nb.errors import (
    AlreadyInRoom,
    RoomNotFound,
)
from pooled_nb.mesh.frame import Encoding, Frame, Kind
from pooled_nb.mesh.messages import chat, deal
from pooled_nb.mesh.messages.link import DeviceMeta
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


def test_three_devices_see_one_roster() -> None:
    """PROTOCOL section 3, roster: creator first, then in order of joining; the receiver learns its final name
    there.
    """

    async def scenario() -> None:
        net = SimNetwork()
        host, one, two = await room(net, "laptop", "laptop", "lap<to>p")
        assert host.names == one.names == two.names == ["laptop", "laptop 2", "laptop 3"]
        assert (one.mesh.name, two.mesh.name) == ("laptop 2", "laptop 3")
        assert host.mesh.is_creator
        assert not one.mesh.is_creator
        assert host.mesh.id == ROOM == one.mesh.creator
        assert one.mesh.server == "local"
        assert host.admitted == ["laptop 2", "laptop 3"]
        await leave(two, one, host)

    simulate(scenario)


def test_order_after_admission() -> None:
    """PROTOCOL section 3, order after admission: `admit`, roster to all, then what the room sends."""

    async def scenario() -> None:
        net = SimNetwork()
        host, one = device(net, "host"), device(net, "one")
        await host.mesh.create(CODE, ["local"])
        admitted = host.on_admitted
        host.on_admitted = lambda m, was: (admitted(m, was), host.mesh.send(m.id, deal.Wait()))[0]  # type: ignore[method-assign]
        await one.mesh.join(CODE, ["local"])
        await asyncio.sleep(1)
        assert host.diary == ["roster", "roster", "admitted one"]
        assert one.diary == ["roster", "message ai-wait"]
        await leave(one, host)

    simulate(scenario)


def test_messages_and_frames_both_ways() -> None:
    """PROTOCOL section 3 and 5: messages and frames arrive in order, with their sender's id."""

    async def scenario() -> None:
        net = SimNetwork(bandwidth=2e6)
        host, one, two = await room(net, "host", "one", "two")
        host.mesh.chain([one.mesh.id])
        for i in range(20):
            assert host.mesh.send(one.mesh.id, chat.Token(text=f"{i}"))
            assert one.mesh.send_frame(ROOM, frame(i, 20_000, 16))
        host.mesh.broadcast(chat.Queue(n=7), but=two.mesh.id)
        await asyncio.sleep(5)
        assert [m.text for _, m in one.messages[:-1]] == [str(i) for i in range(20)]  # type: ignore[attr-defined]
        assert one.messages[-1] == (ROOM, chat.Queue(n=7))
        assert two.messages == []
        assert host.frames == [(one.mesh.id, frame(i, 20_000, 16)) for i in range(20)]
        assert not host.mesh.send("nobody", chat.Queue(n=1))
        assert not host.mesh.send_frame("nobody", frame(1))
        await leave(two, one, host)

    simulate(scenario)


def test_at_most_four_slices_are_handed_over() -> None:
    """DESIGN section 4: an association holds at most four slices, so that control is not delayed
    by frames.
    """

    async def scenario() -> None:
        net = SimNetwork(bandwidth=1e6)
        host, one = await room(net, "host", "one")
        (connection,) = net.connections(one.mesh.id, ROOM)
        host.mesh.chain([one.mesh.id])
        for i in range(10):
            one.mesh.send_frame(ROOM, frame(i, 40_000, 16))
        most = 0
        while len(host.frames) < 10:
            most = max(most, connection.wire.buffered)
            await asyncio.sleep(0.001)
        assert 0 < most <= 4 * 4_600
        await leave(one, host)

    simulate(scenario)


def test_message_above_4_mb_is_refused_in_words() -> None:
    """PROTOCOL section 2: a message above 256 chunks is refused by its sender."""

    async def scenario() -> None:
        net = SimNetwork()
        host, one = await room(net, "host", "one")
        items = [chat.Exchange(text="x" * 400_000) for _ in range(12)]
        assert not host.mesh.send(one.mesh.id, chat.History(items=items))
        assert "too large" in host.notices[-1]
        assert host.mesh.send(one.mesh.id, chat.History(items=items[:9]))  # many chunks, and it arrives whole
        await asyncio.sleep(1)
        assert one.messages == [(ROOM, chat.History(items=items[:9]))]
        await leave(one, host)

    simulate(scenario)


def test_a_device_leaves_and_comes_back_five_times() -> None:
    """CASES, devices: leave and join five times in five seconds → two devices in the roster, no
    name doubled.
    """

    async def scenario() -> None:
        net = SimNetwork()
        host = device(net, "host")
        await host.mesh.create(CODE, ["local"])
        for _ in range(5):
            one = device(net, "one")
            await one.mesh.join(CODE, ["local"])
            await one.mesh.leave()
        last = device(net, "one")
        await last.mesh.join(CODE, ["local"])
        await asyncio.sleep(1)
        assert host.names == ["host", "one"]
        assert host.gone == [("one", "it left", True)] * 5
        await leave(last, host)

    simulate(scenario)


def test_leaving_is_told_at_once_and_ends_everything() -> None:
    """PROTOCOL section 3, `leaving`: the link closes at once; nothing of this device goes on."""

    async def scenario() -> None:
        net = SimNetwork()
        host, one, two = await room(net, "host", "one", "two")
        await one.mesh.connect(two.mesh.id)
        before = asyncio.get_running_loop().time()
        await asyncio.gather(one.mesh.leave(), one.mesh.leave())
        assert asyncio.get_running_loop().time() - before < 0.4
        await asyncio.sleep(0.1)
        assert host.gone == [("one", "it left", True)] == two.gone
        assert host.names == two.names == ["host", "two"]
        assert net.connections(one.mesh.id, ROOM) == []
        assert one.closed == []
        with pytest.raises(AlreadyInRoom):
            await one.mesh.join(CODE, ["local"])
        await leave(two, host)

    simulate(scenario)


def test_the_creator_closes_the_room() -> None:
    """PROTOCOL section 3, `bye {closed: 1}`: the room is over for everybody."""

    async def scenario() -> None:
        net = SimNetwork()
        host, one, two = await room(net, "host", "one", "two")
        await host.mesh.leave()
        await asyncio.sleep(0.5)
        assert one.closed == two.closed == ["The room is over."]
        assert host.gone == []
        assert host.rosters[-1] == ["host", "one", "two"]
        assert not one.mesh.send(ROOM, chat.Stop())
        await leave(one, two)
        late = device(net, "late")
        with pytest.raises(RoomNotFound, match="No room answers"):
            await late.mesh.join(CODE, ["local"])

    simulate(scenario)


def test_kick() -> None:
    """PROTOCOL section 3, `bye {reason}`: thrown out, in words."""

    async def scenario() -> None:
        net = SimNetwork()
        host, one = await room(net, "host", "one")
        one.mesh.kick(ROOM, "no")  # not its to say
        host.mesh.kick(one.mesh.id, "Too loud.")
        await asyncio.sleep(1)
        assert one.closed == ["The room's owner took this device out. Too loud."]
        assert host.gone == [("one", "Too loud.", False)]
        assert host.names == ["host"]
        await leave(one, host)

    simulate(scenario)


def test_pledge_changes_the_roster() -> None:
    """PROTOCOL section 3, `pledge {gb}`: a device changed the memory it lends; the roster follows."""

    async def scenario() -> None:
        net = SimNetwork()
        host, one = await room(net, "host", "one")
        one.mesh.set_meta(DeviceMeta(contrib_gb=6.5))
        host.mesh.set_meta(DeviceMeta(gpu="T4"))
        await asyncio.sleep(1)
        for seen in (host, one):
            assert seen.mesh.roster[1].meta.contrib_gb == 6.5
            assert seen.mesh.roster[0].meta.gpu == "T4"
        await leave(one, host)

    simulate(scenario)


def test_a_room_that_raises_breaks_no_link(caplog: pytest.LogCaptureFixture) -> None:
    """CASES, devices: a failure above the mesh is logged and the link lives."""

    async def scenario() -> None:
        net = SimNetwork()
        host, one = await room(net, "host", "one")

        def broken(sender: str, message: object) -> None:
            raise ValueError("a mistake of the room")

        host.on_message = broken  # type: ignore[method-assign]
        with caplog.at_level(logging.ERROR):
            one.mesh.send(ROOM, chat.Stop())
            await asyncio.sleep(1)
        assert "the room failed" in caplog.text
        assert host.names == ["host", "one"]
        assert one.mesh.send(ROOM, chat.Stop())
        await leave(one, host)

    simulate(scenario)


def test_many_devices_and_a_broken_link() -> None:
    """PROTOCOL section 3, dead links: a connection that fails is one device's affair: nobody else is away,
    and it is in again at once.
    """

    async def scenario() -> None:
        net = SimNetwork()
        devices = await room(net, "host", *(f"d{i}" for i in range(8)))
        host, rest = devices[0], devices[1:]
        (connection,) = net.connections(ROOM, rest[3].mesh.id)
        connection.become("failed")
        await asyncio.sleep(1)
        assert host.away == [("d3", "the path broke")]
        assert host.gone == []
        assert host.was[-1] == rest[3].mesh.id
        assert all(d.names == host.names == ["host", *(f"d{i}" for i in range(8))] for d in rest)
        assert [d.diary.count("back") for d in rest] == [0, 0, 0, 1, 0, 0, 0, 0]
        await leave(*rest, host)

    simulate(scenario)
