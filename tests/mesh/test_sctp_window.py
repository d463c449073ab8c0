"""The window that the connections of a link share (RFC 9260 section 7, DESIGN section 4)."""

from __future__ import annotations

import math
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from pooled_nb.mesh.sctp.policy import PACKET, STOCK, TUNED
from pooled_nb.mesh.sctp.window import Member, Window


def _members(window: Window, count: int) -> list[Member]:
    return [window.join(lambda: None) for _ in range(count)]


def _fill(member: Member) -> int:
    packets = 0
    while member.may_send(PACKET):
        member.sent(PACKET)
        packets += 1
    return packets


def test_four_connections_begin_with_128_packets_and_one_with_32() -> None:
    """DESIGN section 4: 164 KB over four stripes take two round trips, 10 KB over one connection take one."""
    window = Window()
    (one,) = _members(window, 1)
    assert _fill(one) == 32
    others = _members(window, 3)
    assert window.size == 128 * PACKET
    assert sum(_fill(member) for member in others) == 97  # the last finds it full, and sends its one


def test_loss_halves_once_a_round_trip_however_many_report_it_and_never_below_the_floor() -> None:
    window = Window()
    members = _members(window, 4)
    window.size = 800 * PACKET
    window.lost(sent_at=1.0, now=1.1)
    for _ in members:
        window.lost(sent_at=1.05, now=1.12)  # left before the window was made smaller
    assert window.size == 400 * PACKET
    for turn in range(8):
        window.lost(sent_at=2.0 + turn, now=2.1 + turn)
    assert window.size == 128 * PACKET == window.floor


def test_slow_start_counts_bytes_and_congestion_avoidance_a_packet_a_window() -> None:
    """RFC 9260 section 7.2.1 with the bytes of RFC 3465; section 7.2.2."""
    window = Window()
    (member,) = _members(window, 1)
    _fill(member)
    member.acked(20 * PACKET, grow=True)
    assert window.size == 52 * PACKET
    window.lost(1.0, 1.1)
    size = window.size
    for _ in range(2 * size // PACKET):
        member.acked(PACKET, grow=True)
    assert size + PACKET <= window.size <= size + 2 * PACKET
    member.acked(10**9, grow=False)
    assert window.size <= size + 2 * PACKET


def test_the_cap_holds() -> None:
    window = Window()
    (member,) = _members(window, 1)
    for _ in range(100):
        member.acked(PACKET * 100, grow=True)
    assert window.size == TUNED.cap * PACKET


def test_silence_collapses_the_window_and_what_gets_through_opens_it_again() -> None:
    """A dead or tiny path is not flooded: after three T3 in a row two packets may be out."""
    window = Window()
    members = _members(window, 2)
    for _ in range(2):
        members[0].expired(0.0, 1.0)
        assert window.size == 64 * PACKET
    members[0].expired(0.0, 1.0)
    assert window.size == 2 * PACKET
    members[1].acked(2 * PACKET, grow=True)
    assert window.size >= 4 * PACKET
    for turn in range(40):
        window.lost(10.0 + turn, 10.5 + turn)  # a path that loses is not a dead one
        members[1].acked(2 * PACKET, grow=False)
    assert window.size == 64 * PACKET


def test_a_dead_connection_neither_collapses_nor_fills_the_window_of_the_others() -> None:
    window = Window()
    dead, alive = _members(window, 2)
    _fill(dead)
    assert alive.may_send(PACKET)  # it has none out
    for turn in range(1, 6):
        dead.left(dead.flight)  # after T3 its flight does not count
        dead.expired(turn, turn + 0.1)
        assert _fill(dead) <= (2 if turn >= TUNED.collapse_after else 64)
        alive.acked(PACKET, grow=False)
        assert window.size >= window.floor
    assert _fill(alive) >= 60


def test_who_waits_is_woken_in_turn_and_shares_evenly() -> None:
    window = Window()
    sent: dict[int, int] = {}
    members: list[Member] = []

    def wake(index: int) -> None:
        sent[index] = sent.get(index, 0) + _fill(members[index])

    for index in range(4):
        members.append(window.join(lambda index=index: wake(index)))  # type: ignore[misc]
    for member in members:
        _fill(member)
    for _ in range(400):
        for member in members:
            if member.flight:
                member.left(PACKET)
                _fill(member)
                window.turn(member)
    flights = [member.flight // PACKET for member in members]
    assert sum(flights) <= 128 + 3
    assert min(flights) >= 24, flights


def test_who_left_counts_no_more() -> None:
    window = Window()
    one, other = _members(window, 2)
    _fill(one)
    _fill(other)
    one.leave()
    assert window.flight == other.flight
    assert list(window.waiting) == [other]
    other.leave()
    assert window.flight == 0
    assert not window.waiting


def test_stock_numbers_are_those_of_the_rfc() -> None:
    window = Window(STOCK)
    (member,) = _members(window, 1)
    assert window.size == 3 * PACKET
    member.expired(0.0, 1.0)
    assert window.size == PACKET
    assert window.threshold == 4 * PACKET


_STEP = st.tuples(
    st.sampled_from(["send", "ack", "lost", "expired", "leave", "join"]),
    st.integers(0, 8),
    st.integers(1, 40),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(_STEP, max_size=120))
def test_never_more_in_flight_than_the_window_but_for_one_packet_each(steps: list[Any]) -> None:
    window = Window()
    members = _members(window, 3)
    now = 0.0
    for what, which, count in steps:
        now += 0.01
        member = members[which % len(members)]
        if what == "send":
            for _ in range(count):
                before = window.flight
                if member.may_send(PACKET):
                    first = not member.flight
                    member.sent(PACKET)
                    assert first or before + PACKET <= window.size
        elif what == "ack":
            size = min(member.flight, count * PACKET)
            full = member.is_full
            member.left(size)
            member.acked(size, grow=full)
            window.turn(member)
        elif what == "lost":
            before = window.size
            window.lost(now - 0.005 * count, now)
            assert window.size <= max(before, window.floor)
        elif what == "expired":
            member.left(member.flight)
            member.expired(now - 0.1, now)
        elif what == "leave" and len(members) > 1:
            members.remove(member)
            member.leave()
        elif what == "join" and len(members) < 9:
            members.append(window.join(lambda: None))
        assert window.flight == sum(m.flight for m in members) >= 0
        assert 2 * PACKET <= window.size <= TUNED.cap * PACKET
        assert math.isinf(window.threshold) or window.threshold >= PACKET
        assert set(window.waiting) <= set(members)
