"""`%pooled` and `%%ask` in an IPython shell without a frontend, over a scripted room."""

from __future__ import annotations

import _thread
from collections.abc import AsyncIterator

import pytest
from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell

import pooled_nb
from pooled_nb.answer import Answer
from pooled_nb.errors import PooledError, QueueFull, RoomNotFound
from pooled_nb.room.core import AnswerEvent, AskOptions, ChatSettings, Done, Piece, Stats
from tests.front.scripted import Rooms


def fails(shell: InteractiveShell, cell: str) -> str:
    """Run a cell that fails; what was raised."""
    result = shell.run_cell(cell)
    assert result.error_in_exec is not None
    return str(result.error_in_exec)


def works(shell: InteractiveShell, cell: str) -> None:
    shell.run_cell(cell).raise_error()


def test_host_ask_leave(shell: InteractiveShell, rooms: Rooms, capsys: pytest.CaptureFixture[str]) -> None:
    """DESIGN section 1: %pooled host, %%ask, %pooled leave."""
    works(
        shell, "%pooled host org/model --lend 2GB --split memory --ctx 512 --fast --lan --code 4TK-G9P -o r"
    )
    kind, model, options = rooms.calls[0]
    assert (kind, model) == ("host", "org/model")
    want = {"lend": "2GB", "split": "memory", "ctx": 512, "exact": False, "lan": True, "code": "4TK-G9P"}
    assert options == options | want
    assert shell.user_ns["r"] is pooled_nb.current()
    assert "Room 4TK-G9P" in capsys.readouterr().out
    works(shell, "%%ask -o answer --max 7 --seed 5 --temperature 0.5\nwhy is\nthe sky blue\n")
    answer = shell.user_ns["answer"]
    assert isinstance(answer, Answer)
    assert answer.question == "why is\nthe sky blue"
    asked = rooms.core.log[1][2]
    assert (asked.max_tokens, asked.seed, asked.temperature) == (7, 5, 0.5)
    out = capsys.readouterr().out
    assert "why is the sky blue" in out
    assert "5 tokens" in out
    works(shell, "%pooled reset")
    works(shell, "%pooled stop")
    assert "Nothing is answered now" in capsys.readouterr().out
    works(shell, "%pooled leave")
    assert pooled_nb.current() is None
    assert [entry for entry in rooms.core.log if isinstance(entry, str)][:4] == [
        "start",
        "reset",
        "stop",
        "leave",
    ]


def test_join(shell: InteractiveShell, rooms: Rooms) -> None:
    works(shell, "%pooled join 4TK-G9P --role guest --name me --signal one,two")
    kind, code, options = rooms.calls[0]
    assert (kind, code) == ("join", "4TK-G9P")
    assert options == options | {"role": "guest", "name": "me", "servers": ["one", "two"]}


def test_a_question_is_left_as_typed(shell: InteractiveShell, rooms: Rooms) -> None:
    """DESIGN section 7: no_var_expand for prompts. CASES: line breaks arrive as typed."""
    shell.user_ns["x"] = "WRONG"
    works(shell, "%pooled host m")
    works(shell, "%%ask -o a\n  What's {x} and $x?\n\n    --max 5 \"quote")
    assert shell.user_ns["a"].question == "  What's {x} and $x?\n\n    --max 5 \"quote"
    works(shell, "%ask -o b --max 3 Don't {x} --seed $x")
    assert shell.user_ns["b"].question == "Don't {x} --seed $x"
    assert rooms.core.log[-1][2].max_tokens == 3


@pytest.mark.parametrize(
    ("cell", "words"),
    [
        ("%pooled status", "in no room"),
        ("%pooled leave", "in no room"),
        ("%%ask\nanyone?", "in no room"),
        ("%pooled dance", "does not know 'dance'"),
        ("%pooled host", "Which model?"),
        ("%pooled leave now", "stands alone"),
        ("%pooled host m --role worker", "no --role"),
        ("%pooled join X --split memory", "no --split"),
        ("%pooled status --fast", "no --fast"),
        ("%pooled host m --split fair", "invalid choice"),
    ],
)
def test_misuse_is_one_sentence(shell: InteractiveShell, rooms: Rooms, cell: str, words: str) -> None:
    """Each wrong use gets one clear sentence and leaves everything as it was."""
    assert words in fails(shell, cell)
    assert rooms.calls == []


