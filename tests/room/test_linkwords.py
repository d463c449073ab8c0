"""PROTOCOL section 8 and CASES: what people read of a link, and which link makes a room slow."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pooled_nb.room import linkwords
from pooled_nb.room.core import DeviceLine
from pooled_nb.room.lines import milliseconds, share


def line(name: str = "basement", **more: Any) -> DeviceLine:
    given = {"id": name, "role": "worker", "kind": "", "lends_gb": 1.0, "layers": (3, 6), "path": "direct"}
    return DeviceLine(name=name, **{**given, **more})


ME = line("studio", layers=(0, 3), me=True, path="")


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"path": "unknown"}, []),
        ({"rtt_ms": 6.2}, ["6.2 ms", "direct"]),
        ({"rtt_ms": 18.0, "rtt_p95_ms": 21.0, "loss": 0.0}, ["18 ms", "direct"]),
        (
            {"rtt_ms": 18.0, "rtt_p95_ms": 41.0, "loss": 0.012, "stripes": 3, "wanted": 3},
            ["18 ms (at times 41)", "direct", "1.2 % lost", "4 connections"],
        ),
        ({"rtt_ms": 0.3, "rtt_p95_ms": 4.0}, ["0.3 ms", "direct"]),  # ten times as much, and nobody notices
        ({"rtt_ms": 61.0, "path": "relayed", "loss": 0.004}, ["61 ms", "relayed"]),
        ({"loss": 0.08}, ["direct", "8 % lost"]),
        ({"queued_bytes": 3_400_000}, ["direct", "3.4 MB waiting"]),
        ({"queued_bytes": 9_000}, ["direct"]),
        ({"stripes": 1, "wanted": 3}, ["direct", "2 of 4 connections"]),
        ({"stripes": 3}, ["direct", "4 connections"]),
        ({"rtt_ms": 1240.0}, ["1,240 ms", "direct"]),
    ],
)
def test_only_what_says_something(more: dict[str, Any], words: list[str]) -> None:
    assert linkwords.parts(line(**more)) == words


def test_a_link_that_loses_packets() -> None:
    """It is named, with what helps; a relay asks for other help than a radio does."""
    lossy = line(rtt_ms=48.0, loss=0.082)
    assert linkwords.slowest([ME, lossy]) is lossy
    assert linkwords.short(lossy) == "8.2 % lost"
    assert linkwords.why_slow(lossy, "basement") == (
        "8.2 % of the packets to basement are lost, so answers are slower. "
        "A cable or a nearer access point helps."
    )
    assert "relay that is nearer" in linkwords.why_slow(line(loss=0.2, path="relayed"), "x")


def test_far_and_restless_links() -> None:
    far, restless = line(rtt_ms=310.0, rtt_p95_ms=340.0), line(rtt_ms=40.0, rtt_p95_ms=620.0)
    assert linkwords.short(far) == "slow link"
    assert "takes 310 ms, and every token waits" in linkwords.why_slow(far, "basement")
    assert linkwords.short(restless) == "restless link"
    assert "takes 40 ms, and at times 620 ms" in linkwords.why_slow(restless, "basement")


@pytest.mark.parametrize(
    "fine",
    [
        line(rtt_ms=120.0, rtt_p95_ms=240.0, loss=0.049),  # a far room on a good line
        line(rtt_ms=90.0, rtt_p95_ms=260.0),
        line(),
        line(loss=0.5, layers=None, role="guest"),  # no token goes over a guest's link
        line(loss=0.5, gone=True),
        line(loss=0.5, silent_s=4),  # that it does not respond is said already
    ],
)
def test_a_room_that_is_not_slow_hears_nothing(fine: DeviceLine) -> None:
    assert linkwords.slowest([ME, fine]) is None


def test_whose_links_count() -> None:
    """One at most, the worst; and at a guest none, since it sees no link that carries tokens."""
    lossy, worse, far = line("a", loss=0.06), line("b", loss=0.2), line("c", rtt_ms=2000.0)
    assert linkwords.slowest([ME, far, lossy, worse]) is worse
    assert linkwords.slowest([ME, far]) is far
    assert linkwords.slowest([line("me", me=True, layers=None, path=""), worse]) is None
    assert linkwords.slowest([]) is None


@given(st.floats(0, 1e6), st.floats(0, 1))
def test_steps_that_a_person_notices(seconds: float, part: float) -> None:
    """A panel is not drawn anew for each microsecond; and what is shown is near to what was measured."""
    shown, lost = milliseconds(seconds), share(part)
    assert shown is not None
    assert lost is not None
    assert abs(shown - seconds * 1e3) <= max(0.05, 0.05 * seconds * 1e3) + 1e-9
    assert abs(lost - part) <= max(0.0005, 0.05 * part) + 1e-9
    assert (milliseconds(None), share(None)) == (None, None)


def test_steps() -> None:
    said = [milliseconds(s) for s in (0.00123, 0.0184, 0.0186, 0.141, 2.6)]
    assert said == [1.2, 18.0, 19.0, 140.0, 2600.0]
    assert [share(x) for x in (0.0123, 0.0824, 0.1249)] == [0.012, 0.082, 0.12]
