"""PROTOCOL sections 2 and 5: one connection over each stack, without a signaling server."""

import asyncio

import pytest

from pooled_nb.errors import LinkFailed
from pooled_nb.mesh import descriptions
from pooled_nb.mesh.stack import ChannelEvents
from tests.mesh.rtctools import Inbox, Pair, close, join, nothing_left, opened, until


async def test_channels(pair: Pair):
    """PROTOCOL section 5: 77 ordered and reliable, 78 neither, both pre-negotiated; control as PeerJS."""
    async with nothing_left():
        near, far = pair()
        boxes = [
            Inbox(c) for c in (far.control, far.wire, far.keepalive, near.control, near.wire, near.keepalive)
        ]
        await join(near, far)
        for n, channel in enumerate((near.control, near.wire, near.keepalive)):
            channel.send(bytes([n]) * 10)
            assert await boxes[n].get() == bytes([n]) * 10
        for n, channel in enumerate((far.control, far.wire, far.keepalive)):
            channel.send(bytes([n]))
            assert await boxes[n + 3].get() == bytes([n])
        for end in (near, far):
            control, wire, keepalive = (channel._channel._channel for channel in end._channels)
            assert (wire.id, wire.label, wire.ordered, wire.maxRetransmits) == (77, "swarm-wire", True, None)
            assert (keepalive.id, keepalive.label) == (78, "swarm-ka")
            assert (keepalive.ordered, keepalive.maxRetransmits) == (False, 0)
            assert (control.label, control.ordered, control.maxRetransmits) == ("dc_1", True, None)
            assert [c.negotiated for c in (control, wire, keepalive)] == [False, True, True]
        assert near.path == far.path == "direct"
        await close(near, far)
        assert near.path == "direct"


async def test_fingerprints(pair: Pair):
    """PROTOCOL section 4: both ends see the same two fingerprints, own first; none before both are set."""
    async with nothing_left():
        near, far = pair()
        offer = await near.offer()
        assert near.fingerprints() is None
        assert offer.count("a=fingerprint") == 1
        answer = await far.answer(descriptions.take(offer))
        await near.accept(descriptions.take(answer))
        own, other = near.fingerprints() or ("", "")
        assert own.startswith("sha-256 ")
        assert far.fingerprints() == (other, own)
        await opened(near, far)
        await close(near, far)


async def test_another_certificate_does_not_connect(pair: Pair):
    """PROTOCOL section 4: signaling that swaps the fingerprint gets no connection."""
    async with nothing_left():
        near, far = pair()
        offer = await near.offer()
        mark = "a=fingerprint:sha-256 "
        at = offer.index(mark) + len(mark)
        forged = offer[:at] + ":".join(["11"] * 32) + offer[at + 95 :]
        answer = await far.answer(descriptions.take(forged))
        await near.accept(descriptions.take(answer))
        await until(lambda: far.state == "failed")
        assert not far.control.is_open
        assert far.failure
        await close(near, far)


async def test_states(pair: Pair):
    """PROTOCOL section 3: what the link hears of its connection, each state once, and closing."""
    async with nothing_left():
        near, far = pair()
        heard: dict[str, list[str]] = {"near": [], "far": []}
        near.on_state, far.on_state = heard["near"].append, heard["far"].append
        closed: list[str] = []
        for name, end in (("near", near), ("far", far)):
            for channel in (end.control, end.wire, end.keepalive):
                channel.on_close = lambda name=name: closed.append(name)
        await join(near, far)
        assert near.state == far.state == "connected"
        await near.close()
        await near.close()
        await until(lambda: far.state == "closed")
        await until(lambda: len(closed) == 6)
        assert heard == {side: ["connecting", "connected", "closed"] for side in heard}
        for channel in (near.control, far.wire):
            assert not channel.is_open
            assert channel.buffered == 0
            with pytest.raises(LinkFailed):
                channel.send(b"x")
        await far.close()


