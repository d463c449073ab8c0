"""Frames over one link, against a device played by hand (PROTOCOL section 5)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from pooled_nb.mesh import linkwire
from pooled_nb.mesh.gate import Doorway, Pass
from pooled_nb.mesh.messages import chat
from pooled_nb.mesh.messages.link import Admit
from pooled_nb.mesh.wire import encode, fallback
from tests.mesh.linktools import frame, host_and_peer, id_of
from tests.mesh.opengate import OpenGate, OpenGates
from tests.mesh.rawpeer import RawPeer
from tests.mesh.recorder import CODE, ROOM, device, leave
from tests.sim.clock import simulate
from tests.sim.network import SimNetwork


def test_slices_before_admission_are_kept() -> None:
    """PROTOCOL section 4, mesh: slices count once the link is proved, 256 are kept."""

    class Late(OpenGate):
        def __init__(self, doorway: Doorway) -> None:
            super().__init__(doorway)
            self.began = 0.0

        def greeted(self, hello: Any, now: float) -> list[Any]:
            self.began = now
            return []

        def tick(self, now: float) -> list[Any]:
            return [Pass()] if now - self.began > 2 else []

    async def scenario() -> None:
        net = SimNetwork()
        host = device(net, "host", gates=OpenGates(Late))
        await host.mesh.create(CODE, ["local"])
        peer = await RawPeer.dial(net, ROOM)
        host.mesh.chain([id_of(peer)])
        peer.say("hello", name="raw", v=4)
        for i in range(300):
            peer.connection.wire.send(encode(frame(i), i + 1)[0])
        peer.say("ai-ask", text="early")
        await asyncio.sleep(1)
        assert host.frames == []
        assert host.messages == []
        assert host.names == ["host"]
        await asyncio.sleep(3)
        assert host.names == ["host", "raw"]
        assert [m for _, m in host.messages] == [chat.Ask(text="early")]
        assert [f.pos for _, f in host.frames] == list(range(256))
        await leave(host)

    simulate(scenario)


def test_frames_fall_back_to_control_when_the_wire_is_closed() -> None:
    """PROTOCOL section 5: a link falls back to control messages only when all its wire channels
    are closed.
    """

    async def scenario() -> None:
        host, peer = await host_and_peer(SimNetwork(bandwidth=1e5))
        (connection,) = peer.connection.net.connections(ROOM, id_of(peer))
        for i in range(4):
            assert host.mesh.send_frame(id_of(peer), frame(i, 30_000))
        await asyncio.sleep(0.45)
        connection.wire.closed()
        facts = host.mesh.facts(id_of(peer))
        assert facts
        assert facts.fallback
        assert host.mesh.send_frame(id_of(peer), frame(9, 500))
        await asyncio.sleep(3)
        maps = [fallback.from_map(m) for m in peer.told if fallback.is_frame(m)]
        assert maps[-1] == frame(9, 500)
        assert maps[-2] == frame(3, 30_000)
        # What had been handed over wholly is not sent again; what had not, is.
        assert [f.pos for f in maps if f] == [*list(range(4 - len(maps) + 1, 4)), 9]
        await leave(host)

    simulate(scenario)


def test_the_receiver_hands_over_what_it_holds_then_takes_control_frames() -> None:
    """PROTOCOL section 5: the receiver first hands over what it holds, then takes them in order."""

    async def scenario() -> None:
        host, peer = await host_and_peer(SimNetwork())
        for id in (1, 3, 4):  # 2 never comes
            peer.connection.wire.send(encode(frame(id, 9_000), id)[0])
            peer.connection.wire.send(encode(frame(id, 9_000), id)[1])
        await asyncio.sleep(0.1)
        peer.raw(fallback.to_map(frame(5, 2)))
        peer.raw({**fallback.to_map(frame(6, 2)), "pos": None, "basePos": "six"})
        peer.raw(fallback.to_map(frame(7, 2)))
        await asyncio.sleep(0.1)
        for id in (2, 8):  # the wire's last words: older than what came since
            peer.connection.wire.send(encode(frame(id, 100), id)[0])
        await asyncio.sleep(0.1)
        assert [f.pos for _, f in host.frames] == [1, 3, 4, 5, 7]
        await leave(host)

    simulate(scenario)


def test_a_257th_frame_behind_a_gap_ends_the_link() -> None:
    """PROTOCOL section 5, receiving: at most 256 complete frames wait behind a gap; at the next, the link
    fails.
    """

    async def scenario() -> None:
        host, peer = await host_and_peer(SimNetwork())
        other = peer.connection
        host.mesh._links.book.used(id_of(peer)).wire._receiver.opened("stripe")  # type: ignore[union-attr]
        for id in range(2, 259):
            other.wire.send(encode(frame(id), id)[0])
        await asyncio.sleep(1)
        assert host.frames == []
        assert len(host.away) == 1
        assert "256 frames" in host.away[0][1]
        await leave(host)

    simulate(scenario)


def test_a_missing_frame_is_given_up_by_time() -> None:
    """PROTOCOL section 5, receiving: missing ids are skipped after 60 s without progress; the ticks reach the
    wire.
    """

    async def scenario() -> None:
        host, peer = await host_and_peer(SimNetwork())
        host.mesh._links.book.used(id_of(peer)).wire._receiver.opened("stripe")  # type: ignore[union-attr]
        peer.connection.wire.send(encode(frame(2), 2)[0])
        for _ in range(59):
            peer.say("ping", ts=1)
            await asyncio.sleep(1)
        assert host.frames == []
        await asyncio.sleep(2)
        assert [f.pos for _, f in host.frames] == [2]
        await leave(host)

    simulate(scenario)


def test_keep_alive_only_while_frames_flow() -> None:
    """PROTOCOL section 5, keep-alive: one zero byte on 78 after 10 ms without a slice, for 1.5 s after a
    frame.
    """

    async def scenario() -> None:
        host, peer = await host_and_peer(SimNetwork())
        (connection,) = peer.connection.net.connections(ROOM, id_of(peer))
        got: list[bytes] = []
        peer.connection.keepalive.on_message = got.append
        await asyncio.sleep(3)
        assert got == []
        host.mesh.send_frame(id_of(peer), frame(1))
        await asyncio.sleep(3)
        assert set(got) == {b"\0"}
        assert 100 <= len(got) <= 152
        assert connection.keepalive.sent == len(got)
        peer.connection.wire.send(encode(frame(1), 1)[0])  # one that came counts, too
        await asyncio.sleep(3)
        assert 200 <= len(got) <= 304
        await leave(host)

    simulate(scenario)


def test_frames_wait_for_a_wire_that_opens_late() -> None:
    """PROTOCOL section 5: frames wait for their channel; none falls back while one may still open."""

    async def scenario() -> None:
        host, peer = await host_and_peer(SimNetwork(), admitted=False)
        (connection,) = peer.connection.net.connections(ROOM, id_of(peer))
        link = next(iter(host.mesh._links.book))  # type: ignore[union-attr]
        link.wire._sender.drop_channel(connection.connection_id)
        connection.wire.is_open = False
        peer.say("hello", name="raw", v=4)
        await asyncio.sleep(0.1)
        assert host.mesh.send_frame(id_of(peer), frame(1))
        await asyncio.sleep(1)
        assert peer.slices == []
        assert not any(map(fallback.is_frame, peer.told))
        connection.wire.opened()
        await asyncio.sleep(0.1)
        assert peer.slices == encode(frame(1), 1)
        await leave(host)

    simulate(scenario)


@pytest.mark.parametrize("said", [True, False])
def test_slices_follow_when_the_channel_drains(said: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """DESIGN section 4: an association gets at most four slices at a time, and the next when it drained:
    it says so, or (some stacks do not) it is looked at.
    """

    async def scenario() -> None:
        host, peer = await host_and_peer(SimNetwork(bandwidth=1e6))
        (connection,) = peer.connection.net.connections(ROOM, id_of(peer))
        if said:
            monkeypatch.setattr(linkwire, "POLL_S", 1e6)
        else:
            connection.wire.on_low = None
        for i in range(5):
            host.mesh.send_frame(id_of(peer), frame(i, 40_000))
        assert connection.wire.sent == 4
        assert (facts := host.mesh.facts(id_of(peer)))
        assert facts.queued > 150_000
        await asyncio.sleep(1)
        assert peer.slices == [piece for i in range(5) for piece in encode(frame(i, 40_000), i + 1)]
        await leave(host)

    simulate(scenario)


def test_frames_of_a_device_that_is_not_in_the_chain() -> None:
    """PROTOCOL section 5: "Frames count only from `prev`": those of any other device of the room are dropped
    at once, by the wire and as messages, and nothing of them is held.
    """

    async def scenario() -> None:
        host, peer = await host_and_peer(SimNetwork())
        host.mesh.chain([])
        for id in range(1, 60):
            for piece in encode(frame(id, 9_000), id)[: id % 2 + 1]:
                peer.connection.wire.send(piece)
        await asyncio.sleep(0.1)
        wire = host.mesh._links.book.used(id_of(peer)).wire  # type: ignore[union-attr]
        assert host.frames == []
        assert wire._receiver._held == 0
        # After the link exists: from the next frame on, in order.
        host.mesh.chain([id_of(peer), "another"])
        for id in range(60, 70):
            for piece in encode(frame(id, 9_000), id):
                peer.connection.wire.send(piece)
        for piece in encode(frame(71, 9_000), 71)[:1]:
            peer.connection.wire.send(piece)
        await asyncio.sleep(0.1)
        assert [f.pos for _, f in host.frames] == list(range(60, 70))
        assert wire._receiver._held > 0
        host.mesh.chain(["another"])
        assert wire._receiver._held == 0
        peer.raw(fallback.to_map(frame(80)))
        await asyncio.sleep(0.1)
        host.mesh.chain([id_of(peer)])
        peer.raw(fallback.to_map(frame(81)))
        await asyncio.sleep(0.1)
        assert [f.pos for _, f in host.frames] == [*range(60, 70), 81]
        assert host.gone == []
        await leave(host)

    simulate(scenario)


class OfOneSeat(OpenGate):
    """Everybody proves the same pass."""

    def greeted(self, hello: Any, now: float) -> list[Any]:
        return [Pass(Admit(), seat="the pass", came_back=True)]


def test_the_chain_is_named_before_the_link_exists() -> None:
    """PROTOCOL section 3, dead links: a chain device that comes back over a new link is still one; its frames
    of the old link are lost, ids start anew, and the room hears `on_admitted` again.
    """

    async def scenario() -> None:
        net = SimNetwork()
        host = device(net, "host", gates=OpenGates(OfOneSeat))
        host.mesh.chain(["worker"])
        await host.mesh.create(CODE, ["local"])
        endpoint = await net.register("worker", ["local"])
        old = await RawPeer.over(endpoint, ROOM)
        old.say("hello", name="raw", v=4)
        old.connection.wire.send(encode(frame(1), 1)[0])
        await asyncio.sleep(0.1)
        new = await RawPeer.over(endpoint, ROOM)
        new.say("hello", name="raw", v=4, back=1)
        await asyncio.sleep(0.005)
        old.connection.wire.send(encode(frame(2), 2)[0])  # in flight when the new link is admitted
        new.connection.wire.send(encode(frame(3), 1)[0])
        await asyncio.sleep(0.5)
        assert host.admitted == ["raw", "raw"]
        assert host.gone == []
        assert [f.pos for _, f in host.frames] == [1, 3]
        assert old.connection.state == "closed"
        await leave(host)

    simulate(scenario)


def test_a_frame_that_no_device_may_send_makes_no_gap() -> None:
    """PROTOCOL section 5, receiving: it is dropped when its turn comes; the next one follows at once."""

    async def scenario() -> None:
        host, peer = await host_and_peer(SimNetwork())
        host.mesh._links.book.used(id_of(peer)).wire._receiver.opened("stripe")  # type: ignore[union-attr]
        for id in (1, 2, 3):
            (piece,) = encode(frame(id), id)
            peer.connection.wire.send(piece[:2] + b"\0" + piece[3:] if id == 2 else piece)  # 4 columns of one
        await asyncio.sleep(0.1)
        assert [f.pos for _, f in host.frames] == [1, 3]
        assert host.gone == []
        await leave(host)

    simulate(scenario)
