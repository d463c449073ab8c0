"""One link at work, its other end played by hand (PROTOCOL sections 2, 3 and 5)."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pooled_nb.mesh import binarypack, linkwire
from pooled_nb.mesh.binarypack import pack
from pooled_nb.mesh.frame import Encoding, Frame, Kind
from pooled_nb.mesh.gate import Doorway, Pass
from pooled_nb.mesh.linkbook import MAX_WAITING
from pooled_nb.mesh.messages import chat, known, write
from pooled_nb.mesh.messages.link import Admit
from pooled_nb.mesh.wire import encode, fallback
from tests.mesh.opengate import OpenGate, OpenGates
from tests.mesh.rawpeer import RawPeer
from tests.mesh.recorder import CODE, ROOM, Recorder, device, leave
from tests.sim.clock import simulate
from tests.sim.network import SimEndpoint, SimNetwork


def frame(pos: int, size: int = 100) -> Frame:
    return Frame(kind=Kind.HIDDEN_B, pos=pos, n=4, payload=bytes([pos % 251]) * size, enc=Encoding.BF16)


async def host_and_peer(net: SimNetwork, *, admitted: bool = True) -> tuple[Recorder, RawPeer]:
    """A room of one, and a device that is in it (or has only opened its link)."""
    host = device(net, "host")
    await host.mesh.create(CODE, ["local"])
    peer = await RawPeer.dial(net, ROOM)
    host.mesh.chain([id_of(peer)])
    if admitted:
        peer.say("hello", name="raw", v=4, meta={"webgpu": 1})
        await asyncio.sleep(0.1)
        assert host.names == ["host", "raw"]
    return host, peer


def id_of(peer: RawPeer) -> str:
    return peer.connection.own


def test_what_a_device_is_told_in_order() -> None:
    """PROTOCOL section 3, order after admission: hello at open, admit, roster; ping from `open` on.

    PROTOCOL section 3: the roster says of it what it said itself: "flags true/false or 1", and "largest
    `width` and `cols` it can run".
    """

    async def scenario() -> None:
        host, peer = await host_and_peer(SimNetwork(), admitted=False)
        await asyncio.sleep(2)
        assert [m["t"] for m in peer.told] == ["hello", "ping"]
        hello = peer.told[0]
        assert hello["v"] == 4
        assert hello["name"] == "host"
        assert (hello["gate"], hello["auth"]) == (1, 1)
        assert "ask" not in hello  # this room asks nobody
        peer.say("ping", ts=77)
        nb = {"v": 1, "device": "cuda", "width": 8, "cols": 32, "enc": ["f16"], "lanes": 1, "probe": 1}
        peer.say("hello", name="raw", v=4, meta={"webgpu": True, "contribGB": 2, "phone": 0, "nb": nb})
        await asyncio.sleep(0.1)
        assert [m["t"] for m in peer.told[2:]] == ["pong", "admit", "roster"]
        assert peer.told[2]["ts"] == 77
        assert set(peer.told[3]) == {"t", "pass", "mk"}
        me = peer.told[-1]["members"][1]
        told = me["meta"].pop("nb")
        assert me == {"id": id_of(peer), "name": "raw", "meta": {"webgpu": 1, "contribGB": 2.0}}
        assert {key: told[key] for key in nb if key != "lanes"} == {
            k: v for k, v in nb.items() if k != "lanes"
        }
        await leave(host)
        assert peer.told[-1] == {"t": "bye", "reason": "The room is over.", "closed": 1}

    simulate(scenario)


def test_pings_of_both_ends() -> None:
    """PROTOCOL section 3, ping: `ts` echoed; a peer that answers nothing but sends bytes is alive."""

    async def scenario() -> None:
        host, peer = await host_and_peer(SimNetwork())
        for _ in range(40):
            peer.connection.keepalive.send(b"\0")
            await asyncio.sleep(1)
        assert host.gone == []
        assert len(peer.told_of("ping")) in (16, 17)
        facts = host.mesh.facts(id_of(peer))
        assert facts
        assert facts.rtt_s is None
        assert facts.quiet_s < 1.1
        peer.say("pong", ts=peer.told_of("ping")[-1]["ts"])
        await asyncio.sleep(1)
        assert (facts := host.mesh.facts(id_of(peer)))
        assert facts.rtt_s is not None
        await asyncio.sleep(16)
        assert [name for name, _, _ in host.gone] == ["raw"]
        await leave(host)

    simulate(scenario)


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
        assert len(host.gone) == 1
        assert "256 frames" in host.gone[0][1]
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


def test_a_refusing_channel_and_a_control_that_breaks() -> None:
    """PROTOCOL section 3, dead links: a control channel that takes nothing is the link's end, not an
    exception.
    """

    async def scenario() -> None:
        host, peer = await host_and_peer(SimNetwork())
        (connection,) = peer.connection.net.connections(ROOM, id_of(peer))
        connection.wire.refuses = True
        assert host.mesh.send_frame(id_of(peer), frame(1))
        connection.control.refuses = True
        assert not host.mesh.send(id_of(peer), chat.Stop())
        await asyncio.sleep(1)
        assert host.gone == [("raw", "the connection broke", False)]
        assert not host.mesh.send_frame(id_of(peer), frame(2))
        await leave(host)

    simulate(scenario)


def test_a_device_that_takes_nothing_is_given_up() -> None:
    """DESIGN section 4: what waits for a device that takes no messages is bounded."""

    async def scenario() -> None:
        host, peer = await host_and_peer(SimNetwork(bandwidth=1e5))
        big, sent = chat.GenStart(mid=1, text="x" * 390_000), 0
        while host.mesh.send(id_of(peer), big):
            sent += 1
        assert 40 <= sent <= 50
        assert host.gone == [("raw", "it takes no messages any more", False)]
        await leave(host)

    simulate(scenario)


def test_peerjs_close_ends_the_link() -> None:
    """PROTOCOL section 2: PeerJS's own `{__peerData: {type: "close"}}` closes."""

    async def scenario() -> None:
        host, peer = await host_and_peer(SimNetwork())
        peer.connection.control.send(pack({"__peerData": {"type": "close"}}))
        await asyncio.sleep(0.5)
        assert host.gone == [("raw", "it closed the link", False)]
        assert peer.connection.state == "closed"
        await leave(host)

    simulate(scenario)


