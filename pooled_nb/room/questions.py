"""A question before it is sent, and its options on the wire (PROTOCOL section 7)."""

from __future__ import annotations

from typing import Any

import msgspec

from pooled_nb.errors import BadQuestion
from pooled_nb.mesh.messages.chat import MAX_QUESTION, NbParams
from pooled_nb.room.core import Again, AskOptions
from pooled_nb.room.style import STYLES, half, numbers, plain, wrong_system

SHOWN = 60
"""Characters of a wrong value that are shown again."""
LENGTHS = {"short": 128, "medium": 512, "long": 2048}
"""Tokens of an answer, by the words people choose from."""

RANGES = {
    "max_tokens": f"a whole number from 1 to {2**24:,}",
    "seed": f"a whole number from 0 to {2**31 - 1:,}",
    "temperature": "a number from 0 (greedy) to 5",
    "top_p": "a number above 0, up to 1 (off)",
    "top_k": f"a whole number from 0 (off) to {2**20:,}",
    "min_p": "a number from 0 (off) to 1",
    "repetition_penalty": "a number above 0, up to 10 (1 is off, 1.1 is usual)",
    "presence_penalty": "a number from -2 to 2 (0 is off)",
    "logit_bias": "a dict of up to 300 numbers from -100 to 100, by token id",
    "stop": "a text, or a list of up to 16 texts, of 1 to 200 characters each",
}
"""What `NbParams` takes, in words: host and guests refuse the same, before anything is sent."""
_MORE = ("min_p", "repetition_penalty", "presence_penalty", "logit_bias", "stop")
"""Options that have the same name and form on the wire."""


def check_question(text: str, options: AskOptions) -> AskOptions:
    """Refuse what no host would take; the options as the wire would carry them.

    Raises
    ------
    BadQuestion
        Empty, above 8,000 characters (PROTOCOL section 7), no text, or an option out of its range.
    """
    if not isinstance(text, str):
        raise BadQuestion("The question is no text.", "Pass a str.")
    if not text.strip():
        raise BadQuestion("The question is empty.", "Write what you want to know.")
    if len(text) > MAX_QUESTION:
        raise BadQuestion(
            f"The question has {len(text):,} characters, and a room takes {MAX_QUESTION:,}.",
            "Shorten it, or ask in parts.",
        )
    if half(text):
        raise BadQuestion("The question holds half of a character (a lone surrogate).", "Type it again.")
    return check_options(options)


def check_options(options: AskOptions) -> AskOptions:
    """Options as the wire would carry them. Raises `BadQuestion` for one out of its range."""
    given = {name: _option(name, getattr(options, name)) for name in RANGES}
    if options.style is not None and options.style not in STYLES:
        raise BadQuestion(f"style is {options.style!r}.", "Use greedy, focused or creative.")
    if options.system is not None and (why := wrong_system(options.system)):
        raise BadQuestion(*why)
    return AskOptions(
        **given,
        style=options.style,
        system=options.system,
        thinking=_switch("thinking", options.thinking),
        fast=bool(_switch("fast", options.fast)),
    )


def again_of(cmd: str) -> Again | None:
    """What an ``ai-cmd`` asks for; None where it is unknown here."""
    return "continue" if cmd == "continue" else "regen" if cmd == "regen" else None


def check_again(what: Again, options: AskOptions) -> AskOptions:
    """Options of an answer that is continued or made anew. Raises `BadQuestion`."""
    if again_of(what) is None:
        raise BadQuestion(f"An answer cannot be {what!r}.", "Use continue or regen.")
    checked = check_options(options)
    if what == "continue" and checked != AskOptions(max_tokens=checked.max_tokens):
        raise BadQuestion(
            "A continued answer keeps how it was made.", "Give only max_tokens, or make the answer anew."
        )
    return checked


def _switch(name: str, value: Any) -> bool | None:
    value = plain(value)
    if value is None or isinstance(value, bool):
        return value
    raise BadQuestion(f"{name} is {value!r}.", "Use True or False.")


def _option(name: str, value: Any) -> Any:
    if value is None:
        return None
    value = plain(value)
    asked: Any = value
    if name == "stop":
        asked = [value] if isinstance(value, str) else list(value) if isinstance(value, tuple) else value
    elif isinstance(value, dict):  # those of JSON have texts for keys
        asked = {plain(key): plain(number) for key, number in value.items()}
    try:
        taken = getattr(msgspec.convert({name: asked}, NbParams, str_keys=True), name)
    except msgspec.ValidationError:
        shown = repr(value)
        shown = shown if len(shown) <= SHOWN else f"{shown[:SHOWN]}…"
        raise BadQuestion(f"{name} is {shown}.", f"Use {RANGES[name]}.") from None
    if name == "stop" and any(map(half, taken)):
        raise BadQuestion("A stop text holds half of a character (a lone surrogate).", "Type it again.")
    return taken


def params_of(options: AskOptions) -> NbParams | None:
    """Options as the wire carries them; None where all are the room's own."""
    temperature, top_k = numbers(options, None)
    params = NbParams(
        max_tokens=options.max_tokens,
        seed=options.seed,
        temperature=temperature,
        top_p=options.top_p,
        top_k=top_k,
        **{name: getattr(options, name) for name in _MORE},
        system=options.system,
        thinking=options.thinking,
    )
    return None if params == NbParams() else params


def options_of(params: NbParams | None) -> AskOptions:
    """Options as a device asked for them; none where it said nothing."""
    if params is None:
        return AskOptions()
    return AskOptions(
        max_tokens=params.max_tokens,
        seed=params.seed,
        temperature=params.temperature,
        top_p=params.top_p,
        top_k=params.top_k,
        **{name: getattr(params, name) for name in _MORE},
        system=params.system,
        thinking=None if params.thinking is None else bool(params.thinking),
    )
