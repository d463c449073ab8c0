"""That ``make test-light`` keeps torch away from each of the processes that it runs tests in."""

from __future__ import annotations

import importlib
import sys

import pytest


def test_torch_cannot_be_found(pytestconfig: pytest.Config) -> None:
    """DESIGN section 2: a process that had it would prove nothing, and would not say so."""
    asked: list[str] = getattr(pytestconfig, "workerinput", {}).get("mainargv", sys.argv)
    if "tests.without_torch" not in asked:
        pytest.skip("torch may be found in this run")
    with pytest.raises(ModuleNotFoundError, match="kept away from this run"):
        importlib.import_module("torch")
