"""Where coturn is looked for, and how it is had where there is none: ``tools/coturn.py``."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.e2e import needs
from tools import coturn

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="programs here are scripts of a POSIX shell")


def program(path: Path, text: str = "true") -> Path:
    """Make a program."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    path.chmod(0o755)
    return path


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without coturn; its programs lie in this folder."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("POOLED_TURNSERVER", raising=False)
    monkeypatch.setattr(coturn, "PLACES", (str(tmp_path / "sbin"),))
    monkeypatch.setattr(sys, "argv", ["coturn.py"])
    return tmp_path


def test_where_it_may_be(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the person names, the path, then where systems put it."""
    assert coturn.find() is None
    last = program(bare / "sbin" / "turnserver")
    assert coturn.find() == str(last)
    first = program(bare / "turnserver")
    assert coturn.find() == str(first)
    mine = program(bare / "mine")
    monkeypatch.setenv("POOLED_TURNSERVER", str(mine))
    assert coturn.find() == str(mine)
    mine.chmod(0o644)
    assert coturn.find() == str(first)


def test_root_installs_it(
    bare: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """By the first package manager that is there."""
    made = f"printf '#!/bin/sh\\n' > {bare}/turnserver; /bin/chmod 755 {bare}/turnserver"
    program(bare / "apt-get", f'case "$*" in *install*coturn) {made};; esac')
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert coturn.main() == 0
    assert capfd.readouterr().out == f"{bare}/turnserver\n"


def test_others_are_told_what_to_do(
    bare: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    program(bare / "apt-get", "exit 1")
    for user in (1000, 0):
        monkeypatch.setattr(os, "geteuid", lambda user=user: user)
        assert coturn.main() == 1
        assert "POOLED_TURNSERVER" in capfd.readouterr().err
    monkeypatch.setattr(sys, "argv", ["coturn.py", "--look"])
    assert coturn.main() == 1
    assert "Installing" not in capfd.readouterr().err


def test_where_it_can_be_had_no_test_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    """A skip that nobody sees would hide a relay, or a browser, that is never tried."""
    monkeypatch.setattr(sys, "platform", "linux")
    for user, outcome in ((0, pytest.fail.Exception), (1000, pytest.skip.Exception)):
        monkeypatch.setattr(os, "geteuid", lambda user=user: user)
        with pytest.raises(outcome, match="No coturn"):
            needs.lacks(coturn.MISSING)
