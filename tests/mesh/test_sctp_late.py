"""What came late, doubled or given up, and what a full window keeps back (RFC 9260, RFC 3758, RFC 6525)."""

from __future__ import annotations

import asyncio

from aiortc.rtcdatachannel import RTCDataChannel, RTCDataChannelParameters

from pooled_nb.mesh.sctp.policy import PACKET
from tests.mesh.sctpnet import Pair, Road, channels, is_up, pair, start, until
from tests.sim.clock import simulate

BAD = Road(delay=0.02, jitter=0.003, loss=0.05, doubled=0.05, late=0.05)


async def _up(ends: Pair) -> None:
    await start(ends)
    await until(lambda: is_up(ends))


def _idle(ends: Pair) -> bool:
    return all(not end._sent_queue and not end.unsent for end in (ends.a, ends.b))


def test_a_late_copy_of_the_handshake_or_of_a_reset_undoes_nothing() -> None:
    """RFC 9260 section 5.2.2, RFC 6525 section 5.2.1: what the network doubles and keeps is known again."""

    async def scenario() -> None:
        ends = pair(Road(delay=0.01))
        kept: list[bytes] = []

        def keeps(packet: bytes) -> bool:
            if packet[12] not in (0, 3):
                kept.append(packet)
            return True

        ends.wires[0].seen = keeps
        one, _, _, got = channels(ends, 77)
        await _up(ends)
        first = RTCDataChannel(ends.a, RTCDataChannelParameters(label="first"))
        await until(lambda: first.readyState == "open")
        first.close()
        await until(lambda: first.readyState == "closed")
        again = RTCDataChannel(ends.a, RTCDataChannelParameters(label="again"))
        await until(lambda: again.readyState == "open")
        assert again.id == first.id
        second = RTCDataChannel(ends.a, RTCDataChannelParameters(label="second"))
        await until(lambda: second.readyState == "open")
        second.close()  # so that the reset of the first is not the last one that was answered
        await until(lambda: second.readyState == "closed")
        one.send(b"before")
        await until(lambda: got == [b"before"])
        for packet in kept:
            ends.b.receive_now(packet)
            ends.b.batch_ended()
        await asyncio.sleep(1.0)
        one.send(b"after")
        await until(lambda: len(got) == 2 and _idle(ends), 5.0)
        assert again.readyState == "open"
        assert is_up(ends)
        await ends.close()
        for packet in kept:
            ends.b.receive_now(packet)
        assert ends.b.state == "closed"

    simulate(scenario)


def test_what_a_full_window_keeps_back_when_t3_expires_is_sent_all_the_same() -> None:
    """RFC 9260 section 6.3.2 R1: while anything is out T3 runs, also where nothing may be sent again yet.

    The window of a path that is silent is two packets; those that left a moment ago may fill it.
    """

    async def scenario() -> None:
        ends = pair(Road(delay=0.02))
        one, _, _, got = channels(ends, 77)
        await _up(ends)
        for _ in range(10):  # round trips are known
            one.send(b"x")
            await asyncio.sleep(0.1)
        for wire in ends.wires:
            wire.is_cut = True
        end, now = ends.a, asyncio.get_running_loop().time
        one.send(bytes(PACKET))
        member = end._member
        member.expiries, member._progress = member._window.patience - 1, member._window.progress
        await until(lambda: end._t3.due is not None and end._t3.due - now() < 0.01)
        one.send(bytes(2 * PACKET))
        await until(lambda: member.expiries == member._window.patience)
        await asyncio.sleep(0.001)
        assert end._marked
        assert end._t3.due is not None
        for wire in ends.wires:
            wire.is_cut = False
        await until(lambda: len(got) == 12, 5.0)
        await ends.close()

    simulate(scenario)


def test_ordered_messages_behind_one_that_was_given_up_are_handed_over() -> None:
    """RFC 3758 section 3.6: fragments of the one that is given up hold up nothing that is complete."""

    async def scenario() -> None:
        ends = pair(Road(delay=0.02))
        one, _, _, got = channels(ends, 77, retransmits=0)
        await _up(ends)
        count = 0

        def drops(packet: bytes) -> bool:
            nonlocal count
            count += packet[12] == 0
            return packet[12] != 0 or count != 2

        ends.wires[0].seen = drops
        one.send(bytes(4 * PACKET))
        one.send(b"behind it")
        await until(lambda: got == [b"behind it"], 2.0)
        one.send(b"later")
        await until(lambda: got == [b"behind it", b"later"], 2.0)
        assert (ends.b._held, ends.b._advertised_rwnd) == (0, 2**20)
        await ends.close()

    simulate(scenario)


def test_fragments_that_are_late_are_not_counted_to_a_message_that_has_gone() -> None:
    """A message may have 65,536 bytes, whatever came complete before its lost fragments did."""

    async def scenario() -> None:
        ends = pair(Road(delay=0.02))
        one, _, _, got = channels(ends, 77, ordered=False)
        await _up(ends)
        ends.a._window.size = 200 * PACKET
        count = 0

        def drops(packet: bytes) -> bool:
            nonlocal count
            count += packet[12] == 0
            return packet[12] != 0 or count not in (2, 3)

        ends.wires[0].seen = drops
        one.send(bytes(3 * PACKET))
        one.send(bytes(65_000))
        await until(lambda: len(got) == 2, 2.0)
        assert is_up(ends)
        await ends.close()

    simulate(scenario)


def test_a_sack_lets_all_leave_that_it_makes_room_for() -> None:
    """One SACK stands for a batch; what it makes room for is not the rest of one message alone."""

    async def scenario() -> None:
        ends = pair(Road(delay=0.05))
        one, _, _, _ = channels(ends, 77)
        await _up(ends)
        end = ends.a
        for _ in range(60):
            one.send(bytes(3 * PACKET))
        assert end._outbound_queue
        end._sack(end._sent_queue[-1].tsn, 2**20, [], [])
        assert end._member.flight + PACKET > end._window.size
        await ends.close()

    simulate(scenario)


def test_init_is_repeated_without_the_tag_that_the_other_init_told() -> None:
    """RFC 9260 section 8.5.1: both ends send INIT, and where both answers are lost both send it again."""

    async def scenario() -> None:
        ends = pair(Road(delay=0.01))
        seen = [0, 0]

        def drops(side: int, packet: bytes) -> bool:
            seen[side] += packet[12] == 2
            return packet[12] != 2 or seen[side] > 1

        for side, wire in enumerate(ends.wires):
            wire.seen = lambda packet, side=side: drops(side, packet)
        await start(ends)
        await until(lambda: is_up(ends), 2.0)
        await ends.close()

    simulate(scenario)
