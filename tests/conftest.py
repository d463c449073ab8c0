"""What every test runs in: a place of its own, and one thread a shard."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pooled_nb.shard.kept import cache_folder
from tests.light import is_light

if TYPE_CHECKING:
    from tests.sides import Sides


def pytest_addoption(parser: pytest.Parser) -> None:
    """``--rest``: what `tests.without_torch` does not run, so that a whole run runs nothing twice."""
    parser.addoption("--rest", action="store_true", help="leave out what make test-light runs")


def pytest_configure() -> None:
    """A run in the background, or under nohup, is born with signals ignored, and so would its children be:
    a program of ours then leaves them so, and a test that interrupts one would wait for ever.
    """
    for name, handler in (
        ("SIGINT", signal.default_int_handler),
        ("SIGTERM", signal.SIG_DFL),
        ("SIGHUP", signal.SIG_DFL),
    ):
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, handler)
    # Set where no image is to grow: each of hundreds of processes would compile all of the package anew.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    if "PYTEST_XDIST_WORKER" in os.environ:  # torch is not imported yet
        os.environ.setdefault("OMP_NUM_THREADS", "1")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Sides:
    """Which process runs which tests: see `tests.sides`."""
    from tests.sides import Sides

    return Sides(config, log)


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
        patch.setenv("POOLED_DATA_DIR", str(tmp_path_factory.mktemp("data")))
        patch.setenv("POOLED_CONFIG_DIR", str(tmp_path_factory.mktemp("config")))
        patch.setenv("POOLED_CACHE", str(_own_cache(tmp_path_factory.mktemp("cache"))))
        patch.setenv("POOLED_THREADS", os.environ.get("POOLED_THREADS", "1"))
        for name in ("LINK", "SIGNAL", "TURN", "STUN", "RELAY_ONLY"):
            patch.delenv(f"POOLED_{name}", raising=False)
        yield


def _own_cache(folder: Path) -> Path:
    """A cache for what tests leave, with the models of the user's: to make one takes minutes."""
    models = cache_folder() / "models"
    with contextlib.suppress(OSError):  # Windows lets not everybody link, and a home may be read-only
        models.mkdir(parents=True, exist_ok=True)
        (folder / "models").symlink_to(models, target_is_directory=True)
        return folder
    return cache_folder()
