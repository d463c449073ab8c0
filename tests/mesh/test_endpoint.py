"""PROTOCOL section 2: devices find each other through signaling, and go on without it."""

import asyncio

import pytest

from pooled_nb.errors import BadOption, LinkFailed, RoomError, RoomNotFound, SignalingDown
from pooled_nb.mesh.clock import LoopClock
from pooled_nb.mesh.ice import IcePolicy
from pooled_nb.mesh.network import Connection
from pooled_nb.mesh.rtcnetwork import RtcNetwork
from pooled_nb.mesh.signalserver import SignalServer
from tests.mesh.rtctools import (
    ROOM,
    FastClock,
    Inbox,
    linked,
    nothing_left,
    opened,
    raw,
    registered,
    said,
    served,
    until,
)


async def test_both_directions(transport: str):
    """PROTOCOL section 2: all devices dial the creator; a link serves both directions; a stripe says so."""
    async with (
        nothing_left(),
        served() as server,
        registered(server.url, id=ROOM, transport=transport) as host,
        registered(server.url, transport=transport) as guest,
    ):
        near, far = await linked(guest, host)
        assert (near.remote, far.remote) == (ROOM, guest.id)
        assert near.connection_id == far.connection_id == near.label == far.label
        assert near.connection_id.startswith("dc_")
        assert (near.dialed, far.dialed) == (True, False)
        assert host.server == server.url
        stripe, its = await linked(guest, host, label="stripe")
        assert stripe.label == its.label == "stripe"
        back, there = await linked(host, guest)
        assert (back.remote, there.remote) == (guest.id, ROOM)
        for a, b in ((near, far), (stripe, its), (back, there)):
            box, answer = Inbox(b.control), Inbox(a.control)
            a.control.send(b"question")
            assert await box.get() == b"question"
            b.control.send(b"answer")
            assert await answer.get() == b"answer"


async def test_a_megabyte_each_way(transport: str):
    """PROTOCOL section 5: slices on channel 77 arrive whole and in order, both ways at once."""
    async with (
        nothing_left(),
        served() as server,
        registered(server.url, id=ROOM, transport=transport) as host,
        registered(server.url, transport=transport) as guest,
    ):
        near, far = await linked(guest, host)
        boxes = Inbox(near.wire), Inbox(far.wire)
        slices = [n.to_bytes(4, "big") + bytes([n % 251]) * 4_596 for n in range(228)]
        for data in slices:
            near.wire.send(data)
            far.wire.send(data)
        for box in boxes:
            assert [await box.get() for _ in slices] == slices


async def test_absent():
    """PROTOCOL section 2: EXPIRE means that nobody is registered under this id."""
    async with nothing_left(), served(FastClock(20)) as server, registered(server.url) as guest:
        with pytest.raises(RoomNotFound, match=ROOM):
            await guest.dial(ROOM)
        assert not guest._connections


async def test_who_does_not_answer():
    """PROTOCOL section 2: a join stops at 15 s, with the reason."""
    async with nothing_left(), served() as server:
        silent = await raw(server, "silent")
        async with registered(server.url, clock=FastClock(30)) as guest:
            with pytest.raises(LinkFailed, match="silent did not answer in 15 s"):
                await guest.dial("silent")
        offer = await silent.hear("OFFER")
        payload = offer["payload"]
        assert payload["sdp"]["sdp"].count("a=fingerprint") == 1
        assert {k: payload[k] for k in ("type", "reliable", "serialization")} == {
            "type": "data",
            "reliable": True,
            "serialization": "binary",
        }
        assert payload["label"] == payload["connectionId"]
        silent.close()


async def test_one_who_leaves_while_dialed():
    """PROTOCOL section 2: LEAVE of the other ends a dial at once, and no connection."""
    async with nothing_left(), served() as server:
        silent = await raw(server, "silent")
        async with registered(server.url, id=ROOM) as host:
            dial = asyncio.create_task(host.dial("silent"))
            await silent.hear("OFFER")
            await silent.say(said("LEAVE"))
            with pytest.raises(LinkFailed, match="left"):
                await dial
        silent.close()


async def test_the_room_goes_on_without_signaling(transport: str):
    """PROTOCOL section 2: links live on when signaling is gone; a new device joins as soon as it is back."""
    async with nothing_left():
        server = await SignalServer.start()
        clock = FastClock(20)
        async with (
            registered(server.url, id=ROOM, clock=clock, transport=transport) as host,
            registered(server.url, clock=clock, transport=transport) as guest,
        ):
            outages: list[bool] = []
            host.on_outage = outages.append
            near, far = await linked(guest, host)
            await server.close()
            await until(lambda: outages == [True] and not guest.is_up)
            box = Inbox(far.control)
            near.control.send(b"still here")
            assert await box.get() == b"still here"
            with pytest.raises(SignalingDown, match="not reachable"):
                await guest.dial(ROOM)
            again = await SignalServer.start(port=server.port)
            await until(lambda: host.is_up and guest.is_up)
            assert outages in ([True], [True, False])
            async with registered(again.url, transport=transport) as late:
                newcomer, _ = await linked(late, host)
                assert newcomer.control.is_open
            assert near.control.is_open
            await again.close()


async def test_takeover_by_token():
    """PROTOCOL section 2: the host that was killed and started again reclaims its code by its token."""
    async with nothing_left(), served() as server, registered(server.url, id=ROOM) as old:
        with pytest.raises(RoomError, match="does not give this id"):
            async with registered(server.url, id=ROOM):
                pass
        async with (
            registered(server.url, id=ROOM, token=old.token, clock=FastClock(10)) as new,
            registered(server.url) as guest,
        ):
            await linked(guest, new)
            assert len(server) == 2


