"""PROTOCOL sections 2 and 5: one connection over aiortc, without a signaling server."""

import asyncio

import pytest

from pooled_nb.errors import LinkFailed
from pooled_nb.mesh import descriptions
from pooled_nb.mesh.clock import Clock, LoopClock
from pooled_nb.mesh.deadline import GRACE_S
from pooled_nb.mesh.ice import IcePolicy, TurnServer
from pooled_nb.mesh.network import Connection
from pooled_nb.mesh.peerjs.shapes import IceCandidate
from pooled_nb.mesh.rtc import CHECKING_S, CONNECT_S, RtcConnection
from tests.front.udpservers import answering, refusal
from tests.mesh.rtctools import HandClock, Inbox, nothing_left, opened, until


def pair(
    clock: Clock | None = None, label: str = "dc_1", ice: IcePolicy | None = None
) -> tuple[RtcConnection, RtcConnection]:
    clock = clock or LoopClock()
    near, far = (
        RtcConnection(
            remote=remote,
            connection_id="dc_1",
            label=label,
            dialed=dialed,
            clock=clock,
            ice=ice or IcePolicy.local(),
        )
        for remote, dialed in (("far", True), ("near", False))
    )
    return near, far


async def join(near: RtcConnection, far: RtcConnection) -> None:
    answer = await far.answer(descriptions.take(await near.offer()))
    await near.accept(descriptions.take(answer))
    await opened(near, far)


async def close(*connections: Connection) -> None:
    await asyncio.gather(*(c.close() for c in connections))


async def test_channels():
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
            raw = {c.id: c for c in end._pc.sctp._data_channels.values()}
            assert (raw[77].label, raw[77].ordered, raw[77].maxRetransmits) == ("swarm-wire", True, None)
            assert (raw[78].label, raw[78].ordered, raw[78].maxRetransmits) == ("swarm-ka", False, 0)
            [control] = [c for c in raw.values() if not c.negotiated]
            assert (control.label, control.ordered, control.maxRetransmits) == ("dc_1", True, None)
        assert near.path == far.path == "direct"
        await close(near, far)
        assert near.path == "direct"


async def test_fingerprints():
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


async def test_another_certificate_does_not_connect():
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


async def test_states():
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


async def test_nothing_is_lost_before_a_handler_is_set():
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


async def test_early_messages_are_bounded(monkeypatch):
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


async def test_a_failing_handler_ends_nothing(caplog):
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


async def test_bulk_and_the_low_mark():
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


async def test_candidates_before_the_answer():
    """PROTOCOL section 2: trickled candidates are taken, also before the answer; bad ones are dropped."""
    async with nothing_left():
        near, far = pair()
        offer = await near.offer()
        answer = await far.answer(descriptions.take(offer))
        lines = answer.splitlines()
        trickled = [x[2:] for x in lines if x.startswith("a=candidate:")]
        assert trickled
        bare = [x for x in lines if not x.startswith("a=candidate:") and x != "a=end-of-candidates"]
        unknown = "candidate:9 1 udp 2130706431 0b0b0b0b-no-such-device.local 50001 typ host"
        for line in ("", "nonsense", unknown, *trickled):
            near.candidate(IceCandidate(candidate=line, sdp_mid="whatever"))
        await near.accept(descriptions.take("\r\n".join([*bare, f"a={unknown}", ""])))
        await opened(near, far)
        for n in range(200):
            near.candidate(IceCandidate(candidate=f"candidate:{n} 1 udp 1 127.0.0.1 {2000 + n} typ host"))
        assert near._candidates_seen > descriptions.MAX_CANDIDATES
        assert len(near._gathering.ice.remote_candidates) <= descriptions.MAX_CANDIDATES
        await close(near, far)


async def test_only_local_names(monkeypatch):
    """PROTOCOL section 2: a browser may offer only ….local candidates: be reachable yourself."""
    async with nothing_left():
        near, far = pair()
        answer = await far.answer(descriptions.take(await near.offer()))
        hidden = answer.replace("127.0.0.2", "0b0b0b0b-no-such-device.local")
        await near.accept(descriptions.take(hidden))
        await opened(near, far)
        assert near.path == "direct"
        await close(near, far)


