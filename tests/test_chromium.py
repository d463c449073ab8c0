"""Where a Chromium is looked for, and how one is had where there is none: ``tools/chromium.py``."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tools import chromium

posix = pytest.mark.skipif(sys.platform == "win32", reason="programs here are scripts of a POSIX shell")


def program(path: Path, text: str = "echo Chromium 1.0") -> Path:
    """Make a program."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    path.chmod(0o755)
    return path


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without a browser; its programs lie in this folder."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("POOLED_CHROMIUM", raising=False)
    monkeypatch.setattr(chromium, "_of_playwright", lambda: str(tmp_path / "playwrights"))
    monkeypatch.setattr(sys, "platform", "linux")
    return tmp_path


@posix
def test_what_the_person_names_comes_first(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(bare / "chromium")
    mine = program(bare / "mine" / "browser")
    monkeypatch.setenv("POOLED_CHROMIUM", str(mine))
    assert chromium.find() == str(mine)
    monkeypatch.setenv("POOLED_CHROMIUM", str(bare / "gone"))
    assert chromium.find() == str(bare / "chromium")


@posix
def test_one_that_does_not_start_is_none(bare: Path) -> None:
    """A package that is only a door to another store says so, and fails."""
    program(bare / "chromium", "echo install it elsewhere >&2; exit 1")
    assert chromium.find() is None
    program(bare / "google-chrome")
    assert chromium.find() == str(bare / "google-chrome")


def test_each_system_has_its_places(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chromium, "_of_playwright", lambda: "")
    mac = list(chromium.candidates({}, "darwin"))
    assert "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome" in [
        p.replace("\\", "/") for p in mac
    ]
    windows = list(chromium.candidates({"PROGRAMFILES": "C:/Programs"}, "win32"))
    assert str(Path("C:/Programs/Google/Chrome/Application/chrome.exe")) in windows


@posix
def test_root_gets_it_by_apt(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    log = bare / "log"
    made = f"printf '#!/bin/sh\\necho Chromium 2\\n' > {bare}/chromium; /bin/chmod 755 {bare}/chromium"
    program(bare / "apt-get", f'echo "$@" >> {log}\ncase "$*" in *install*) {made};; esac')
    monkeypatch.setattr(sys, "argv", ["chromium"])
    assert chromium.main() == 0
    assert chromium.find() == str(bare / "chromium")
    update, install = log.read_text(encoding="utf-8").splitlines()
    assert update.endswith("update")
    assert "install chromium" in install


@posix
def test_others_get_it_by_playwright(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And nothing is installed where that was not asked for."""
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    asked: list[list[str]] = []

    def run(command: list[str], env: dict[str, str]) -> bool:
        asked.append(command[1:])
        program(bare / "playwrights")
        return True

    monkeypatch.setattr(chromium, "_run", run)
    monkeypatch.setattr(sys, "argv", ["chromium", "--look"])
    assert chromium.main() == 1
    assert asked == []
    monkeypatch.setattr(sys, "argv", ["chromium"])
    assert chromium.main() == 0
    assert asked == [["-m", "playwright", "install", "chromium"]]


@posix
def test_where_none_can_be_had_it_is_said(
    bare: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(chromium, "_run", lambda command, env: False)
    monkeypatch.setattr(sys, "argv", ["chromium"])
    assert chromium.main() == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines()[-1] == chromium.MISSING