def test_our_errors_are_shown_as_their_sentence(
    shell: InteractiveShell, rooms: Rooms, capsys: pytest.CaptureFixture[str]
) -> None:
    """Errors: one sentence what happened, one what to do next, no traceback; and the cell has failed."""
    rooms.fail = RoomNotFound("No room answers to 4TK-G9P.", "Check the code with the host.")
    result = shell.run_cell("%pooled join 4TK-G9P")
    assert isinstance(result.error_in_exec, PooledError)
    shown = capsys.readouterr()
    text = shown.out + shown.err
    assert text.strip() == "No room answers to 4TK-G9P. Check the code with the host."


def test_bad_questions(shell: InteractiveShell, rooms: Rooms) -> None:
    works(shell, "%pooled host m")
    assert "empty" in fails(shell, "%%ask\n   ")
    assert "8,001" in fails(shell, "%%ask\n" + "x" * 8001)
    assert rooms.core.log == []


def test_an_interrupt_shows_what_was_there(
    shell: InteractiveShell, rooms: Rooms, capsys: pytest.CaptureFixture[str]
) -> None:
    """DESIGN section 7: KeyboardInterrupt stops that answer and keeps the room; the cell says so."""
    works(shell, "%pooled host m")
    rooms.core.endless = True
    _interrupted(rooms, after=5)
    result = shell.run_cell("%%ask -o a\non and on")
    assert isinstance(result.error_in_exec, KeyboardInterrupt)  # so that Run All stops here
    shown = capsys.readouterr()
    assert "on and on" in shown.out
    assert "stopped]" in shown.out
    assert (shown.out + shown.err).split("stopped]")[1].strip() == ""  # said once
    assert "Traceback" not in shown.out + shown.err
    assert shell.user_ns["a"].reason == "abort"
    assert pooled_nb.current() is not None


def _interrupted(rooms: Rooms, after: int) -> None:
    """Ctrl-C, as soon as an answer has given that many pieces."""
    ask = rooms.core.ask

    async def counted(text: str, options: AskOptions) -> AsyncIterator[AnswerEvent]:
        seen = 0
        async for event in ask(text, options):
            yield event
            seen += isinstance(event, Piece)
            if seen == after:
                _thread.interrupt_main()

    rooms.core.ask = counted  # type: ignore[method-assign]


@pytest.mark.parametrize(
    ("cell", "question", "most"),
    [
        ("%%ask --max-tokens 200\nWhy?", "Why?", 200),
        ("%%ask --max 200\nWhy?", "Why?", 200),
        ("%%ask --max-tokens=200 --seed 1\nWhy?", "Why?", 200),
        ("%ask --max-tokens 200 Why?", "Why?", 200),
        ("%%ask In one word: --fast?\nWhy?", "In one word: --fast?\nWhy?", None),
        ("%%ask\n--max-tokens 200", "--max-tokens 200", None),
        ("%ask -- --fast is what?", "--fast is what?", None),
        ("%ask -5 + 3?", "-5 + 3?", None),
    ],
)
def test_options_of_a_question(
    shell: InteractiveShell, rooms: Rooms, cell: str, question: str, most: int | None
) -> None:
    """DESIGN section 1: the options of ask are those of room.ask, and never a part of the question."""
    works(shell, "%pooled host m")
    works(shell, cell)
    kind, asked, options = rooms.core.log[-1]
    assert (kind, asked, options.max_tokens) == ("ask", question, most)


@pytest.mark.parametrize(
    "cell",
    [
        "%%ask --tokens 200\nWhy?",
        "%%ask --max-tokens 5 --stpo x\nWhy?",
        "%%ask --max-tokens\nWhy?",
        "%%ask -o\nWhy?",
        "%%ask --max-tokens=many\nWhy?",
        "%%ask --max_tokens 5\nWhy?",
        "%ask --tokens 200 Why?",
    ],
)
def test_a_wrong_option_is_never_asked(shell: InteractiveShell, rooms: Rooms, cell: str) -> None:
    """Each wrong use gets one clear sentence; a mistyped option is no question for the model."""
    works(shell, "%pooled host m")
    result = shell.run_cell(cell)
    assert isinstance(result.error_in_exec, UsageError)
    assert rooms.core.log == []


