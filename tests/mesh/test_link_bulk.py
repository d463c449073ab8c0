"""Large messages, frames and pings on one link (DESIGN section 4, PROTOCOL sections 5 and 6)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from pooled_nb.mesh import linkbulk
from pooled_nb.mesh.credit import Credit
from pooled_nb.mesh.frame import Frame, Kind
from pooled_nb.mesh.linkbulk import ASSOCIATION
from pooled_nb.mesh.messages.link import Ping
from pooled_nb.mesh.messages.weights import Wpart
from pooled_nb.mesh.pace import DEVICE, Inbox
from pooled_nb.mesh.wire import Priority, bulk, fallback, lanes
from pooled_nb.mesh.wire.bulk import QUEUE
from tests.mesh.linktools import frame, host_and_peer, id_of
from tests.mesh.rawpeer import RawPeer
from tests.mesh.recorder import Recorder, leave, room
from tests.sim.clock import simulate
from tests.sim.network import SimChannel, SimConnection, SimNetwork

FAST = 1e6
"""Bytes a second of a link that weights fill."""


def part(number: int, of: int = 0, size: int = 65_536) -> Wpart:
    return Wpart(id=of, off=number * 65_536, data=bytes(size))


def token(pos: int) -> Frame:
    return Frame(Kind.HIDDEN, pos, 1, bytes(10_000))


async def saturate(one: Recorder, to: str, many: int, priority: Priority = Priority.WEIGHTS) -> int:
    """Send parts without end, as fast as they are taken; how many were."""
    of = 1 if priority is Priority.CAPTURES else 0
    for number in range(many):
        if not await one.mesh.send_bulk(to, part(number, of), priority):
            return number
    return many


async def heard(peer: RawPeer, count: Callable[[], int]) -> float:
    """Seconds until the peer has received one more of what is counted."""
    loop, before = asyncio.get_running_loop(), count()
    began = loop.time()
    while count() == before:  # noqa: ASYNC110  # on the virtual clock
        await asyncio.sleep(0.0005)
    return loop.time() - began


def numbers(told: list[dict[str, object]], of: int = 0) -> list[int]:
    return [m["off"] // 65_536 for m in told if m["t"] == "ai-wpart" and m["id"] == of]  # type: ignore[operator]


@pytest.fixture
def unpaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without credit, a message waits for nothing but its turn."""
    monkeypatch.setattr(bulk, "PACE", 1e12)


@pytest.fixture
def fifos(monkeypatch: pytest.MonkeyPatch) -> dict[SimConnection, int]:
    """The most bytes that each connection's association held after a slice or a piece was given to it."""
    most: dict[SimConnection, int] = {}
    send = SimChannel.send

    def counted(self: SimChannel, data: bytes) -> None:
        send(self, data)
        held = sum(channel.buffered for channel in self.connection.channels)
        most[self.connection] = max(held, most.get(self.connection, 0))

    monkeypatch.setattr(SimChannel, "send", counted)
    return most


def test_a_ping_behind_saturating_weights(unpaced: None, fifos: dict[SimConnection, int]) -> None:
    """DESIGN section 4: a link "hands an association at most 4 slices at a time": a ping and a token behind
    weights without end wait for what those take, 18 ms at a megabyte a second, and no longer.
    """

    async def scenario() -> None:
        net = SimNetwork(latency=0.001, bandwidth=FAST)
        host, peer = await host_and_peer(net)
        to = id_of(peer)
        fifos.clear()
        sending = asyncio.ensure_future(saturate(host, to, 200))
        waits = []
        for i in range(20):
            await asyncio.sleep(0.0531)
            assert host.mesh.send(to, Ping(ts=i)) if i % 2 else host.mesh.send_frame(to, token(i))
            waits.append(await heard(peer, lambda: len(peer.told_of("ping")) + len(peer.slices)))
        assert max(waits) < (ASSOCIATION + 4_600) / FAST + 0.003
        assert sum(waits) / len(waits) > 0.005  # weights do fill the link
        assert max(fifos.values()) <= ASSOCIATION + 100  # the pings are not counted
        await asyncio.sleep(15)
        assert await sending == 200
        assert numbers(peer.told) == list(range(200))
        await leave(host)

    simulate(scenario)


