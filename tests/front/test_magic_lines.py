"""What may be typed after `%pooled` and `%%ask`, and what is said of anything else."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from IPython.core.error import UsageError

from pooled_nb.magics.help import ask_help, overview, verb_help
from pooled_nb.magics.lines import read_ask, read_pooled
from pooled_nb.magics.verbs import ASK, VERBS


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("hots m", "Did you mean %pooled host?"),
        ("statsu", "Did you mean %pooled status?"),
        ("xyzzy", "It knows host, join"),
        ("host m --splt speed", "Did you mean --split?"),
        ("host m --split fair", "one of speed, memory"),
        ("host m --ctx many", "a whole number"),
        ("host m --ctx", "needs a value: --ctx TOKENS"),
        ("host m --lan=yes", "takes no value"),
        ("host m n", "'n' is too much"),
        ("reset --now", "It has no options."),
        ("stop it", "stands alone"),
        ("set --style hot", "one of greedy, focused, creative"),
        ("set greedy", "stands alone"),
        ("host m --kv q4", "one of f16, q8"),
        ("host m --no-speculate=yes", "takes no value"),
        ("regenerate --greedy --creative", "one style"),
        ("regenerate --background", "has no --background"),
        ("host m -o 1st", "name of a variable"),
        ("host m -o class", "name of a variable"),
        ("help dance", "does not know 'dance'"),
        ("host 'm", "not closed"),
    ],
)
def test_wrong_lines_get_one_sentence(line: str, words: str) -> None:
    """Bad input: an unknown verb, option or value gets a sentence that names what would be right."""
    with pytest.raises(UsageError) as refused:
        read_pooled(line)
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("line", "options", "question"),
    [
        ("", {}, ""),
        ("-o a --max 200", {"output": "a", "max_tokens": 200}, ""),
        ("--focused --seed=3 Why?", {"style": "focused", "seed": 3}, "Why?"),
        ('--system "Be a pirate." Why?', {"system": "Be a pirate."}, "Why?"),
        ("--system='' Why?", {"system": ""}, "Why?"),
        ("--background --fast --thinking off", {"background": True, "fast": True, "thinking": "off"}, ""),
        ("--stop a --stop='b c' --min-p 0.1 Why?", {"stop": ["a", "b c"], "min_p": 0.1}, "Why?"),
        (r"--stop \n --stop '\\n'", {"stop": ["\n", r"\n"]}, ""),
        ("Why --fast?", {}, "Why --fast?"),
        ("-- --fast is what?", {}, "--fast is what?"),
        ('"quoted" and it\'s {x} $y', {}, '"quoted" and it\'s {x} $y'),
        ("-5 + 3?", {}, "-5 + 3?"),
    ],
)
def test_options_begin_the_line(line: str, options: dict[str, object], question: str) -> None:
    """DESIGN section 1: options of `%%ask`; the question stays as it was typed."""
    assert read_ask(line) == (options, question)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("--greedy --creative Why?", "one style"),
        ("--focussed Why?", "Did you mean --focused?"),
        ("--thinking maybe", "one of on, off, auto"),
        ("--tempurature 1", "Did you mean --temperature?"),
        ("--stpo x", "Did you mean --stop?"),
        ("--stop", "needs a value: --stop TEXT"),
        ("--repetition-penalty much", "is a number; 'much' is none"),
        ("--seed", "needs a value"),
        ("--fast? Why", "no option"),
        ("-x", "lets it begin with a dash"),
    ],
)
def test_wrong_options_are_never_asked(line: str, words: str) -> None:
    """Bad input: a mistyped option is no question for the model."""
    with pytest.raises(UsageError) as refused:
        read_ask(line)
    assert words in str(refused.value)


@given(st.text(max_size=200))
def test_any_line_is_read_or_refused_in_words(line: str) -> None:
    """Bad input: whatever is typed, nothing but a sentence comes of it."""
    for read in (read_pooled, read_ask):
        with contextlib.suppress(UsageError):
            read(line)


def test_help_names_everything() -> None:
    """DESIGN section 7: both help forms; each verb and option is explained once."""
    for name, verb in VERBS.items():
        assert f"%pooled {name}" in overview()
        for option in verb.options:
            assert option.names[0] in verb_help(name)
    for option in ASK:
        assert option.names[-1] in ask_help()
    for text in (overview(), ask_help()):
        assert "common to the room" in text
    assert all(len(line) <= 110 for line in (overview() + ask_help()).splitlines())