def test_a_comment_ends_the_line(shell: InteractiveShell, rooms: Rooms) -> None:
    """A line pasted with its comment means what stands before it; quotes group words."""
    works(shell, "%pooled host 'org/my model#2' --name \"Ann's\"   # it's a comment, --fast")
    assert rooms.calls[0][:2] == ("host", "org/my model#2")
    assert rooms.calls[0][2]["name"] == "Ann's"
    works(shell, "%pooled leave # now")
    assert "not closed" in fails(shell, "%pooled host 'org/model")


@pytest.mark.parametrize("link", ["https://example.org/r/4TK-G9P#k={}", "https://example.org/#4TK-G9P&k={}"])
def test_a_secret_in_a_cell_is_refused(
    shell: InteractiveShell, rooms: Rooms, capsys: pytest.CaptureFixture[str], link: str
) -> None:
    """DESIGN section 7: secrets never stand in a cell; the refusal does not repeat it."""
    secret = "s3cret" * 4
    assert "holds a secret" in fails(shell, f"%pooled join {link.format(secret)}")
    shown = capsys.readouterr()
    assert secret not in shown.out + shown.err
    assert "asked for unseen" in shown.out + shown.err
    assert rooms.calls == []


def test_control_characters_of_others_stay_off_the_terminal(
    shell: InteractiveShell, rooms: Rooms, capsys: pytest.CaptureFixture[str]
) -> None:
    """What a model or a server wrote is text: none of it is a command to the terminal."""
    works(shell, "%pooled host m")
    works(shell, "%%ask\n\x1b]0;owned\x07 \x9b31m red\x1b[2J")
    rooms.core.on_notice("A \x1b]0;notice\x07.")  # type: ignore[misc]
    works(shell, "%pooled status")
    rooms.core.refuse = PooledError("No \x1b]0;error\x07.", "")
    fails(shell, "%%ask\nagain")
    shown = capsys.readouterr()
    text = shown.out + shown.err
    for word in ("owned", "31m red", "notice", "error"):
        assert word in text
    assert not set(text) & {"\x1b", "\x07", "\x9b"}


def test_completion(shell: InteractiveShell, rooms: Rooms) -> None:
    """DESIGN section 7: verbs completed by tab."""

    def tab(line: str) -> list[str]:
        return list(shell.complete(line.split(" ")[-1], line, len(line))[1])

    assert tab("%pooled st") == ["start", "status", "stop"]
    assert {"host", "join"} <= set(tab("%pooled "))
    assert "--split" in tab("%pooled host m --s")
    assert "--split" not in tab("%pooled join x --")
    assert "--role" in tab("%pooled join x --")


def test_the_chat_in_a_terminal(
    shell: InteractiveShell, rooms: Rooms, capsys: pytest.CaptureFixture[str]
) -> None:
    """DESIGN section 1: set, continue, regenerate, in the background, redeal; and `%pooled` alone."""
    works(shell, "%pooled")
    assert capsys.readouterr().out.startswith("This kernel is in no room. Open one with %pooled host MODEL")
    works(shell, "%pooled host m -o room")
    works(shell, "%pooled set --style focused --length short --thinking off --system 'Be kind.'")
    out = capsys.readouterr().out
    assert "short, 128 tokens" in out
    assert "They count for everyone" in out
    want = ChatSettings(style="focused", max_tokens=128, thinking=False, system="Be kind.")
    assert rooms.core.settings == want
    works(shell, "%pooled set --length 77 --visibility asker --persona expert --thinking auto --system ''")
    assert rooms.core.settings == ChatSettings(
        style="focused", max_tokens=77, visibility="asker", persona="expert"
    )
    works(shell, "%pooled set")
    assert "the host and whoever asked" in capsys.readouterr().out
    works(shell, "%%ask --creative --thinking on --fast --system 'A pirate.'\none two")
    asked = rooms.core.log[-1][2]
    assert (asked.style, asked.thinking, asked.fast, asked.system) == ("creative", True, True, "A pirate.")
    works(shell, "%pooled continue --max 5 -o more")
    assert shell.user_ns["more"].text == "one two and one two "
    works(shell, "%pooled regenerate --focused --thinking off --stop x --min-p 0.1")
    again = AskOptions(style="focused", thinking=False, stop=["x"], min_p=0.1)
    assert rooms.core.log[-1] == ("regen", again)
    works(shell, "%%ask --background -o later\nthree")
    assert "later keeps the answer" in capsys.readouterr().out
    assert shell.user_ns["later"].result(30).text == "three "
    works(shell, "%pooled redeal")
    works(shell, "%pooled")
    assert "Room 4TK-G9P" in capsys.readouterr().out
    works(shell, "%pooled close")
    assert "Closed room 4TK-G9P." in capsys.readouterr().out


