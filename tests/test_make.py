"""What ``make`` says where something that it needs is missing, before minutes of set-up."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

pytestmark = pytest.mark.skipif(
    os.name == "nt" or shutil.which("make") is None, reason="make is for Linux and macOS"
)


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    """A folder with the Makefile alone, and programs that fail."""
    (tmp_path / "Makefile").write_text((ROOT / "Makefile").read_text("utf-8"), encoding="utf-8")
    (tmp_path / "bin").mkdir()
    program(tmp_path / "bin" / "old", "exit 1")
    return tmp_path


def program(path: Path, text: str) -> Path:
    path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    path.chmod(0o755)
    return path


def make(folder: Path, *words: str, path: str = "") -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PATH": f"{folder / 'bin'}{os.pathsep}{path or os.environ['PATH']}"}
    # A make that runs these tests must not tell this one what to do.
    env = {name: value for name, value in env.items() if name not in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL")}
    return subprocess.run(
        ["make", *words], cwd=folder, env=env, capture_output=True, text=True, encoding="utf-8", check=False
    )


@pytest.mark.parametrize("python", ["bin/old", "/not/there", ""])
def test_a_python_that_does_not_fit_is_a_sentence(bare: Path, python: str) -> None:
    done = make(bare, ".venv/.made", f"PYTHON={python}")
    assert done.returncode == 2
    assert done.stderr.startswith("Python 3.11 or newer with venv is needed. Install it, or say where it is")
    assert not (bare / ".venv").exists()


def test_an_environment_that_was_left_half_made_is_made_anew(bare: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", bare / ".venv"], check=True)
    done = make(bare, ".venv/.made", f"PYTHON={sys.executable}")
    assert done.returncode == 0, done.stderr
    python = bare / ".venv" / "bin" / "python"
    subprocess.run([python, "-m", "pip", "--version"], check=True, capture_output=True)
    (bare / ".venv" / "mine").touch()
    (bare / ".venv" / ".made").unlink()
    make(bare, ".venv/.made", f"PYTHON={sys.executable}")
    assert (bare / ".venv" / "mine").exists()  # one that is whole stays


def test_without_a_relay_program_the_set_up_goes_on(bare: Path) -> None:
    """It is said, and the tests that need it say it again."""
    (bare / ".venv" / "bin").mkdir(parents=True)
    program(bare / ".venv" / "bin" / "python", "echo No coturn can be had. >&2; exit 1")
    done = make(bare, "-o", ".venv/.ready-test", "coturn")
    assert done.returncode == 0
    assert done.stderr.startswith("No coturn can be had.")


@pytest.mark.parametrize(
    ("version", "fits"), [("18.20.4", False), ("20.18.1", False), ("20.19.0", True), ("24.1.0", True)]
)
def test_a_node_that_is_too_old_is_a_sentence(bare: Path, version: str, fits: bool) -> None:
    """``process.versions`` is what a real Node would say."""
    if (node := shutil.which("node")) is None:
        pytest.skip("no Node.js here")
    claims = f'Object.defineProperty(process.versions, "node", {{ value: "{version}" }});'
    (bare / "claims.cjs").write_text(claims, encoding="utf-8")
    program(bare / "bin" / "npm", "exit 0")
    program(bare / "bin" / "node", f'exec {node} -r {bare}/claims.cjs "$@"')
    done = make(bare, "npm")
    assert (done.returncode == 0) == fits, done.stderr
    assert ("Node.js 20.19 or newer with npm is needed" in done.stderr) != fits
