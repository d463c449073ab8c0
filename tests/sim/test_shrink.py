"""The simulator finds bugs: planted ones are found, replayed, and shrunk (DESIGN section 9)."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.torch


@pytest.mark.parametrize(
    ("name", "kinds", "most"),
    [
        ("a stale epoch is accepted", ("slow", "frame"), 40),
        ("tokens are shown twice after a wait", ("freeze", "kill", "leave", "shard"), 20),
        ("the queue forgets an entry on hold", ("freeze", "kill", "leave", "shard"), 40),
        ("a seat goes to the wrong device", ("restart", "fail"), 40),
        ("a late timer judges", ("freeze", "stall"), 40),
    ],
)
def test_a_planted_bug_is_found(name: str, kinds: tuple[str, ...], most: int) -> None:
    """DESIGN section 9, simulator: each planted bug is found within a few seeds of a kind that meets it; the
    same story passes without it.
    """
    from tests.sim.mutants import planted
    from tests.sim.run import run
    from tests.sim.story import Story

    for seed in range(most):
        story = Story(seed, kinds=kinds)
        with planted(name):
            wrong = run(story).wrong
        if wrong:
            assert run(Story(seed, faults=story.befalls)).wrong == []
            return
    pytest.fail(f"{name}: not found in {most} seeds")


def test_a_failure_replays_and_shrinks() -> None:
    """DESIGN section 9, simulator: a failing story replays by its value, and shrinks to the fault that it
    takes.
    """
    from tests.sim.faults import Fault
    from tests.sim.mutants import planted
    from tests.sim.run import run
    from tests.sim.shrinking import shrink
    from tests.sim.story import Story

    faults = (
        Fault(13.0, "hidden", "w1", s=4.0),
        Fault(14.0, "signaling", s=6.0),
        Fault(39.88, "shard", "host"),
        Fault(50.0, "noise", s=3.0),
    )
    story = Story(2, faults=faults)
    with planted("tokens are shown twice after a wait"):
        first, second = run(story), run(eval(repr(story), {"Story": Story, "Fault": Fault}))
        assert first.wrong
        assert (first.wrong, first.digest, first.trace) == (second.wrong, second.digest, second.trace)
        small = shrink(story, lambda candidate: bool(run(candidate).wrong))
        assert run(small).wrong
    assert len(small.befalls) == 1
    assert small.befalls[0].kind == "shard"
    assert len(small.script) == 1


def test_shrinking_alone() -> None:
    """DESIGN section 9, simulator: delta debugging finds the two that it takes together."""
    from tests.sim.shrinking import minimal

    tried: list[list[int]] = []

    def fails(items: list[int]) -> bool:
        tried.append(items)
        return 3 in items and 11 in items

    assert minimal(range(16), fails) == [3, 11]
    assert len(tried) < 60