def test_who_may_not_come_in() -> None:
    """PROTOCOL section 3, before admission: silent links are closed, and few may wait; stripes are not taken
    yet.
    """

    async def scenario() -> None:
        net = SimNetwork()
        host, quiet = await host_and_peer(net, admitted=False)
        stripe = await RawPeer.dial(net, ROOM, label="stripe")
        endpoint = await net.register("greedy", ["local"])
        many = [await RawPeer.over(endpoint, ROOM) for _ in range(6)]
        await asyncio.sleep(0.1)
        assert stripe.connection.state == "closed"
        assert [p.connection.state for p in many] == ["connected"] * 4 + ["closed"] * 2
        await asyncio.sleep(17)
        assert quiet.connection.state == many[0].connection.state == "closed"
        assert host.names == ["host"]
        assert host.diary == ["roster"]
        await leave(host)

    simulate(scenario)


def test_silent_links_lock_nobody_out() -> None:
    """PROTOCOL section 3, before admission: where 64 links wait that have not even said `hello`, the oldest
    gives way to a new one.
    """

    async def scenario() -> None:
        net = SimNetwork()
        host = device(net, "host", ask=True)
        await host.mesh.create(CODE, ["local"])
        knocks = await RawPeer.dial(net, ROOM, id="knocks")
        knocks.say("hello", name="knocks", v=4, join=1)
        await asyncio.sleep(0.1)
        silent = [await RawPeer.dial(net, ROOM) for _ in range(MAX_WAITING)]
        await asyncio.sleep(0.1)
        states = [peer.connection.state for peer in silent]
        assert states == ["closed"] + ["connected"] * (MAX_WAITING - 1)
        late = await RawPeer.dial(net, ROOM, id="late")
        late.say("hello", name="late", v=4, join=1)
        await asyncio.sleep(0.1)
        assert [request.id for request in host.gates.keeper.lobby] == ["knocks", "late"]
        assert silent[1].connection.state == "closed"
        assert knocks.connection.state == "connected"
        await leave(host)

    simulate(scenario)


def test_a_device_takes_links_of_its_roster_only() -> None:
    """PROTOCOL section 4, mesh: the other end must be in the roster; nobody but the creator comes under its
    id.
    """

    async def scenario() -> None:
        net = SimNetwork()
        host, one = device(net, "host"), device(net, "one")
        await host.mesh.create(CODE, ["local"])
        await one.mesh.join(CODE, ["local"])
        stranger = await RawPeer.dial(net, one.mesh.id)
        stranger.say("hello", name="x", v=4)
        stranger.say("roster", members=[{"id": ROOM, "name": "evil"}, {"id": one.mesh.id, "name": "evil"}])
        stranger.say("ai-ask", text="psst")
        stranger.say("bye", reason="out", closed=1)
        await asyncio.sleep(9)
        assert one.messages == []
        assert one.names == ["host", "one"]
        assert one.closed == []
        await asyncio.sleep(3)
        assert stranger.connection.state == "closed"
        assert one.gone == []
        thief = await RawPeer.over(SimEndpoint(net, ROOM, "local", "its own"), one.mesh.id)
        await asyncio.sleep(0.1)
        assert thief.connection.state == "closed"
        assert thief.told == []
        await leave(one, host)

    simulate(scenario)


