"""``pooled-nb status``: the runtime files of this machine, read (PROTOCOL section 2)."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pooled_nb.cli import main
from pooled_nb.mesh import runtime
from pooled_nb.mesh.runtime import RoomFile
from pooled_nb.terminal.rooms_here import living, since, table

NOW = 1_700_000_000.0


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POOLED_RUNTIME_DIR", str(tmp_path / "rooms"))


def room(code: str = "4TKG9P", **more: object) -> RoomFile:
    return RoomFile(code=code, server="ws://127.0.0.1:9/", model="org/model", **more)  # type: ignore[arg-type]


def test_none(capsys: pytest.CaptureFixture[str]) -> None:
    """One sentence with the next step."""
    assert main(["status"]) == 0
    assert capsys.readouterr().out == (
        "No room is open on this machine. Open one with: pooled-nb host MODEL\n"
    )
    assert main(["status", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"rooms": []}
    assert main(["status", "4TK-G9P"]) == 1
    assert "No room 4TK-G9P is open on this machine." in capsys.readouterr().err
    assert main(["status", "4TK-G9P", "--json"]) == 1


def test_rooms_as_people_read_them(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # As after the clock was set: the process seems younger than its file, and its server answers.
    monkeypatch.setattr("pooled_nb.terminal.rooms_here._answers", lambda server: True)
    runtime.write(room())
    runtime.write(room("ABCDEF", created=time.time() - 3700))
    assert main(["status"]) == 0
    head, *lines = capsys.readouterr().out.splitlines()
    assert head.split() == ["room", "model", "open", "since", "process", "server"]
    assert [line.split()[0] for line in lines] == ["4TK-G9P", "ABC-DEF"]  # the newest first
    assert " (1 h) " in lines[1]
    assert f" {os.getpid()} " in lines[1]
    assert "ws://127.0.0.1:9/" in lines[0]
    assert main(["status", "abc-def", "--json"]) == 0
    [said] = json.loads(capsys.readouterr().out)["rooms"]
    assert (said["code"], said["model"], said["pid"]) == ("ABC-DEF", "org/model", os.getpid())


def test_a_stale_file_is_not_shown(capsys: pytest.CaptureFixture[str]) -> None:
    """A room of a dead process does not count."""
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    runtime.write(room(pid=child.pid))
    assert main(["status"]) == 0
    assert capsys.readouterr().out.startswith("No room is open")


def test_a_process_number_that_was_given_out_again() -> None:
    """After a reboot another process has the number: nobody listens at the room's server then. A clock that
    was set looks the same, and there somebody does.
    """
    rooms = [room(created=NOW)]
    asked: list[str] = []

    def answers(server: str) -> bool:
        asked.append(server)
        return yes

    yes = False
    assert living(rooms, began=lambda pid: NOW - 100, answers=answers) == rooms
    assert living(rooms, began=lambda pid: None, answers=answers) == rooms
    assert asked == []
    assert living(rooms, began=lambda pid: NOW + 3600, answers=answers) == []
    yes = True
    assert living(rooms, began=lambda pid: NOW + 3600, answers=answers) == rooms
    assert asked == ["ws://127.0.0.1:9/"] * 2


def test_a_real_process_that_is_too_young(capsys: pytest.CaptureFixture[str]) -> None:
    """The same with this process, and a server that really listens, or does not."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        place = f"ws://127.0.0.1:{server.getsockname()[1]}/"
        runtime.write(RoomFile(code="4TKG9P", server=place, created=time.time() - 1e7))
        assert main(["status", "4TK-G9P"]) == 0
    assert main(["status", "4TK-G9P"]) == 1


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0, "(0 min)"), (59 * 60, "(59 min)"), (7200, "(2 h)"), (3 * 86_400, "(3 days)"), (-900, "(0 min)")],
)
def test_since(seconds: float, words: str) -> None:
    assert since(NOW - seconds, NOW).endswith(words)
    assert since(1e300, NOW) == "–"


def test_files_are_text() -> None:
    """What a file says reaches the terminal as text only."""
    lines = table(
        [RoomFile(code="4TKG9P", server="ws://x/\x1b[2J", model="a\n\x1b]0;b\x07", created=NOW)], NOW
    )
    assert len(lines) == 2
    assert "\x1b" not in lines[1]


def test_a_code_that_is_none(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status", "hello!"]) == 1
    assert "A room code has only" in capsys.readouterr().err
