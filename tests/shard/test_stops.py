"""Stop texts and tags across the borders of tokens (CASES, Answers)."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken

from pooled_nb.shard.stops import AnswerText, Stops, Texts, ends_of, tags_of
from tests.shard.tinychat import tokenizer

few = settings(max_examples=300, deadline=None)
# Few letters, so that beginnings, overlaps and nested stops are the rule.
texts = st.text("ab<>é", max_size=24)
stop_lists = st.lists(st.text("ab<>é", min_size=1, max_size=5), max_size=4)
tag_lists = st.lists(st.text("ab<>", min_size=2, max_size=5), max_size=4)


def pieces_of(text: str, cuts: list[int]) -> list[str]:
    places = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    return [text[a:b] for a, b in pairwise(places)]


def shown_of(text: str, stops: list[str]) -> tuple[str, bool]:
    """The plain meaning: letter by letter, until one of the stops is complete."""
    for end in range(1, len(text) + 1):
        if found := [stop for stop in stops if text[:end].endswith(stop)]:
            return text[: end - max(map(len, found))], True
    return text, False


@few
@given(texts, st.lists(st.integers(0, 24), max_size=24), stop_lists, tag_lists)
@example("ab<a>b", [1, 2, 3, 4, 5], ["b<b"], ["<a>"])
def test_what_is_shown_ends_before_the_first_stop(
    text: str, cuts: list[int], stops: list[str], tags: list[str]
) -> None:
    """CASES, Answers: any text, in any pieces; nothing of a stop is shown, and nothing else is lost."""
    wanted, complete = shown_of(text, stops)
    stream = Stops(stops, Texts(tags))
    shown = ""
    for piece in pieces_of(text, cuts):
        shown += stream.push(piece)
        assert wanted.startswith(shown), "shown for good: nothing of a stop that comes"
    assert stream.stopped == complete
    assert shown + stream.flush() == wanted
    assert stream.push("more") == "" or not complete
    assert stream.flush() == "" or not complete


@few
@given(texts, st.lists(st.integers(0, 24), max_size=24), stop_lists, tag_lists)
@example("<a<>b", [2, 3], [], ["<a<", "<>", "<b"])
@example("<a>b", [3], [">c"], ["<a>"])
def test_no_piece_ends_within_a_tag(text: str, cuts: list[int], stops: list[str], tags: list[str]) -> None:
    """CASES, Answers: a ``</think>`` is never half shown, however it is spelled."""
    stream = Stops(stops, Texts(tags))
    wanted, _ = shown_of(text, stops)
    ends, shown = set[int](), ""
    for piece in pieces_of(text, cuts):
        shown += stream.push(piece)
        ends.add(len(shown))
    ends.discard(len(wanted))  # where a stop cuts a tag, the answer is over
    for tag in tags:
        for at in range(len(wanted)):
            if wanted.startswith(tag, at):
                assert not ends & set(range(at + 1, at + len(tag)))


def test_tags_in_a_chain_wait_however_long_it_is() -> None:
    """CASES, Answers: each tag begins within the one before; it is all shown once no other follows."""
    stream = Stops((), Texts(["|a|"]))
    chain = "|a" * 3000
    assert stream.push(chain) == ""
    assert stream.push("|b") == chain + "|b"


@pytest.mark.parametrize(
    ("stops", "pieces", "shown", "left"),
    [
        (["\n\nUser:"], ["Hi", ".\n", "\nUs", "er: x"], ["Hi", ".", "", ""], ""),
        (["\n\nUser:"], ["Hi", ".\n", "\nUs", "e."], ["Hi", ".", "", "\n\nUse."], ""),
        (["END"], ["a E", "N"], ["a ", ""], "EN"),
        (["b"], ["abc", "d"], ["a", ""], ""),
        (["aab"], ["aa", "a", "b"], ["", "a", ""], ""),
        (["abc", "b"], ["a", "bc"], ["", "a"], ""),
        (["b", "ab"], ["xab"], ["x"], ""),
        (["é🎉"], ["né", "🎉", "."], ["n", "", ""], ""),
    ],
)
def test_what_is_held_back_comes_or_goes(
    stops: list[str], pieces: list[str], shown: list[str], left: str
) -> None:
    """CASES, Answers: a stop over three tokens; one that does not come; one inside a token; several."""
    stream = Stops(stops)
    assert [stream.push(piece) for piece in pieces] == shown
    assert stream.flush() == left


def tagged() -> Any:
    tok = tokenizer()
    tok.add_tokens([AddedToken("</think>", special=False, normalized=False), AddedToken("    ")])
    return tok


def test_tags_are_those_of_the_model() -> None:
    """CASES, Answers: marks around a name, by the model's own files; runs of spaces do not wait."""
    tags = tags_of(tagged())
    assert tags.begun("a </thi") == 2
    assert tags.begun("a <|im_") == 2
    assert tags.begun("a </think>") == len("a </think>")
    assert tags.begun("a   ") == 4
    assert Texts().begun("a <") == 3
    plain: Any = tokenizer()
    assert tags_of(plain).begun("a </thi") == len("a </thi")


def told(tok: Any, ids: list[int], stops: list[str], after: list[int] | None = None) -> tuple[list[str], str]:
    text = AnswerText(tok, stops=stops, tags=tags_of(tok), after=after or [])
    return [text.push(token) for token in ids], text.flush()


def test_a_tag_in_plain_letters_comes_whole() -> None:
    """CASES, Answers: the tokenizer's own token, and the same spelled out in single bytes."""
    tok = tagged()
    spelled = tok.encode("so </think> 1 < 2", add_special_tokens=False, split_special_tokens=True)
    pieces, left = told(tok, spelled, [])
    assert "</think>" in pieces
    assert "".join(pieces) + left == "so </think> 1 < 2"
    token = tok.encode("</think>", add_special_tokens=False)
    assert len(token) == 1
    assert told(tok, token, []) == (["</think>"], "")


@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_half_characters_and_stops_together(data: st.DataObject) -> None:
    """CASES, Answers: stops over an emoji's bytes: held back twice, shown once."""
    tok = tagged()
    text = data.draw(st.text("a🎉é<\n", max_size=12))
    stops = data.draw(st.lists(st.text("a🎉é<\n", min_size=1, max_size=3), max_size=2))
    ids = tok.encode(text, add_special_tokens=False, split_special_tokens=True)
    pieces, left = told(tok, ids, stops)
    assert "".join(pieces) + left == shown_of(text, stops)[0]
    assert not any("\ufffd" in piece for piece in pieces)


@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_an_answer_that_goes_on_has_no_seam(data: st.DataObject) -> None:
    """PROTOCOL section 7, ``cont: 1``: cut anywhere, within a stop or a tag, too: the one longer answer."""
    tok = tagged()
    ids = data.draw(st.lists(st.integers(0, len(tok) - 1), max_size=30))
    stops = data.draw(st.lists(st.text("ab<>\ufffd", min_size=1, max_size=3), max_size=2))
    cut = data.draw(st.integers(0, len(ids)))
    whole, left = told(tok, ids, stops)
    before, _ = told(tok, ids[:cut], stops)
    assert before == whole[:cut]
    assert told(tok, ids[cut:], stops, ids[:cut]) == (whole[cut:], left)


def test_a_control_token_may_be_a_stop() -> None:
    """PROTOCOL section 7: control tokens leave no text, so they are found by id."""
    tok = tagged()
    assert ends_of(tok, ["<|im_start|>", "x", "</think>"]) == {tok.convert_tokens_to_ids("<|im_start|>")}
    assert ends_of(tok, []) == frozenset()
