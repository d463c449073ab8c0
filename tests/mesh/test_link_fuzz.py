"""Whatever the other end of a link sends, nothing raises and little is kept (PROTOCOL section 3)."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pooled_nb.mesh import binarypack
from pooled_nb.mesh.binarypack import pack
from pooled_nb.mesh.messages import known, write
from pooled_nb.mesh.wire import encode, fallback
from tests.mesh.linktools import frame, host_and_peer
from tests.mesh.rawpeer import RawPeer
from tests.mesh.recorder import CODE, ROOM, device, leave
from tests.sim.clock import simulate
from tests.sim.network import SimNetwork

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
