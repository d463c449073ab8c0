"""How lines are broken on a terminal, and which of a room's words are said."""

from __future__ import annotations

import io
from types import SimpleNamespace
from typing import Any

import pytest

from pooled_nb.terminal.news import News
from pooled_nb.terminal.screen import aside, fitted, say

LONG = "On this machine: %pooled join 4TK-G9P in a notebook, pooled-nb join 4TK-G9P in a terminal."


class Terminal(io.StringIO):
    """A stream that is one."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("columns", [30, 60, 80])
def test_lines_are_broken_between_words(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """No word is cut in two, and a code, which is copied, is no hyphen to break at."""
    monkeypatch.setenv("COLUMNS", str(columns))
    lines = fitted(f"{LONG}\n\n  {'x' * 99} y", Terminal()).split("\n")
    assert " ".join(" ".join(lines).split()) == f"{LONG} {'x' * 99} y"
    assert all(len(line) <= columns for line in lines if "x" not in line)


@pytest.mark.parametrize("columns", [30, 60, 80, 100])
def test_a_line_to_type_is_never_broken(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """DESIGN section 1: the exact line to type elsewhere: it is copied, and a break would end it early."""
    monkeypatch.setenv("COLUMNS", str(columns))
    command = "join 4TK-G9P --signal ws://192.168.1.5:40123/"
    told = fitted(
        f"Elsewhere: %pooled {command} in a notebook, pooled-nb {command} in a terminal.", Terminal()
    )
    assert f"%pooled {command}" in told
    assert f"pooled-nb {command}" in told
    assert "\n" in told


def test_what_fits_stays_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """The columns of a table are made of blanks."""
    monkeypatch.setenv("COLUMNS", "40")
    table = "device    role     holds\nana       host     layers 1–10\n"
    assert fitted(table, Terminal()) == table


def test_a_file_gets_whole_lines(capsys: pytest.CaptureFixture[str]) -> None:
    say(LONG)
    aside(f"\x1b[2J{LONG}")
    aside("")
    assert capsys.readouterr() == (f"{LONG}\n", f"[2J{LONG}\n")


def test_each_percent_is_no_news() -> None:
    """A room that loads for minutes says so once, and not a hundred times."""
    room: Any = SimpleNamespace(notices=[], status=lambda: status)
    said: list[str] = []
    news = News(room, said.append)
    for sentence in ("Ready.", "Loading m: 0 %.", "Loading m: 1 %.", "Loading m: 40 %.", "Online.", "Ready."):
        status = SimpleNamespace(
            devices=[], state="loading", sentence=sentence, lobby=[], loading="", asks=None
        )
        news.tell()
    assert said == ["Ready.", "Loading m: 0 %.", "Online.", "Ready."]
    news.repeat()
    news.tell()
    assert said[-2:] == ["Ready.", "Ready."]