async def test_relay_only_asks_its_own_network_for_no_name(monkeypatch):
    """PROTOCOL section 2: "relay-only is a setting"; no packet but to the relay leaves this device."""
    asked = []
    monkeypatch.setattr("aioice.ice.get_or_create_mdns_protocol", asked.append)
    line = f"candidate:9 1 udp 2130706431 {NAMES} 50001 typ host"
    async with nothing_left():
        near, far = pair()
        offer = bare(await near.offer()) + f"a={line}\r\n"
        hidden = RtcConnection(
            remote="x",
            connection_id="y",
            label="y",
            dialed=False,
            clock=LoopClock(),
            ice=IcePolicy(relay_only=True),
        )
        with pytest.raises(LinkFailed, match="relay alone"):
            await hidden.answer(descriptions.take(offer))
        hidden.candidate(IceCandidate(candidate=line))
        await until(lambda: hidden._names == 2)
        assert "only names of its own network" in hidden.obstacle
        await close(near, far, hidden)
    assert asked == []


async def test_other_channels_are_refused():
    """PROTOCOL section 2: one control channel, ordered and reliable; a peer cannot open more."""
    async with nothing_left():
        near, far = pair()
        await join(near, far)
        extra = near._pc.createDataChannel("extra")
        await until(lambda: extra.readyState == "closed")
        box = Inbox(far.control)
        near.control.send(b"still here")
        assert await box.get() == b"still here"
        await close(near, far)


async def test_an_answer_that_is_none():
    """PROTOCOL section 2: a description that cannot be applied is one error in words, and nothing is left."""
    async with nothing_left():
        near, far = pair()
        offer = await near.offer()
        taken = descriptions.take(offer)
        broken = descriptions.Taken(taken.sdp.replace("a=ice-ufrag", "a=ice-nothing"), taken.fingerprint, ())
        with pytest.raises(LinkFailed, match="far"):
            await near.accept(broken)
        assert near.state == "failed"
        with pytest.raises(LinkFailed):
            await far.answer(descriptions.Taken("v=0\r\nm=application x y z\r\n", "", ()))
        await close(near, far)


async def test_given_up():
    """PROTOCOL section 2: 15 s without a path to try, 40 s while paths are tried; with the reason."""
    async with nothing_left():
        clock = HandClock()
        silent, far = pair(clock)
        states: list[str] = []
        silent.on_state = states.append
        offer = await silent.offer()
        clock.advance(CONNECT_S - 0.1)
        assert silent.state == "connecting"
        clock.advance(0.2)
        assert states == ["connecting", "failed"]
        assert "15 s" in silent.failure
        await silent.close()
        assert states == ["connecting", "failed", "closed"]
        # the answerer tries the paths of one that is gone
        later = HandClock()
        other = RtcConnection(
            remote="x", connection_id="y", label="y", dialed=False, clock=later, ice=IcePolicy.local()
        )
        await other.answer(descriptions.take(offer.replace("a=end-of-candidates\r\n", "")))
        await until(lambda: other.is_checking)
        later.advance(CONNECT_S + 1)
        assert other.state == "connecting"
        later.advance(CHECKING_S - CONNECT_S)
        assert other.state == "failed"
        assert "40 s" in other.failure
        await close(other, far)


def bare(sdp: str) -> str:
    """A description without any address, to which more may come."""
    marks = ("a=candidate:", "a=end-of-candidates")
    return "".join(line for line in sdp.splitlines(keepends=True) if not line.startswith(marks))


NAMES = "0b0b0b0b-no-such-device.local"


