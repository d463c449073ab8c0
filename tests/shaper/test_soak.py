"""The soak in short, and that it sees what it is there to see."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.shaper.soak import CONNECTIONS, GROWTH_MB, End, Said, Verdict, grown, judge, soak
from tests.shaper.soakdevice import Stream, frame_of, part_of

SECONDS = 20.0


@pytest.mark.timeout(240)
def test_nothing_is_lost_doubled_reordered_or_altered_at_one_percent_loss() -> None:
    """PROTOCOL section 5: frames of all sizes both ways, control messages and weights behind them."""
    verdict = soak(SECONDS)
    assert verdict.failures == []
    assert verdict.lost > 20
    for reports in verdict.reports.values():
        last = reports[-1]
        assert min(last["frames"], last["messages"], last["parts"]) > 10
        assert last["queued"] == 0


@pytest.mark.parametrize(
    ("numbers", "said"),
    [
        ([0, 1, 3], "frame 3 came where 2 was due: lost or overtaken"),
        ([0, 1, 1], "frame 1 came where 2 was due: twice or late"),
        ([1], "frame 1 came where 0 was due: lost or overtaken"),
        ([0, 2, 1], "frame 1 came where 3 was due: twice or late"),
    ],
)
def test_what_is_lost_doubled_or_reordered_is_seen(numbers: list[int], said: str) -> None:
    stream = Stream("frame")
    for number in numbers:
        stream.take(number, 10, whole=True)
    assert said in stream.errors


def test_what_is_altered_is_seen() -> None:
    """Whichever field: what a frame must be follows from its number."""
    whole = frame_of("host", 7)
    assert whole == frame_of("host", 7)
    assert whole != frame_of("joiner", 7)
    assert len({frame_of("host", n).payload for n in range(100)}) == 100
    assert part_of("host", 1) != msgspec.structs.replace(part_of("host", 1), data=b"")
    stream = Stream("frame")
    stream.take(0, 10, whole=False)
    assert stream.errors == ["frame 0 is altered"]


def reports(*mb: float) -> list[Said]:
    """One each 2 s, minute by minute."""
    return [{"at": 60 * m + 2 * i, "rss_mb": x, "errors": []} for m, x in enumerate(mb) for i in range(30)]


def test_memory_that_grows_is_seen_and_what_the_first_minute_takes_is_not() -> None:
    assert grown(reports(50, 100, 100, 101), 0.0) == (100, 101)
    assert grown(reports(50, 100, 105, 120), 0.0) == (100, 120)
    assert grown(reports(50, 100), 0.0) is None, "too short to say"


class Fake:
    """Ends and a shaper that say what they are told to."""

    def __init__(self, *said: list[Said], paths: int = CONNECTIONS) -> None:
        self.ends: list[Any] = []
        for name, one in zip(("host", "joiner"), said, strict=True):
            end = End.__new__(End)
            end.name, end.reports = name, one
            self.ends.append(end)
        self.paths = paths

    def counts(self) -> list[Any]:
        from tests.shaper.handle import Counted

        return [Counted(path=i, lost=1) for i in range(self.paths)]

    def verdict(self) -> Verdict:
        return judge(self, self.ends, 0.0)  # type: ignore[arg-type]


def test_each_failure_is_one() -> None:
    flat = reports(50, 100, 100, 100)
    wrong = [{**report, "errors": ["frame 3 is altered"]} for report in flat]
    assert Fake(flat, flat).verdict().failures == []
    assert Fake(flat, reports(50, 100, 100, 100 + 2 * GROWTH_MB)).verdict().failures == [
        "joiner grew from 100 to 120 MB."
    ]
    assert Fake(flat, wrong).verdict().failures == ["joiner: frame 3 is altered."]
    assert Fake(flat, []).verdict().failures == ["joiner never said anything."]
    assert Fake(flat, flat, paths=5).verdict().failures == ["5 connections were made in place of 4."]
