"""What a person typed into a line, read before anything is done with it."""

from __future__ import annotations

import os
import re
import shlex

from pooled_nb.errors import BadCode, BadOption
from pooled_nb.mesh.unseen import Unseen as Unseen

_SECRET = re.compile(r"[#&?]k=", re.IGNORECASE)
_RELAY = re.compile(r"\bturns?:.*@", re.IGNORECASE)
_RELAY_WORD = re.compile(r"(?:--[a-z-]+=?|[\w-]*=)?turns?:\S*@|--turn(?:=|$)", re.IGNORECASE)
_ESCAPED = re.compile(r"\\([nt\\])")
_MEANT = {"n": "\n", "t": "\t", "\\": "\\"}


def words(line: str) -> list[str]:
    """The words of a line, as a shell reads them: quotes group, and a word that begins with ``#`` ends it.

    Raises
    ------
    ValueError
        A quotation is not closed.
    """
    reader = shlex.shlex(_without_comment(line), posix=True, punctuation_chars=False)
    reader.whitespace_split = True
    reader.commenters = ""  # a # inside of a word belongs to it
    if os.name == "nt":
        reader.escape = ""  # there it parts folders
    return list(reader)


def stop_text(text: str) -> str:
    r"""A stop text as it is typed in one line: ``\n`` ends a line, ``\t`` is a tab, ``\\`` a backslash."""
    return _ESCAPED.sub(lambda found: _MEANT[found[1]], text)


def _without_comment(line: str) -> str:
    quote = ""
    for at, c in enumerate(line):
        if quote:
            quote = "" if c == quote else quote
        elif c in "'\"":
            quote = c
        elif c == "#" and (at == 0 or line[at - 1].isspace()):
            return line[:at]
    return line


def repeated(word: str) -> str:
    """What was typed, for a sentence that refuses it: quoted, and not at all where it may hold a secret."""
    return "what was typed (not shown)" if _SECRET.search(word) or _RELAY.search(word) else repr(word)


def refuse_relay(word: str) -> None:
    """Refuse a relay with its password as an argument, which others see.

    Raises
    ------
    BadOption
        It is one. It is not repeated.
    """
    if _RELAY_WORD.match(word):
        raise BadOption("A relay holds a password, and other users see arguments.", "Set POOLED_TURN to it.")


def refuse_secret(target: str | None, command: str) -> None:
    """Refuse a typed link that holds a key: cells, histories and lists of processes keep what is typed.

    Raises
    ------
    BadCode
        It holds one. The link is not repeated.
    """
    if target is not None and _SECRET.search(target):
        raise BadCode(
            "This link holds a secret.",
            f"Run {command} without it; it is then asked for unseen. This one stays where it was typed, and "
            "in the history: delete it there, and ask the host for a new link.",
        )
