from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.shard import tiny

Make = Callable[[str], Path]


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Make:
    """The folder of a tiny model, made once a session."""
    made: dict[str, Path] = {}

    def make(name: str) -> Path:
        if name not in made:
            made[name] = tiny.make(name, tmp_path_factory.mktemp("tiny") / name)
        return made[name]

    return make
