"""Links of a chain get their stripes by themselves (PROTOCOL sections 3 and 5)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from pooled_nb.errors import BadOption, LinkFailed, SignalingDown
from pooled_nb.mesh.frame import Encoding, Frame, Kind
from pooled_nb.mesh.striping import BACK_OFF_S, KEPT_S
from pooled_nb.mesh.wire import encode
from pooled_nb.mesh.wiresettings import DEFAULT, WireSettings
from tests.mesh.rawpeer import RawPeer
from tests.mesh.recorder import ROOM, leave, room
from tests.mesh.test_stripes import count, in_the_room, stripes
from tests.sim.clock import simulate
from tests.sim.network import SimConnection, SimNetwork


def frame(pos: int, size: int = 30_000) -> Frame:
    return Frame(kind=Kind.HIDDEN_B, pos=pos, n=4, payload=bytes([pos % 251]) * size, enc=Encoding.BF16)


def end(*connections: SimConnection) -> None:
    """They fail, at both ends at once."""
    for one in connections:
        one.become("failed")
        one.other.become("failed")


class Dials:
    """When stripes were dialed, in seconds of the virtual clock, and by whom; and what becomes of a dial."""

    def __init__(self, net: SimNetwork, monkeypatch: pytest.MonkeyPatch) -> None:
        self.at: list[float] = []
        self.by: list[str] = []
        self.raises: Exception | None = None
        self.takes = 0.0
        real = net.connect

        async def connect(caller: Any, remote: str, label: str) -> SimConnection:
            if label == "stripe":
                self.at.append(asyncio.get_running_loop().time())
                self.by.append(caller.id)
                if self.raises is not None:
                    raise self.raises
                await asyncio.sleep(self.takes)
            return await real(caller, remote, label)

        monkeypatch.setattr(net, "connect", connect)


def test_the_dialer_opens_them_as_the_link_becomes_part_of_a_chain(monkeypatch: pytest.MonkeyPatch) -> None:
    """PROTOCOL section 5: "3 more connections … opened by the link's dialer when the link becomes part of a
    chain (to the host on `ai-load`; to `next` once that link is proved)"; "Guests have none".
    """

    async def scenario() -> None:
        net = SimNetwork(bandwidth=1e6)
        dials = Dials(net, monkeypatch)
        host, one, two, guest = await room(net, "host", "one", "two", "guest", wiring=DEFAULT)
        assert dials.at == []
        host.mesh.chain([one.mesh.id, two.mesh.id])
        one.mesh.chain([ROOM, two.mesh.id])
        two.mesh.chain([one.mesh.id, ROOM])
        await asyncio.sleep(1)
        assert sorted(dials.by) == sorted([one.mesh.id] * 3 + [two.mesh.id] * 3)
        assert len(set(dials.at)) == 1, "all at the same time, not one after the other"
        await one.mesh.connect(two.mesh.id)
        await asyncio.sleep(1)
        assert dials.by[6:] == [one.mesh.id] * 3
        for a, b in ((one, ROOM), (host, one.mesh.id), (two, ROOM), (one, two.mesh.id), (two, one.mesh.id)):
            assert count(a, b) == 3
        assert count(guest, ROOM) == count(host, guest.mesh.id) == 0
        for i in range(20):
            assert host.mesh.send_frame(one.mesh.id, frame(i))
            assert one.mesh.send_frame(two.mesh.id, frame(i))
        await asyncio.sleep(3)
        assert [f.pos for _, f in one.frames] == [f.pos for _, f in two.frames] == list(range(20))
        assert all(c.other.wire.sent > 10 for c in stripes(net, one.mesh.id, ROOM))
        assert len(dials.at) == 9
        await leave(guest, two, one, host)

    simulate(scenario)


def test_a_dead_one_is_dialed_again_and_no_frame_is_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    """PROTOCOL section 5: "A dead stripe is redialed"; frames keep their order while stripes die, and while
    others open in the middle of a frame.
    """

    async def scenario() -> None:
        net = SimNetwork(bandwidth=2e5)
        host, one = await room(net, "host", "one", wiring=DEFAULT)
        host.mesh.chain([one.mesh.id])
        one.mesh.chain([ROOM])
        sent = 0
        for rounds in range(12):
            for _ in range(4):
                assert one.mesh.send_frame(ROOM, frame(sent, 400))  # one slice: it goes twice
                sent += 1
            await asyncio.sleep(5)
            here = stripes(net, one.mesh.id, ROOM)
            assert 2 <= len(here) <= 3
            if rounds % 2:
                end(here[0])
        assert [f.pos for _, f in host.frames] == list(range(sent))
        await asyncio.sleep(40)
        assert count(one, ROOM) == 3
        # A long one is cut up over what there is, and three more open while it goes.
        for c in stripes(net, one.mesh.id, ROOM):
            end(c)
        assert one.mesh.send_frame(ROOM, frame(250, 1_500_000))
        await asyncio.sleep(20)
        assert host.frames[-1][1].pos == 250
        assert sum(c.wire.sent > 0 for c in stripes(net, one.mesh.id, ROOM)) == 3
        await leave(one, host)

    simulate(scenario)


def test_a_link_that_is_dialed_anew_gets_its_stripes_anew() -> None:
    """PROTOCOL section 3, dead links: "stripes are opened anew"."""

    async def scenario() -> None:
        net = SimNetwork()
        host, one = await room(net, "host", "one", wiring=DEFAULT)
        host.mesh.chain([one.mesh.id])
        one.mesh.chain([ROOM])
        await asyncio.sleep(1)
        before = stripes(net, one.mesh.id, ROOM)
        (main,) = [c for c in net.connections(one.mesh.id, ROOM) if c.label != "stripe"]
        end(main)
        await asyncio.sleep(5)
        after = stripes(net, one.mesh.id, ROOM)
        assert len(before) == len(after) == 3
        assert not {*before} & {*after}
        assert (count(one, ROOM), count(host, one.mesh.id)) == (3, 3)
        assert host.mesh.send_frame(one.mesh.id, frame(1))
        await asyncio.sleep(1)
        assert [f.pos for _, f in one.frames] == [1]
        await leave(one, host)

    simulate(scenario)


def test_a_link_out_of_the_chain_gives_them_up() -> None:
    """PROTOCOL section 5: "Guests have none": the other end hears `leaving` first, so that nothing it sends
    then goes into a stripe that closes. A deal that follows at once finds the stripes there.
    """

    async def scenario() -> None:
        net = SimNetwork()
        host, one = await room(net, "host", "one", wiring=DEFAULT)
        host.mesh.chain([one.mesh.id])
        one.mesh.chain([ROOM])
        await asyncio.sleep(1)
        before = stripes(net, one.mesh.id, ROOM)
        one.mesh.chain([])
        await asyncio.sleep(KEPT_S - 2)
        one.mesh.chain([ROOM])
        await asyncio.sleep(1)
        assert stripes(net, one.mesh.id, ROOM) == before
        one.mesh.chain([])
        await asyncio.sleep(KEPT_S - 1)
        said = [c.control.sent for c in before]
        assert (count(one, ROOM), count(host, one.mesh.id)) == (3, 3)
        await asyncio.sleep(2)
        assert [c.control.sent for c in before] == [n + 1 for n in said]
        assert [c.state for c in before] == ["closed"] * 3
        assert (count(one, ROOM), count(host, one.mesh.id)) == (0, 0)
        # The chain begins anew: they come anew, and frames go.
        one.mesh.chain([ROOM])
        assert host.mesh.send_frame(one.mesh.id, frame(1))
        await asyncio.sleep(1)
        assert count(one, ROOM) == 3
        assert [f.pos for _, f in one.frames] == [1]
        await leave(one, host)

    simulate(scenario)


def test_a_link_that_took_over_keeps_its_stripes(monkeypatch: pytest.MonkeyPatch) -> None:
    """PROTOCOL section 3, dead links: stripes of the old link came to be only when the fresh one was there,
    and went over to it. As the old link is forgotten, nothing of the fresh one is given up.
    """

    async def scenario() -> None:
        net = SimNetwork()
        _, one, two = await room(net, "host", "one", "two", wiring=DEFAULT)
        await one.mesh.connect(two.mesh.id)
        two.mesh.chain([one.mesh.id])
        dials = Dials(net, monkeypatch)
        dials.takes = 0.3
        one.mesh.chain([two.mesh.id])
        await one.mesh.relink(two.mesh.id)  # while they are dialed
        await asyncio.sleep(3)
        before = set(stripes(net, one.mesh.id, two.mesh.id))
        assert len(before) == len(dials.at) == 6
        await asyncio.sleep(KEPT_S + 5)
        assert set(stripes(net, one.mesh.id, two.mesh.id)) == before
        assert len(dials.at) == 6
        one.mesh.chain([])
        await asyncio.sleep(KEPT_S + 5)
        assert stripes(net, one.mesh.id, two.mesh.id) == [], "nobody's stripes stay"
        await leave(one, two)

    simulate(scenario)


def test_nothing_goes_into_a_stripe_that_is_given_up() -> None:
    """PROTOCOL section 5: each slice arrives: between `leaving` and the close the other end uses what is
    left.
    """

    async def scenario() -> None:
        net = SimNetwork()
        host, one = await room(net, "host", "one", wiring=DEFAULT)
        host.mesh.chain([one.mesh.id])
        one.mesh.chain([ROOM])
        await asyncio.sleep(1)
        links = one.mesh._links
        assert links is not None
        (gives_up, *_) = links.stripes.of(ROOM)
        far = gives_up.connection.other  # type: ignore[attr-defined]
        gives_up.give_up()
        links.stripes.settle(ROOM)  # as when another one comes meanwhile
        assert count(one, ROOM) == 2
        await asyncio.sleep(0.015)  # a way takes 10 ms
        sent = far.wire.sent
        for i in range(20):
            assert host.mesh.send_frame(one.mesh.id, frame(i))
            await asyncio.sleep(0.02)
        assert far.wire.sent == sent
        assert [f.pos for _, f in one.frames] == list(range(20))
        await leave(one, host)

    simulate(scenario)


@pytest.mark.parametrize("how", ["closes", "never answers", "proves nothing", "cannot be dialed"])
def test_who_takes_none_is_not_hammered(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """PROTOCOL section 5: "Nobody waits for them": after each round of three that fails the next one waits
    for longer, up to 30 s, and frames go over the link meanwhile.
    """

    async def scenario() -> None:
        net = SimNetwork()
        host, one = await room(net, "host", "one", wiring=DEFAULT)
        dials = Dials(net, monkeypatch)
        links = host.mesh._links
        assert links is not None
        if how == "closes":
            monkeypatch.setattr(links.stripes, "take", lambda c: links.spawn(c.close()))
        elif how == "never answers":
            dials.raises = LinkFailed("It did not answer.", "Try again.")
        elif how == "cannot be dialed":  # by this device's own settings, or its stack
            dials.raises = BadOption("POOLED_TURN names no relay that can be read.", "Write it anew.")
        else:
            monkeypatch.setattr(links.stripes, "take", lambda connection: None)
        host.mesh.chain([one.mesh.id])
        one.mesh.chain([ROOM])
        began = asyncio.get_running_loop().time()
        await asyncio.sleep(200)
        patience = 10.0 if how == "proves nothing" else 0.5
        waits = [0.0]
        for wait in [*BACK_OFF_S, 30.0, 30.0, 30.0]:
            waits.append(waits[-1] + wait + patience)
        rounds = sorted({round(at - began, 3) for at in dials.at})
        assert len(dials.at) == 3 * len(rounds)
        assert len(rounds) <= sum(wait < 200 for wait in waits) + 1
        assert len(rounds) >= 5
        assert rounds[-1] - rounds[-2] >= 30.0
        assert one.mesh.send_frame(ROOM, frame(1))
        await asyncio.sleep(1)
        assert [f.pos for _, f in host.frames] == [1]
        assert host.gone == []
        await leave(one, host)

    simulate(scenario)


def test_a_link_that_fell_back_gets_none() -> None:
    """PROTOCOL section 5: "A link that fell back stays so until it is redialed": a stripe is of no use."""

    async def scenario() -> None:
        net = SimNetwork()
        host, one = await room(net, "host", "one", wiring=DEFAULT)
        host.mesh.chain([one.mesh.id])
        (main,) = net.connections(one.mesh.id, ROOM)
        main.wire.closed()
        main.other.wire.closed()
        one.mesh.chain([ROOM])
        await asyncio.sleep(5)
        assert stripes(net, one.mesh.id, ROOM) == []
        assert one.mesh.send_frame(ROOM, frame(1))
        await asyncio.sleep(1)
        assert [f.pos for _, f in host.frames] == [1]
        await leave(one, host)

    simulate(scenario)


def test_they_wait_for_signaling() -> None:
    """PROTOCOL section 2: a room goes on while signaling is down; what died meanwhile comes back with it."""

    async def scenario() -> None:
        net = SimNetwork()
        host, one = await room(net, "host", "one", wiring=DEFAULT)
        host.mesh.chain([one.mesh.id])
        one.mesh.chain([ROOM])
        await asyncio.sleep(40)
        endpoint = one.mesh._registration.endpoint
        assert endpoint is not None
        dials = endpoint.dials  # type: ignore[attr-defined]
        net.signaling(up=False)
        end(*stripes(net, one.mesh.id, ROOM))
        await asyncio.sleep(60)
        assert endpoint.dials == dials  # type: ignore[attr-defined]
        assert one.mesh.send_frame(ROOM, frame(1))
        net.signaling(up=True)
        await asyncio.sleep(1)
        assert endpoint.dials == dials + 3  # type: ignore[attr-defined]
        assert count(one, ROOM) == 3
        assert [f.pos for _, f in host.frames] == [1]
        await leave(one, host)

    simulate(scenario)


def test_an_outage_in_the_middle_of_a_dial_is_nobodys_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    """PROTOCOL section 2: a dial that met the outage is made again as soon as signaling is back."""

    async def scenario() -> None:
        net = SimNetwork()
        host, one = await room(net, "host", "one", wiring=DEFAULT)
        dials = Dials(net, monkeypatch)
        dials.raises = SignalingDown("The signaling server is not reachable.", "Try again.")
        host.mesh.chain([one.mesh.id])
        for _ in range(20):
            one.mesh.chain([ROOM])
            await asyncio.sleep(0.1)
        dials.raises = None
        await asyncio.sleep(1)
        assert count(one, ROOM) == 3
        await leave(one, host)

    simulate(scenario)


def test_no_link_takes_more_than_eight(monkeypatch: pytest.MonkeyPatch) -> None:
    """PROTOCOL section 5: "at most 8 are taken per link", whatever a setting says."""

    async def scenario() -> None:
        net = SimNetwork()
        host, one = await room(net, "host", "one", wiring=WireSettings(stripes=50))
        dials = Dials(net, monkeypatch)
        host.mesh.chain([one.mesh.id])
        one.mesh.chain([ROOM])
        await asyncio.sleep(10)
        assert (count(one, ROOM), count(host, one.mesh.id)) == (8, 8)
        assert len(stripes(net, one.mesh.id, ROOM)) == 8
        assert len(dials.at) == 8
        await leave(one, host)

    simulate(scenario)


@pytest.mark.parametrize("what", ["no answer", "no path"])
def test_leaving_while_they_come_to_be_waits_for_none(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """DESIGN section 1: leaving takes as long as its word, whatever is being dialed; nothing is left over."""

    async def scenario() -> None:
        net = SimNetwork()
        host, one = await room(net, "host", "one", wiring=DEFAULT)
        dials = Dials(net, monkeypatch)
        if "path" in what:
            net.refuse_open.add(ROOM)
        else:
            dials.takes = 15.0
        one.mesh.chain([ROOM])
        await asyncio.sleep(1)
        assert len(dials.at) == 3
        loop = asyncio.get_running_loop()
        began = loop.time()
        await one.mesh.leave()
        assert loop.time() - began < 1.0
        await leave(host)

    simulate(scenario)


def test_a_stripe_that_opens_at_one_end_alone_harms_no_frame() -> None:
    """PROTOCOL sections 4 and 5: the dialer's proof was read and ours was lost on the way: it sends over the
    stripe already, and what it sends there is not missed for long once it closes.
    """

    async def scenario() -> None:
        net = SimNetwork()
        host, peer, _ = await in_the_room(net)
        half = await RawPeer.dial(net, ROOM, id="hand", label="stripe")
        await asyncio.sleep(0.1)
        half.connection.wire.send(encode(frame(1, 100), 1)[0])
        peer.connection.wire.send(encode(frame(2, 100), 2)[0])
        await asyncio.sleep(0.2)
        end(half.connection)
        await asyncio.sleep(1.2)
        assert [f.pos for _, f in host.frames] == [2], "slices of a stripe without a proof never count"
        peer.connection.wire.send(encode(frame(3, 100), 3)[0])
        await asyncio.sleep(0.1)
        assert [f.pos for _, f in host.frames] == [2, 3]
        assert host.gone == []
        await leave(host)

    simulate(scenario)
