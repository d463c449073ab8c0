"""How much less a device gets that was killed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pooled_nb.mesh.gatekeeper import MAX_PASSES
from pooled_nb.room.shares import Less, Shares, Without

GB = 10**9


def test_half_then_nothing() -> None:
    """PROTOCOL section 6, ``ai-share``: half its share, a layer at least; after the second kill, without."""
    shares = Shares()
    first = shares.killed("k", "attic", [GB] * 4)
    assert isinstance(first, Less)
    assert first.gb == 2.0
    assert first.why == (
        "attic was killed while it loaded, most likely because memory ran out. "
        "It gets half of its share, 2.0 GB at most."
    )
    assert shares.most("k", 6.0) == 2.0
    assert shares.most("k", 1.0) == 1.0, "never more than it lends"
    assert shares.most("other", 6.0) == 6.0
    second = shares.killed("k", "attic", [GB] * 2)
    assert second == Without("attic was killed while it loaded again. The room goes on without its memory.")
    assert shares.most("k", 6.0) == 0.0


def test_what_it_did_is_said() -> None:
    """PROTOCOL section 6, ``ai-share {why}``: memory that was enough for weights may not do for an answer."""
    shares = Shares()
    assert shares.killed("k", "attic", [GB] * 4, did="computed").why.startswith(
        "attic was killed while it computed, most likely because memory ran out."
    )
    assert isinstance(shares.killed("k", "attic", [GB] * 2), Without), "whatever it did the first time"


def test_at_one_layer_there_is_no_half() -> None:
    """PROTOCOL section 6, ``ai-share``: at one layer, without it."""
    shares = Shares()
    assert isinstance(shares.killed("k", "attic", [GB]), Without)
    assert shares.most("k", 6.0) == 0.0


def test_it_is_told_once_and_later_where_it_was_not_there() -> None:
    """PROTOCOL section 6: the device hears why, also when it comes back only then."""
    shares = Shares()
    word = shares.killed("k", "attic", [GB, GB])
    assert shares.word("k") == word
    assert shares.word("k") is None
    shares.owe("k", word)
    assert shares.word("k") == word
    shares.forgive("k")
    assert shares.most("k", 6.0) == 6.0


def test_one_bad_moment_forgives_no_kill_before_it() -> None:
    """PROTOCOL section 6, ``ai-share``: a room that needs all of it gives it as much as before, not more."""
    shares = Shares()
    shares.killed("k", "attic", [GB] * 4)
    shares.killed("k", "attic", [GB] * 2, did="computed")
    shares.forgive("k")
    assert shares.most("k", 6.0) == 2.0
    assert shares.word("k") is None
    shares.killed("k", "attic", [GB] * 2)
    assert shares.most("k", 6.0) == 0.0


def test_what_is_remembered_has_an_end() -> None:
    """PROTOCOL section 4: no more seats than passes; the newest count."""
    shares = Shares()
    for n in range(2 * MAX_PASSES):
        shares.killed(f"k{n}", "attic", [GB] * 4)
    capped = [n for n in range(2 * MAX_PASSES) if shares.most(f"k{n}", 6.0) < 6.0]
    told = [n for n in range(2 * MAX_PASSES) if shares.word(f"k{n}")]
    assert capped == told == list(range(MAX_PASSES, 2 * MAX_PASSES))


@given(st.lists(st.integers(1, GB), min_size=2, max_size=50), st.integers(0, GB))
def test_half_holds_at_least_one_layer_and_not_all(layers: list[int], extra: int) -> None:
    """PROTOCOL section 6: whichever layer it is, and what lies beside it."""
    word = Shares().killed("k", "attic", layers, extra)
    assert isinstance(word, Less)
    assert word.gb * GB >= max(layers) + extra - 1
    assert word.gb * GB < sum(layers) + extra
    assert word.gb == pytest.approx((max(sum(layers) / 2, *layers) + extra) / GB)


def test_a_single_layer_that_was_held_is_dealt_once_more() -> None:
    """PROTOCOL section 6, ``ai-share``: killed while it computed, it may have been one bad moment; while it
    loads, or again, it has none.
    """
    shares = Shares()
    assert shares.killed("ana", "ana", [10], did="computed", held=True) is None
    assert shares.most("ana", 4.0) == 4.0
    assert shares.word("ana") is None
    assert isinstance(shares.killed("ana", "ana", [10], did="computed", held=True), Without)
    assert shares.most("ana", 4.0) == 0.0
    assert isinstance(shares.killed("bo", "bo", [10]), Without)
    assert isinstance(shares.killed("cy", "cy", [10, 10], did="computed", held=True), Less)
