"""A pytest plugin: ``pytest -p no:nbval -p tests.without_torch`` runs as where torch and Jupyter are absent.

What only a shard or a notebook needs cannot be found then, so the mesh, the room and everything below them
prove that they need none of it (DESIGN section 2). It must be loaded by ``-p``, before anything is imported,
and runs the folders of `tests.light` alone.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from pathlib import Path
from types import ModuleType

import pytest

from tests.light import is_light

SHARDS = {"torch", "transformers", "accelerate", "safetensors", "tokenizers", "gguf", "huggingface_hub"}
NOTEBOOKS = {"IPython", "ipykernel", "ipywidgets", "anywidget"}
ABSENT = SHARDS | NOTEBOOKS
PRESENT = (
    "pooled_nb",
    "pooled_nb.mesh.mesh",
    "pooled_nb.mesh.rtcnetwork",
    "pooled_nb.mesh.signalserver",
    "pooled_nb.room",
    "pooled_nb.room.hostroom",
    "pooled_nb.room.worker",
    "pooled_nb.shard",
)


class Absent(MetaPathFinder):
    """Finds nothing under those names, and lets nobody after it look."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> None:
        """Answer as Python does where a package is not installed."""
        if name.partition(".")[0] in ABSENT:
            raise ModuleNotFoundError(f"No module named {name!r} (kept away from this run)", name=name)


def pytest_configure() -> None:
    """Import the packages, before the helper of any test could have brought something in."""
    if early := sorted(ABSENT & {name.partition(".")[0] for name in sys.modules}):
        raise pytest.UsageError(f"{', '.join(early)} was imported before the run began: it proves nothing.")
    for name in PRESENT:
        importlib.import_module(name)


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Leave the other folders alone; their helpers import what is absent."""
    inside = collection_path.parent.name == "tests" or "tests" in collection_path.parts[:-1]
    return True if inside and not is_light(collection_path) else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what says that it needs a real shard."""
    apart = [item for item in items if item.get_closest_marker("torch") is not None]
    config.hook.pytest_deselected(items=apart)
    items[:] = [item for item in items if item not in apart]


sys.meta_path.insert(0, Absent())
