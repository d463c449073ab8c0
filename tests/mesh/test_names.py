"""PROTOCOL section 3: names."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pooled_nb.mesh.names import DEFAULT, MAX_NAME, clean, unique

weird = st.text(
    alphabet=st.characters() | st.sampled_from("<>\"'&`\u202e\u200d\u200f\n\r\t\0\u0301👩👧🏽a \u1fef\u3164"),
    max_size=300,
)


def units(text: str) -> int:
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


@settings(deadline=None, max_examples=400)
@given(weird)
def test_clean(text: str) -> None:
    """PROTOCOL section 3: "no control characters, none of <>"'& and backtick, at most 40 characters"."""
    name = clean(text)
    assert 1 <= len(name) <= units(name) <= MAX_NAME
    assert not set("<>\"'&`") & set(name)
    assert not any(unicodedata.category(c) in ("Cc", "Cs", "Zl", "Zp") for c in name)
    assert not any(
        unicodedata.bidirectional(c) in ("RLO", "LRO", "RLE", "LRE", "PDF", "RLI", "LRI") for c in name
    )
    assert name == name.strip()
    assert clean(name) == name


@settings(deadline=None, max_examples=200)
@given(st.lists(weird, min_size=1, max_size=12))
def test_unique(wanted: list[str]) -> None:
    """PROTOCOL section 3: "made unique by the creator (laptop 2)", suffix within the 40."""
    taken: set[str] = set()
    for text in wanted + wanted:
        name = unique(text, taken)
        assert name not in taken
        assert units(name) <= MAX_NAME
        assert clean(name) == name
        taken.add(name)


def test_the_first_free_number() -> None:
    """PROTOCOL section 3: the first keeps its name, the next get numbers from 2."""
    assert unique("laptop", set()) == "laptop"
    assert unique("laptop", {"laptop"}) == "laptop 2"
    assert unique("laptop", {"laptop", "laptop 2", "laptop 4"}) == "laptop 3"
    assert unique("x" * 40, {"x" * 40}) == "x" * 38 + " 2"


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("Ana's <b>laptop</b>", "Anas blaptop/b"),
        ("<script>alert(1)</script>", "scriptalert(1)/script"),
        ("two\nlines\r\n", "two lines"),
        ("a\u202etxt.exe", "atxt.exe"),
        ("\u1fef\u1fef", DEFAULT),
        ("", DEFAULT),
        (" \u200d\u0301 ", DEFAULT),
        ("\u3164\u2800", DEFAULT),
        ("مختبر", "مختبر"),
        ("👩‍👩‍👧 home", "👩‍👩‍👧 home"),
        ("x" * 200, "x" * 40),
        ("e\u0301", "é"),
    ],
)
def test_names_that_people_chose(text: str, name: str) -> None:
    """PROTOCOL section 3 and the troubles with names: emoji, right-to-left, 200 characters, line
    breaks, markup.
    """
    assert clean(text) == name


def test_not_cut_within_what_people_see_as_one() -> None:
    """PROTOCOL section 3: at 40 characters a family stays a family, or goes."""
    assert clean("x" * 36 + "👩‍👩‍👧") == "x" * 36
    assert clean("x" * 38 + "👍🏽") == "x" * 38
    assert clean("x" * 39 + "q\u0323") == "x" * 39
    assert clean("👍" * 30) == "👍" * 20
