"""Pings and silence (PROTOCOL sections 3 and 8)."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pooled_nb.mesh.liveness import COMPUTER_S, HOST_S, LATE_S, OUTSTANDING, PHONE_S, TICK_S, Liveness


def run(live: Liveness[str], start: float, seconds: float) -> tuple[list[tuple[float, str]], list[str]]:
    """Tick on time; returns pings as (when, key) and who fell silent. Dropped links are removed."""
    pings, silent = [], []
    for i in range(1, int(seconds / TICK_S) + 1):
        due = live.tick(start + i * TICK_S)
        pings += [(start + i * TICK_S, key) for key, _ in due.pings]
        silent += due.silent
        for key in due.silent:
            live.remove(key)
    return pings, silent


def test_pings_every_2_5_s_and_500_ms_while_watched() -> None:
    """PROTOCOL section 3, ping: every 2.5 s; each chain device every 500 ms while an answer runs."""
    live: Liveness[str] = Liveness(0.0)
    live.add("a", 0.0, 1e9)
    live.add("b", 0.0, 1e9)
    live.watch(["b"])
    pings, _ = run(live, 0.0, 10.0)
    times = [t for t, key in pings if key == "a"]
    assert times == [0.5, 3.0, 5.5, 8.0]
    assert len([1 for _, key in pings if key == "b"]) == 20
    live.watch([])
    assert len(run(live, 10.0, 10.0)[0]) == 8


@pytest.mark.parametrize("patience", [COMPUTER_S, PHONE_S, HOST_S])
def test_silence(patience: float) -> None:
    """PROTOCOL section 8, dropped: silent 15 s (computer), 60 s (phone); the host as a guest sees it 30 s."""
    live: Liveness[str] = Liveness(0.0)
    live.add("a", 0.0)
    live.patience("a", patience)
    _, silent = run(live, 0.0, patience - TICK_S)
    assert silent == []
    assert live.quiet("a", patience) == patience
    live.heard("a", patience - 0.1)
    assert run(live, patience - TICK_S, patience - TICK_S)[1] == []
    assert run(live, 2 * patience - 2 * TICK_S, 2.0)[1] == ["a"]


def test_a_late_tick_judges_nobody() -> None:
    """PROTOCOL section 8, a timer that fired late: this device stalled; and its stall is nobody's silence."""
    live: Liveness[str] = Liveness(0.0)
    live.add("a", 0.0)
    run(live, 0.0, 10.0)
    assert live.tick(10.0 + 100.0).silent == []
    _, silent = run(live, 110.0, 4.0)
    assert silent == []
    assert run(live, 114.0, 2.0)[1] == ["a"]  # 15 s of its own silence are over


def test_a_stall_under_way_is_no_silence() -> None:
    """PROTOCOL section 8, a timer that fired late: who is asked for on waking, before the late tick, was as
    quiet as that tick will say.
    """
    live: Liveness[str] = Liveness(0.0)
    live.add("a", 0.0, 1e9)
    run(live, 0.0, 4.0)
    assert live.quiet("a", 5.0) == 5.0
    early = live.quiet("a", 104.0)
    assert early == 4.0 + TICK_S
    live.tick(104.0)
    assert live.quiet("a", 104.0) == early
    run(live, 104.0, 1.0)
    live.heard("a", 204.9)
    assert live.quiet("a", 205.0) == 0.0
    live.add("b", 116.0)
    assert live.tick(116.0 + LATE_S + 0.01).silent == []


def test_spared_while_loading() -> None:
    """PROTOCOL section 8, dropped: never while it loads; the silence before does not count afterwards."""
    live: Liveness[str] = Liveness(0.0)
    live.add("a", 0.0)
    live.spare(["a"])
    assert run(live, 0.0, 300.0)[1] == []
    live.spare([])
    assert run(live, 300.0, 14.5)[1] == []
    assert run(live, 314.5, 2.0)[1] == ["a"]


