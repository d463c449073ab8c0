"""That the run without torch and Jupyter is one: ``make test-light``."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests import light

ROOT = Path(__file__).resolve().parent.parent


def run(code: str) -> str:
    """The last line that a fresh Python prints."""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, encoding="utf-8", check=False, timeout=60
    )
    return ([*done.stdout.splitlines(), *done.stderr.splitlines()] or [""])[-1]


@pytest.mark.parametrize("name", ["torch", "torch.nn", "transformers", "ipykernel", "anywidget"])
def test_what_is_kept_away_cannot_be_found(name: str) -> None:
    """DESIGN section 2: neither the mesh nor the room may need it."""
    said = run(f"import tests.without_torch\nimport {name}")
    assert said.startswith("ModuleNotFoundError: No module named")


def test_a_run_that_had_it_before_proves_nothing() -> None:
    """A plugin loaded later than torch would hide nothing, so the run does not begin."""
    code = "import sys, tests.without_torch as run; sys.modules['torch'] = sys; run.pytest_configure()"
    assert "torch was imported before the run began" in run(code)


def test_its_folders_are_there_and_the_rest_is_not_among_them() -> None:
    folders = {path.name for path in (ROOT / "tests").iterdir() if any(path.glob("test_*.py"))}
    assert set(light.FOLDERS) <= folders
    assert light.is_light(ROOT / "tests" / "mesh" / "test_mesh.py")
    assert not light.is_light(ROOT / "tests" / "shard" / "test_engine.py")
    assert not light.is_light(ROOT / "tests" / "test_light.py")
