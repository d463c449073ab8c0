"""``pooled-nb ask``: a question as a guest; standard output holds the answer alone."""

from __future__ import annotations

import _thread
import io
import json
import sys
from typing import Any

import msgspec
import pytest

import pooled_nb
from pooled_nb.cli import main
from pooled_nb.errors import BadCode, BadQuestion, NotReady, RoomNotFound
from pooled_nb.mesh.messages.chat import MAX_QUESTION
from pooled_nb.room.core import AnswerEvent, AskOptions, Done, Piece, Stats
from pooled_nb.terminal.asking import Wanted, read
from tests.front.scripted import Rooms

LINK = "https://example.org/r/4TK-G9P#k=" + "s3cret" * 4


@pytest.mark.parametrize(
    ("words", "has_link", "wanted"),
    [
        (["4TK-G9P", "why?"], False, Wanted("4TK-G9P", "why?")),
        (["4tkg9p", "why", "so", "blue?"], False, Wanted("4tkg9p", "why so blue?")),
        (["4TK-G9P", "-"], False, Wanted("4TK-G9P", "-")),
        (["4TK-G9P", "why?"], True, Wanted("4TK-G9P", "why?")),
        (["why so blue?"], False, Wanted(None, "why so blue?")),
        (["why", "so", "blue?"], False, Wanted(None, "why so blue?")),
        (["-"], False, Wanted(None, "-")),
        (["THANKS"], True, Wanted(None, "THANKS")),
    ],
)
def test_which_words_are_the_room(words: list[str], has_link: bool, wanted: Wanted) -> None:
    assert read(words, has_link=has_link) == wanted


@pytest.mark.parametrize("words", [[], ["4TK-G9P"], ["THANKS"]])
def test_no_question(words: list[str]) -> None:
    with pytest.raises(BadQuestion, match="There is no question"):
        read(words, has_link=False)


@pytest.mark.parametrize("words", [["4TK-G9", "why so blue?"], ["4TK-G91", "-"]])
def test_a_code_that_was_mistyped_is_no_question(words: list[str]) -> None:
    with pytest.raises(BadCode):
        read(words, has_link=False)


def test_the_answer_alone_goes_to_standard_output(rooms: Rooms, capsys: pytest.CaptureFixture[str]) -> None:
    """DESIGN section 1: the same from a terminal; it joins as a guest, and leaves."""
    assert main(["ask", "4TK-G9P", "why so blue", "--name", "ana", "--signal", "a"]) == 0
    shown = capsys.readouterr()
    assert shown.out == "why so blue \n"
    assert "[3 tokens" in shown.err
    [(verb, code, options)] = rooms.calls
    assert (verb, code, options["role"], options["name"], options["servers"]) == (
        "join",
        "4TK-G9P",
        "guest",
        "ana",
        ["a"],
    )
    assert rooms.core.log[-1] == "leave"
    assert pooled_nb.current() is None


def test_options_reach_the_room(rooms: Rooms, capsys: pytest.CaptureFixture[str]) -> None:
    """The options of ``%%ask``; those that are not given stay the room's. They may stand anywhere."""
    argv = ["ask", "4TK-G9P", "--max", "9", "--seed", "3", "why", "--creative", "--thinking", "off"]
    assert main([*argv, "--system", "Be brief."]) == 0
    assert rooms.core.log[0] == (
        "ask",
        "why",
        AskOptions(max_tokens=9, seed=3, style="creative", thinking=False, system="Be brief."),
    )
    drawn = ["--temperature", "0.5", "--top-k", "9", "--top-p=0.9", "--min-p=0.1", "--repetition-penalty=1.2"]
    ends = ["--presence-penalty", "-0.5", "--stop", r"\n", "--stop", "END"]
    assert main(["ask", "4TK-G9P", *drawn, "why", *ends]) == 0
    numbers = AskOptions(temperature=0.5, top_k=9, top_p=0.9, min_p=0.1, repetition_penalty=1.2)
    wanted = msgspec.structs.replace(numbers, presence_penalty=-0.5, stop=["\n", "END"])
    assert rooms.core.log[0] == ("ask", "why", wanted)
    assert main(["ask", "4TK-G9P", "why", "--thinking", "auto"]) == 0
    assert rooms.core.log[0] == ("ask", "why", AskOptions())


def test_a_wrong_number_bothers_no_room(rooms: Rooms, capsys: pytest.CaptureFixture[str]) -> None:
    """PROTOCOL section 7, `ai-ask`: refused here, in the words of every front."""
    assert main(["ask", "4TK-G9P", "why", "--min-p", "2"]) == 1
    assert capsys.readouterr().err == "pooled-nb: min_p is 2.0. Use a number from 0 (off) to 1.\n"
    assert rooms.calls == []


def test_two_styles_are_one_too_many(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["ask", "4TK-G9P", "why", "--greedy", "--creative"])
    assert ended.value.code == 2


