"""What leaves together, and when a SACK leaves: packets by the call that sends them (RFC 9260, 6.2)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from aiortc import RTCDataChannel

from pooled_nb.mesh import together
from pooled_nb.mesh.sctp.chunks import IMMEDIATE
from pooled_nb.mesh.sctp.policy import PACKET
from pooled_nb.mesh.sctp.receiving import SACK_EVERY, SACK_EVERY_UNASKED, SACK_S
from tests.mesh.sctpnet import Pair, Road, Wire, channels, is_up, pair, start, until
from tests.sim.clock import simulate

DELAY = 0.02


def _kinds(packet: bytes) -> list[int]:
    kinds, at = [], 12
    while at < len(packet):
        kinds.append(packet[at])
        length = int.from_bytes(packet[at + 2 : at + 4], "big")
        at += length + (-length & 3)
    return kinds


def _asks(packet: bytes) -> bool:
    return packet[12] == 0 and bool(packet[13] & IMMEDIATE)


class Calls:
    """What one end sends: for each call the packets, and when."""

    def __init__(self, wire: Wire) -> None:
        self.packets: list[list[bytes]] = []
        self.at: list[float] = []
        send = wire.send_now
        loop = asyncio.get_running_loop()

        def send_now(packets: Sequence[bytes]) -> None:
            self.packets.append(list(packets))
            self.at.append(loop.time())
            send(packets)

        wire.association._send_now = send_now  # type: ignore[union-attr]

    @property
    def kinds(self) -> list[list[list[int]]]:
        return [[_kinds(packet) for packet in call] for call in self.packets]


async def _up(*, asked: bool = True) -> tuple[Pair, Calls, Calls]:
    """Two ends; a message went each way, so that each knows that the other asks (or it does not)."""
    ends = pair(Road(delay=DELAY))
    one, other, got, back = channels(ends, 1)
    await start(ends)
    await until(lambda: is_up(ends))
    one.send(b"x")
    other.send(b"x")
    await until(lambda: bool(got) and bool(back) and not ends.a._sent_queue and not ends.b._sent_queue)
    ends.a._asks = ends.b._asks = asked
    await asyncio.sleep(0.1)
    return ends, Calls(ends.wires[0]), Calls(ends.wires[1])


def _frame(channel: RTCDataChannel) -> None:
    """A frame of 10 KB: three messages, nine packets."""
    together.here.begin()
    try:
        for size in (4_600, 4_600, 1_136):
            channel.send(bytes(size))
    finally:
        together.here.end()


def test_what_belongs_together_leaves_in_two_calls() -> None:
    """The first slice, for the other end to begin with, and the rest; only the last packet is smaller."""

    async def scenario() -> None:
        ends, sent, _ = await _up()
        one, _, _, got = channels(ends, 77)
        _frame(one)
        assert [len(call) for call in sent.packets] == [4, 5]
        *most, last = (len(packet) for call in sent.packets for packet in call)
        assert len(set(most)) == 1
        assert last <= most[0]
        one.send(b"alone")
        assert [len(call) for call in sent.packets] == [4, 5, 1]
        _frame(one)
        assert [len(call) for call in sent.packets] == [4, 5, 1, 4, 5]
        await until(lambda: len(got) == 7)
        await ends.close()

    simulate(scenario)


def test_an_answer_that_is_made_at_once_carries_the_sack() -> None:
    """RFC 9260 section 6.2."""

    async def scenario() -> None:
        ends, sent, answered = await _up()
        one, other, got, back = channels(ends, 77)

        def answer(_: bytes) -> None:
            if len(back) == 3:
                for size in (4_600, 4_600, 1_136):
                    other.send(bytes(size))

        other.on("message", answer)
        _frame(one)
        await until(lambda: len(got) == 3)
        await asyncio.sleep(0.2)
        assert answered.kinds == [[[0]] * 4, [[0]] * 4 + [[3, 0]]]
        assert sent.kinds[2:] == [[[3]]]
        await ends.close()

    simulate(scenario)


def test_a_large_batch_is_answered_before_it_ends() -> None:
    """Nobody waits for 64 datagrams that another sends."""

    async def scenario() -> None:
        ends, _, answered = await _up()
        one, _, _, back = channels(ends, 77)
        one.send(bytes(32 * PACKET))
        await until(lambda: bool(back))
        assert answered.kinds == [[[3]], [[3]]]
        await ends.close()

    simulate(scenario)


@pytest.mark.parametrize("asked", [True, False])
def test_a_sack_waits_a_moment_for_more_where_the_other_end_asks(asked: bool) -> None:
    """RFC 9260 section 6.2: within 0.2 s; here 2 ms, and for who does not ask one turn of the loop."""

    async def scenario() -> None:
        ends, sent, answered = await _up(asked=asked)
        one, _, _, back = channels(ends, 77)
        one.send(b"x")
        assert not _asks(sent.packets[0][0])
        began = asyncio.get_running_loop().time()
        await until(lambda: bool(back) and not ends.a._sent_queue)
        assert answered.kinds == [[[3]]]
        assert answered.at[0] - began == pytest.approx(DELAY + (SACK_S if asked else 0.0), abs=1e-4)
        await ends.close()

    simulate(scenario)


@pytest.mark.parametrize(("asked", "every"), [(True, SACK_EVERY), (False, SACK_EVERY_UNASKED)])
def test_so_many_packets_are_acknowledged_at_once(asked: bool, every: int) -> None:
    """RFC 9260 section 6.2 would have a SACK for every second one."""

    async def scenario() -> None:
        ends, _, answered = await _up(asked=asked)
        one, _, _, _ = channels(ends, 77)
        for packets, waits in ((every - 1, SACK_S if asked else 0.0), (every, 0.0)):
            answered.at.clear()
            one.send(bytes(packets * PACKET))
            began = asyncio.get_running_loop().time()
            await asyncio.sleep(0.2)
            assert answered.at[0] - began - DELAY == pytest.approx(waits, abs=1e-4)
        await ends.close()

    simulate(scenario)


def test_who_waits_for_the_window_asks_and_is_told_at_once() -> None:
    """RFC 9260 section 3.3.1, the I bit; who sends again asks, too."""

    async def scenario() -> None:
        ends, sent, answered = await _up()
        one, _, _, back = channels(ends, 77)
        ends.a._window.size = 2 * PACKET
        one.send(bytes(3 * PACKET))
        began = asyncio.get_running_loop().time()
        assert [_asks(packet) for packet in sent.packets[0]] == [False, True]
        await until(lambda: bool(back))
        assert answered.at[0] - began == pytest.approx(DELAY, abs=1e-4)
        ends.a._window.size = 32 * PACKET
        await until(lambda: not ends.a._sent_queue)
        sent.packets.clear()
        ends.wires[0].is_cut = True
        one.send(b"lost")
        await asyncio.sleep(0.0001)
        ends.wires[0].is_cut = False
        await until(lambda: len(back) == 2)
        assert [[_asks(packet) for packet in call] for call in sent.packets] == [[False], [True]]
        await ends.close()

    simulate(scenario)


def test_the_first_data_asks_so_that_the_other_end_knows() -> None:
    """Until then it is told as stock, which sends no more than four packets at a time."""

    async def scenario() -> None:
        ends = pair(Road(delay=DELAY))
        one, _, _, back = channels(ends, 1)
        await start(ends)
        await until(lambda: is_up(ends))
        assert not ends.b._asks
        one.send(b"x")
        await until(lambda: bool(back))
        assert ends.b._asks
        await ends.close()

    simulate(scenario)


def test_who_listens_by_events_hears_each_message_beside_the_short_way() -> None:
    """W3C ``message``; one that is called first, and one that listens later."""

    async def scenario() -> None:
        ends, _, _ = await _up()
        one, other, _, back = channels(ends, 77)
        heard: list[object] = []
        ends.b.listen(other, heard.append)
        one.send(b"bytes")
        one.send("text")
        await until(lambda: len(heard) == 2)
        assert heard == back == [b"bytes", "text"]
        other.remove_all_listeners()
        one.send(b"")
        await until(lambda: len(heard) == 3)
        assert (heard[-1], len(back)) == (b"", 2)
        other.on("message", back.append)
        one.send(b"more")
        await until(lambda: len(heard) == 4)
        assert back[-1] == b"more"
        await ends.close()

    simulate(scenario)