def test_how_caches_are_kept_and_what_guesses(shell: InteractiveShell, rooms: Rooms) -> None:
    """DESIGN section 5: int8 caches and drafts are the host's choice when the room opens."""
    works(shell, "%pooled host m --kv q8 --draft org/small")
    works(shell, "%pooled leave")
    works(shell, "%pooled host m --no-speculate")
    how = [(options["kv"], options["draft"], options["speculate"]) for _, _, options in rooms.calls]
    assert how == [("q8", "org/small", True), ("f16", None, False)]


def test_penalties_and_stops(shell: InteractiveShell, rooms: Rooms) -> None:
    """PROTOCOL section 7, `ai-ask`: how tokens are drawn, and what ends an answer."""
    works(shell, "%pooled host m")
    line = r"--min-p 0.05 --repetition-penalty=1.1 --presence-penalty -0.5 --stop '\n\nUser:' --stop END"
    works(shell, f"%%ask {line}\nwhy")
    asked = AskOptions(min_p=0.05, repetition_penalty=1.1, presence_penalty=-0.5, stop=["\n\nUser:", "END"])
    assert rooms.core.log[-1] == ("ask", "why", asked)
    assert "repetition_penalty is 0.0. Use a number above 0" in fails(
        shell, "%%ask --repetition-penalty 0\nwhy"
    )
    assert "stop is ['']. Use a text" in fails(shell, "%%ask --stop ''\nwhy")


@pytest.mark.parametrize("cell", ["%pooled join ABC234", "%pooled host other"])
def test_one_room_at_a_time(
    shell: InteractiveShell, rooms: Rooms, capsys: pytest.CaptureFixture[str], cell: str
) -> None:
    """Bad input: `join` twice gets one sentence, and the room that is there stays."""
    works(shell, "%pooled join 4TK-G9P")
    capsys.readouterr()
    fails(shell, cell)
    shown = capsys.readouterr()
    want = "This process already is in room 4TK-G9P. Leave it first: room.leave(), or %pooled leave."
    assert (shown.out + shown.err).strip() == want
    assert len(rooms.calls) == 1
    works(shell, "%%ask\nstill here")


def test_a_failed_answer_says_why_once(
    shell: InteractiveShell, rooms: Rooms, capsys: pytest.CaptureFixture[str]
) -> None:
    """Errors: what came stays, one sentence says why there is no more, and says it once."""
    works(shell, "%pooled host m")
    rooms.core.done = Done(reason="error", stats=Stats(tokens=3), why="A device left.")
    capsys.readouterr()
    fails(shell, "%%ask\nthat was it")
    shown = capsys.readouterr()
    text = shown.out + shown.err
    assert text.index("that was it") < text.index("[3 tokens]") < text.index("A device left.")
    assert text.count("A device left.") == 1
    assert "failed" not in text


def test_a_guest_sets_nothing(
    shell: InteractiveShell, rooms: Rooms, capsys: pytest.CaptureFixture[str]
) -> None:
    """PROTOCOL section 7: the host sets how the room answers; others see it, without the system text."""
    works(shell, "%pooled join 4TK-G9P --role guest")
    assert "Only the host" in fails(shell, "%pooled set --style greedy")
    capsys.readouterr()
    works(shell, "%pooled set")
    out = capsys.readouterr().out
    assert "The host sets them." in out
    assert "system" not in out


