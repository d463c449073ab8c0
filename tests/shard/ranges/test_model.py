"""The range cache against a dict: whatever happens, only what is whole and right is ever read."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from pooled_nb.shard.ranges import disk, incoming
from tests.shard.ranges.machine import CacheMachine


def test_random_lives(monkeypatch: pytest.MonkeyPatch) -> None:
    """DESIGN section 6: begins, writes, kills, torn writes, ends, refusals and removals in any order."""
    monkeypatch.setattr(incoming, "CHUNK", 16)
    monkeypatch.setattr(disk, "settle", lambda fd: None)  # only a loss of power needs it
    run_state_machine_as_test(
        CacheMachine,
        settings=settings(
            max_examples=40,
            stateful_step_count=30,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
