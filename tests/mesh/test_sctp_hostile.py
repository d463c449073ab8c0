"""What a hostile peer may send: nothing raises, and what it makes us hold is bounded (RFC 9260)."""

from __future__ import annotations

import logging
import random
import struct
import tracemalloc
from collections.abc import Callable

import pytest
from aiortc.rtcdatachannel import RTCDataChannel
from google_crc32c import value as crc32c

from pooled_nb.mesh.sctp import receiving
from pooled_nb.mesh.sctp.association import MAX_CONTROL, Association
from pooled_nb.mesh.sctp.channels import MAX_OPENED
from pooled_nb.mesh.sctp.chunks import FIRST, LAST, UNORDERED, WHOLE
from pooled_nb.mesh.sctp.reassembly import Inbound
from pooled_nb.mesh.sctp.sending import MAX_SENT
from tests.mesh.sctpnet import Pair, Road, channels, is_up, pair, start, until
from tests.sim.clock import simulate

WRAP = 0xFFFFFFFF


def _chunk(kind: int, body: bytes = b"", flags: int = 0, length: int | None = None) -> bytes:
    size = 4 + len(body) if length is None else length
    return struct.pack("!BBH", kind, flags, size & 0xFFFF) + body + b"\0" * (-len(body) & 3)


def _packet(at: Association, *chunks: bytes, tag: int | None = None) -> bytes:
    head = struct.pack("!HHL", 5000, 5000, at._local_verification_tag if tag is None else tag)
    body = b"".join(chunks)
    return head + crc32c(head + b"\0\0\0\0" + body).to_bytes(4, "little") + body


def _data(
    tsn: int, data: bytes, flags: int = FIRST | LAST, stream: int = 77, seq: int = 0, ppid: int = 53
) -> bytes:
    return _chunk(0, struct.pack("!LHHL", tsn & WRAP, stream, seq, ppid) + data, flags)


class _Victim:
    """An association that is up, and the next TSN it waits for."""

    def __init__(self, ends: Pair) -> None:
        self.end = ends.b
        self.why: list[str] = []
        self.end.on_abort = self.why.append
        assert self.end._received is not None
        self.next = self.end._received.cumulative + 1

    def take(self, *chunks: bytes) -> None:
        self.end.receive_now(_packet(self.end, *chunks))
        self.end.batch_ended()


def _attack(act: Callable[[_Victim], None]) -> _Victim:
    async def scenario() -> _Victim:
        ends = pair(Road(delay=0.001))
        channels(ends, 77)
        channels(ends, 78, ordered=False, retransmits=0)
        await start(ends)
        await until(lambda: is_up(ends))
        victim = _Victim(ends)
        act(victim)
        await ends.close()
        return victim

    return simulate(scenario)


def _deaf(victim: _Victim) -> None:
    """It answers nothing, so that what is counted is its own."""
    victim.end._sack_now = lambda: None  # type: ignore[method-assign]


def _held(end: Association) -> int:
    return sum(len(s.reassembly) for s in end._inbound_streams.values())


def test_a_message_larger_than_may_come_ends_the_association_with_a_reason() -> None:
    def act(victim: _Victim) -> None:
        for n in range(70):
            victim.take(_data(victim.next + n, bytes(1_100), FIRST if n == 0 else 0))

    victim = _attack(act)
    assert victim.why == ["it sent a message of more than 65536 bytes"]
    assert victim.end.state == "closed"


def test_data_beyond_the_window_is_dropped_as_if_lost_and_the_next_is_taken() -> None:
    def act(victim: _Victim) -> None:
        for n in range(2, 2_000):  # a gap first: nothing of it can be handed over
            victim.take(_data(victim.next + n, bytes(1_100), seq=n))
        end = victim.end
        assert _held(end) <= 2**20 // 1_100 + 1
        assert end._advertised_rwnd >= 0
        victim.take(_data(victim.next, b"x"))
        assert end._received is not None
        assert end._received.cumulative == victim.next
        assert not victim.why

    _attack(act)


def test_many_tiny_fragments_cost_a_bounded_number_of_objects() -> None:
    def act(victim: _Victim) -> None:
        _deaf(victim)
        tracemalloc.start()
        for n in range(1, 6_000):
            victim.take(_data(victim.next + 2 * n, b"x", seq=n))
        used, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert _held(victim.end) <= receiving.MAX_HELD
        assert used < 4_000_000
        for n in range(1, 9_000):  # in order, and never a message
            victim.take(_data(victim.next + n - 1, b"x", 0))

    victim = _attack(act)
    assert victim.why == ["it sent a message in more than 512 pieces"]


@pytest.mark.parametrize("flags", [0, FIRST, UNORDERED, UNORDERED | FIRST])
def test_fragments_in_order_that_never_end_are_bounded(flags: int) -> None:
    def act(victim: _Victim) -> None:
        _deaf(victim)
        tracemalloc.start()
        for n in range(9_000):
            victim.take(_data(victim.next + n, b"y" * 900, flags))
        used, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert used < 4_000_000

    assert len(_attack(act).why) == 1


