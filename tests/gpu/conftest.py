"""What needs a CUDA device: skipped, with the reason, where there is none.

``make test-gpu`` runs it. ``POOLED_TEST_DEVICE=cpu`` runs what does not need the device itself on a CPU, to
try a test out.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.gpu.driving import DEVICE

_HERE = Path(__file__).parent


def _lacks() -> str:
    """Why nothing here can run; empty where it can."""
    if DEVICE != "cuda":
        return ""
    import torch

    return "" if torch.cuda.is_available() else "no CUDA device is here"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip them all at once: asking costs as much as one test."""
    mine = [item for item in items if item.path.is_relative_to(_HERE)]
    if mine and (why := _lacks()):
        for item in mine:
            item.add_marker(pytest.mark.skip(reason=why))


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The folder of a tiny model, made once a session."""
    from tests.shard import tiny

    made: dict[str, Path] = {}

    def make(name: str) -> Path:
        if name not in made:
            made[name] = tiny.make(name, tmp_path_factory.mktemp("tiny") / name)
        return made[name]

    return make


@pytest.fixture
def cuda() -> None:
    """For tests that look at the device itself, which a try on a CPU leaves out."""
    if DEVICE != "cuda":
        pytest.skip("this looks at a CUDA device itself")


@pytest.fixture(autouse=True)
def plain_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Graphs and fused layers as they are for a person who says nothing, unless a test says otherwise."""
    if "POOLED_TEST_KEEP" not in os.environ:
        for name in ("POOLED_GRAPHS", "POOLED_FUSED"):
            monkeypatch.delenv(name, raising=False)
