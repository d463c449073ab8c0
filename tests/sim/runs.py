"""Run many seeds: ``make sim SEEDS=10000 FROM=0``, or ``python -m tests.sim.runs --seeds 100 --from 7``.

A failing seed is printed as the code that runs it again; ``--shrink`` looks for the shortest list of faults
that still fails. ``--again "Story(seed=7, faults=(…))"`` runs one by its value and shows what happened.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field

from tests.sim.faults import Fault
from tests.sim.shrinking import shrink
from tests.sim.story import ALL, Story

PART = 20
"""Seeds that a process runs at a time."""


@dataclass
class Part:
    """What came of some seeds."""

    failed: list[tuple[Story, list[str]]] = field(default_factory=list)
    outcomes: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    seeds: int = 0


def part(first: int, n: int, kinds: tuple[str, ...], small: bool) -> Part:
    """Run ``n`` seeds from ``first`` on."""
    from tests.sim.run import run

    done = Part(seeds=n)
    for seed in range(first, first + n):
        story = Story(seed, kinds=kinds)
        result = run(story)
        done.outcomes.update(result.outcomes)
        done.faults.update(fault.kind for fault in story.befalls)
        if result.wrong:
            explicit = Story(seed, faults=story.befalls)
            if small:
                explicit = shrink(explicit, lambda story: bool(run(story).wrong))
            done.failed.append((explicit, run(explicit).wrong))
    return done


def again(code: str) -> int:
    """Run one story by its value, and show what happened in it."""
    from tests.sim.run import run

    story = eval(code, {"Story": Story, "Fault": Fault})  # what the person at the shell types
    result = run(story)
    print("\n".join(result.trace))
    print(f"{story!r}: digest {result.digest}")
    for wrong in result.wrong:
        print(f"  wrong: {wrong}")
    return 1 if result.wrong else 0


def main() -> int:
    """Run what the command line says."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=300)
    parser.add_argument("--from", type=int, default=0, dest="first")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--kinds", default=",".join(ALL), help="kinds of faults, see tests.sim.faults.KINDS")
    parser.add_argument("--shrink", action="store_true")
    parser.add_argument("--again", default="", help="one story, by its value")
    options = parser.parse_args()
    if options.again:
        return again(options.again)
    kinds = tuple(filter(None, options.kinds.split(",")))
    began = time.monotonic()
    whole = Part()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    with ProcessPoolExecutor(options.jobs) as pool:
        parts = [
            pool.submit(part, first, min(PART, options.first + options.seeds - first), kinds, options.shrink)
            for first in range(options.first, options.first + options.seeds, PART)
        ]
        for one in parts:
            done = one.result()
            whole.outcomes.update(done.outcomes)
            whole.faults.update(done.faults)
            whole.seeds += done.seeds
            for story, wrong in done.failed:
                print(f"{story!r}", flush=True)
                for line in wrong[:8]:
                    print(f"    {line[:500]}", flush=True)
            whole.failed += done.failed
    took = time.monotonic() - began
    pace = f"{whole.seeds / took:.2f} seeds/s, {options.jobs} jobs"
    print(f"{whole.seeds} seeds, {len(whole.failed)} failed ({pace})")
    print(f"answers: {dict(sorted(whole.outcomes.items()))}")
    print(f"faults: {dict(sorted(whole.faults.items()))}")
    return 1 if whole.failed else 0


if __name__ == "__main__":
    sys.exit(main())
