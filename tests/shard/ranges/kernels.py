"""What another kernel does with the cache: ``python -m tests.shard.ranges.kernels WHAT ROOT``."""

from __future__ import annotations

import random
import sys
from pathlib import Path

from pooled_nb.errors import ModelNotFound  # noqa: F401  # for code that another user runs
from pooled_nb.shard.ranges import RangeFile, Ranges

BLOCK, BLOCKS = 300_000, 24
SIZE = BLOCK * BLOCKS
CONTENT = random.Random(5).randbytes(SIZE)
MODEL = ("org/model", "main")
NAME = "model.safetensors"


def open_file(root: Path) -> RangeFile:
    return Ranges(root).model(*MODEL).file(NAME, SIZE)


def fetch(file: RangeFile, lo: int, hi: int, *, waits: bool) -> int:
    """Bytes that this kernel wrote."""
    incoming = file.begin(lo, hi, wait=(lambda: None) if waits else None)
    if incoming is None:
        return 0
    wrote = 0
    while incoming.at < hi - lo:
        data = CONTENT[lo + incoming.at : min(hi, lo + incoming.at + 65_536)]
        incoming.write(data)
        wrote += len(data)
    incoming.finish()
    return wrote


def fetch_all(root: Path) -> int:
    file = open_file(root)
    blocks = [(i * BLOCK, (i + 1) * BLOCK) for i in range(BLOCKS)]
    random.shuffle(blocks)
    wrote = sum(fetch(file, lo, hi, waits=False) for lo, hi in blocks)
    return wrote + sum(fetch(file, lo, hi, waits=True) for lo, hi in blocks)


def main(what: str, root: Path) -> None:
    print("ready", flush=True)
    sys.stdin.readline()
    if what == "fetch":
        print(fetch_all(root), flush=True)
    elif what == "hang":  # in the middle of a piece
        incoming = open_file(root).begin(0, BLOCK)
        assert incoming is not None
        incoming.write(CONTENT[: BLOCK - 1])
        print(incoming.at, flush=True)
        sys.stdin.readline()
    elif what == "use":
        with Ranges(root).model(*MODEL).use():
            print("using", flush=True)
            sys.stdin.readline()
    elif what == "churn":  # one who removes what others fetch
        freed = 0
        for _ in range(60):
            freed += Ranges(root).delete(MODEL[0])
        print(freed, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