@pytest.mark.parametrize(
    ("told", "why"),
    [
        (None, "has not answered"),
        ("", "told no address"),
        (f"a=candidate:9 1 udp 2130706431 {NAMES} 50001 typ host", "only names of its own network"),
        ("a=candidate:9 1 udp 2130706431 192.0.2.9 9 typ host", "none of the ways to the other device works"),
    ],
)
async def test_the_reason_why_no_path_was_found(told: str | None, why: str):
    """PROTOCOL section 2, ICE: "at 40 s while paths are still being tried, with the reason"."""
    async with nothing_left():
        clock = HandClock()
        near, far = pair(clock)
        offer = await near.offer()
        if told is not None:
            answer = await far.answer(descriptions.take(bare(offer)))  # it knows of no way to here
            await far.close()
            await near.accept(descriptions.take("\r\n".join([bare(answer) + told, ""])))
            await until(lambda: near.is_checking and (NAMES not in told or near._names == 1))
        clock.advance(CONNECT_S)
        if told is not None:  # paths are tried still
            assert (near.state, near.is_checking) == ("connecting", True)
            assert why in near.obstacle
            clock.advance(CHECKING_S - CONNECT_S)
        assert near.state == "failed"
        assert why in near.failure
        assert f"{CONNECT_S if told is None else CHECKING_S:.0f} s" in near.failure
        await close(near, far)


async def test_a_relay_that_refused_is_part_of_the_reason():
    """Credentials are not (DESIGN section 7)."""
    async with nothing_left(), answering(lambda request, addr: refusal(request, 486)) as port:
        clock = HandClock()
        server = TurnServer(url=f"turn:127.0.0.1:{port}?transport=udp", username="ana", credential="hunter2")
        near, far = pair(clock, ice=IcePolicy(relays=(server,)))
        await near.offer()
        assert "quota" in near._gathering.trouble
        near._other = "sha-256 00"
        assert "the relay 127.0.0.1" in near.obstacle
        assert "quota" in near.obstacle
        await close(near, far)
        alone, other = pair(clock, ice=IcePolicy(relays=(server,), relay_only=True))
        with pytest.raises(LinkFailed, match="a relay alone") as error:
            await alone.offer()
        assert "quota" in str(error.value)
        assert "hunter2" not in f"{error.value!r} {near!r} {server!r}"
        await close(alone, other)


async def test_a_late_timer_gives_nobody_up():
    """PROTOCOL section 8: a timer that fired late says that this device stalled; it judges nobody."""
    async with nothing_left():
        clock = HandClock()
        near, far = pair(clock)
        await near.offer()
        clock.advance(CONNECT_S + 1.5)
        assert near.state == "connecting"
        clock.advance(GRACE_S)
        assert near.state == "failed"
        await close(near, far)


async def test_connected_is_never_given_up():
    async with nothing_left():
        clock = HandClock()
        near, far = pair(clock)
        await join(near, far)
        clock.advance(1_000)
        assert near.state == far.state == "connected"
        await close(near, far)


@pytest.mark.parametrize("step", range(5))
async def test_closing_at_any_time_leaves_nothing(step: int):
    """PROTOCOL section 3: a link may be closed at any moment; no task, socket or exception stays behind."""
    async with nothing_left():
        near, far = pair()
        if step >= 1:
            offer = await near.offer()
        if step >= 2:
            answer = await far.answer(descriptions.take(offer))
        if step >= 3:
            await near.accept(descriptions.take(answer))
        if step >= 4:
            await opened(near, far)
            for _ in range(100):
                near.wire.send(bytes(4_600))
        closing = [asyncio.create_task(c.close()) for c in (near, far)]
        await asyncio.sleep(0)
        closing[0].cancel()
        await asyncio.gather(*closing, return_exceptions=True)
        await near.close()
        with pytest.raises(LinkFailed):
            await near.offer()
        near.candidate(IceCandidate(candidate="candidate:1 1 udp 1 127.0.0.1 9 typ host"))


async def test_closing_while_it_gathers():
    async with nothing_left():
        near, far = pair()
        offering = asyncio.create_task(near.offer())
        await asyncio.sleep(0)
        await near.close()
        with pytest.raises(LinkFailed):
            await offering
        await far.close()