def test_no_piece_between_small_frames(unpaced: None) -> None:
    """DESIGN section 4: four small slices fill an association as four large ones do: while a fifth waits, no
    piece of weights goes before it, although there are bytes for one.
    """

    async def scenario() -> None:
        host, peer = await host_and_peer(SimNetwork(latency=0.001, bandwidth=FAST))
        sending = asyncio.ensure_future(saturate(host, id_of(peer), 30))
        await asyncio.sleep(0.3)
        began = asyncio.get_running_loop().time()
        for i in range(40):
            assert host.mesh.send_frame(id_of(peer), frame(i))
        while len(peer.slices) < 40:
            await heard(peer, lambda: len(peer.slices))
        assert asyncio.get_running_loop().time() - began < (ASSOCIATION + 40 * 150) / FAST + 0.12
        await asyncio.sleep(3)
        assert await sending == 30
        await leave(host)

    simulate(scenario)


def test_frames_then_captures_then_weights(unpaced: None, fifos: dict[SimConnection, int]) -> None:
    """DESIGN section 4: "keep-alive and control, decode, prefill, weights", captures before weights; nothing
    is lost, each class keeps its order, weights get the rest, and the association's bound holds for the sum.
    """

    async def scenario() -> None:
        net = SimNetwork(latency=0.001, bandwidth=FAST)
        host, peer = await host_and_peer(net)
        to = id_of(peer)
        fifos.clear()
        weights = asyncio.ensure_future(saturate(host, to, 30))
        await asyncio.sleep(0.5)
        assert 4 < len(numbers(peer.told)) < 10
        captures = asyncio.ensure_future(saturate(host, to, 20, Priority.CAPTURES))
        await asyncio.sleep(0.1)
        before = numbers(peer.told)
        for i in range(10):  # a second of frames
            assert host.mesh.send_frame(to, frame(i, 100_000))
        facts = host.mesh.facts(to)
        assert facts
        assert facts.queued > 1_000_000
        await asyncio.sleep(0.5)
        # One part of a class may be whole but for its last pieces; the rest of it all waits.
        assert len(numbers(peer.told)) <= len(before) + 1
        assert len(numbers(peer.told, 1)) <= 3
        await asyncio.sleep(1.1)
        between = numbers(peer.told)
        assert numbers(peer.told, 1) != []
        assert len(between) <= len(before) + 1  # captures go first
        await asyncio.sleep(4)
        assert await captures == 20
        assert await weights == 30
        assert numbers(peer.told, 1) == list(range(20))
        assert numbers(peer.told) == list(range(30))
        assert max(fifos.values()) <= ASSOCIATION + 100
        link = host.mesh._links.book.used(to)  # type: ignore[union-attr]
        assert link is not None
        assert set(link.wire.waiting.values()) == {0}
        await leave(host)

    simulate(scenario)


def test_who_sends_waits_for_room(unpaced: None) -> None:
    """DESIGN section 4: "with back-pressure": 256 KiB of a class wait; who sends more waits, in order; who is
    cancelled while it waits sends nothing, and tears nothing.
    """

    async def scenario() -> None:
        host, peer = await host_and_peer(SimNetwork(latency=0.001, bandwidth=FAST))
        to = id_of(peer)
        jobs = [asyncio.ensure_future(host.mesh.send_bulk(to, part(i), Priority.WEIGHTS)) for i in range(12)]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        link = host.mesh._links.book.used(to)  # type: ignore[union-attr]
        assert link is not None
        assert sum(job.done() for job in jobs) == 4
        assert link.wire.waiting[Priority.WEIGHTS] <= QUEUE
        jobs[6].cancel()
        jobs[11].cancel()
        await asyncio.sleep(2)
        assert numbers(peer.told) == [0, 1, 2, 3, 4, 5, 7, 8, 9, 10]
        assert not any(link.wire._bulk._lines.values())
        assert [job.cancelled() for job in jobs] == [i in (6, 11) for i in range(12)]
        assert await asyncio.gather(*(job for job in jobs if not job.cancelled())) == [True] * 10
        with pytest.raises(ValueError, match="DECODE"):
            await host.mesh.send_bulk(to, part(0), Priority.DECODE)
        assert not await host.mesh.send_bulk("nobody", part(0), Priority.WEIGHTS)
        await leave(host)

    simulate(scenario)


