"""How tests are shared out over processes: ``pytest -n 2`` (pytest-xdist), as ``make test`` runs them.

A file is run by one process, in its order, so that its fixtures are made once. The seeds of the simulator,
and the models of ``make test-gpu``, need nothing of one another, and fill what is left. What runs on real
clocks (rooms that are frozen, killed and cut off, kernels and terminals that somebody types at) is not shared
out at all: beside others it would time out (`CLOCKS` in the Makefile).
"""

from __future__ import annotations

import pytest
from xdist.scheduler import LoadScopeScheduling

APART = ("tests/sim/test_seeds.py", "tests/gpu/test_exact.py", "tests/gpu/test_graphs.py")


def side(nodeid: str) -> str:
    """What is run by one process: the tests for which this gives the same."""
    file = nodeid.partition("::")[0]
    if file in APART:
        return nodeid
    return file


class Sides(LoadScopeScheduling):
    """Gives each process that is free the next of the sides, in the order of the names of files."""

    def __init__(self, config: pytest.Config, log: object) -> None:
        config.option.loadscopereorder = False  # large files first, single seeds last
        super().__init__(config, log)

    def _split_scope(self, nodeid: str) -> str:
        return side(nodeid)