# -- whatever a peer sends ---------------------------------------------------------------------------

NUMBER = st.one_of(
    st.integers(-(2**40), 2**40), st.floats(allow_nan=False, allow_infinity=False), st.booleans()
)
TREE = st.recursive(
    st.one_of(st.none(), NUMBER, st.text(max_size=20), st.binary(max_size=40)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=12,
)
TYPES = sorted([*known(), *fallback.KINDS, "nonsense"])
KEYS = [
    "name",
    "v",
    "meta",
    "ts",
    "members",
    "gb",
    "reason",
    "closed",
    "text",
    "n",
    "pos",
    "basePos",
    "data",
    "dp",
    "id",
]
MAP = st.builds(
    lambda t, fields: {"t": t, **fields},
    st.sampled_from(TYPES),
    st.dictionaries(st.sampled_from(KEYS), TREE, max_size=5),
)
SLICE = st.builds(lambda id, n: encode(frame(id, 5_000), id + 1)[n], st.integers(0, 20), st.integers(0, 1))
TORN = st.builds(
    lambda data, at, x: data[:at] + x + data[at + 1 :], SLICE, st.integers(0, 40), st.binary(max_size=2)
)
STEP = st.one_of(
    st.tuples(st.just("control"), st.binary(max_size=60)),
    st.tuples(st.just("map"), st.one_of(MAP, TREE)),
    st.tuples(
        st.just("chunk"), st.fixed_dictionaries({"__peerData": TREE, "n": TREE, "total": TREE, "data": TREE})
    ),
    st.tuples(st.just("hello"), st.just(b"")),
    st.tuples(st.just("wire"), st.one_of(SLICE, TORN, st.binary(max_size=60))),
    st.tuples(st.just("keepalive"), st.binary(max_size=4)),
)


def play(peer: RawPeer, step: tuple[str, Any]) -> None:
    what, value = step
    if what == "hello":
        peer.say("hello", name="raw", v=4)
    elif what in ("map", "chunk"):
        try:
            data = pack(value)
        except ValueError:
            return
        if peer.connection.control.is_open and len(data) < 16_000:
            peer.connection.control.send(data)
    else:
        channel = getattr(peer.connection, what)
        if channel.is_open:
            channel.send(value)


@settings(deadline=None, max_examples=120, suppress_health_check=[HealthCheck.too_slow])
@given(steps=st.lists(STEP, max_size=25), gap=st.sampled_from([0.0, 0.3]))
def test_nothing_a_device_sends_raises_at_the_creator(steps: list[tuple[str, Any]], gap: float) -> None:
    """PROTOCOL section 3, a control message: random bytes, maps and orders never raise out of the link, nor
    enter the room.
    """

    async def scenario() -> None:
        net = SimNetwork()
        host, peer = await host_and_peer(net, admitted=False)
        for step in steps:
            play(peer, step)
            await asyncio.sleep(gap)
        await asyncio.sleep(0.2)
        if "raw" not in host.names and host.admitted == []:
            assert host.messages == []
            assert host.frames == []
        other = await RawPeer.dial(net, ROOM, id="other")  # and the room takes the next device
        other.say("hello", name="fine", v=4)
        await asyncio.sleep(0.2)
        assert host.names[-1] == "fine"
        await leave(host)

    simulate_without_errors(scenario)


@settings(deadline=None, max_examples=120, suppress_health_check=[HealthCheck.too_slow])
@given(steps=st.lists(STEP, max_size=25), inside=st.booleans())
def test_nothing_a_creator_sends_raises_at_a_device(steps: list[tuple[str, Any]], inside: bool) -> None:
    """PROTOCOL section 3, a control message: the same from a creator, before and after a device is in."""

    async def scenario() -> None:
        net = SimNetwork()
        creators = await RawPeer.listen(net, ROOM)
        one = device(net, "one")
        joining = asyncio.ensure_future(one.mesh.join(CODE, ["local"]))
        await asyncio.sleep(0.1)
        if inside:
            creators[0].say("hello", name="host", v=4)
            creators[0].say("admit")
            creators[0].say(
                "roster", members=[{"id": ROOM, "name": "host"}, {"id": one.mesh.id, "name": "one"}]
            )
            await asyncio.wait_for(joining, 1)
        for step in steps:
            play(creators[0], step)
        await asyncio.sleep(0.3)
        assert len(one.closed) <= 1
        await leave(one)
        await asyncio.gather(joining, return_exceptions=True)

    simulate_without_errors(scenario)


def simulate_without_errors(scenario: Any) -> None:
    """As `simulate`, and nothing was caught and logged on the way either."""
    errors: list[logging.LogRecord] = []
    handler = logging.Handler(logging.ERROR)
    handler.emit = errors.append  # type: ignore[method-assign]
    logger = logging.getLogger("pooled_nb")
    logger.addHandler(handler)
    try:
        simulate(scenario)
    finally:
        logger.removeHandler(handler)
    if errors:
        pytest.fail(f"it was caught, but it was raised: {errors[0].getMessage()}\n{errors[0].exc_info}")


def test_every_message_type_at_once() -> None:
    """PROTOCOL section 3, a control message: every known type without its fields is dropped or harmless.

    PROTOCOL section 12: "a new message that an older peer can safely ignore": an unknown type is.
    """

    async def scenario() -> None:
        host, peer = await host_and_peer(SimNetwork())
        for t in TYPES:
            if t not in ("leaving", "bye"):
                peer.say(t)
        peer.raw([1, 2]), peer.raw("text"), peer.raw({"t": 5}), peer.raw({"no": "t"})
        await asyncio.sleep(0.5)
        assert host.gone == []
        assert all(write(m)["t"] not in ("hello", "admit", "roster") for _, m in host.messages)
        peer.say("bye")  # not a device's to say
        await asyncio.sleep(0.5)
        assert host.gone == []
        peer.say("leaving")
        await asyncio.sleep(0.5)
        assert host.gone == [("raw", "it left", True)]
        await leave(host)

    simulate_without_errors(scenario)


# -- what a device may cost ---------------------------------------------------------------------------


def test_a_stranger_cannot_fill_the_memory() -> None:
    """PROTOCOL section 3, before admission: of chunked, long and full messages nothing is kept, and the
    device may come in all the same; then they are read.
    """

    async def scenario() -> None:
        host, peer = await host_and_peer(SimNetwork(), admitted=False)
        link = next(iter(host.mesh._links.book))  # type: ignore[union-attr]
        for mark in range(1, 20):
            for n in range(3):  # more is a flood (test_pace.py)
                peer.connection.control.send(
                    pack({"__peerData": mark, "n": n, "data": b"\0" * 16_300, "total": 256})
                )
        peer.raw({"t": "ai-history", "items": [{"reply": "x" * 50_000}]})
        peer.raw({"t": "ai-inv", "url": "u", "have": ["0-1"] * 2_000})
        await asyncio.sleep(1)
        assert link._assembler.waiting == 0
        assert link.state._held == []
        peer.say("hello", name="raw", v=4)
        await asyncio.sleep(0.1)
        assert host.names == ["host", "raw"]
        peer._chunker._count = 20
        peer.raw({"t": "ai-history", "items": [{"reply": "x" * 50_000}]})
        peer.raw({"t": "ai-inv", "url": "u", "have": ["0-1"] * 2_000})
        await asyncio.sleep(1)
        assert [m.t for _, m in host.messages] == ["ai-history", "ai-inv"]
        await leave(host)

    simulate(scenario)


@pytest.mark.parametrize(
    "junk",
    [
        {"t": "ping", "ts": [[]] * 130_000},
        {"t": "roster", "members": [[]] * 130_000},
        {"t": "nonsense", "x": [{}] * 130_000},
        [0] * 130_000,
    ],
    ids=["ping", "roster", "unknown", "no map"],
)
@pytest.mark.parametrize("admitted", [True, False])
def test_a_message_full_of_values_is_not_read(junk: Any, admitted: bool, monkeypatch: Any) -> None:
    """PROTOCOL section 3, a control message: what one message makes the loop do is bounded by the values that
    it may hold, whatever they are and whatever its type is.
    """
    looked: list[int] = []
    value = binarypack._Reader.value

    def counted(self: Any, depth: int) -> Any:
        looked.append(depth)
        return value(self, depth)

    async def scenario() -> None:
        host, peer = await host_and_peer(SimNetwork(), admitted=admitted)
        await asyncio.sleep(0.1)  # what the host says first is not counted
        with monkeypatch.context() as patch:
            patch.setattr(binarypack, "MAX_ITEMS", 1 << 20)
            patch.setattr(binarypack, "MAX_NESTS", 1 << 20)
            data = pack(junk)
        pieces = peer._chunker.split(data)
        monkeypatch.setattr(binarypack._Reader, "value", counted)
        for piece in pieces:
            peer.connection.control.send(piece)
        await asyncio.sleep(0.1)
        # Each piece is a map of four fields; the message inside costs nothing beyond its head.
        assert 0 < len(looked) <= 9 * len(pieces) + 10
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
