"""Run the fuzzers: ``make fuzz N=1000000``, or ``python -m tests.fuzz.runs gates:7:123`` for one run again.

A run is named ``FUZZER:BASE:NUMBER``; its name is its seed, and one name is one run, on any machine.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from itertools import repeat

from tests.fuzz import control, gates, links, packs, signals

FUZZERS: dict[str, Callable[[str], None]] = {
    "packs": packs.run,
    "control": control.run,
    "gates": gates.run,
    "links": links.run,
    "signals": signals.run,
}
PART = 500
"""Runs of one fuzzer that a process does at a time."""


class Found(Exception):
    """A run that failed; its words name the seed."""


def one(name: str) -> None:
    """One run by its name. Raises `Found`."""
    try:
        FUZZERS[name.partition(":")[0]](name)
    except Exception as error:
        again = f"{sys.executable} -m tests.fuzz.runs {name}"
        raise Found(f"run {name}: {type(error).__name__}: {error}\nThe same again: {again}") from error


def part(fuzzer: str, base: int, start: int, n: int) -> int:
    """``n`` runs of one fuzzer, from number ``start``."""
    for number in range(start, start + n):
        one(f"{fuzzer}:{base}:{number}")
    return n


def main() -> int:
    """Run many, in as many processes as there are cores; or those that are named."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", help="runs to do again")
    parser.add_argument("--n", type=int, default=20_000, help="runs in all")
    parser.add_argument("--base", type=int, default=int(time.time()), help="number that begins every seed")
    options = parser.parse_args()
    for name in options.names:
        one(name)
        print(f"{name}: nothing found")
    if options.names:
        return 0
    each = -(-options.n // len(FUZZERS))
    parts = [(name, start, min(PART, each - start)) for start in range(0, each, PART) for name in FUZZERS]
    done, began = 0, time.monotonic()
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        names, starts, sizes = zip(*parts, strict=True)
        try:
            for n in pool.map(part, names, repeat(options.base), starts, sizes):
                done += n
                if done % (PART * len(FUZZERS) * 10) == 0:
                    print(f"{done:,} runs, {done / (time.monotonic() - began):,.0f} a second", flush=True)
        except Found as found:
            pool.shutdown(cancel_futures=True)
            print(found, file=sys.stderr)
            return 1
    print(f"{done:,} runs from base {options.base}: nothing found")
    return 0


if __name__ == "__main__":
    sys.exit(main())
