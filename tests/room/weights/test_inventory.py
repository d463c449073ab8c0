"""Ranges of a file, and how they are said (PROTOCOL section 6, ``ai-inv``)."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pooled_nb.mesh.messages import read
from pooled_nb.mesh.messages.deal import Load
from pooled_nb.room.weights.inventory import (
    END,
    MOST_RANGES,
    covers,
    joined,
    listing_of,
    range_of,
    ranges_of,
    word_of,
    words_of,
)

SIZE = 60
spans = st.lists(st.tuples(st.integers(0, SIZE), st.integers(0, SIZE)), max_size=12)


def bytes_of(ranges: list[tuple[int, int]]) -> set[int]:
    return {n for lo, hi in ranges for n in range(lo, hi)}


@given(spans)
def test_the_same_bytes_in_few_ranges(ranges: list[tuple[int, int]]) -> None:
    """PROTOCOL section 6: what is listed is what is there, in order, and never two ranges that touch."""
    found = joined(ranges)
    assert bytes_of(found) == bytes_of(ranges)
    assert all(lo < hi for lo, hi in found)
    assert all(a[1] < b[0] for a, b in pairwise(found))


@given(spans)
def test_what_is_said_is_understood(ranges: list[tuple[int, int]]) -> None:
    """PROTOCOL section 6: strings ``"lo-hi"``, "``hi`` inclusive as in an HTTP range"."""
    assert ranges_of(words_of(ranges), SIZE) == joined(ranges)
    assert word_of(0, 10) == "0-9"


@given(spans, st.integers(0, SIZE), st.integers(0, SIZE))
def test_whether_all_of_a_range_is_there(ranges: list[tuple[int, int]], lo: int, hi: int) -> None:
    """PROTOCOL section 6: a range is given only where every byte of it is here."""
    if lo < hi:
        assert covers(joined(ranges), lo, hi) == (set(range(lo, hi)) <= bytes_of(ranges))


@settings(max_examples=300)
@given(st.lists(st.one_of(st.text(max_size=20), st.from_regex(r"[0-9]{1,3}-[0-9]{1,3}", fullmatch=True))))
def test_any_words_are_read(words: list[str]) -> None:
    """PROTOCOL section 6: whatever a device says that it has, it has nothing beyond the file's end."""
    found = ranges_of(words, SIZE)
    assert found == joined(found)
    assert bytes_of(found) <= set(range(SIZE))


@pytest.mark.parametrize(
    "word",
    [
        *("", "-", "1", "5-4", "-1-4", "0-60", " 0-4", "0-4 ", "0-4\n", "00-4", "0x0-4", "0-4-5", "٣-٤"),
        *("1e1-20", "0-99999999999999999999", "0.0-4"),
    ],
)
def test_what_is_no_range(word: str) -> None:
    """PROTOCOL section 6: exactly ``"lo-hi"``, within the file."""
    assert range_of(word, SIZE) is None


def test_at_most_so_many() -> None:
    """PROTOCOL section 6: an answer is one message: of more ranges than it may name, the largest."""
    small = [(n * 10, n * 10 + 1) for n in range(MOST_RANGES + 100)]
    large = [(n * 10 + 10**9, n * 10 + 10**9 + 5) for n in range(50)]
    said = words_of(small + large)
    assert len(said) == MOST_RANGES
    assert bytes_of(large) <= bytes_of(ranges_of(said))
    assert len(ranges_of([*said, "7-7", "5000000000-5000000001"])) == MOST_RANGES
    assert range_of(f"0-{END - 1}") == (0, END)
    assert range_of(f"0-{END}") is None


def test_a_listing_is_of_the_deals_files() -> None:
    """PROTOCOL section 6, ``inv``: no file that the deal does not name, and nothing beyond its end."""
    said = {
        "a": {"x.safetensors": ["0-9", "5-19"], "y.safetensors": ["0-1"]},
        "b": {"x.safetensors": ["0-20"]},
    }
    assert listing_of(said, {"x.safetensors": 20}) == {
        "a": {"x.safetensors": [(0, 20)]},
        "b": {"x.safetensors": []},
    }
    assert listing_of(None, {}) == {}


def test_an_inventory_that_is_too_long_is_none() -> None:
    """PROTOCOL section 3: "a field of the wrong type counts as absent": the deal is read, without it."""
    nb = {"repo": "toy/model", "revision": "1", "config": "c" * 64, "prev": "h"}
    said = {
        "t": "ai-load",
        "v": 4,
        "model": "toy/model",
        "range": [0, 1],
        "ctx": 8,
        "next": "host",
        "host": "h",
    }
    for inv in (
        {f"w{n}": {"x.safetensors": ["0-1"]} for n in range(257)},
        {"w": {f"{n}.safetensors": ["0-1"] for n in range(1_025)}},
        {"w": {"x.safetensors": ["0-1"] * (MOST_RANGES + 1)}},
        {"w": {"x.safetensors": ["0" * 45]}},
        {"w": {"x.safetensors": [7]}},
        {"w": {"x.safetensors": "0-1"}},
        {"w": ["0-1"]},
        ["w"],
        7,
    ):
        load = read({**said, "nb": {**nb, "inv": inv}})
        assert isinstance(load, Load)
        assert load.nb is not None
        assert load.nb.inv is None
    load = read({**said, "nb": {**nb, "inv": {"w": {"x.safetensors": ["0-1"]}}}})
    assert isinstance(load, Load)
    assert load.nb is not None
    assert listing_of(load.nb.inv, {"x.safetensors": 9}) == {"w": {"x.safetensors": [(0, 2)]}}