def test_streams_and_channels_are_bounded() -> None:
    def streams(victim: _Victim) -> None:
        for n in range(3_000):
            victim.take(_data(victim.next + n, b"z", stream=n))

    assert _attack(streams).why == [f"it uses more than {receiving.MAX_STREAMS} streams"]

    def forwarded(victim: _Victim) -> None:
        for n in range(30):
            body = b"".join(struct.pack("!HH", n * 100 + k, 1) for k in range(100))
            victim.take(_chunk(192, struct.pack("!L", (victim.next + n) & WRAP) + body))

    assert _attack(forwarded).why == [f"it uses more than {receiving.MAX_STREAMS} streams"]

    def opened(victim: _Victim) -> None:
        made: list[RTCDataChannel] = []
        victim.end.on("datachannel", made.append)
        message = struct.pack("!BBHLHH", 3, 0, 0, 0, 1, 0) + b"l"
        for n in range(200):
            victim.take(_data(victim.next + n, message, stream=100 + n, ppid=50))
        assert len(made) == MAX_OPENED

    assert _attack(opened).why == [f"it opened more than {MAX_OPENED} channels"]


def test_an_answer_is_one_packet_and_a_packet_makes_few() -> None:
    """A SACK with every gap and duplicate that may be told fits; chunks that ask for answers are counted."""

    def act(victim: _Victim) -> None:
        wire = victim.end.transport
        sizes: list[int] = []
        wire.seen = lambda packet: sizes.append(len(packet)) or True  # type: ignore[attr-defined]
        for n in range(1, 1_000):
            for _ in range(3):
                victim.take(_data(victim.next + 2 * n, b"x", stream=78, flags=FIRST | LAST | UNORDERED))
        assert max(sizes) <= 1_189
        sizes.clear()
        victim.take(*[_chunk(4) for _ in range(250)])
        assert len(sizes) <= MAX_CONTROL
        sizes.clear()
        reset = struct.pack("!HHLLL", 13, 16, victim.end._reconfig_response_seq, 0, 0)
        victim.take(_chunk(130, reset * 60))
        assert len(sizes) <= 4

    _attack(act)


def test_a_sack_for_what_was_never_sent_acknowledges_nothing() -> None:
    def act(victim: _Victim) -> None:
        end = victim.end
        last = end._last_sacked_tsn
        channel = end._data_channels[77]
        channel.send(bytes(5_000))
        waits = len(end._sent_queue)
        for ahead in (waits + 1, 5_000, 2**31 - 1, 2**31, 2**32 - 1):
            victim.take(_chunk(3, struct.pack("!LLHH", (last + ahead) & WRAP, 0, 0, 0)))
        gaps = struct.pack("!HH", 1, 65_535) * 250
        victim.take(_chunk(3, struct.pack("!LLHH", last, 0, 250, 0) + gaps))
        victim.take(_chunk(3, struct.pack("!LLHH", last, 0, 65_535, 65_535)))
        assert len(end._sent_queue) == waits
        assert end._last_sacked_tsn == last

    _attack(act)


def test_a_parameter_without_a_length_is_no_endless_loop() -> None:
    """aiortc's own reader of parameters never ends on one."""

    def act(victim: _Victim) -> None:
        for kind in (4, 5, 6, 9, 130):
            victim.take(_chunk(kind, b"\0\1\0\0" * 4))
        victim.end.receive_now(_packet(victim.end, _chunk(1, bytes(16) + b"\0\1\0\0" * 4), tag=0))
        victim.take(_chunk(4, struct.pack("!HH", 1, 4) * 200))

    assert not _attack(act).why


def _lies(chance: random.Random, victim: _Victim) -> bytes:
    """A chunk with a proper head whose fields are near what is plausible, or not."""
    near = (victim.next + chance.choice([-3, -1, 0, 0, 1, 2, 5, 300, 4_096, 2**31])) & WRAP
    kind = chance.choice([0, 0, 0, 0, 2, 3, 3, 4, 5, 7, 8, 9, 10, 11, 130, 130, 192, 192, 77])
    if kind == 0:
        ppid = chance.choice([50, 51, 53, 56, 57, 0])
        data = chance.randbytes(chance.choice([1, 2, 13, 900]))
        if ppid == 50:
            data = bytes([chance.choice([2, 3, 3, 9])]) + data
        return _data(
            near, data, chance.randrange(8), chance.choice([77, 78, 1, 2, 3]), chance.randrange(4), ppid
        )
    if kind == 3:
        acked = (victim.end._last_sacked_tsn + chance.choice([-1, 0, 0, 1, 2, 9])) & WRAP
        gaps, doubles = chance.randrange(5), chance.randrange(3)
        body = struct.pack("!LLHH", acked, chance.choice([0, 1, 2**20]), gaps, doubles)
        return _chunk(3, body + chance.randbytes(chance.choice([4 * (gaps + doubles), 3])))
    if kind == 130:
        seq = (victim.end._reconfig_response_seq + chance.choice([0, 1, 1, 2, -1])) & WRAP
        body = struct.pack(
            "!LLLHH", seq, victim.end._reconfig_request_seq, near, chance.choice([77, 1, 2]), 2
        )
        parameter = struct.pack("!HH", chance.choice([13, 16, 17]), 4 + len(body)) + body
        return _chunk(130, chance.choice([parameter, parameter[:9], parameter * 3]))
    if kind == 192:
        return _chunk(192, struct.pack("!L", near) + chance.randbytes(chance.choice([0, 4, 8, 5])))
    return _chunk(
        kind, chance.randbytes(chance.randrange(40)), chance.randrange(4), chance.choice([None, 0, 3, 900])
    )


