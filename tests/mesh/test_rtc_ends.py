"""PROTOCOL sections 2 and 3: a connection that is given up, or closed at any moment, over each stack."""

import asyncio

import pytest

from pooled_nb.errors import LinkFailed
from pooled_nb.mesh import descriptions
from pooled_nb.mesh.deadline import GRACE_S
from pooled_nb.mesh.ice import IcePolicy
from pooled_nb.mesh.peerjs.shapes import IceCandidate
from pooled_nb.mesh.rtc import CHECKING_S, CONNECT_S
from tests.mesh.rtctools import HandClock, Pair, close, join, nothing_left, opened, until


async def test_given_up(pair: Pair):
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
        other = pair.end(1, later, "y", IcePolicy.local())
        await other.answer(descriptions.take(offer.replace("a=end-of-candidates\r\n", "")))
        await until(lambda: other.is_checking)
        later.advance(CONNECT_S + 1)
        assert other.state == "connecting"
        later.advance(CHECKING_S - CONNECT_S)
        assert other.state == "failed"
        assert "40 s" in other.failure
        await close(other, far)


async def test_a_late_timer_gives_nobody_up(pair: Pair):
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


async def test_connected_is_never_given_up(pair: Pair):
    async with nothing_left():
        clock = HandClock()
        near, far = pair(clock)
        await join(near, far)
        clock.advance(1_000)
        assert near.state == far.state == "connected"
        await close(near, far)


@pytest.mark.parametrize("step", range(5))
async def test_closing_at_any_time_leaves_nothing(pair: Pair, step: int):
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


async def test_closing_while_it_gathers(pair: Pair):
    async with nothing_left():
        near, far = pair()
        offering = asyncio.create_task(near.offer())
        await asyncio.sleep(0)
        await near.close()
        with pytest.raises(LinkFailed):
            await offering
        await far.close()