def test_the_link_ends_under_it(unpaced: None) -> None:
    """PROTOCOL section 6: "Any failure falls back to the network": who waits hears that the link is gone."""

    async def scenario() -> None:
        host, peer = await host_and_peer(SimNetwork(bandwidth=FAST))
        jobs = [asyncio.ensure_future(saturate(host, id_of(peer), 100)) for _ in range(3)]
        await asyncio.sleep(0.5)
        peer.say("leaving")
        await asyncio.sleep(0.5)
        assert all(job.done() for job in jobs)
        assert max(job.result() for job in jobs) < 20
        await leave(host)

    simulate(scenario)


def test_the_window_of_a_range() -> None:
    """PROTOCOL section 6: "at most `win` = 8 MiB unacknowledged (a smaller `win` is obeyed)": parts wait for
    what comes back; another range goes on; one that is closed, or of a link before, sends nothing more.
    """

    async def scenario() -> None:
        host, peer = await host_and_peer(SimNetwork(latency=0.001))
        to = id_of(peer)
        credit, other = host.mesh.credit(to, 150_000), host.mesh.credit(to, None)
        assert credit is not None
        assert other is not None
        assert host.mesh.credit("nobody", None) is None

        async def send(number: int, of: int, credit: Credit) -> bool:
            return await host.mesh.send_bulk(to, part(number, of), Priority.WEIGHTS, credit=credit)

        jobs = [asyncio.ensure_future(send(i, 0, credit)) for i in range(5)]
        await asyncio.sleep(1)
        assert numbers(peer.told) == [0, 1]
        assert await asyncio.wait_for(send(0, 7, other), 1)
        credit.acknowledged(65_536)
        await asyncio.sleep(1)
        assert numbers(peer.told) == [0, 1, 2]
        credit.close()
        await asyncio.sleep(1)
        assert [await job for job in jobs] == [True, True, True, False, False]
        assert not await send(9, 0, credit)
        assert not await send(9, 0, Credit(of=Credit()))
        small = host.mesh.credit(to, 1_000)
        assert small is not None
        with pytest.raises(ValueError, match="window"):
            await send(0, 1, small)
        assert numbers(peer.told) == [0, 1, 2]
        await leave(host)

    simulate(scenario)


def flood(seconds: float, *, weights: bool = True) -> tuple[int, int, list[str]]:
    """Over a network of any speed: how many bytes the inbox held at most, how many came, and who was lost."""
    fullest, came, away = 0, 0, list[str]()
    put = Inbox.put

    def watched(self: Inbox, data: bytes) -> bool:
        nonlocal fullest
        took = put(self, data)
        fullest = max(fullest, self._bytes)
        return took

    async def scenario() -> None:
        nonlocal came, away
        host, one = await room(SimNetwork(latency=0.005), "host", "one")
        to, got = host.mesh.id, dict.fromkeys(range(10), 0)
        credits = {of: one.mesh.credit(to, None) for of in range(2, 10)}  # "at most 8 at once per link"

        async def serve(of: int, credit: Credit | None, priority: Priority) -> None:
            number = 0
            while await one.mesh.send_bulk(to, part(number, of), priority, credit=credit):
                number += 1

        def take(message: object) -> None:
            assert isinstance(message, Wpart)
            assert message.data is not None
            got[message.id] += len(message.data)
            if (credit := credits.get(message.id)) is not None:  # `ai-wack`, a while later
                value = got[message.id]
                asyncio.get_running_loop().call_later(0.005, lambda: credit.acknowledged(value))

        host.on_message = lambda _sender, message: take(message)  # type: ignore[method-assign]
        jobs = [asyncio.ensure_future(serve(1, None, Priority.CAPTURES))]
        if weights:
            jobs += [asyncio.ensure_future(serve(of, c, Priority.WEIGHTS)) for of, c in credits.items()]
        await asyncio.sleep(seconds)
        came, away = sum(got.values()), [line for line in host.diary if "away" in line or "gone" in line]
        await leave(one, host)
        await asyncio.gather(*jobs)

    Inbox.put = watched  # type: ignore[method-assign]
    try:
        simulate(scenario)
    finally:
        Inbox.put = put  # type: ignore[method-assign]
    return fullest, came, away


