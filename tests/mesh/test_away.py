"""Devices whose link to the creator broke, and their seats (PROTOCOL section 3, dead links)."""

from __future__ import annotations

import asyncio

import pytest

from pooled_nb.errors import RoomRefused
from pooled_nb.mesh import membership
from pooled_nb.mesh.linkactions import Cause
from pooled_nb.mesh.messages import chat
from pooled_nb.mesh.messages.link import DeviceMeta, Member
from pooled_nb.mesh.newcomer import Credentials
from pooled_nb.mesh.seats import BROKE, KEPT_S, Seats
from tests.mesh.rawpeer import RawPeer
from tests.mesh.recorder import CODE, ROOM, Recorder, device, leave, room
from tests.sim.clock import simulate
from tests.sim.network import SimNetwork


def broken(net: SimNetwork, one: Recorder) -> None:
    """Its link to the creator breaks, and nobody of it comes back."""
    net.kill(one.mesh.id)
    for connection in net.connections(ROOM, one.mesh.id):
        connection.become("failed")


def again(net: SimNetwork, one: Recorder, *, holds: bool = True) -> Recorder:
    """The same device in a new process, with its pass or without."""
    held = one.gates.newcomer.credentials
    return device(net, "one", credentials=held if holds else Credentials())


def test_how_long_a_seat_is_kept() -> None:
    """PROTOCOL section 3: "The other side keeps the seat for 45 s; for chain devices the silence rules of
    section 8 decide sooner", from the last byte on, and never for one that loads.
    """
    seats = Seats()
    for id, patience in (("guest", 15.0), ("worker", 15.0), ("loads", 15.0), ("phone", 60.0)):
        seats.lost(id, quiet=5.0, patience=patience, now=100.0)
    chain, spared = {"worker", "loads", "phone"}, {"loads"}
    assert seats.over(109.9, chain, spared) == []
    assert seats.over(110.0, chain, spared) == ["worker"]
    assert seats.over(144.9, chain, spared) == ["worker"]
    assert seats.over(100.0 + KEPT_S, chain, spared) == ["guest", "worker", "loads", "phone"]
    assert seats.quiet("guest", 110.0) == 15.0
    assert seats.quiet("nobody", 110.0) is None
    assert seats.spare(chain, spared) == "guest"
    assert seats.settled("guest")
    assert not seats.settled("guest")
    assert "guest" not in seats
    assert seats.spare(chain, spared) == "worker"
    assert Seats().spare(chain, spared) is None


def test_what_breaks_a_link() -> None:
    """PROTOCOL section 3: who left, was thrown out or floods is not waited for, nor who was silent for its
    whole patience.
    """
    assert {Cause.LEFT, Cause.REFUSED, Cause.FLOOD, Cause.VERSION, Cause.SILENT}.isdisjoint(BROKE)
    assert Cause.BROKEN in BROKE


def test_a_broken_link_keeps_its_seat_for_45_s() -> None:
    """PROTOCOL section 3: its line stays in the roster and its name is taken until then; what is said to all
    goes to the others, and nothing to it.
    """

    async def scenario() -> None:
        net = SimNetwork()
        host, one, two = await room(net, "host", "one", "two")
        seat = host.mesh.seat(one.mesh.id)
        await asyncio.sleep(9)
        host.diary.clear()
        broken(net, one)
        assert host.diary == ["away one"]
        assert host.away == [("one", "the path broke")]
        assert host.names == two.names == ["host", "one", "two"]
        assert host.mesh.seat(one.mesh.id) == seat
        assert host.mesh.facts(one.mesh.id) is None
        assert not host.mesh.send(one.mesh.id, chat.Queue(n=1))
        host.mesh.broadcast(chat.Queue(n=2))
        quiet = host.mesh.silence(one.mesh.id)
        assert quiet is not None
        await asyncio.sleep(30)
        assert host.mesh.silence(one.mesh.id) == pytest.approx(quiet + 30)
        assert (host.mesh.silence(ROOM), host.mesh.silence("nobody")) == (None, None)
        assert two.messages == [(ROOM, chat.Queue(n=2))]
        await asyncio.sleep(14)
        assert host.diary == ["away one"]
        await asyncio.sleep(2)
        assert host.diary == ["away one", "roster", "gone one"]
        assert host.gone == [("one", "its link broke, and it did not come back in 45 s", False)]
        assert host.names == two.names == ["host", "two"]
        assert host.mesh.silence(one.mesh.id) is None
        back = again(net, one)
        await back.mesh.join(CODE, ["local"])
        assert host.was[-1] == ""
        assert host.mesh.seat(back.mesh.id) == seat  # the key by which a deal knows it
        await leave(back, two, one, host)

    simulate(scenario)