def test_help(shell: InteractiveShell, capsys: pytest.CaptureFixture[str]) -> None:
    """DESIGN section 7: %pooled? and %pooled --help both help."""
    for cell in ("%pooled help", "%pooled --help", "%pooled -h"):
        works(shell, cell)
        out = capsys.readouterr().out
        assert "%pooled join CODE" in out
        assert "The chat is common to the room" in out
        table = [line for line in out.splitlines() if line.startswith("%pooled ")]
        assert len({len(line) - len(line.split("  ", 1)[1].lstrip()) for line in table}) == 1  # one column
    for cell in ("%pooled host --help", "%pooled help host", "%pooled host m --help"):
        works(shell, cell)
        out = capsys.readouterr().out
        assert "--split SPLIT" in out
        assert "Example: %pooled host" in out
        assert "--role" not in out
    for cell in ("%ask --help", "%%ask --help\n", "%%ask?", "%ask?"):
        works(shell, cell)
        out = capsys.readouterr().out
        assert "--temperature" in out
        assert "--background" in out
    works(shell, "%pooled?")
    assert "--lend" in capsys.readouterr().out
    for cell in ("%pooled host?", "%pooled host??", "x = 1\nif x:\n    %pooled host ?"):
        works(shell, cell)
        assert capsys.readouterr().out.startswith("%pooled host MODEL")


def test_a_question_mark_asks(shell: InteractiveShell, rooms: Rooms) -> None:
    """DESIGN section 7: IPython's own help does not take the question away; text in a string stays text."""
    works(shell, "%pooled host m")
    question = "ask -o a Why is it blue?"
    for cell in (f"%{question}", f"%%{question}", f"if True:\n    %{question}"):
        shell.user_ns.pop("a", None)
        works(shell, cell)
        assert shell.user_ns["a"].question == "Why is it blue?"
    works(shell, "%ask -o a Why isn't it blue?")
    assert shell.user_ns["a"].question == "Why isn't it blue?"
    asked = len(rooms.core.log)
    works(shell, 'text = """\n%ask why?\n%pooled host?\n"""')
    assert shell.user_ns["text"] == "\n%ask why?\n%pooled host?\n"
    assert len(rooms.core.log) == asked


def test_a_cell_is_typed_line_by_line(shell: InteractiveShell, rooms: Rooms) -> None:
    """In a terminal IPython asks after each line whether the cell is whole: `%%ask` only begins one."""
    whole = shell.input_transformer_manager.check_complete
    for begun in ("%%ask\n", "%%ask --max 20\n", "%%ask Why?\n", "%%ask\nWhy is it blue?\n"):
        assert whole(begun)[0] == "incomplete"
        assert whole(f"{begun}\n")[0] == "complete"
    assert whole("%ask Why?\n")[0] == "complete"


def test_a_question_that_is_refused_leaves_one_sentence(
    shell: InteractiveShell, rooms: Rooms, capsys: pytest.CaptureFixture[str]
) -> None:
    """Errors: what never began has taken nothing, and no line says what it took."""
    works(shell, "%pooled host m")
    rooms.core.refuse = QueueFull("Too many questions wait.", "Ask again in a moment.")
    capsys.readouterr()
    fails(shell, "%%ask\nwhy")
    shown = capsys.readouterr()
    assert (shown.out + shown.err).strip() == "Too many questions wait. Ask again in a moment."


def test_unload(shell: InteractiveShell, rooms: Rooms) -> None:
    """%unload_ext takes the magics away and leaves the room."""
    works(shell, "%pooled host m")
    shell.run_line_magic("unload_ext", "pooled_nb")
    assert "pooled" not in shell.magics_manager.magics["line"]
    assert "ask" not in shell.magics_manager.magics["cell"]
    assert shell.run_cell("%pooled status").error_in_exec is not None
    assert pooled_nb.current() is not None
    before = len(shell.input_transformer_manager.token_transformers)
    shell.run_line_magic("load_ext", "pooled_nb")
    works(shell, "%pooled status")
    assert len(shell.input_transformer_manager.token_transformers) == before + 1
