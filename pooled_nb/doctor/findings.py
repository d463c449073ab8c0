"""What was found about one thing: a mark, a result, and what to do about it."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from typing import Literal

from msgspec import Struct, structs

from pooled_nb.plain import visible

Mark = Literal["ok", "warn", "fail", "skip"]
"""Fine; works, but not for everything; does not work; was not looked at."""

SIGNS: dict[Mark, str] = {"ok": "✓", "warn": "!", "fail": "✗", "skip": "–"}
PLAIN_SIGNS: dict[Mark, str] = {"ok": "+", "warn": "!", "fail": "x", "skip": "-"}
"""Where a terminal cannot draw the others; each has a shape of its own in both."""
WIDTH = 24
"""Columns of the names."""


class Finding(Struct, frozen=True, kw_only=True):
    """One line of the report.

    Attributes
    ----------
    what
        The thing that was looked at, in a word or two.
    result
        What is so.
    todo
        What to do about it; never empty for a failure.
    """

    what: str
    mark: Mark
    result: str
    todo: str = ""


def hide(findings: Iterable[Finding], secrets: Iterable[str]) -> list[Finding]:
    """The findings without any of these: what a library says of a failure may repeat what it was given."""
    # The longest first: one secret may hold another.
    hidden = sorted({secret for secret in secrets if len(secret) >= 4}, key=len, reverse=True)

    def without(text: str) -> str:
        for secret in hidden:
            text = text.replace(secret, "…")
        return visible(text)

    return [
        structs.replace(f, what=without(f.what), result=without(f.result), todo=without(f.todo))
        for f in findings
    ]


def fails(findings: Iterable[Finding]) -> bool:
    """Whether anything does not work."""
    return any(finding.mark == "fail" for finding in findings)


def lines(findings: Sequence[Finding], *, columns: int | None, encoding: str) -> list[str]:
    """The report as lines: mark, what, result; below it what to do. Wrapped where ``columns`` says so."""
    signs = SIGNS if _draws("".join(SIGNS.values()), encoding) else PLAIN_SIGNS
    width = max([WIDTH, *(len(f.what) for f in findings)]) if findings else WIDTH
    told: list[str] = []
    for finding in findings:
        told += _block(f"{signs[finding.mark]} {finding.what:{width}}  ", finding.result, columns)
        if finding.todo:
            told += _block(" " * (width + 4), finding.todo, columns)
    return [*told, "", summary(findings)]


def summary(findings: Sequence[Finding]) -> str:
    """The last line."""
    failed = sum(f.mark == "fail" for f in findings)
    warned = sum(f.mark == "warn" for f in findings)
    if failed == 1:
        return "1 thing does not work. The line below it says what to do."
    if failed:
        return f"{failed} things do not work. The lines below them say what to do."
    if warned:
        return "Rooms work here. The lines marked with ! say what does not work everywhere."
    return "Everything that was looked at works."


def _block(head: str, text: str, columns: int | None) -> list[str]:
    if columns is None:
        return [head + text]
    if columns < len(head) + 30:
        # Too narrow for two columns: the text goes below its name.
        below = textwrap.wrap(text, max(20, columns - 4), initial_indent="    ", subsequent_indent="    ")
        return [head.rstrip(), *below] if head.strip() else below
    return textwrap.wrap(
        text, columns, initial_indent=head, subsequent_indent=" " * len(head), drop_whitespace=True
    ) or [head.rstrip()]


def _draws(text: str, encoding: str) -> bool:
    try:
        text.encode(encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True
