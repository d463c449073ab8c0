"""What a person types into a line."""

from __future__ import annotations

import pytest

from pooled_nb.errors import BadCode, BadOption
from pooled_nb.typed import Unseen, refuse_relay, refuse_secret, repeated, stop_text, words


@pytest.mark.parametrize(
    ("line", "want"),
    [
        ("host m  # shows a code", ["host", "m"]),
        ("# all of it", []),
        ("host m#2 --name a", ["host", "m#2", "--name", "a"]),
        ("host '# no comment' # one", ["host", "# no comment"]),
        ("host 'a b' --name \"it's\" # it's", ["host", "a b", "--name", "it's"]),
        ("", []),
    ],
)
def test_words(line: str, want: list[str]) -> None:
    assert words(line) == want


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("END", "END"),
        (r"\n\nUser:", "\n\nUser:"),
        (r"a\tb", "a\tb"),
        (r"\\n", r"\n"),
        (r"\d\x", r"\d\x"),
        ("\\", "\\"),
    ],
)
def test_stop_texts_in_one_line(typed: str, meant: str) -> None:
    """CASES, Answers: a stop text may hold line breaks, which no line can."""
    assert stop_text(typed) == meant


def test_an_open_quotation_is_refused() -> None:
    with pytest.raises(ValueError, match="quotation"):
        words("host 'a")


@pytest.mark.parametrize("target", [None, "4TK-G9P", "https://example.org/r/4TK-G9P", "org/model-k=4"])
def test_what_holds_no_secret_passes(target: str | None) -> None:
    refuse_secret(target, "join")


@pytest.mark.parametrize("mark", ["#", "&", "#4TK-G9P&", "?"])
def test_a_secret_is_refused_and_not_repeated(mark: str) -> None:
    """DESIGN section 7: secrets reach no exception."""
    with pytest.raises(BadCode, match="holds a secret") as refused:
        refuse_secret(f"https://example.org/r/4TK-G9P{mark}k=abcdefghij", "join")
    assert "abcdefghij" not in str(refused.value)


def test_a_link_that_was_asked_for_is_shown_nowhere() -> None:
    """DESIGN section 7: secrets reach no exception, nor a traceback that shows what each variable held."""
    link = Unseen("https://example.org/r/4TK-G9P#k=abcdefghij")
    assert "abcdefghij" not in repr([link]) + f"{link!r}"
    assert link.endswith("abcdefghij")  # it still is the link


@pytest.mark.parametrize(
    "word",
    ["turn:a:PLANTED@h", "TURNS:a:PLANTED@h:1", "--turn=turn:a:PLANTED@h", "x#k=PLANTED", "?k=PLANTED"],
)
def test_what_may_be_a_secret_is_not_repeated(word: str) -> None:
    """DESIGN section 7: a refusal of what was typed says no link's key and no relay's password."""
    assert "PLANTED" not in repeated(word)
    assert repeated("turn it up") == "'turn it up'"
    if "turn" in word.lower():
        with pytest.raises(BadOption) as refused:
            refuse_relay(word)
        assert "PLANTED" not in str(refused.value)


@pytest.mark.parametrize("word", ["turn", "return:a@b", "turn up the volume @ noon", "stun:a:1", "a@b"])
def test_other_words_are_no_relay(word: str) -> None:
    refuse_relay(word)


def test_a_secret_stays_unseen() -> None:
    """DESIGN section 7: a traceback shows what a variable holds, also after its blanks were taken off."""
    assert repr(Unseen(" turn:a:b@c ").strip()) == "<not shown>"
    assert Unseen(" turn:a:b@c ").strip() == "turn:a:b@c"
