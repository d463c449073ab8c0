"""Lines on a terminal: broken between words, where it would break them inside."""

from __future__ import annotations

import re
import shutil
import sys
import textwrap
from typing import TextIO

from pooled_nb.plain import visible

_COMMAND = re.compile(r"(?:%pooled|pooled-nb) \w+ \S+(?: --signal \S+)?")
_MAGIC = re.compile(
    r"%pooled (?=(?:allow|deny|lobby|kick|invite|gate|network|download|start|redeal|stop|continue|leave"
    r"|status)\b)"
)
_KEPT = "\x00"
"""In place of a blank where no line breaks; what is visible has none."""


def say(text: str) -> None:
    """Print what others may have written, to stdout."""
    print(fitted(visible(text), sys.stdout), flush=True)


def aside(text: str) -> None:
    """Print what is no answer, to stderr; an empty text is not said."""
    if text:
        print(fitted(visible(text), sys.stderr), file=sys.stderr, flush=True)


def here(sentence: str) -> str:
    """A sentence of the room's, with its commands as a prompt of ours takes them."""
    return _MAGIC.sub("/", sentence).replace("%pooled resume", "pooled-nb resume")


def fitted(text: str, stream: TextIO | None) -> str:
    """As the terminal behind a stream has room for it; as it is for a file or a pipe."""
    if stream is None or not stream.isatty():
        return text
    columns = shutil.get_terminal_size().columns
    return "\n".join(_broken(line, columns) for line in text.split("\n"))


def _broken(line: str, columns: int) -> str:
    if len(line) <= columns:
        return line
    # Neither inside of a command nor at a hyphen: both are copied from here.
    whole = _COMMAND.sub(lambda found: found[0].replace(" ", _KEPT), line)
    broken = textwrap.fill(
        whole, columns, break_on_hyphens=False, break_long_words=False, replace_whitespace=False
    )
    return broken.replace(_KEPT, " ")