def test_from_standard_input(
    rooms: Rooms, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """CASES, answers: line breaks arrive as typed; what is too long is refused, and not cut."""
    monkeypatch.setattr(sys, "stdin", io.StringIO("two\nlines\n"))
    assert main(["ask", "4TK-G9P", "-"]) == 0
    assert rooms.core.log[0][1] == "two\nlines"
    for text in ("x" * (MAX_QUESTION + 50), "x" * MAX_QUESTION + "\nnot cut"):
        monkeypatch.setattr(sys, "stdin", io.StringIO(text))
        assert main(["ask", "4TK-G9P", "-"]) == 1
        assert "a room takes 8,000" in capsys.readouterr().err
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"\xff\xfe\xff"), encoding="utf-8"))
    assert main(["ask", "4TK-G9P", "-"]) == 1
    assert "no text" in capsys.readouterr().err
    assert len(rooms.calls) == 1


def test_the_code_from_the_environment_or_unseen(
    rooms: Rooms, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """DESIGN section 7: a link comes from ``POOLED_LINK``, or is asked for with getpass."""
    monkeypatch.setattr("pooled_nb.api.getpass", lambda words: "4TK-G9P")
    assert main(["ask", "why so blue"]) == 0
    monkeypatch.setenv("POOLED_LINK", LINK)
    assert main(["ask", "why so blue"]) == 0
    assert [call[1] for call in rooms.calls] == ["4TK-G9P", LINK]
    shown = capsys.readouterr()
    assert "s3cret" not in shown.out + shown.err


@pytest.mark.parametrize("words", [[LINK, "why"], [LINK], ["why", LINK]])
def test_a_typed_secret_is_refused(
    words: list[str], rooms: Rooms, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """DESIGN section 7: secrets never stand in argv, nor in a question; the refusal does not repeat it."""
    monkeypatch.setenv("POOLED_LINK", "4TK-G9P")
    assert main(["ask", *words]) == 1
    shown = capsys.readouterr()
    assert "holds a secret" in shown.err
    assert "s3cret" not in shown.out + shown.err
    assert rooms.calls == []


def test_json(rooms: Rooms, capsys: pytest.CaptureFixture[str]) -> None:
    """One object on standard output, and nothing else."""
    assert main(["ask", "4TK-G9P", "why so blue", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["text"] == "why so blue "
    assert said["tokens"] == [0, 1, 2]
    assert said["stats"]["tokens"] == 3
    assert said["stats"]["tps"] == 10.0
    assert (said["reason"], said["error"], said["room"]) == ("stop", "", "4TK-G9P")


def test_an_error_is_status_1_and_in_the_object(rooms: Rooms, capsys: pytest.CaptureFixture[str]) -> None:
    rooms.fail = RoomNotFound("No room 4TK-G9P is open on this machine.", "Check the code.")
    assert main(["ask", "4TK-G9P", "why", "--json"]) == 1
    shown = capsys.readouterr()
    said = json.loads(shown.out)
    assert (said["reason"], said["text"]) == ("error", "")
    assert said["error"] == "No room 4TK-G9P is open on this machine. Check the code."
    assert "pooled-nb: No room" in shown.err
    assert main(["ask", "4TK-G9P", "why"]) == 1
    assert capsys.readouterr().out == ""


def _joins(monkeypatch: pytest.MonkeyPatch, rooms: Rooms, change: Any) -> None:
    join = rooms.join

    async def changed(*args: Any, **options: Any) -> Any:
        core = await join(*args, **options)
        change(core)
        return core

    monkeypatch.setattr(pooled_nb.room, "join", changed)


def test_refused_by_the_room(
    rooms: Rooms, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def change(core: Any) -> None:
        core.refuse = NotReady("The room is loading.", "Ask again in a moment.")

    _joins(monkeypatch, rooms, change)
    assert main(["ask", "4TK-G9P", "why"]) == 1
    assert "The room is loading. Ask again" in capsys.readouterr().err
    assert rooms.core.log[-1] == "leave"


def test_an_answer_that_others_stopped_is_status_1(
    rooms: Rooms, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The host may stop it: what came is printed, and it is not taken for whole."""
    _joins(
        monkeypatch, rooms, lambda core: setattr(core, "done", Done(reason="abort", stats=Stats(tokens=3)))
    )
    assert main(["ask", "4TK-G9P", "why so blue"]) == 1
    shown = capsys.readouterr()
    assert shown.out == "why so blue \n"
    assert "stopped]" in shown.err


@pytest.mark.parametrize("as_json", [False, True])
def test_interrupted_is_status_130(
    as_json: bool, rooms: Rooms, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every wait can be interrupted; the room is left, and what came stays."""

    def change(core: Any) -> None:
        core.endless = True
        ask = core.ask

        async def interrupted(text: str, options: AskOptions) -> Any:
            seen = 0
            event: AnswerEvent
            async for event in ask(text, options):
                yield event
                seen += isinstance(event, Piece)
                if seen == 5:
                    _thread.interrupt_main()

        core.ask = interrupted

    _joins(monkeypatch, rooms, change)
    assert main(["ask", "4TK-G9P", "on and on", *(["--json"] if as_json else [])]) == 130
    out = capsys.readouterr().out
    assert "on and on" in out
    if as_json:
        assert json.loads(out)["reason"] == "abort"
    assert pooled_nb.current() is None