def test_round_trip_is_the_median_of_the_last_five() -> None:
    """CASES, devices: after a first round trip of 2.6 s and then 15 ms, the new value is used."""
    live: Liveness[str] = Liveness(0.0)
    live.add("a", 0.0, 1e9)
    live.watch(["a"])
    assert live.rtt("a") is None
    assert live.answered_ping_of("a") is None
    rtts = []
    for i, rtt in enumerate([2.6, 0.015, 0.015, 0.015, 0.015]):
        at = (i + 1) * 0.5
        ((_, ts),) = live.tick(at).pings
        live.answered("a", float(ts), at + rtt)  # a browser hands a double back
        live.answered("a", ts, at + rtt)  # and once is enough
        rtts.append(live.rtt("a"))
    assert rtts[0] == pytest.approx(2.6)
    assert rtts[2] == pytest.approx(0.015)
    assert live.answered_ping_of("a") == 2.5


def test_back_is_an_answer_to_a_ping_sent_after_the_silence_began() -> None:
    """PROTOCOL section 8: "it answered a ping sent after it went silent"; an old answer that was on its
    way proves nothing.
    """
    live: Liveness[str] = Liveness(0.0)
    live.add("a", 0.0, 1e9)
    live.watch(["a"])
    before = live.tick(0.5).pings[0][1]
    silent_since = 0.6
    after = live.tick(1.0).pings[0][1]
    live.answered("a", before, 4.0)
    assert (sent := live.answered_ping_of("a")) is not None
    assert sent < silent_since
    live.answered("a", after, 4.1)
    assert (sent := live.answered_ping_of("a")) is not None
    assert sent > silent_since


def test_only_our_pings_are_answered() -> None:
    """PROTOCOL section 3, ping: `ts` is opaque; what echoes nothing of ours measures nothing."""
    live: Liveness[str] = Liveness(0.0)
    live.add("a", 0.0, 1e9)
    ((_, ts),) = live.tick(0.5).pings
    for junk in (None, "1", ts + 1, -1, float("nan"), float("inf"), 1e300, [ts], {"ts": ts}, b"1"):
        live.answered("a", junk, 0.6)
    live.answered("nobody", ts, 0.6)
    assert live.rtt("a") is None
    live.answered("a", ts, 0.6)
    assert live.rtt("a") == pytest.approx(0.1)


def test_unanswered_pings_are_bounded() -> None:
    """PROTOCOL section 8: pings that nobody answers are forgotten."""
    live: Liveness[str] = Liveness(0.0)
    live.add("a", 0.0, 1e9)
    live.watch(["a"])
    first = live.tick(0.5).pings[0][1]
    run(live, 0.5, OUTSTANDING * TICK_S)
    live.answered("a", first, 99.0)
    assert live.rtt("a") is None


@settings(deadline=None, max_examples=200)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["tick", "heard", "add", "remove", "spare", "unspare", "stall"]),
            st.sampled_from("abc"),
            st.floats(0.0, 1.1),
        ),
        max_size=120,
    )
)
def test_nobody_is_dropped_early(events: list[tuple[str, str, float]]) -> None:
    """PROTOCOL section 8, dropped: in any order of events nobody is dropped before 15 s of silence, none
    while spared.
    """
    live: Liveness[str] = Liveness(0.0)
    now, heard, spared = 0.0, {}, set()
    for what, key, dt in events:
        now += dt
        if what == "heard":
            live.heard(key, now)
            if key in heard:
                heard[key] = now
        elif what == "add":
            live.add(key, now)
            heard[key] = now
        elif what == "remove":
            live.remove(key)
            heard.pop(key, None)
        elif what in ("spare", "unspare"):
            (spared.add if what == "spare" else spared.discard)(key)
            live.spare(spared)
        else:
            now += 20.0 if what == "stall" else 0.0
            for gone in live.tick(now).silent:
                assert what == "tick"
                assert gone not in spared
                assert now - heard[gone] >= COMPUTER_S
                live.remove(gone)
                del heard[gone]
