"""Whole rooms, and whatever befalls them: 200 seeds (PROTOCOL sections 3, 5, 6, 7 and 8).

`make sim SEEDS=10000 FROM=200` runs more. A failure names the story that runs it again by its value.
"""

from __future__ import annotations

import gc
import os
import subprocess
import sys

import pytest

SEEDS = 200
PART = 10

pytestmark = pytest.mark.torch


@pytest.mark.parametrize("first", range(0, SEEDS, PART))
def test_whatever_befalls_a_room(first: int) -> None:
    """PROTOCOL section 8: each answer is the one-device answer, whatever befalls the room; nothing shown
    changes, no question is lost or answered twice, and the room comes to rest with nothing left over.
    """
    from tests.sim.run import run
    from tests.sim.story import Story

    failed = []
    for seed in range(first, first + PART):
        story = Story(seed)
        if wrong := run(story).wrong:
            again = Story(seed, faults=story.befalls)
            failed.append(f"{again!r}\n    " + "\n    ".join(wrong[:6]))
    assert not failed, "\n".join(failed)


def test_a_seed_is_one_run_in_every_process() -> None:
    """DESIGN section 9, simulator: one seed replays one run, to the byte, in processes with other hashes."""
    code = (
        "from tests.sim.run import run\n"
        "from tests.sim.story import Story\n"
        "for seed in range(900, 908):\n"
        "    result = run(Story(seed))\n"
        "    print(seed, result.digest, len(result.trace))\n"
    )

    def printed(seed: str) -> list[str]:
        env = {**os.environ, "PYTHONHASHSEED": seed, "OMP_NUM_THREADS": "1"}
        done = subprocess.run(
            [sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True
        )
        return done.stdout.splitlines()

    one, other = printed("1"), printed("2")
    assert len(one) == 8
    assert one == other


def test_memory_is_flat() -> None:
    """DESIGN section 9, simulator: a run leaves no room, mesh, link or task behind."""
    from tests.sim.run import run
    from tests.sim.story import Story

    def living() -> dict[str, int]:
        gc.collect()
        counts: dict[str, int] = {}
        for thing in gc.get_objects():
            kind = type(thing)
            module = str(kind.__module__)
            if (
                module.startswith(("pooled_nb.room", "pooled_nb.mesh", "tests.sim"))
                or kind.__name__ == "Task"
            ):
                name = f"{module}.{kind.__name__}"
                counts[name] = counts.get(name, 0) + 1
        return counts

    story = Story(17)
    run(story)
    before = living()
    for _ in range(3):
        run(story)
    grown = {name: n for name, n in living().items() if n > before.get(name, 0)}
    assert not grown
