from typing import Any

import numpy as np
import pytest

from pooled_nb.errors import BadQuestion
from pooled_nb.mesh.messages import chat, read, write
from pooled_nb.room.core import AskOptions, ChatSettings
from pooled_nb.room.questions import LENGTHS, RANGES, check_again, check_question, options_of, params_of

GOOD: dict[str, list[Any]] = {
    "max_tokens": [1, 2**24],
    "seed": [0, 2**31 - 1],
    "temperature": [0, 0.8, 5],
    "top_p": [0.1, 1],
    "top_k": [0, 40, 2**20],
    "min_p": [0, 0.05, 1],
    "repetition_penalty": [0.5, 1, 1.1, 10],
    "presence_penalty": [-2, 0, 0.6, 2],
    "logit_bias": [{}, {0: -100, 50_256: 100.0}, dict.fromkeys(range(300), 1)],
    "stop": [[], ["\n\nUser:", "é🎉"], ["x" * 200] * 16],
}
BAD: dict[str, list[Any]] = {
    "max_tokens": [0, -1, 3.5, "3", True, 2**24 + 1, float("nan"), np.array([1, 2])],
    "seed": [-1, 1.5, 2**31, "x", True],
    "temperature": [-0.1, 5.1, "0.5", float("nan"), float("inf"), [1], np.zeros(0)],
    "top_p": [0, 1.1, -1, "1", float("nan")],
    "top_k": [-1, 2.5, True, 2**20 + 1],
    "min_p": [-0.1, 1.1, "0.1", float("nan")],
    "repetition_penalty": [0, -1, 10.1, "1", float("nan")],
    "presence_penalty": [-2.1, 2.1, True, float("inf")],
    "logit_bias": [
        {-1: 1}, {1: 101}, {1: -100.5}, {"the": 1}, {1.5: 1}, {True: 1}, {1: "1"}, {1: float("nan")},
        dict.fromkeys(range(301), 1), [1, 2], "1", 5,
    ],
    "stop": ["", [""], ["a", 5], 5, b"x", {"a": 1}, ["x" * 201], ["x"] * 17, "x" * 201],
}  # fmt: skip


@pytest.mark.parametrize("name", RANGES)
def test_host_and_guest_take_the_same_options(name: str) -> None:
    """PROTOCOL section 7, `ai-ask`: what is taken here arrives at the host as it was asked for."""
    for value in GOOD[name]:
        options = check_question("q", AskOptions(**{name: value}))
        sent = read(write(chat.Ask(text="q", nb=params_of(options))))
        assert isinstance(sent, chat.Ask)
        assert options_of(sent.nb) == options
        assert getattr(options, name) == value


@pytest.mark.parametrize("name", RANGES)
def test_an_option_out_of_its_range_is_refused_before_anything_is_sent(name: str) -> None:
    """PROTOCOL section 7, `ai-ask`: no host ends over it, and no guest's wish vanishes on the way."""
    for value in BAD[name]:
        with pytest.raises(BadQuestion, match=f"^{name} is .*Use a"):
            check_question("q", AskOptions(**{name: value}))


