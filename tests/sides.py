"""How tests are shared out over processes: ``pytest -n 2`` (pytest-xdist), as ``make test`` runs them.

A file is run by one process, in its order, so that its fixtures are made once. Two exceptions:

- All of ``tests/e2e`` is run by one process, one test after the other. Its rooms are processes of their own,
  and wait for most of their time: beside them another process computes.
- The seeds of the simulator need nothing of one another, and fill what is left.
"""

from __future__ import annotations

import pytest
from xdist.scheduler import LoadScopeScheduling

TOGETHER = ("tests/e2e/",)
APART = ("tests/sim/test_seeds.py",)


def side(nodeid: str) -> str:
    """What is run by one process: the tests for which this gives the same."""
    file = nodeid.partition("::")[0]
    if file in APART:
        return nodeid
    return next((folder for folder in TOGETHER if file.startswith(folder)), file)


class Sides(LoadScopeScheduling):
    """Gives each process that is free the next of the sides, in the order of the names of files."""

    def __init__(self, config: pytest.Config, log: object) -> None:
        config.option.loadscopereorder = False  # what waits comes first, what is small last
        super().__init__(config, log)

    def _split_scope(self, nodeid: str) -> str:
        return side(nodeid)
