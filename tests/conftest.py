"""What every test runs in: a place of its own, and one thread a shard."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.light import is_light


def pytest_addoption(parser: pytest.Parser) -> None:
    """``--rest``: what `tests.without_torch` does not run, so that a whole run runs nothing twice."""
    parser.addoption("--rest", action="store_true", help="leave out what make test-light runs")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("--rest"):
        return
    light = [item for item in items if is_light(item.path) and item.get_closest_marker("torch") is None]
    config.hook.pytest_deselected(items=light)
    items[:] = [item for item in items if item not in light]


@pytest.fixture(autouse=True, scope="session")
def own_place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Rooms of tests are found by tests alone; shards share the cores with whatever else runs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("POOLED_RUNTIME_DIR", str(tmp_path_factory.mktemp("rooms")))
        patch.setenv("POOLED_THREADS", os.environ.get("POOLED_THREADS", "1"))
        patch.delenv("POOLED_LINK", raising=False)
        patch.delenv("POOLED_SIGNAL", raising=False)
        yield
