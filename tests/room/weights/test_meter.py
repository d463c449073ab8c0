"""How what is fetched is said."""

from __future__ import annotations

import pytest

from pooled_nb.room.weights.load import FETCH, PERSON, Load
from pooled_nb.room.weights.meter import Meter
from pooled_nb.shard import Piece


def test_how_much_from_whom_how_fast_how_long() -> None:
    """PROTOCOL section 6: progress per device on every screen, with rate and time left."""
    meter = Meter(3_400_000_000, 100.0)
    assert meter.words(["Ada"], hub=True) == "fetching 0.0 of 3.4 GB from Ada and the hub"
    for second in range(1, 41):
        meter.at(30_000_000 * second, 100.0 + second)
    assert meter.words(["Ada", "Bo"], hub=True) == (
        "fetching 1.2 of 3.4 GB from Ada, Bo and the hub (30 MB/s, 73 s left)"
    )
    assert meter.words([], hub=False).startswith("fetching 1.2 of 3.4 GB from the hub (30 MB/s")
    assert meter.part == pytest.approx(1.2 / 3.4)


def test_small_and_slow_have_their_units() -> None:
    """DESIGN section 2: GB are 10⁹ bytes, MB 10⁶; an hour is not 3,600 s to a person."""
    meter = Meter(71_000_000, 0.0)
    meter.at(1_000_000, 10.0)
    assert meter.words(["Ada"], hub=False) == "fetching 1.0 of 71.0 MB from Ada (0.1 MB/s, 12 min left)"
    slow = Meter(71_000_000_000, 0.0)
    slow.at(10_000_000, 10.0)
    assert "19.7 h left" in slow.words(["Ada"], hub=False)


def test_the_rate_is_that_of_the_last_seconds() -> None:
    """A pause shows soon; a piece that is thrown away is no rate."""
    meter = Meter(1_000_000_000, 0.0)
    for second in range(1, 11):
        meter.at(50_000_000 * second, float(second))
    assert meter.rate == pytest.approx(5e7)
    for second in range(11, 31):
        meter.at(500_000_000, float(second))
    assert meter.rate == 0
    meter.at(100_000_000, 31.0)
    assert meter.rate == 0
    assert Meter(0, 0.0).part == 1


def test_percent_is_of_fetching_and_reading() -> None:
    """PROTOCOL section 6, ``ai-progress``: never backwards, whatever is found missing on the way."""
    heard: list[tuple[int, str]] = []
    load = Load(lambda pct, words: heard.append((pct, words)))
    load.fetches(0.0, str, asks=False)
    assert heard == [], "nothing is missing"
    load.lacks(100, 0.0)
    load.fetches(0.0, str, asks=True)
    assert heard[-1] == (0, PERSON)
    piece = Piece(name="m.safetensors", lo=0, hi=50, size=100)
    load.tally.here[piece] = 50
    load.fetches(1.0, str, asks=False)
    assert heard[-1][0] == FETCH // 2
    load.lacks(950, 2.0)
    load.fetches(2.0, str, asks=False)
    assert heard[-1][0] == FETCH // 2
    load.begins_to_read()
    load.reads(0, "reading layers 1–2")
    load.reads(50, "reading layers 1–2")
    load.reads(200, "ready")
    assert [pct for pct, _ in heard[-3:]] == [35, 67, 100]
    assert load.words == "ready"
