"""What IPython would read in its own way, handed to our magics as it was meant.

It would look up the name before a question mark, and refuses a ``%%ask`` without lines below it.
"""

from __future__ import annotations

import re

from IPython.core.inputtransformer2 import EscapedCommand, HelpEnd

_ALONE = re.compile(r"%%ask(?=\s|$)(.*)", re.DOTALL)
_QUESTION = re.compile(r"%ask[ \t]+(\S.*\?)\s*$")
_HELP = re.compile(r"%pooled[ \t]+(\w+)[ \t]*\?{1,2}\s*$")


def alone(lines: list[str]) -> list[str]:
    """``%%ask Why?`` and ``%%ask --help``, with nothing below: a transformer of IPython's for whole cells."""
    found = _ALONE.match(lines[0]) if lines else None
    if found is None or "".join(lines[1:]).strip():
        return lines
    return [f"{_call('ask', found[1].strip())}\n"]


# IPython also asks whether what is typed is complete: in a terminal that line only begins a cell.
alone.has_side_effects = True  # type: ignore[attr-defined] # IPython's own hook


class OurLine(EscapedCommand):
    """``%ask Why is the sky blue?`` asks, and ``%pooled host?`` helps: before IPython's own help.

    It reads tokens, so that text in a string stays as it is.
    """

    priority = HelpEnd.priority - 1

    def transform(self, lines: list[str]) -> list[str]:
        """Replace the line; SyntaxError, as IPython wants it, where it is none of these."""
        at, column = self.start_line, self.start_col
        line = lines[at][column:]
        if found := _QUESTION.match(line):
            call = _call("ask", found[1])
        elif found := _HELP.match(line):
            call = _call("pooled", f"{found[1]} --help")
        else:
            raise SyntaxError(line)
        return [*lines[:at], f"{lines[at][:column]}{call}\n", *lines[at + 1 :]]


def _call(magic: str, line: str) -> str:
    return f"get_ipython().run_line_magic({magic!r}, {line!r})"
