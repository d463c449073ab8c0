"""The command line: what it prints, and its exit status."""

from __future__ import annotations

import _thread
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable

import pytest

import pooled_nb
from pooled_nb._version import __version__
from pooled_nb.cli import main
from pooled_nb.errors import ModelNotFound
from pooled_nb.room.core import AnswerEvent, AskOptions, Piece
from pooled_nb.terminal.news import News
from pooled_nb.threads import mesh
from tests.front.scripted import Rooms

COMMANDS = ["demo", "host", "join", "ask", "status", "models", "signal", "doctor"]


def test_version_and_help(capsys: pytest.CaptureFixture[str]) -> None:
    for argv, words in (
        (["--version"], __version__),
        (["--help"], "host"),
        *(([command, "--help"], f"pooled-nb {command}") for command in COMMANDS),
    ):
        with pytest.raises(SystemExit) as ended:
            main(argv)
        assert ended.value.code == 0
        assert words in capsys.readouterr().out


@pytest.mark.parametrize(
    "argv", [["dance"], ["host"], ["host", "m", "--split", "fair"], ["host", "m", "--ctx", "x"]]
)
def test_wrong_usage_is_status_2(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(argv)
    assert ended.value.code == 2
    assert "usage" in capsys.readouterr().err


def test_each_command_has_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    """DESIGN section 1: the same from a terminal; the help of each command ends with a line to type."""
    for command in COMMANDS:
        with pytest.raises(SystemExit):
            main([command, "--help"])
        example = capsys.readouterr().out.partition("Example")[2]
        assert f"pooled-nb {command}" in example


def test_alone_it_prints_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    out = capsys.readouterr().out
    assert all(f"\n    {command} " in out for command in COMMANDS)


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["hots", "m"], "There is no command 'hots'. Did you mean host?"),
        (["docter"], "Did you mean doctor?"),
        (["xyzzyq"], "There is no command 'xyzzyq'.\n"),
        (["host", "m", "--splt", "memory"], "pooled-nb host has no --splt. Did you mean --split?"),
        (["ask", "4TK-G9P", "why", "--jsn"], "pooled-nb ask has no --jsn. Did you mean --json?"),
        (["join", "4TK-G9P", "more"], "'more' is too much."),
        (["--signal", "ws://x", "host", "m"], "The command comes first, its options after it."),
        (["host", "m", "--sig", "ws://x"], "pooled-nb host has no --sig. Did you mean --signal?"),
    ],
)
def test_what_is_unknown_is_told_with_what_is_near(
    argv: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(argv)
    assert ended.value.code == 2
    assert words in capsys.readouterr().err


LINK = "https://example.org/r/4TK-G9P#k=" + "s3cret" * 4


@pytest.mark.parametrize(
    "argv",
    [
        [LINK],
        ["join", LINK],
        ["join", "4TK-G9P", LINK],
        ["join", f"--link={LINK}"],
        ["join", "--link", LINK],
        ["join", "--role", LINK],
        ["join", "4TK-G9P", "--signal", LINK],
        ["host", LINK],
        ["host", "m", "--code", LINK],
        ["host", "m", "--lend", LINK],
        ["host", "m", "--split", LINK],
        ["ask", LINK, "why"],
        ["ask", "4TK-G9", LINK],
        ["ask", f"What is behind {LINK} today?"],
        ["ask", "4TK-G9P#k=" + "s3cret" * 4, "why"],
        ["ask", "4TK-G9P", "--max", LINK],
        ["status", LINK],
        ["signal", "--port", LINK],
        ["doctor", LINK],
    ],
)
def test_a_link_with_a_secret_is_refused_wherever_it_stands(
    argv: list[str], rooms: Rooms, capsys: pytest.CaptureFixture[str]
) -> None:
    """DESIGN section 7: secrets never stand in argv; no refusal repeats one."""
    assert main(argv) == 1
    shown = capsys.readouterr()
    assert shown.out == ""
    word = "ask" if argv[0] == "ask" else "join"
    assert shown.err == (
        "pooled-nb: This link holds a secret. "
        f"Run pooled-nb {word} without it; it is then asked for unseen. This one stays where it was typed, "
        "and in the history: delete it there, and ask the host for a new link.\n"
    )
    assert rooms.calls == []


def test_a_question_may_look_like_one(rooms: Rooms, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ask", "4TK-G9P", "What", "does", "x?k=5", "mean?"]) == 0
    assert main(["ask", "4TK-G9P", "Is f(x)&k=1 right, and y#k=2?"]) == 0
    assert main(["ask", "4TK-G9P", "--max", "9", "--", "--why", "-9"]) == 0
    assert "--why -9" in capsys.readouterr().out


@pytest.mark.parametrize("argv", [["--help"], *([command, "--help"] for command in COMMANDS)])
def test_help_fits_a_narrow_terminal(
    argv: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """All but the examples, which are to be copied."""
    monkeypatch.setenv("COLUMNS", "60")
    with pytest.raises(SystemExit):
        main(argv)
    lines = capsys.readouterr().out.splitlines()
    assert not [line for line in lines if len(line) > 60 and not line.startswith("  pooled-nb ")]
    assert [line for line in lines if line.startswith("  pooled-nb ")] or argv == ["--help"]


def test_help_is_there_at_once() -> None:
    """DESIGN section 2: the front door imports lazily: help and status load neither torch nor aiortc."""
    look = (
        "import sys; from pooled_nb.cli import main\n"
        "assert main([]) == 0 and main(['status', '--json']) == 0\n"
        "heavy = {'torch', 'aiortc', 'transformers', 'anywidget', 'prompt_toolkit'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    done = subprocess.run(
        [sys.executable, "-c", look], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr


def test_a_letter_that_the_terminal_lacks_does_not_end_it() -> None:
    """Works on Windows by construction: a console's code page has neither ``✓`` nor ``–``."""
    env = os.environ | {"PYTHONIOENCODING": "ascii"}
    argv = [sys.executable, "-m", "pooled_nb.cli", "status", "4TK-G9É"]
    done = subprocess.run(argv, capture_output=True, env=env, timeout=60, check=False)
    assert done.returncode == 1
    assert b"A room code has only the letters A?Z and digits." in done.stderr


def test_ask_prints_the_answer_and_leaves(rooms: Rooms, capsys: pytest.CaptureFixture[str]) -> None:
    """The answer goes to stdout, everything else about it to stderr."""
    assert (
        main(
            [
                "host",
                "m",
                "--ask",
                "why so blue",
                "--max-tokens",
                "9",
                "--fast",
                "--kv",
                "q8",
                "--draft",
                "off",
                "--no-speculate",
                "--signal",
                "a",
                "--signal",
                "b",
            ]
        )
        == 0
    )
    shown = capsys.readouterr()
    assert "why so blue \n" in shown.out
    assert "3 tokens" in shown.err
    assert rooms.calls[0][2]["servers"] == ["a", "b"]
    opened = rooms.calls[0][2]
    assert opened["exact"] is False
    assert (opened["kv"], opened["draft"], opened["speculate"]) == ("q8", "off", False)
    assert rooms.core.log[1][2].max_tokens == 9
    assert rooms.core.log[-1] == "leave"
    assert pooled_nb.current() is None


def ending(end: Callable[[], object], looks: int = 3) -> Callable[[News], None]:
    """`News.tell`, and ``end`` once the room has been looked at so often."""
    tell, seen = News.tell, 0

    def told(news: News) -> None:
        nonlocal seen
        tell(news)
        seen += 1
        if seen == looks:
            end()

    return told


def test_host_prints_the_line_to_type_elsewhere(
    rooms: Rooms, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """DESIGN section 1: the host prints the exact line to type elsewhere; Ctrl-C leaves in order."""
    monkeypatch.setattr(News, "tell", ending(_thread.interrupt_main))
    assert main(["host", "m", "--devices", "2"]) == 0
    out = capsys.readouterr().out
    assert "pooled-nb join 4TK-G9P in a terminal" in out
    assert "%pooled join 4TK-G9P" in out
    assert "+ <b>desk|top</b> is here" in out
    assert "The room is online." in out
    assert rooms.core.log[:2] == ["start", "leave"]


def test_join_stays_until_the_room_is_over(
    rooms: Rooms, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def over() -> None:
        rooms.core._set("closed")

    monkeypatch.setattr(News, "tell", ending(lambda: mesh.run(over())))
    assert main(["join", "4TK-G9P", "--role", "worker", "--name", "w"]) == 0
    assert "The room is closed." in capsys.readouterr().out
    assert rooms.calls[0][2]["role"] == "worker"


@pytest.mark.skipif(not hasattr(signal, "SIGTERM") or os.name == "nt", reason="POSIX signals")
def test_being_ended_leaves_the_room(rooms: Rooms, monkeypatch: pytest.MonkeyPatch) -> None:
    """SIGTERM leaves the room as Ctrl-C does; the handler before is put back."""
    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr(News, "tell", ending(lambda: os.kill(os.getpid(), signal.SIGTERM)))
    assert main(["join", "4TK-G9P"]) == 0
    assert rooms.core.log[-1] == "leave"
    assert signal.getsignal(signal.SIGTERM) == before


def test_errors_are_one_sentence_and_status_1(rooms: Rooms, capsys: pytest.CaptureFixture[str]) -> None:
    rooms.fail = ModelNotFound("No model org/none was found.", "Check its name.")
    assert main(["host", "org/none"]) == 1
    assert (
        capsys.readouterr().err.splitlines()[-1] == "pooled-nb: No model org/none was found. Check its name."
    )
    rooms.fail = None
    assert main(["host", "m", "--devices", "0"]) == 1
    assert "--devices 1" in capsys.readouterr().err
    assert pooled_nb.current() is None


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["host", "m", "--ask", " "], "The question is empty."),
        (["join", "4TK-G9P", "--ask", "x" * 9000], "a room takes 8,000"),
        (["host", "m", "--max-tokens", "0"], "max_tokens is 0."),
        (["join", "4TK-G9P", "--ask", "why", "--max", "-3"], "max_tokens is -3."),
        (["ask", "4TK-G9P", "why", "--seed", "-1"], "seed is -1."),
        (["demo", "--max-tokens", "0"], "max_tokens is 0."),
        (["demo", "--ask", ""], "The question is empty."),
        (["demo", "--devices", "1"], "Use --devices 2 or more."),
    ],
)
def test_what_a_room_would_refuse_is_refused_before_one_is_opened(
    argv: list[str], words: str, rooms: Rooms, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(argv) == 1
    shown = capsys.readouterr()
    assert words in shown.err
    assert shown.out == ""
    assert rooms.calls == []


def test_an_interrupted_answer_is_status_130(rooms: Rooms, capsys: pytest.CaptureFixture[str]) -> None:

    async def slow(*args: object, **options: object) -> object:
        core = await Rooms.host(rooms, "m")
        core.endless = True
        ask = core.ask

        async def interrupted(text: str, options: AskOptions) -> AsyncIterator[AnswerEvent]:
            seen = 0
            async for event in ask(text, options):
                yield event
                seen += isinstance(event, Piece)
                if seen == 5:
                    _thread.interrupt_main()

        core.ask = interrupted  # type: ignore[method-assign]
        return core

    pooled_nb.room.host = slow  # type: ignore[assignment]
    assert main(["host", "m", "--ask", "on and on"]) == 130
    shown = capsys.readouterr()
    assert "on and on" in shown.out
    assert "stopped]" in shown.err
    assert pooled_nb.current() is None


def test_control_characters_of_others_stay_off_the_terminal(
    rooms: Rooms, capsys: pytest.CaptureFixture[str]
) -> None:
    """What a model or a server wrote is text: none of it is a command to the terminal."""
    assert main(["host", "m", "--ask", "\x1b]0;owned\x07 \x9b31m red\x1b[2J"]) == 0
    rooms.fail = ModelNotFound("No \x1b]0;model\x07.", "")
    assert main(["host", "m"]) == 1
    shown = capsys.readouterr()
    assert "owned" in shown.out
    assert "0;model." in shown.err
    assert not set(shown.out + shown.err) & {"\x1b", "\x07", "\x9b"}


SCRIPTED = """
import sys, pooled_nb.room
from tests.front.scripted import Rooms
from pooled_nb.cli import main
rooms = Rooms()
async def host(model, **options):
    core = await Rooms.host(rooms, model)
    core.endless = True
    return core
pooled_nb.room.host = host
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.skipif(os.name == "nt", reason="pipes of a POSIX shell")
@pytest.mark.parametrize("argv", [["--help"], ["host", "m", "--ask", "on and on " * 100]])
def test_output_that_nobody_reads_any_more_is_status_141(argv: list[str]) -> None:
    """`pooled-nb … | head -1` ends without a traceback, as other programs do; the room is left."""
    program = subprocess.Popen(
        [sys.executable, "-c", SCRIPTED, *argv],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": os.getcwd(), "PYTHONUNBUFFERED": ""},
        text=True,
    )
    assert program.stdout is not None
    assert program.stderr is not None
    with program:
        if argv[0] == "host":
            assert program.stdout.readline()
        program.stdout.close()
        said = program.stderr.read()
        assert program.wait(60) == 141
    assert "Error" not in said
    assert "Traceback" not in said