@pytest.mark.parametrize(
    ("phone", "loads", "seconds"), [(False, False, 15), (True, False, 45), (False, True, 45)]
)
def test_a_device_of_the_chain(phone: bool, loads: bool, seconds: int) -> None:
    """PROTOCOL section 3: "for chain devices the silence rules of section 8 decide sooner": 15 s from the
    last byte, a phone 60 (its seat goes first, after 45); never while it loads.
    """

    async def scenario() -> None:
        net = SimNetwork()
        host, one = device(net, "host"), device(net, "one", DeviceMeta(phone=phone))
        await host.mesh.create(CODE, ["local"])
        await one.mesh.join(CODE, ["local"])
        await asyncio.sleep(10)
        assert host.mesh.patience(one.mesh.id) == (60 if phone else 15)
        host.mesh.chain([one.mesh.id])
        host.mesh.spare([one.mesh.id] if loads else [])
        broken(net, one)
        await asyncio.sleep(seconds - 3)
        assert host.gone == []
        await asyncio.sleep(4)
        assert [name for name, _, _ in host.gone] == ["one"]
        await leave(one, host)

    simulate(scenario)


@pytest.mark.parametrize("same", [True, False])
def test_back_before_the_creator_noticed(same: bool) -> None:
    """PROTOCOL section 3: a link that is dead at one end only: who proves its pass over a new one, under its
    id or another, has its seat; the late end of the old link is no news.
    """

    async def scenario() -> None:
        net = SimNetwork()
        host, one, two = await room(net, "host", "one", "two")
        (old,) = net.connections(ROOM, one.mesh.id)
        was = one.mesh.id
        host.diary.clear()
        if same:
            net.say_closed = lambda c: None  # type: ignore[method-assign]
            old.other.become("failed")  # it knocks at once
            back = one
        else:
            net.kill(was)
            back = again(net, one)
            await back.mesh.join(CODE, ["local"])
        await asyncio.sleep(2)
        assert host.diary == ["roster", "admitted one"]
        assert host.was[-1] == was
        assert (back.mesh.id == was) == same
        assert host.names == ["host", "one", "two"]
        old.become("failed")
        await asyncio.sleep(50)
        assert host.diary == ["roster", "admitted one"]
        assert host.mesh.send(back.mesh.id, chat.Queue(n=1))
        await asyncio.sleep(1)
        assert back.messages == [(ROOM, chat.Queue(n=1))]
        await leave(back, two, one, host)

    simulate(scenario)


def test_away_then_back_under_another_id() -> None:
    """PROTOCOL section 3: the seat of a device that is away goes to whoever proves its pass, at once."""

    async def scenario() -> None:
        net = SimNetwork()
        host, one, two = await room(net, "host", "one", "two")
        broken(net, one)
        await asyncio.sleep(20)
        host.diary.clear()
        back = again(net, one)
        began = asyncio.get_running_loop().time()
        await back.mesh.join(CODE, ["local"])
        assert asyncio.get_running_loop().time() - began < 0.5
        assert host.diary == ["roster", "admitted one"]
        assert host.was[-1] == one.mesh.id
        assert [m.id for m in host.mesh.roster] == [ROOM, back.mesh.id, two.mesh.id]
        await asyncio.sleep(60)
        assert host.gone == []
        await leave(back, two, one, host)

    simulate(scenario)


@pytest.mark.parametrize("allowed", [True, False])
def test_the_id_of_a_device_that_is_away_is_no_seat(allowed: bool) -> None:
    """PROTOCOL section 3: "to nobody else": a stranger who has the id of a device that is away waits for a
    person, who is told; let in, it is another device, and the one that was away is gone.
    """

    async def scenario() -> None:
        net = SimNetwork()
        host = device(net, "host", ask=True)
        await host.mesh.create(CODE, ["local"])
        one = device(net, "one", credentials=Credentials(host.gates.keeper.key))
        await one.mesh.join(CODE, ["local"])
        seat, id = host.mesh.seat(one.mesh.id), one.mesh.id
        broken(net, one)
        net.unregister(next(e for e in net._registered.values() if e.id == id))
        await asyncio.sleep(1)
        host.diary.clear()
        thief = await RawPeer.dial(net, ROOM, id=id)
        thief.say("hello", name="one", v=4, join=1, back=1)
        await asyncio.sleep(1)
        (request,) = host.gates.keeper.lobby
        assert "the same id" in request.note
        assert host.mesh.seat(id) == seat
        host.gates.keeper.decide(request.number, allow=allowed)
        host.mesh.decided()
        await asyncio.sleep(3)
        if allowed:
            assert host.diary == ["roster", "gone one", "admitted one"]
            assert host.gone == [("one", "another device took its id", False)]
            assert host.was[-1] == ""
            assert host.mesh.seat(id) not in ("", seat)
        else:
            assert host.diary == []
            assert host.mesh.seat(id) == seat
        # Whoever has the pass has the seat still.
        back = again(net, one)
        await back.mesh.join(CODE, ["local"])
        assert host.mesh.seat(back.mesh.id) == seat
        assert host.was[-1] == ("" if allowed else id)
        await leave(back, one, host)

    simulate(scenario)