async def test_nothing_is_lost_before_a_handler_is_set(pair: Pair):
    """PROTOCOL section 3: hello is sent at open, without waiting for the other's; it must not be lost."""
    async with nothing_left():
        near, far = pair()
        await join(near, far)
        for n in range(50):
            near.control.send(bytes([n]))
            near.wire.send(bytes([n]) * 100)
        await until(lambda: near.control.buffered == near.wire.buffered == 0)
        await asyncio.sleep(0.2)
        heard: list[str] = []
        got: list[int] = []
        far.control.on_open = lambda: heard.append("open")
        far.control.on_message = lambda m: (heard.append("message"), got.append(m[0]))
        await until(lambda: len(got) == 50)
        assert got == list(range(50))
        assert heard[:2] == ["open", "message"]
        wire = Inbox(far.wire)
        assert [(await wire.get())[0] for _ in range(50)] == list(range(50))
        near.wire.send(b"last")
        assert await wire.get() == b"last"
        # what is received and not yet heard is still handed over when the other end closes
        far.wire.on_message = None
        near.wire.send(b"late")
        await until(lambda: far.wire._early)
        await near.close()
        late: list[bytes] = []
        far.wire.on_message = late.append
        await until(lambda: late == [b"late"])
        await far.close()


async def test_early_messages_are_bounded(pair: Pair, monkeypatch):
    """PROTOCOL section 2: memory is bounded; rather than lose a message the connection fails."""
    monkeypatch.setattr("pooled_nb.mesh.channel.MAX_EARLY_MESSAGES", 20)
    async with nothing_left():
        near, far = pair()
        await join(near, far)
        for _ in range(30):
            near.control.send(b"x")
        await until(lambda: far.state == "failed")
        assert "control" in far.failure or "dc_1" in far.failure
        await close(near, far)


async def test_a_failing_handler_ends_nothing(pair: Pair, caplog):
    """PROTOCOL section 3: nothing that comes in can raise out of the link."""
    async with nothing_left():
        near, far = pair()
        seen: list[bytes] = []

        def handler(data: bytes) -> None:
            seen.append(data)
            raise ValueError("mine")

        far.wire.on_message = handler
        far.on_state = lambda state: 1 / 0  # type: ignore[assignment, return-value]  # a handler that is wrong
        await join(near, far)
        near.wire.send(b"1")
        near.wire.send(b"2")
        await until(lambda: seen == [b"1", b"2"])
        assert far.state == "connected"
        await close(near, far)
    assert "a handler of the channel swarm-wire failed" in caplog.text


async def test_bulk_and_the_low_mark(pair: Pair):
    """PROTOCOL section 5: slices are handed over while little is queued; on_low says when there is room."""
    async with nothing_left():
        near, far = pair()
        await join(near, far)
        got: list[bytes] = []
        far.wire.on_message = got.append
        todo = [n.to_bytes(4, "big") + bytes(4_596) for n in range(230)]
        peak = 0

        def hand_over() -> None:
            nonlocal peak
            while todo and near.wire.buffered <= 4 * 4_600:
                near.wire.send(todo.pop(0))
            peak = max(peak, near.wire.buffered)

        near.wire.low_threshold = 4_600
        near.wire.on_low = hand_over
        hand_over()
        await until(lambda: len(got) == 230)
        assert [int.from_bytes(m[:4], "big") for m in got] == list(range(230))
        assert peak <= 5 * 4_600
        await close(near, far)


async def test_other_channels_are_refused(pair: Pair):
    """PROTOCOL section 2: one control channel, ordered and reliable; a peer cannot open more."""
    async with nothing_left():
        near, far = pair()
        await join(near, far)
        extra = near._peer.channel("extra")
        closed: list[str] = []
        extra.listen(ChannelEvents(lambda: None, lambda data: None, lambda: closed.append("x"), lambda: None))
        await until(lambda: closed)
        box = Inbox(far.control)
        near.control.send(b"still here")
        assert await box.get() == b"still here"
        await close(near, far)


@pytest.mark.parametrize("opens", [0, 1])
async def test_who_opens_one_after_the_other_is_gone(pair: Pair, opens: int):
    """PROTOCOL section 2: memory is bounded: libwebrtc keeps up to 16 MB of what comes over a channel that
    closes here, and the other end need not let it close.
    """
    async with nothing_left():
        ends = pair()
        await join(*ends)
        other = ends[1 - opens]
        for number in range(4):
            ends[opens]._peer.channel(f"extra {number}")
        await until(lambda: other.state == "failed")
        assert other.failure == "it opens channels that nobody asked for"
        await close(*ends)
