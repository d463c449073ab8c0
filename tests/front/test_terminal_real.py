"""The terminal against a real room: a host in a process of its own, asked by ``pooled-nb ask``."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pooled_nb.terminal.arguments import MODEL

pytestmark = pytest.mark.skipif(os.name == "nt", reason="POSIX signals")


def program(*argv: str) -> list[str]:
    return [sys.executable, "-m", "pooled_nb.cli", *argv]


def run(*argv: str, given: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        program(*argv), input=given, capture_output=True, text=True, timeout=90, check=False
    )


@pytest.fixture
def room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A host's process, and its code."""
    monkeypatch.setenv("POOLED_RUNTIME_DIR", str(tmp_path / "rooms"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("PYTHONIOENCODING", "utf-8")
    monkeypatch.setenv("PYTHONUNBUFFERED", "1")
    host = subprocess.Popen(
        program("host", MODEL, "--name", "host", "--ctx", "256"),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert host.stdout is not None
    try:
        said = []
        code = ""
        for line in host.stdout:
            said.append(line)
            if "pooled-nb join " in line:
                code = line.partition("pooled-nb join ")[2].split()[0]
                break
        assert code, said
        yield host, code
    finally:
        if host.poll() is None:
            host.kill()
        host.communicate()


def test_a_room_is_seen_asked_and_gone(room: tuple[subprocess.Popen[str], str]) -> None:
    """DESIGN section 1: the same from a terminal. The room's runtime file is what ``status`` reads; ``ask``
    joins by the code alone, as a guest, and streams the answer; the host's end takes the file away.
    """
    host, code = room
    [seen] = json.loads(run("status", "--json").stdout)["rooms"]
    assert (seen["code"], seen["pid"]) == (code, host.pid)
    assert seen["server"].startswith("ws://127.0.0.1:")
    assert MODEL.rpartition("/")[2] in run("status", code).stdout

    asked = run("ask", code, "Why is the sky blue?", "--max", "8", "--greedy")
    assert asked.returncode == 0, asked.stderr
    assert asked.stdout.strip()
    assert "8 tokens" in asked.stderr
    again = run("ask", code, "-", "--max", "8", "--json", given="Why is\nthe sea green?")
    assert again.returncode == 0, again.stderr
    said = json.loads(again.stdout)
    assert (said["reason"], said["stats"]["tokens"], said["room"]) == ("max", 8, code)
    assert said["text"].strip()

    host.send_signal(signal.SIGTERM)
    told, _ = host.communicate(timeout=30)
    assert host.returncode == 0, told
    assert "Closing room" in told
    assert json.loads(run("status", "--json").stdout) == {"rooms": []}
    late = run("ask", code, "Still there?")
    assert late.returncode == 1
    assert late.stdout == ""
    assert f"No room {code} is open on this machine." in late.stderr