def test_style_system_and_thinking_arrive_as_they_were_meant() -> None:
    """PROTOCOL section 7, `ai-ask`: *(nb)* a style travels as its numbers; those given by number go first.

    `fast` is the host's to choose: it is not on the wire.
    """

    def arrives(**given: Any) -> AskOptions:
        sent = read(write(chat.Ask(text="q", nb=params_of(check_question("q", AskOptions(**given))))))
        assert isinstance(sent, chat.Ask)
        return options_of(sent.nb)

    assert arrives(style="greedy") == AskOptions(temperature=0.0, top_k=0)
    assert arrives(style="focused") == AskOptions(temperature=0.4, top_k=20)
    assert arrives(style="creative", temperature=1.5) == AskOptions(temperature=1.5, top_k=40)
    assert arrives(system="Be brief.\nAlways.") == AskOptions(system="Be brief.\nAlways.")
    assert arrives(system="") == AskOptions(system=""), "none in place of the room's"
    for switch in (True, False):
        assert arrives(thinking=switch).thinking is switch
        assert arrives(thinking=np.bool_(switch)).thinking is switch
    assert params_of(AskOptions(fast=True)) is None
    for odd in ("on", 2, -1, [1], {}, None):
        heard = read({"t": "ai-ask", "text": "q", "nb": {"thinking": odd, "system": "x" * 8_001}})
        assert isinstance(heard, chat.Ask)
        assert options_of(heard.nb) == AskOptions(), "what is of the wrong type counts as absent"


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ({"style": "exact"}, "style is 'exact'. Use greedy, focused or creative"),
        ({"style": ["greedy"]}, "style is"),
        ({"system": "x" * 8_001}, "8,001 characters"),
        ({"system": 5}, "is no text"),
        ({"system": "\ud800"}, "half of a character"),
        ({"thinking": "on"}, "thinking is 'on'. Use True or False"),
        ({"thinking": 1}, "thinking is 1"),
        ({"fast": "yes"}, "fast is 'yes'"),
    ],
)
def test_words_for_options_that_are_none(given: dict[str, Any], match: str) -> None:
    """PROTOCOL section 7, `ai-ask` and `ai-cmd`: refused here, before anything is sent."""
    with pytest.raises(BadQuestion, match=match):
        check_question("q", AskOptions(**given))
    with pytest.raises(BadQuestion, match=match):
        check_again("regen", AskOptions(**given))


def test_stops_and_biases_as_people_write_them() -> None:
    """PROTOCOL section 7, `ai-ask`: one stop or several; ids as numbers, and as the texts that JSON has."""

    def taken(**given: Any) -> AskOptions:
        return check_question("q", AskOptions(**given))

    assert taken(stop="END").stop == ["END"]
    assert taken(stop=("a", "b")).stop == ["a", "b"]
    assert taken(logit_bias={"50256": -100}).logit_bias == {50_256: -100.0}
    assert taken(logit_bias={np.int64(7): np.float32(0.5)}).logit_bias == {7: 0.5}
    with pytest.raises(BadQuestion, match="A stop text holds half of a character"):
        taken(stop=["a", "\ud800"])
    with pytest.raises(BadQuestion, match=r"^logit_bias is \{.{59}…\. Use a dict of up to 300"):
        taken(logit_bias=dict.fromkeys(range(1000), 500.0))
    assert params_of(AskOptions(stop=[])) == chat.NbParams(stop=[]), "none in place of those of before"


def test_lengths_have_names() -> None:
    """DESIGN section 7: what people choose from is what a room takes."""
    assert list(LENGTHS) == ["short", "medium", "long"]
    assert LENGTHS["medium"] == ChatSettings().max_tokens
    for tokens in LENGTHS.values():
        assert check_again("continue", AskOptions(max_tokens=tokens)).max_tokens == tokens


def test_numbers_of_numpy_are_numbers() -> None:
    """What people pass in notebooks."""
    options = AskOptions(max_tokens=np.int64(3), temperature=np.float32(0.5))  # type: ignore[arg-type]  # as typed
    assert check_question("q", options) == AskOptions(max_tokens=3, temperature=0.5)


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("", "empty"),
        ("\n\t ", "empty"),
        ("x" * 8_001, "8,001 characters"),
        ("\ud800", "half of a character"),
        (5, "no text"),
        (b"hi", "no text"),
    ],
)
def test_what_is_no_question_is_refused(text: Any, match: str) -> None:
    """PROTOCOL section 7: 8,000 characters; one sentence each."""
    with pytest.raises(BadQuestion, match=match):
        check_question(text, AskOptions())


def test_the_longest_question_is_taken() -> None:
    """PROTOCOL section 7: "8,000 characters"."""
    assert check_question("x" * 8_000, AskOptions()) == AskOptions()
