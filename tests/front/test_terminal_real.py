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
    monkeypatch.setenv("POOLED_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("PYTHONIOENCODING", "utf-8")
    monkeypatch.setenv("PYTHONUNBUFFERED", "1")
    host = subprocess.Popen(
        program("host", MODEL, "--name", "host", "--ctx", "256", "--invite-file", str(tmp_path / "link")),
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


def test_a_room_is_seen_asked_and_gone(
    room: tuple[subprocess.Popen[str], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DESIGN section 1: the same from a terminal. The room's runtime file is what ``status`` reads; ``ask``
    joins as a guest, with the invite link of a file, and streams the answer; the host's end takes both files
    away.
    """
    host, code = room
    [seen] = json.loads(run("status", "--json").stdout)["rooms"]
    assert (seen["code"], seen["pid"]) == (code, host.pid)
    assert seen["server"].startswith("ws://127.0.0.1:")
    assert MODEL.rpartition("/")[2] in run("status", code).stdout

    link = (tmp_path / "link").read_text(encoding="utf-8").strip()
    monkeypatch.setenv("POOLED_LINK", link)
    asked = run("ask", "Why is the sky blue?", "--max", "8", "--greedy")
    assert asked.returncode == 0, asked.stderr
    assert asked.stdout.strip()
    assert "8 tokens" in asked.stderr
    again = run("ask", "-", "--max", "8", "--json", given="Why is\nthe sea green?")
    assert again.returncode == 0, again.stderr
    object = json.loads(again.stdout)
    assert (object["reason"], object["stats"]["tokens"], object["room"]) == ("max", 8, code)
    assert object["text"].strip()

    host.send_signal(signal.SIGTERM)
    told, _ = host.communicate(timeout=30)
    assert host.returncode == 0, told
    assert "Closing room" in told
    assert not (tmp_path / "link").exists()
    key = link.partition("#k=")[2]
    assert len(key) >= 22
    said = (told, asked.stdout, asked.stderr, again.stdout, again.stderr)
    assert not [text for text in said if key in text]
    assert json.loads(run("status", "--json").stdout) == {"rooms": []}
    late = run("ask", code, "Still there?")
    assert late.returncode == 1
    assert late.stdout == ""
    assert f"No room {code} is open on this machine." in late.stderr
