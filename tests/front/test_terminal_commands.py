"""What a line typed at the terminal means, and what is said before a room is closed."""

from __future__ import annotations

import pytest

from pooled_nb.room.core import ChatSettings, DeviceLine
from pooled_nb.terminal.commands import (
    COMMANDS,
    KEYS,
    Ask,
    Order,
    Say,
    Set,
    goodbye,
    help_lines,
    once_more,
    read,
    settings_lines,
)
from pooled_nb.terminal.loading import MAX_BARS, Bar, bars


@pytest.mark.parametrize(
    "line", ["why?", "  why?  ", "/usr/bin/env is what?", "//x", "exit the room how?", "1/2"]
)
def test_a_question(line: str) -> None:
    """Whatever is no command by its form is a question."""
    assert read(line, "guest") == Ask(line.strip())


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("/status", "status"),
        ("/STOP", "stop"),
        ("/continue", "continue"),
        ("/again", "again"),
        ("/new", "new"),
        ("/reset", "new"),
        ("/start", "start"),
        ("/help", "help"),
        ("/leave", "leave"),
        ("/quit", "leave"),
        ("exit", "leave"),
        ("quit ", "leave"),
    ],
)
def test_an_order(line: str, what: str) -> None:
    assert read(line, "host") == Order(what)  # type: ignore[arg-type]


def test_nothing_is_nothing() -> None:
    assert read("   ", "host") is None


@pytest.mark.parametrize("line", ["/start", "/new", "/set style focused", "/set dance"])
def test_what_only_the_host_may(line: str) -> None:
    """PROTOCOL section 7: the room's host sets how it answers, and begins a new chat."""
    said = read(line, "guest")
    assert isinstance(said, Say)
    assert "Only the host" in said.words


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("/dance", "There is no /dance."),
        ("/statsu", "Did you mean /status?"),
        ("/stop now", "/stop stands alone; 'now' is too much."),
        ("/set colour red", "There is no setting 'colour'."),
        ("/set stile greedy", "Did you mean style?"),
        ("/set style wild", "style takes greedy, focused, creative."),
        ("/set style", "style takes greedy, focused, creative."),
        ("/set length huge", "'huge' is no length."),
        ("/set length -4", "'-4' is no length."),
        ("/set visibility nobody", "visibility takes all, host, asker."),
        ("/set thinking maybe", "thinking takes on, off, auto."),
    ],
)
def test_what_makes_no_sense_is_a_sentence(line: str, words: str) -> None:
    """Bad input: unknown verbs and options: one sentence."""
    said = read(line, "host")
    assert isinstance(said, Say)
    assert words in said.words


@pytest.mark.parametrize(
    ("line", "changes"),
    [
        ("/set", {}),
        ("/set style creative", {"style": "creative"}),
        ("/set length short", {"max_tokens": 128}),
        ("/set length 77", {"max_tokens": 77}),
        ("/set visibility asker", {"visibility": "asker"}),
        ("/set persona expert", {"persona": "expert"}),
        ("/set thinking on", {"thinking": True}),
        ("/set thinking off", {"thinking": False}),
        ("/set thinking auto", {"thinking": None}),
        ("/set system Answer  like a pirate.", {"system": "Answer  like a pirate."}),
        ("/set system", {"system": ""}),
    ],
)
def test_settings(line: str, changes: dict[str, object]) -> None:
    """PROTOCOL section 7: style, length, who sees it, wording, thinking."""
    assert read(line, "host") == Set(changes)


def test_every_setting_is_shown_as_it_is_typed() -> None:
    lines = settings_lines(ChatSettings(thinking=False, system="Be brief.", max_tokens=9), "host")
    assert [line.split()[0] for line in lines[:-1]] == list(KEYS)
    text = "\n".join(lines)
    for words in ("greedy", "9 tokens", "thinking    off", "Be brief.", "(all, host, asker)"):
        assert words in text
    assert read("/set", "guest") == Set({})
    guest = "\n".join(settings_lines(ChatSettings(), "guest"))
    assert "The host sets them" in guest
    assert "system" not in guest


def test_the_help_lists_what_this_device_may() -> None:
    host, guest = "\n".join(help_lines("host")), "\n".join(help_lines("guest"))
    assert all(name in host for name in COMMANDS)
    assert "/start" not in guest
    assert "/again" in guest


def test_what_leaving_does_is_said() -> None:
    """DESIGN section 1: a room lives as long as its host."""
    assert goodbye("4TK-G9P", "guest", 3) == "Leaving room 4TK-G9P."
    assert goodbye("4TK-G9P", "host", 0) == "Closing room 4TK-G9P."
    assert goodbye("4TK-G9P", "host", 1) == "Closing room 4TK-G9P for everyone: 1 other device is in it."
    assert once_more("Ctrl-C", "worker", 1) == "Ctrl-C once more leaves."
    assert "closes it for everyone: 2 other devices are in it." in once_more("Ctrl-D", "host", 2)


def line(name: str, progress: int | None = None, layers: tuple[int, int] | None = None) -> DeviceLine:
    return DeviceLine(
        id=name, name=name, role="worker", kind="cpu", lends_gb=1, progress=progress, layers=layers
    )


def test_bars() -> None:
    """A bar for each device that loads; layers count from 1; those who are done stay beside the others."""
    room = Bar("reading", 40)
    assert bars(40, "reading", []) == [room]
    assert bars(40, "reading", [line("a"), line("b", layers=(0, 3))]) == [room]
    assert bars(40, "reading", [line("a", 30)]) == [room]
    assert bars(40, "reading", [line("guest"), line("a", 30), line("b", None, (9, 30))]) == [
        Bar("loading", 40),
        Bar(f"  {'a':24}", 30),
        Bar(f"  {'b':24}  layers 10–30", 100),
    ]
    many = bars(None, "x", [line(f"d{n}", n) for n in range(20)])
    assert len(many) == MAX_BARS + 2
    assert many[-1] == Bar(f"  and {20 - MAX_BARS} more", None)


def test_bars_are_text() -> None:
    """CASES, names: control characters of a name reach no terminal, and a wide one is cut."""
    [_, one, two] = bars(1, "a\x1b[2J", [line("\x1b]0;x\x07" + "漢" * 30, 5), line("b", 6)])
    assert "\x1b" not in one.words
    assert len(one.words) < 20
    assert two.words.startswith("  b")
