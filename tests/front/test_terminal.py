"""Questions typed at a real terminal (a pseudo-terminal), over a scripted room."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from typing import Any

import pytest

pexpect = pytest.importorskip("pexpect", reason="no pseudo-terminals on this system")

PROGRAM = """
import sys, pooled_nb.room
from tests.front.scripted import Rooms
from pooled_nb.cli import main
rooms = Rooms()
pooled_nb.room.host, pooled_nb.room.join = rooms.host, rooms.join
host = rooms.host
async def slow(model, **options):
    core = await host(model, **options)
    core.gap_s = 0.05
    ask = core.ask
    def endless(text, options):
        core.endless = "forever" in text
        return ask(text, options)
    core.ask = endless
    return core
pooled_nb.room.host = slow
sys.exit(main(sys.argv[1:]))
"""


@pytest.fixture
def terminal() -> Iterator[Any]:
    env = os.environ | {"TERM": "xterm", "PROMPT_TOOLKIT_NO_CPR": "1", "PYTHONPATH": os.getcwd()}
    child = pexpect.spawn(
        sys.executable,
        ["-c", PROGRAM, "host", "org/model"],
        env=env,
        encoding="utf-8",
        timeout=15,
        dimensions=(40, 120),
        maxread=20000,
    )
    child.expect("Ctrl-D leaves")
    child.expect(">")  # drawn once keys are read one by one
    yield child
    child.close(force=True)


def plain(text: str) -> str:
    """Without what moves the cursor."""
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)


def ends(child: Any) -> int:
    child.expect(pexpect.EOF)
    child.close()
    return int(child.exitstatus)


def test_questions_and_commands(terminal: Any) -> None:
    """DESIGN section 1: the same from a terminal: type a question, read the answer."""
    terminal.send("why so blue?\r")
    terminal.expect("3 tokens")
    assert "why so blue? \r\n" in plain(terminal.before)  # each piece of an answer ends with a space here
    terminal.expect("The room is online")
    terminal.send("/status\r")
    terminal.expect("layers 11–30")
    terminal.send("/dance\r")
    terminal.expect("There is no /dance")
    terminal.send("/start\r")
    terminal.expect("The room is online")
    terminal.send("x" * 20 + "\r")
    terminal.expect("1 token")
    terminal.send("/leave\r")
    assert ends(terminal) == 0


def test_ctrl_c_stops_an_answer_and_twice_leaves(terminal: Any) -> None:
    """DESIGN section 1: every wait can be interrupted; a room is not lost by one key too many."""
    terminal.send("on forever\r")
    terminal.expect("forever on forever")
    terminal.sendintr()
    terminal.expect("stopped")
    terminal.expect("The room is online")
    terminal.send("still here\r")
    terminal.expect("2 tokens")
    terminal.expect(">")
    terminal.sendintr()
    terminal.expect("once more closes it for everyone: 1 other device is in it")
    terminal.expect(">")
    terminal.sendintr()
    assert ends(terminal) == 0


def test_ctrl_d_on_the_host_says_what_it_does(terminal: Any) -> None:
    """DESIGN section 1: a room lives as long as its host: one key does not take it from the others."""
    terminal.sendeof()
    terminal.expect("This device hosts the room. Ctrl-D once more closes it for everyone")
    terminal.expect(">")
    terminal.send("/help\r")
    terminal.expect("/again")
    terminal.expect(">")
    terminal.sendeof()  # something else came between: it is said again
    terminal.expect("Ctrl-D once more")
    terminal.expect(">")
    terminal.sendeof()
    terminal.expect("Closing room 4TK-G9P for everyone")
    assert ends(terminal) == 0
    assert "Traceback" not in plain(terminal.before or "")


def test_continue_again_and_new(terminal: Any) -> None:
    """PROTOCOL section 7: ``ai-cmd`` continue and regen, and a new chat, from a terminal."""
    terminal.send("/again\r")
    terminal.expect("There is no answer yet")
    terminal.expect(">")
    terminal.send("why so blue?\r")
    terminal.expect("3 tokens")
    terminal.expect(">")
    terminal.send("/again\r")
    terminal.expect("tokens")
    terminal.expect(">")
    terminal.send("/continue\r")
    terminal.expect("tokens")
    terminal.expect(">")
    terminal.send("/new\r")
    terminal.expect("A new chat begins")
    terminal.send("quit\r")
    assert ends(terminal) == 0
    assert "Traceback" not in plain(terminal.before or "")


def test_settings(terminal: Any) -> None:
    """PROTOCOL section 7: how the room answers, from a terminal; nonsense is one sentence."""
    terminal.send("/set style creative\r")
    terminal.expect("style +creative")
    terminal.expect(">")
    terminal.send("/set length long\r")
    terminal.expect("length +2048 tokens")
    terminal.expect(">")
    terminal.send("/set persona rude\r")
    terminal.expect("persona takes plain, kind, expert")
    terminal.send("exit\r")
    assert ends(terminal) == 0