async def test_who_dialed_before_the_room_listened(transport: str):
    """PROTOCOL section 2: the server hands over at once what waited for the id; none of it is lost."""
    async with nothing_left(), served() as server, registered(server.url, transport=transport) as guest:
        dial = asyncio.create_task(guest.dial(ROOM))
        await until(lambda: server._board._waiting)
        async with registered(server.url, id=ROOM, transport=transport) as host:
            await until(lambda: host._held)
            incoming: list[Connection] = []
            host.on_connection = incoming.append
            near = await dial
            await opened(near, *incoming)
            assert incoming[0].remote == guest.id


async def test_closing_while_dialing(transport: str):
    """PROTOCOL section 2: leaving the server ends what is being made, and connections that stand stay."""
    async with nothing_left(), served() as server:
        silent = await raw(server, "silent")
        async with (
            registered(server.url, id=ROOM, transport=transport) as host,
            registered(server.url, transport=transport) as guest,
        ):
            near, far = await linked(guest, host)
            dial = asyncio.create_task(guest.dial("silent"))
            await silent.hear("OFFER")
            await guest.close()
            with pytest.raises(LinkFailed, match="given up"):
                await dial
            box = Inbox(far.control)
            near.control.send(b"still here")
            assert await box.get() == b"still here"
            with pytest.raises(SignalingDown):
                await guest.dial(ROOM)
            await guest.close()
            await near.close()
        silent.close()


async def test_an_offer_that_this_device_cannot_answer(monkeypatch, caplog):
    """Its settings cannot be read, or its aiortc is unknown: the next in line is answered all the same."""
    caplog.set_level("INFO")
    async with (
        nothing_left(),
        served() as server,
        registered(server.url, id=ROOM) as host,
        registered(server.url) as guest,
    ):
        made = host._make

        def refuses_once(*args: object, **more: object) -> object:
            monkeypatch.setattr(host, "_make", made)
            raise BadOption("POOLED_TURN names no relay that can be read.", "Write it anew.")

        monkeypatch.setattr(host, "_make", refuses_once)
        host.on_connection = lambda connection: None
        first = asyncio.ensure_future(guest.dial(ROOM))
        await until(lambda: "is refused: POOLED_TURN" in caplog.text)
        await opened(await guest.dial(ROOM))
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
    assert all(record.levelname == "INFO" for record in caplog.records if "endpoint" in record.name)


async def test_cancelling_a_dial(transport: str):
    async with nothing_left(), served() as server:
        silent = await raw(server, "silent")
        async with registered(server.url, transport=transport) as guest:
            dial = asyncio.create_task(guest.dial("silent"))
            await silent.hear("OFFER")
            dial.cancel()
            with pytest.raises(asyncio.CancelledError):
                await dial
            assert not guest._dials
            await until(lambda: not guest._connections)
        silent.close()


async def test_what_cannot_be_registered():
    """PROTOCOL section 2: invalid-id is an answer, given before any server is asked."""
    network = RtcNetwork(LoopClock(), IcePolicy.local())
    with pytest.raises(RoomError, match="no id"):
        await network.register("pooled--room", ["ws://127.0.0.1:9/"])
    for servers in ([], ["local"]):
        with pytest.raises(SignalingDown, match="no signaling server"):
            await network.register(None, servers)


async def test_the_server_that_answered_says_how_paths_are_found():
    """PROTOCOL section 2, ICE: of a list that names near and far servers, the one that answered decides, once
    it has answered; for each connection anew, so that refreshed credentials count from the next one on.
    """
    near = IcePolicy.local()
    asked: list[str] = []
    waited: list[str] = []

    async def ready(base: str) -> None:
        waited.append(base)

    def policy(base: str) -> IcePolicy:
        asked.append(base)
        return near

    async with nothing_left(), served() as server:
        gone = await SignalServer.start()
        await gone.close()
        network = RtcNetwork(LoopClock(), policy, ready)
        a = await network.register("a", [gone.url, server.url, "wss://far.example.org"])
        b = await network.register("b", [f"127.0.0.1:{server.port}"])
        assert asked == waited == [server.url, server.url]
        one, other = await linked(a, b)
        assert one.path == other.path == "direct"
        assert asked == [server.url] * 4
        await asyncio.gather(one.close(), other.close(), a.close(), b.close())


async def test_a_policy_that_cannot_be_had():
    """PROTOCOL section 2, ICE: what fails while it chooses leaves no registration behind."""

    def policy(base: str) -> IcePolicy:
        raise BadOption(f"No relay for {base}.", "Name another one.")

    async with nothing_left(), served() as server:
        with pytest.raises(BadOption):
            await RtcNetwork(LoopClock(), policy).register("a", [server.url])
        await until(lambda: len(server) == 0)


@pytest.mark.parametrize("spec", ["ws://[::1", "[", "http://[x]:1", "ws://host:99999", "//[::]]", "ws://]["])
async def test_a_spec_that_cannot_be_read(spec: str):
    """PROTOCOL section 2, specs: one that names no server is one clear error, before any server is asked."""
    with pytest.raises(SignalingDown, match="signaling server"):
        await RtcNetwork(LoopClock(), lambda base: IcePolicy()).register(None, ["ws://127.0.0.1:9/", spec])