@pytest.mark.parametrize("seed", range(20))
def test_lies_and_noise_never_raise_and_stay_bounded(seed: int, caplog: pytest.LogCaptureFixture) -> None:
    chance = random.Random(seed)

    def act(victim: _Victim) -> None:
        end = victim.end
        for _ in range(250):
            if chance.random() < 0.1:
                end.receive_now(chance.randbytes(chance.randrange(0, 60)))
            if chance.random() < 0.2:
                for channel in list(end._data_channels.values()):
                    if channel.readyState == "open":
                        channel.send(bytes(3_000))
            chunks = [_lies(chance, victim) for _ in range(chance.choice([1, 1, 2, 4]))]
            packet = bytearray(_packet(end, *chunks))
            if chance.random() < 0.05:
                packet[chance.randrange(len(packet))] ^= 1 << chance.randrange(8)
            end.receive_now(bytes(packet))
            if chance.random() < 0.5:
                end.batch_ended()
            if end._received is not None and chance.random() < 0.3:
                victim.next = end._received.cumulative + 1
            assert _held(end) == end._held <= 2 * receiving.MAX_HELD
            held = sum(len(p.user_data) for s in end._inbound_streams.values() for p in s.reassembly)
            assert end._is_over or end._advertised_rwnd == receiving.RECEIVE_WINDOW - held
            assert end._member.flight == sum(len(c.data) for c in end._sent_queue if c.in_flight)
            assert end._marked == sum(c.retransmit for c in end._sent_queue)
            assert len(end._sack_duplicates) <= receiving.MAX_DUPLICATES

    with caplog.at_level(logging.ERROR):
        _attack(act)
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


@pytest.mark.parametrize("flags", [0, LAST, UNORDERED, UNORDERED | LAST, UNORDERED | FIRST])
@pytest.mark.parametrize("step", [-1, 1, 2])
def test_fragments_that_wait_cost_no_search(flags: int, step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A packet holds 57 tiny fragments: were each a walk over all that wait, one would stop the loop."""
    looked = 0
    around = Inbound._around

    def counted(self: Inbound, at: int) -> tuple[int, int]:
        nonlocal looked
        start, end = around(self, at)
        looked += 1 + end - start
        return start, end

    def act(victim: _Victim) -> None:
        nonlocal looked
        monkeypatch.setattr(Inbound, "_around", counted)
        begin = victim.next + (2 if step > 0 else 4_000)
        for n in range(0, 1_950, 50):
            looked = 0
            victim.take(*[_data(begin + step * (n + k), b"x", flags) for k in range(50)])
            # Whole messages in the order of the stream, and of no order, do not search what waits either.
            victim.take(_data(victim.next, b"y"), _data(victim.next + 4_050, b"z", WHOLE | UNORDERED))
            assert looked <= 54 * receiving.MAX_PIECES
            if flags & WHOLE:
                assert looked <= 54 * 4

    _attack(act)


def test_a_peer_that_never_acknowledges_the_first_makes_us_keep_and_search_little() -> None:
    """What is sent waits for the cumulative TSN, whatever gap blocks say; and a packet holds few SACKs."""

    def act(victim: _Victim) -> None:
        end = victim.end
        end.transport.is_cut = True  # type: ignore[attr-defined]
        channel = end._data_channels[77]
        for _ in range(1_500):
            channel.send(bytes(4_600))
        count = 0
        while len(end._sent_queue) != count:
            count = len(end._sent_queue)
            body = struct.pack("!LLHHHH", end._last_sacked_tsn, 2**31 - 1, 1, 0, 2, count)
            victim.take(_chunk(3, body))
        assert count == MAX_SENT
        seen: list[int] = []
        end._sack = lambda *args: seen.append(1)  # type: ignore[method-assign]
        victim.take(*[_chunk(3, body)] * 50)
        assert len(seen) == MAX_CONTROL

    _attack(act)
