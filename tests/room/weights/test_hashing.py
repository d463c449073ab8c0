"""Hashes that a host makes for who asks (PROTOCOL section 6, ``nb-hash``)."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from pooled_nb.errors import ModelNotFound
from pooled_nb.room.weights import hashing
from pooled_nb.room.weights.hashes import Span
from pooled_nb.room.weights.hashing import JOBS, Hashing
from tests.room.weights.onefile import DATA, SIZE, URL, Files
from tests.room.weights.pipe import Disk, settle
from tests.sim.clock import simulate


@dataclass
class Hasher:
    """A host's, and who asks it."""

    files: Files | None = field(default_factory=Files)
    disk: Disk = field(default_factory=Disk)
    known: set[Span] = field(default_factory=set)
    told: list[tuple[str, Span, str | None]] = field(default_factory=list)
    most: int = 2 * SIZE

    def __post_init__(self) -> None:
        self.hashing = Hashing(
            holdings=self.files,  # type: ignore[arg-type]  # it takes nothing
            runner=self.disk,
            most=self.most,
            known=self.known.__contains__,
            told=lambda *what: self.told.append(what),
        )

    def ask(self, lo: int, hi: int, who: str = "a") -> None:
        self.hashing.asked(who, Span(URL, lo, hi))


def sha(lo: int, hi: int) -> str:
    return hashlib.sha256(DATA[lo:hi]).hexdigest()


def with_hasher(check: Callable[[Hasher], Any], **facts: Any) -> None:
    """Run a check; nothing of it may be left."""

    async def scenario() -> None:
        hasher = Hasher(**facts)
        await check(hasher)
        await hasher.hashing.close()
        assert not hasher.hashing._waiting

    simulate(scenario)


def test_what_is_here_is_hashed(monkeypatch: pytest.MonkeyPatch) -> None:
    """PROTOCOL section 6: what the host holds itself it vouches for, in pieces that hold nobody up."""
    monkeypatch.setattr(hashing, "STEP", 100_000)

    async def check(hasher: Hasher) -> None:
        hasher.ask(5, 700_000)
        hasher.ask(0, 10)
        await settle()
        assert hasher.told == [
            ("a", Span(URL, 5, 700_000), sha(5, 700_000)),
            ("a", Span(URL, 0, 10), sha(0, 10)),
        ]
        assert hasher.files is not None
        assert hasher.files.largest == 100_000

    with_hasher(check)


def test_what_is_known_is_not_read() -> None:
    """PROTOCOL section 6: hashed when it came, or said meanwhile."""

    async def check(hasher: Hasher) -> None:
        assert hasher.files is not None
        hasher.files.known[0, 10] = "e" * 64
        hasher.known.add(Span(URL, 10, 20))
        hasher.ask(0, 10)
        hasher.ask(10, 20)
        await settle()
        assert hasher.told == [("a", Span(URL, 0, 10), "e" * 64), ("a", Span(URL, 10, 20), "")]
        assert hasher.files.largest == 0

    with_hasher(check)


@pytest.mark.parametrize(
    "facts", [{"files": None}, {"files": Files((0, 50))}, {"files": Files(private=True)}, {"most": 99}]
)
def test_what_is_not_here_is_answered_too(facts: dict[str, Any]) -> None:
    """PROTOCOL section 6: who asks in vain goes to the network at once, and waits for nothing."""

    async def check(hasher: Hasher) -> None:
        hasher.ask(0, 100)
        await settle()
        assert hasher.told == [("a", Span(URL, 0, 100), None if hasher.most < 100 else "")]

    with_hasher(check, **facts)


@pytest.mark.parametrize("error", [ModelNotFound("It is gone.", "Fetch it."), OSError("disk")])
def test_a_disk_that_fails(error: Exception) -> None:
    """PROTOCOL section 6: as if it were not here; the next question is answered."""

    async def check(hasher: Hasher) -> None:
        assert hasher.files is not None
        hasher.files.fails = error
        hasher.ask(0, 100)
        await settle()
        hasher.files.fails = None
        hasher.ask(0, 200)
        await settle()
        assert [said[2] for said in hasher.told] == ["", sha(0, 200)]

    with_hasher(check)


def test_no_device_keeps_the_disk_busy() -> None:
    """PROTOCOL section 3: one range of each device at a time, and not more bytes than the model has twice."""

    async def check(hasher: Hasher) -> None:
        hasher.disk.stuck = asyncio.Event()
        for who in "abcd":
            for n in range(50):
                hasher.ask(n, n + SIZE // 20, who)
        await settle()
        assert hasher.disk.now == JOBS
        assert len(hasher.told) == 4 * 10, "of what is too much each hears at once"
        hasher.hashing.left("a")
        hasher.disk.stuck.set()
        await settle(2_000)
        assert hasher.disk.most == JOBS
        hashed = [who for who, _, sha256 in hasher.told if sha256]
        assert [hashed.count(who) for who in "abcd"] == [0, 40, 40, 40]
        hasher.ask(0, 10, "a")
        await settle()
        assert hasher.told[-1] == ("a", Span(URL, 0, 10), sha(0, 10))

    with_hasher(check)


def test_closed_in_the_middle() -> None:
    """PROTOCOL section 3: a room that ends leaves no thread at work."""

    async def check(hasher: Hasher) -> None:
        hasher.ask(0, SIZE)
        hasher.ask(0, 10)
        await asyncio.sleep(0)

    with_hasher(check)
