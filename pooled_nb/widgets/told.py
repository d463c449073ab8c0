"""Sentences of the room whose own first words are the headline of its panel. Pure."""

from __future__ import annotations

import re

from pooled_nb.room import sentences
from pooled_nb.room.core import Status, Verb
from pooled_nb.widgets.formats import line, say, sentence

LEAVING, CLOSING = "Leaving ", "Closing "
HEADS: dict[str, str] = {
    f"{sentences.not_started(again=False)} ": "warn",
    f"{sentences.not_started(again=True)} ": "bad",
    f"{sentences.CANNOT_GO_ON} ": "warn",
    "This device holds no layers: ": "warn",
    "This device loads its layers again: ": "work",
    f"{sentences.GOING_ON} ": "work",
    LEAVING: "work",
    CLOSING: "work",
}
"""First words, and the tone."""
_COMMAND = re.compile(r"(?:;| )[^.;]*%pooled [^.]*\.?")
"""A step that the panel has a button for."""


def head(status: Status) -> str:
    """The first words, where the sentence has some; else empty."""
    if status.state in ("closed", "away", "loading"):
        return ""
    found = next((words for words in HEADS if status.sentence.startswith(words)), "")
    # While it is answered, that is the headline; but who leaves does so with an answer under way.
    return found if status.state != "answering" or found in (LEAVING, CLOSING) else ""


def leaving(status: Status) -> Verb | None:
    """What one does at once that a polite leaving, or closing, waits with; None: it is neither."""
    words = head(status)
    return "leave" if words == LEAVING else "close" if words == CLOSING else None


def said(status: Status) -> dict[str, str] | None:
    """The line of the panel; None: its words are made of what is known."""
    words = head(status)
    if not words:
        return None
    about = sentence(_COMMAND.sub("", status.sentence.removeprefix(words)))
    if not any(about.startswith(line(d.name)) for d in status.devices):  # a name stays as typed
        about = about[:1].upper() + about[1:]
    again = f" Tried again in {status.redeal_in:,} s." if status.redeal_in is not None else ""
    return say(HEADS[words], words.rstrip(":. "), f"{about}{again}")
