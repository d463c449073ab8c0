"""Meshes of several devices over the simulated network (PROTOCOL sections 2, 3 and 8)."""

from __future__ import annotations

import asyncio
import logging

import pytest

from pooled_nb.errors import (
    AlreadyInRoom,
    LinkFailed,
    RoomClosed,
    RoomError,
    RoomNotFound,
    RoomRefused,
    SignalingDown,
)
from pooled_nb.mesh.frame import Encoding, Frame, Kind
from pooled_nb.mesh.gate import Side
from pooled_nb.mesh.messages import chat, deal
from pooled_nb.mesh.messages.link import DeviceMeta
from tests.mesh.rawpeer import RawPeer
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
        host.on_admitted = lambda m: (admitted(m), host.mesh.send(m.id, deal.Wait()))[0]  # type: ignore[method-assign]
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


def test_a_killed_worker_is_noticed_by_pings() -> None:
    """PROTOCOL section 8, dropped: silent 15 s (computer), 60 s (phone); DESIGN section 4: our own pings
    notice.
    """

    async def scenario() -> None:
        net = SimNetwork()
        host, one, two = await room(net, "host", "one", "two")
        await one.mesh.connect(two.mesh.id)
        await asyncio.sleep(10)
        net.kill(one.mesh.id)
        await asyncio.sleep(14)
        assert host.gone == []
        await asyncio.sleep(4)
        assert (
            [(name, left) for name, _, left in host.gone]
            == [("one", False)]
            == [(name, left) for name, _, left in two.gone]
        )
        assert "nothing was heard of it for 15 s" in host.gone[0][1]
        assert host.names == two.names == ["host", "two"]
        await leave(two, host, one)

    simulate(scenario)


def test_a_phone_is_waited_for_longer_and_a_loading_device_always() -> None:
    """PROTOCOL section 8, dropped: 60 s (phone); never while it loads."""

    async def scenario() -> None:
        net = SimNetwork()
        host = device(net, "host")
        await host.mesh.create(CODE, ["local"])
        phone, loads = device(net, "phone", DeviceMeta(phone=True)), device(net, "loads")
        for one in (phone, loads):
            await one.mesh.join(CODE, ["local"])
        host.mesh.spare([loads.mesh.id])
        for one in (phone, loads):
            net.partition(ROOM, one.mesh.id)
        await asyncio.sleep(20)
        assert host.gone == []
        net.heal(ROOM, loads.mesh.id)
        net.heal(ROOM, phone.mesh.id)
        host.mesh.spare([])
        await asyncio.sleep(1)
        assert host.gone == []
        assert host.names == ["host", "phone", "loads"]
        await leave(phone, loads, host)

    simulate(scenario)


def test_a_device_sees_the_host_gone_after_30_s() -> None:
    """PROTOCOL section 8: the host as a guest sees it 30 s; then the room is over for this
    device, in words.
    """

    async def scenario() -> None:
        net = SimNetwork()
        host, one = await room(net, "host", "one")
        net.kill(ROOM)
        await asyncio.sleep(27)
        assert one.closed == []
        await asyncio.sleep(5)
        assert len(one.closed) == 1
        assert "30 s" in one.closed[0]
        assert "Join again" in one.closed[0]
        await leave(one, host)

    simulate(scenario)


def test_round_trips_are_measured() -> None:
    """PROTOCOL section 3, ping: every 2.5 s; CASES, devices: the new value is used after a slow first round
    trip.
    """

    async def scenario() -> None:
        net = SimNetwork(latency=0.025)
        host, one = await room(net, "host", "one")
        await asyncio.sleep(12)
        facts = host.mesh.facts(one.mesh.id)
        assert facts
        assert facts.rtt_s == pytest.approx(0.05, abs=0.005)
        assert facts.path == "direct"
        assert facts.quiet_s <= 2.6
        assert facts.answered_s is not None
        assert not facts.dialed
        net.between[frozenset((ROOM, one.mesh.id))] = 1.3
        await asyncio.sleep(20)
        assert (slow := host.mesh.facts(one.mesh.id))
        assert slow.rtt_s
        assert slow.rtt_s > 2
        net.between.clear()
        await asyncio.sleep(11)
        assert (fast := host.mesh.facts(one.mesh.id))
        assert fast.rtt_s == pytest.approx(0.05, abs=0.005)
        await leave(one, host)

    simulate(scenario)


def test_watched_devices_are_pinged_every_500_ms() -> None:
    """PROTOCOL section 3, ping: every 500 ms each chain device while an answer runs."""

    async def scenario() -> None:
        net = SimNetwork()
        host, one = await room(net, "host", "one")
        (connection,) = net.connections(ROOM, one.mesh.id)

        async def sent_in(seconds: float) -> int:
            before = connection.control.sent
            await asyncio.sleep(seconds)
            return connection.control.sent - before

        calm = await sent_in(20)
        host.mesh.watch([one.mesh.id])
        busy = await sent_in(20)
        host.mesh.watch([])
        assert 14 <= calm <= 18
        assert 46 <= busy <= 50
        assert 14 <= await sent_in(20) <= 18
        await leave(one, host)

    simulate(scenario)


def test_a_stalled_device_judges_nobody() -> None:
    """PROTOCOL section 8: a timer that fired late means this device stalled; it judges nobody on
    that tick.
    """

    async def scenario() -> None:
        net = SimNetwork()
        host, one = await room(net, "host", "one")
        asyncio.get_running_loop().pass_time(20.0)  # type: ignore[attr-defined]  # a 20 s stall of this process
        await asyncio.sleep(5)
        assert host.gone == []
        assert one.closed == []
        await leave(one, host)

    simulate(scenario)


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
    """PROTOCOL section 3, dead links: a connection that fails takes one device out, nobody else."""

    async def scenario() -> None:
        net = SimNetwork()
        devices = await room(net, "host", *(f"d{i}" for i in range(8)))
        host, rest = devices[0], devices[1:]
        (connection,) = net.connections(ROOM, rest[3].mesh.id)
        connection.become("failed")
        await asyncio.sleep(1)
        assert host.gone == [("d3", "the path broke", False)]
        assert rest[3].closed
        assert all(d.names == host.names for d in rest if d is not rest[3])
        await leave(*rest, host)

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
