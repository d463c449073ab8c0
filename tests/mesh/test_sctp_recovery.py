"""What is held for lost where datagrams overtake each other (RFC 8985, RFC 9260 section 6.2.1)."""

from __future__ import annotations

import asyncio
import math

import pytest

from pooled_nb.mesh.sctp.chunks import Message, Outbound
from pooled_nb.mesh.sctp.recovery import Recovery
from pooled_nb.mesh.sctp.window import Window
from tests.mesh.sctpnet import Road, channels, is_up, pair, start, until
from tests.sim.clock import simulate

LASTS_S = 0.4


def _bulk(road: Road) -> tuple[int, int, int]:
    """Sent, sent again, and bytes that came, both ways over four connections."""

    async def scenario() -> tuple[int, int, int]:
        windows = Window(), Window()
        pairs = [pair(road, seed=2 * n, windows=windows) for n in range(4)]
        made = [channels(ends, 77) for ends in pairs]
        for ends in pairs:
            await start(ends)
        await until(lambda: all(is_up(ends) for ends in pairs))
        loop = asyncio.get_running_loop()
        end = loop.time() + LASTS_S
        for one, other, _, _ in made:
            for channel in (one, other):
                channel.bufferedAmountLowThreshold = 20_000

                def fill(channel: object = channel) -> None:
                    while channel.bufferedAmount < 40_000 and loop.time() < end:  # type: ignore[attr-defined]
                        channel.send(bytes(4_600))  # type: ignore[attr-defined]

                channel.on("bufferedamountlow", fill)
                fill()
        await asyncio.sleep(LASTS_S)
        both = [end for ends in pairs for end in (ends.a, ends.b)]
        sent, again = sum(end.sent for end in both), sum(end.resent for end in both)
        came = sum(len(data) for _, _, *got in made for some in got for data in some)
        for ends in pairs:
            await ends.close()
        return sent, again, came

    return simulate(scenario)


def test_what_overtakes_is_not_lost() -> None:
    """5 ms with 1 ms of jitter either way and 1 % loss: hardly fewer bytes than without, few twice."""
    sent, again, came = _bulk(Road(delay=0.004, jitter=0.002, loss=0.01))
    _, _, still = _bulk(Road(delay=0.005, loss=0.01))
    assert again <= 0.05 * sent
    assert came >= 0.8 * still


def test_without_reordering_only_what_is_lost_is_sent_again() -> None:
    sent, again, _ = _bulk(Road(delay=0.02, loss=0.01))
    assert 0.005 * sent <= again <= 0.015 * sent


def _chunks(recovery: Recovery, count: int, now: float) -> list[Outbound]:
    made = [
        Outbound(
            tsn, 3, Message(1, 0, 53, 1, ordered=True, expiry=None, max_retransmits=None, channel=None), b"x"
        )
        for tsn in range(count)
    ]
    recovery.sent(made, now)
    return made


def test_an_acknowledgement_of_the_first_copy_strikes_nobody() -> None:
    """RFC 8985 section 6.2: where packets queue for 100 ms, what came 40 ms after the second is the first."""
    recovery = Recovery(early=True)
    (quick,) = _chunks(recovery, 1, 0.0)
    assert recovery.acked([quick], 0.01) == pytest.approx(0.01)
    first, second, third = _chunks(recovery, 3, 1.0)
    recovery.acked([second], 1.1)
    recovery.sent([first], 1.11)
    assert recovery.acked([first], 1.15) is None
    assert recovery.judge([third], 1.15)[0] == []
    # The same with time enough for the second copy.
    recovery.sent([third], 1.2)
    recovery.sent([first], 1.25)
    recovery.acked([first], 1.35)
    assert recovery.judge([third], 1.38)[0] == [third]


def test_duplicates_of_what_was_held_for_lost_make_patient_and_no_others() -> None:
    """RFC 8985 section 6.2: once a round trip, and never more than a usual round trip."""
    recovery = Recovery(early=True)
    chunks = _chunks(recovery, 40, 0.0)
    recovery.acked(chunks[30:], 0.04)
    recovery.spurious([31, 32, 33], 0.04)  # doubled by the network, or a probe's
    assert not recovery._reorders
    lost, _ = recovery.judge(chunks[:30], 0.04)
    assert len(lost) == 30
    recovery.spurious(range(10), 0.08)
    assert recovery._reorders
    before = recovery._patience
    recovery.spurious(range(10, 20), 0.081)
    assert recovery._patience == before == 2.0
    for n in range(100):
        chunk, later = _chunks(recovery, 2, 1.0 + n)
        recovery.acked([later], 1.04 + n)
        recovery.judge([chunk], 1.5 + n)
        recovery.spurious([0], 1.6 + n)
    assert recovery._due() <= 0.08 + 1e-9
    assert math.isfinite(recovery._due())


def test_a_late_sack_takes_nothing_back_and_a_true_one_does() -> None:
    """RFC 9260 section 6.2.1 D iii: proved by the cumulative TSN, which should have passed it."""

    async def scenario() -> None:
        ends = pair(Road(delay=0.02))
        one, _, _, _ = channels(ends, 77)
        await start(ends)
        await until(lambda: is_up(ends))
        ends.wires[0].is_cut = True
        for _ in range(6):
            one.send(b"x" * 1_000)
        end = ends.a
        last = end._last_sacked_tsn
        await asyncio.sleep(0.04)
        end._sack(last, 1_000_000, [(2, 2), (4, 6)], [])
        assert [chunk.acked for chunk in end._sent_queue] == [False, True, False, True, True, True]
        again = end.resent
        end._sack(last, 1_000_000, [(2, 2)], [])
        end._sack(last, 1_000_000, [], [])
        end._sack(last, 1_000_000, [(4, 5)], [])
        assert [chunk.acked for chunk in end._sent_queue] == [False, True, False, True, True, True]
        assert end.resent - again <= 2
        end._sack(last + 1, 1_000_000, [(4, 5)], [])
        assert [chunk.tsn - last for chunk in end._sent_queue if chunk.acked] == [5, 6]
        await ends.close()

    simulate(scenario)
