"""Real terminals in a real room: who asks is let in, sent away or thrown out, and its person is asked."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pooled_nb.terminal.arguments import MODEL

pexpect = pytest.importorskip("pexpect", reason="no pseudo-terminals on this system")

WRONG = "WRONGwrongWRONGwrongWRONG"
Start = Callable[..., Any]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """``pooled-nb …`` at a terminal of its own."""
    env = os.environ | {
        "TERM": "xterm",
        "PROMPT_TOOLKIT_NO_CPR": "1",
        "HF_HUB_OFFLINE": "1",
        "POOLED_RUNTIME_DIR": str(tmp_path / "rooms"),
        "POOLED_DATA_DIR": str(tmp_path / "data"),
    }
    started = []

    def start(*argv: str, link: str = "") -> Any:
        child = pexpect.spawn(
            sys.executable,
            ["-m", "pooled_nb.cli", *argv],
            env=env | {"POOLED_LINK": link},
            encoding="utf-8",
            timeout=60,
            dimensions=(40, 200),
        )
        started.append(child)
        return child

    yield start
    for child in started:
        child.close(force=True)


def digits(child: Any, before: str) -> str:
    """The six digits that follow these words on a screen."""
    child.expect(rf"{before} (\d{{3}} \d{{3}})")
    return str(child.match[1])


def ends(child: Any) -> str:
    """What it says until it ends."""
    child.expect(pexpect.EOF)
    child.close()
    return " ".join(re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", child.before).split())


def test_the_door_at_terminals(start: Start) -> None:
    """PROTOCOL section 4: the lobby with equal digits on both ends; Allow, Deny, throwing out; a link that
    the host does not recognise, confirmed by its person or not. Each is told in words, and what to do next.
    """
    host = start("host", MODEL, "--name", "host", "--ctx", "256")
    host.expect(r"pooled-nb join (\S+)")
    code = host.match[1]
    host.expect("Ctrl-D leaves")

    ana = start("join", code, "--role", "guest", "--name", "ana 2")
    shown = digits(ana, "let this device in. Both screens must show")
    assert digits(host, r"ana 2 \(.*\) asks to join. Its screen must show") == shown
    host.send("/allow ana 2\r")
    host.expect("ana 2 is here")
    assert digits(ana, "nothing proved.* showed") == shown
    ana.expect("Ctrl-D leaves")

    link = f"pooled://room/r/{code}#k={WRONG}"
    eve = start("join", "--role", "guest", "--name", "eve", link=link)
    shown = digits(host, r"eve \(.*\) asks to join. Its screen must show")
    host.expect("not one of this room's")
    host.send("/allow\r")
    assert digits(eve, "Compare the six digits with its screen:") == shown
    eve.expect("show them")
    eve.send("y\r")
    host.expect("eve is here")
    eve.expect("Ctrl-D leaves")
    host.send("/kick eve\r")
    host.expect("The invite link is")
    assert "took this device out" in ends(eve)

    bob = start("join", code, "--role", "guest", "--name", "bob")
    host.expect(r"bob \(.*\) asks to join")
    host.send("/deny bob\r")
    assert "The host did not let this device in." in ends(bob)
    host.expect("bob is sent away")

    zoe = start("join", "--role", "guest", "--name", "zoe", link=link)
    host.expect(r"zoe \(.*\) asks to join")
    host.send("/allow zoe\r")
    zoe.expect("show them")
    zoe.send("\r")
    assert "ask the host for a new one" in ends(zoe)
    host.expect("zoe is let in")
    assert WRONG not in host.before
    host.send("/leave\r")
    ends(host)
