"""PROTOCOL section 7: drafts from prompt lookup, n-grams of 4 down to 2."""

from __future__ import annotations

from collections.abc import Sequence
from typing import overload

from hypothesis import given, settings
from hypothesis import strategies as st

from pooled_nb.shard.lookup import SIZES, Lookup

FEW = st.integers(0, 3)
"""So few different tokens that n-grams of every length come again."""


def naive(tokens: list[int], most: int, ends: set[int]) -> list[int]:
    """The same, by looking through the whole conversation from its end."""
    for size in sorted(SIZES, reverse=True):
        key = tokens[-size:]
        for start in range(len(tokens) - size - 1, -1, -1):
            if len(key) == size and tokens[start : start + size] == key:
                text = tokens[start + size :]
                while len(text) < most:
                    text = text + text
                found = text[:most]
                end = next((i for i, token in enumerate(found) if token in ends), most)
                return found[:end]
    return []


@settings(max_examples=200)
@given(
    pieces=st.lists(st.lists(FEW, max_size=12), min_size=1, max_size=8),
    most=st.integers(0, 15),
    ends=st.sets(FEW, max_size=1),
)
def test_it_finds_what_a_search_finds(pieces: list[list[int]], most: int, ends: set[int]) -> None:
    """PROTOCOL section 7: the newest place of the longest n-gram, however the conversation grew."""
    tokens: list[int] = []
    lookup = Lookup(tokens, ends)
    for piece in pieces:
        tokens += piece
        assert lookup.guess(most) == naive(tokens, most, ends)


def test_the_longest_and_the_newest_place_wins() -> None:
    """PROTOCOL section 7: n-grams of 4 before those of 3 and 2; among equal ones the last."""
    assert Lookup([1, 2, 3, 4, 5, 9, 3, 4, 6, 1, 2, 3, 4]).guess(2) == [5, 9]
    assert Lookup([3, 4, 5, 0, 3, 4, 6, 0, 3, 4]).guess(1) == [6]
    assert Lookup([7, 1, 7]).guess(4) == []  # one token alone says nothing
    assert Lookup([]).guess(4) == []


def test_a_period_goes_on() -> None:
    """PROTOCOL section 7: up to 15 drafts, also where the text that is copied is not that long yet."""
    assert Lookup([1, 2, 3, 1, 2, 3]).guess(15) == [1, 2, 3] * 5
    assert Lookup([8, 8, 8]).guess(4) == [8] * 4


def test_no_draft_is_an_end_token() -> None:
    """PROTOCOL section 7: the end token is never run, so a draft that is one would be computed in vain."""
    assert Lookup([1, 2, 3, 0, 4, 1, 2], {0}).guess(5) == [3]
    assert Lookup([1, 2, 0, 4, 1, 2], {0}).guess(5) == []


class Counted(Sequence[int]):
    """A text that counts how many of its tokens were read."""

    def __init__(self, tokens: list[int]) -> None:
        self.tokens, self.read = tokens, 0

    def __len__(self) -> int:
        return len(self.tokens)

    @overload
    def __getitem__(self, key: int) -> int: ...
    @overload
    def __getitem__(self, key: slice) -> list[int]: ...
    def __getitem__(self, key: int | slice) -> int | list[int]:
        found = self.tokens[key]
        self.read += len(found) if isinstance(found, list) else 1
        return found


def test_a_long_prompt_is_read_once() -> None:
    """PROTOCOL section 7: a token that comes is read, what is known is not read again."""
    text = Counted([i % 1000 for i in range(32_000)])
    lookup = Lookup(text)
    assert lookup.guess(3) == [0, 1, 2]
    before = text.read
    for token in range(100):
        text.tokens.append(token)
        assert lookup.guess(1) == [token + 1]
    assert text.read - before < 100 * 3