def test_a_slow_receiver_is_not_drowned() -> None:
    """PROTOCOL sections 3, 6 and 11: an honest device that sends weights and captures as fast as it may, over
    a network of any speed, never fills the other end's inbox: that would close the link.
    """
    fullest, came, away = flood(0.6)
    assert away == []
    assert fullest <= 0.8 * DEVICE.queue
    assert came > 0.5 * 25e6  # and the other end reads all the time


def test_who_sends_faster_than_its_credit_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """PROTOCOL section 3: what the test before is worth: without the pace the inbox does fill, and closes."""
    monkeypatch.setattr(bulk, "PACE", 1e12)
    _, _, away = flood(1.5, weights=False)
    assert len(away) == 1


def closed_wire(peer: RawPeer, room_id: str) -> None:
    (connection,) = peer.connection.net.connections(room_id, id_of(peer))
    connection.wire.closed()


def test_frames_without_a_wire_share_the_channel_with_pings(fifos: dict[SimConnection, int]) -> None:
    """PROTOCOL section 5: "A link falls back to control messages": in order, before weights, and a ping
    passes between two pieces of a frame.
    """

    async def scenario() -> None:
        host, peer = await host_and_peer(SimNetwork(latency=0.001, bandwidth=FAST))
        to = id_of(peer)
        fifos.clear()
        weights = asyncio.ensure_future(saturate(host, to, 3))
        await asyncio.sleep(0.05)
        closed_wire(peer, host.mesh.id)
        for i in range(6):
            assert host.mesh.send_frame(to, frame(i, 100_000))
        await asyncio.sleep(0.1)
        assert host.mesh.send(to, Ping(ts=1))
        assert await heard(peer, lambda: len(peer.told_of("ping"))) < (ASSOCIATION + 100) / FAST + 0.004
        await asyncio.sleep(0.55)
        frames = [fallback.from_map(m) for m in peer.told if fallback.is_frame(m)]
        assert len(frames) == 6
        assert len(numbers(peer.told)) <= 1
        await asyncio.sleep(1)
        assert [f.pos for f in frames if f] == list(range(6))
        assert await weights == 3
        assert numbers(peer.told) == [0, 1, 2]
        assert max(fifos.values()) <= ASSOCIATION + 100
        await leave(host)

    simulate(scenario)


def too_many(_peer: RawPeer, _host: Recorder) -> list[Frame]:
    return [frame(i) for i in range(300)]


def without_wire(peer: RawPeer, host: Recorder) -> list[Frame]:
    closed_wire(peer, host.mesh.id)
    return [frame(i, 100_000) for i in range(300)]


def too_large(peer: RawPeer, host: Recorder) -> list[Frame]:
    closed_wire(peer, host.mesh.id)
    return [frame(0, 5_000_000)]


@pytest.mark.parametrize(
    ("frames", "said"),
    [
        (too_many, "257 frames of 25700 bytes wait"),
        (without_wire, "wire is gone, 25"),
        (too_large, "does not fit a message"),
    ],
)
def test_what_waits_for_a_device_that_takes_nothing(
    frames: Callable[[RawPeer, Recorder], list[Frame]], said: str
) -> None:
    """PROTOCOL section 5: what waits is bounded, with a wire and without: then the link ends, in words."""

    async def scenario() -> None:
        net = SimNetwork()
        host, peer = await host_and_peer(net)
        net.bandwidth = 1e-3
        sent = [host.mesh.send_frame(id_of(peer), f) for f in frames(peer, host)]
        assert not sent[-1]
        if len(sent) > 1:
            assert lanes.MAX_FRAMES <= sum(sent) <= lanes.MAX_FRAMES + 4
        ((_, why),) = host.away
        assert said in why
        await leave(host)

    simulate(scenario)


def test_room_for_one_more_piece() -> None:
    """DESIGN section 4: when the control channel says that it is low, one piece fits within four slices."""
    assert 0 < linkbulk.LOW < ASSOCIATION == 18_400
