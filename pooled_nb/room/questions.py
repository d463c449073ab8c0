"""A question before it is sent, and its options on the wire."""

from __future__ import annotations

from typing import Any

import msgspec

from pooled_nb.errors import BadQuestion
from pooled_nb.mesh.messages.chat import MAX_QUESTION, NbParams
from pooled_nb.room.core import AskOptions

RANGES = {
    "max_tokens": f"a whole number from 1 to {2**24:,}",
    "seed": f"a whole number from 0 to {2**31 - 1:,}",
    "temperature": "a number from 0 (greedy) to 5",
    "top_p": "a number above 0, up to 1 (off)",
    "top_k": f"a whole number from 0 (off) to {2**20:,}",
}
"""What `NbParams` takes, in words: host and guests refuse the same, before anything is sent."""


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
    try:
        text.encode()
    except UnicodeEncodeError:
        raise BadQuestion(
            "The question holds half of a character (a lone surrogate).", "Type it again."
        ) from None
    return AskOptions(**{name: _option(name, getattr(options, name)) for name in RANGES})


def _option(name: str, value: Any) -> Any:
    if value is None:
        return None
    value = value.item() if hasattr(value, "item") else value  # numbers of numpy and torch
    try:
        return getattr(msgspec.convert({name: value}, NbParams), name)
    except msgspec.ValidationError:
        raise BadQuestion(f"{name} is {value!r}.", f"Use {RANGES[name]}.") from None


def params_of(options: AskOptions) -> NbParams | None:
    """Options as the wire carries them; None where all are the room's own."""
    if options == AskOptions():
        return None
    return NbParams(
        max_tokens=options.max_tokens,
        seed=options.seed,
        temperature=options.temperature,
        top_p=options.top_p,
        top_k=options.top_k,
    )


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
    )
