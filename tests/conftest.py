"""What every test runs in: a place of its own, and one thread a shard."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True, scope="session")
def own_place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Rooms of tests are found by tests alone; shards share the cores with whatever else runs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("POOLED_RUNTIME_DIR", str(tmp_path_factory.mktemp("rooms")))
        patch.setenv("POOLED_THREADS", os.environ.get("POOLED_THREADS", "1"))
        patch.delenv("POOLED_LINK", raising=False)
        patch.delenv("POOLED_SIGNAL", raising=False)
        yield
