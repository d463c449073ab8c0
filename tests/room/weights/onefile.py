"""One weights file of random bytes, of which a device has some."""

from __future__ import annotations

from collections.abc import Collection
from random import Random

from pooled_nb.room.weights.grant import AHEAD
from pooled_nb.shard import Sent

URL = "toy/model@1/model.safetensors"
SIZE = 2 * AHEAD + 12_345
DATA = Random(3).randbytes(SIZE)


class Files:
    """One file, of which a device has some; see `Holdings`."""

    def __init__(self, *have: tuple[int, int], private: bool = False) -> None:
        self.ranges = [] if private else list(have or [(0, SIZE)])
        self.largest = 0
        self.known: dict[tuple[int, int], str] = {}
        self.fails: Exception | None = None
        self.short = 0

    def have(self, repo: str, revision: str, name: str) -> list[tuple[int, int]]:
        assert (repo, revision) == ("toy/model", "1"), "asked about another model"
        return self.ranges if name == "model.safetensors" else []

    def read(self, repo: str, revision: str, name: str, lo: int, hi: int) -> bytes:
        if self.fails is not None:
            raise self.fails
        assert any(a <= lo and hi <= b for a, b in self.ranges), "read what is not here"
        self.largest = max(self.largest, hi - lo)
        return DATA[lo : hi - self.short]

    def sha256(self, repo: str, revision: str, name: str, lo: int, hi: int) -> str:
        return self.known.get((lo, hi), "")

    def take(self, repo: str, revision: str, piece: object) -> None:
        raise AssertionError("giving takes nothing")

    def sent(self, repo: str, revision: str, name: str) -> list[Sent]:
        return []

    def confirm(self, repo: str, revision: str, name: str, sent: Collection[Sent]) -> None:
        raise AssertionError("giving takes nothing")

    def closed(self, repo: str, revision: str) -> bool:
        return False