def test_thrown_out_while_it_is_away() -> None:
    """PROTOCOL section 3, `bye`: "A device thrown out loses its passes": also where no link is left to say so
    over; its seat goes at once.
    """

    async def scenario() -> None:
        net = SimNetwork()
        host, one = await room(net, "host", "one")
        broken(net, one)
        host.gates.keeper.revoke(host.mesh.seat(one.mesh.id))
        host.mesh.kick(one.mesh.id, "Thrown out.")
        assert host.gone == [("one", "Thrown out.", False)]
        assert host.names == ["host"]
        host.mesh.kick(one.mesh.id, "again")
        await asyncio.sleep(60)
        assert len(host.gone) == 1
        with pytest.raises(RoomRefused):
            await again(net, one).mesh.join(CODE, ["local"])
        await leave(one, host)

    simulate(scenario)


@pytest.mark.parametrize("last", ["leaving", "nothing"])
def test_the_last_word_before_the_break(last: str) -> None:
    """PROTOCOL section 3, `leaving`: who said so is gone, whatever becomes of its connection a moment later;
    who said nothing may come back.
    """

    async def scenario() -> None:
        net = SimNetwork()
        host = device(net, "host")
        await host.mesh.create(CODE, ["local"])
        peer = await RawPeer.dial(net, ROOM)
        peer.say("hello", name="raw", v=4)
        await asyncio.sleep(1)
        if last == "leaving":
            peer.say("leaving")
        await peer.connection.close()
        await asyncio.sleep(1)
        if last == "leaving":
            assert (host.away, host.gone) == ([], [("raw", "it left", True)])
        else:
            assert (host.away, host.gone) == ([("raw", "it closed the link")], [])
        await leave(host)

    simulate(scenario)


def test_a_full_room_gives_up_a_seat_that_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """PROTOCOL section 3: what is kept for somebody who is away shuts nobody out: in a full room the seat of
    who went first goes, and of the chain last.
    """
    monkeypatch.setattr(membership, "MAX_MEMBERS", 4)

    async def scenario() -> None:
        net = SimNetwork()
        host, one, two, three = await room(net, "host", "one", "two", "three")
        host.mesh.chain([one.mesh.id])
        for each in (one, two):
            broken(net, each)
        new = device(net, "new")
        await new.mesh.join(CODE, ["local"])
        assert host.gone == [("two", "it did not come back, and its place was needed", False)]
        assert new.names == ["host", "one", "three", "new"]
        newer = device(net, "newer")
        await newer.mesh.join(CODE, ["local"])
        assert [name for name, _, _ in host.gone] == ["two", "one"]
        with pytest.raises(RoomRefused, match="full"):
            await device(net, "newest").mesh.join(CODE, ["local"])
        await leave(newer, new, three, two, one, host)

    simulate(scenario)


def test_a_seat_may_break_again_and_again() -> None:
    """PROTOCOL section 3: each break has its own 45 s, and each return is told."""

    async def scenario() -> None:
        net = SimNetwork()
        host, one = await room(net, "host", "one")
        host.diary.clear()
        for _ in range(10):
            net.signaling(False)
            (link,) = net.connections(ROOM, one.mesh.id)
            link.become("failed")
            await asyncio.sleep(20)
            net.signaling(True)
            await asyncio.sleep(1)
        await asyncio.sleep(50)  # nobody waits for it any more
        assert host.diary == ["away one", "roster", "admitted one"] * 10
        assert host.gone == []
        assert one.diary.count("back") == 10
        assert host.names == one.names == ["host", "one"]
        assert len(net.connections(ROOM, one.mesh.id)) == 1
        await leave(one, host)

    simulate(scenario)


def test_it_breaks_off_as_it_comes_back() -> None:
    """PROTOCOL section 3: a link that breaks while the roster goes out over it: the room never saw the new
    id, so it hears that the old one is gone; the seat is kept for who proves its pass all the same.
    """

    async def scenario() -> None:
        net = SimNetwork()
        host, one = await room(net, "host", "one")
        broken(net, one)
        seat = host.mesh.seat(one.mesh.id)
        await asyncio.sleep(1)
        host.diary.clear()
        back, listed = again(net, one), host.on_roster

        def breaks(members: tuple[Member, ...]) -> None:
            listed(members)
            host.on_roster = listed  # type: ignore[method-assign]
            broken(net, back)

        host.on_roster = breaks  # type: ignore[method-assign]
        joining = asyncio.create_task(back.mesh.join(CODE, ["local"]))
        await asyncio.sleep(1)
        assert host.diary == ["roster", "away one", "gone one"]
        third = again(net, one)
        await third.mesh.join(CODE, ["local"])
        assert (host.mesh.seat(third.mesh.id), host.names) == (seat, ["host", "one"])
        await leave(third, back, one, host)
        await asyncio.gather(joining, return_exceptions=True)

    simulate(scenario)
