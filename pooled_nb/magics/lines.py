"""Reads what stands after ``%pooled`` and ``%%ask``. What is wrong gets one sentence, and nothing is done."""

from __future__ import annotations

import difflib
import keyword
import re
from collections.abc import Iterable, Sequence
from typing import Any

from IPython.core.error import UsageError

from pooled_nb.magics.verbs import ASK, STYLES, VERBS, Option, Typed
from pooled_nb.typed import repeated, words

# Not by IPython's `magic_arguments` (argparse), for that takes words: how a question of %%ask was typed would
# be lost, so the reader below would have to stay beside it. Its sentences differ between Pythons and name no
# word that was nearly typed; and its parsers would double the table that help, tab and documentation share.

HELP = ("--help", "-h")
_WORD = re.compile(r"\s*(--?[A-Za-z]\S*?)(?:=|(?=\s|$))")
_VALUE = re.compile(r"""\s*("[^"]*"|'[^']*'|\S+)(?=\s|$)""")


def read_pooled(line: str) -> Typed:
    """Read a line of ``%pooled``. Asked for help, its verb is ``help`` and its target what that is about.

    Raises
    ------
    UsageError
        A verb, an option or a value that there is not, in one sentence.
    """
    try:
        typed = words(line)
    except ValueError:
        raise UsageError("A quotation is not closed in this line. Close it, or take it out.") from None
    if not typed:
        return Typed(verb="")
    name, rest = typed[0], typed[1:]
    if any(word in HELP for word in typed):
        about = name if name in VERBS else None
        return Typed(verb="help", target=about)
    if name not in VERBS:
        raise UsageError(_no_verb(name))
    if name == "help":
        return Typed(verb="help", target=_about(rest))
    verb = VERBS[name]
    targets, options = _read(rest, verb.options, f"%pooled {name}")
    if verb.words and targets:
        targets = [" ".join(targets)]
    if targets and not verb.target:
        raise UsageError(f"%pooled {name} stands alone; {repeated(targets[0])} is too much.")
    if len(targets) > 1:
        raise UsageError(f"%pooled {name} takes one {verb.target}; {repeated(targets[1])} is too much.")
    return Typed(verb=name, target=targets[0] if targets else None, options=options)


def _no_verb(name: str) -> str:
    near = difflib.get_close_matches(name, VERBS, n=1)
    meant = f"Did you mean %pooled {near[0]}?" if near else f"It knows {', '.join(VERBS)}."
    return f"%pooled does not know {repeated(name)}. {meant}"


def _about(rest: Sequence[str]) -> str | None:
    if not rest:
        return None
    if rest[0] not in VERBS:
        raise UsageError(_no_verb(rest[0]))
    return rest[0]


def _read(typed: Sequence[str], options: Iterable[Option], command: str) -> tuple[list[str], dict[str, Any]]:
    """Words without a dash, and the options that were given."""
    targets: list[str] = []
    given: dict[str, Any] = {}
    left = list(typed)
    while left:
        word = left.pop(0)
        if len(word) < 2 or word[0] != "-" or word[1].isdigit():
            targets.append(word)
            continue
        name, equals, value = word.partition("=")
        option = _option(name, options, command)
        if not option.value:
            if equals:
                raise UsageError(f"{name} of {command} takes no value.")
            given[option.key] = True
        else:
            if not equals:
                if not left:
                    raise UsageError(f"{name} of {command} needs a value: {name} {option.value}.")
                value = left.pop(0)
            _take(given, option, _converted(option, name, value))
    return targets, _one_style(given)


def _take(given: dict[str, Any], option: Option, value: Any) -> None:
    if option.many:
        given.setdefault(option.key, []).append(value)
    else:
        given[option.key] = value


def _option(name: str, options: Iterable[Option], command: str) -> Option:
    known = {each: option for option in options for each in option.names}
    if name in known:
        return known[name]
    near = difflib.get_close_matches(name, known, n=1)
    if near:
        raise UsageError(f"{command} has no {name}. Did you mean {near[0]}?")
    there = f"It has {', '.join(known)}." if known else "It has no options."
    raise UsageError(f"{command} has no {name}. {there}")


def _converted(option: Option, name: str, text: str) -> Any:
    if option.choices and text not in option.choices:
        choices = ", ".join(option.choices)
        raise UsageError(f"{name} is one of {choices}; {repeated(text)} is an invalid choice.")
    if option.key == "output" and (not text.isidentifier() or keyword.iskeyword(text)):
        raise UsageError(f"{name} takes the name of a variable; {repeated(text)} is none.")
    try:
        return option.kind(text)
    except ValueError:
        what = "a whole number" if option.kind is int else "a number"
        raise UsageError(f"{name} is {what}; {repeated(text)} is none.") from None


def read_ask(line: str) -> tuple[dict[str, Any], str]:
    """Options that begin a line of ``%%ask``, and the rest as it stands, quotes and dashes in it.

    Raises
    ------
    UsageError
        The rest begins like an option, and is no part of the question.
    """
    known = {name: option for option in ASK for name in option.names}
    given: dict[str, Any] = {}
    at = 0
    while (found := _WORD.match(line, at)) is not None:
        name, option = found[1], known.get(found[1])
        if option is None:
            near = difflib.get_close_matches(name, known, n=1)
            meant = f"Did you mean {near[0]}?" if near else "See %%ask --help."
            hint = "-- before a question lets it begin with a dash"
            raise UsageError(f"{name} is no option of %%ask ({hint}). {meant}")
        at = found.end()
        if not option.value:
            given[option.key] = True
            continue
        value = _VALUE.match(line, at)
        if value is None:
            raise UsageError(f"{name} needs a value: {name} {option.value}.")
        at = value.end()
        _take(given, option, _converted(option, name, _unquoted(value[1])))
    return _one_style(given), _question(line[at:])


def _unquoted(text: str) -> str:
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"" else text


def _one_style(given: dict[str, Any]) -> dict[str, Any]:
    styles = [style for style in STYLES if given.pop(style, False)]
    if len(styles) > 1:
        raise UsageError(f"An answer has one style. Keep --{styles[0]} or --{styles[1]}, not both.")
    return given | ({"style": styles[0]} if styles else {})


def _question(rest: str) -> str:
    rest = rest.strip()
    if rest == "--" or rest.startswith("-- "):
        return rest[3:]
    return rest
