"""Who is answered next (PROTOCOL section 7): one generation at a time, 10 waiting, 2 per device."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

MAX_WAITING = 10
MAX_PER_DEVICE = 2

Q = TypeVar("Q")


@dataclass(slots=True, eq=False)
class Entry(Generic[Q]):
    """One question of one device. ``rid`` names it among the device's own questions.

    Each is itself alone: who asked may come back under another id.
    """

    asker: str
    rid: str | None
    question: Q
    first: bool = False
    """It ran when the host's process before died."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a question may not wait, as ``ai-busy`` says it."""

    code: str
    why: str


@dataclass(slots=True)
class AskQueue(Generic[Q]):
    """First come, first served. The running question is not counted."""

    running: Entry[Q] | None = None
    _waiting: list[Entry[Q]] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def waiting(self) -> tuple[Entry[Q], ...]:
        """Those that wait, next first."""
        return tuple(self._waiting)

    def offer(self, entry: Entry[Q], *, first: bool = False) -> int | Refusal:
        """Take a question: its place from 1, or why not. The caller asks `begin` when nothing runs.

        ``first``: it ran when the host's process before died. It goes before all, and is not counted.
        """
        if first:
            entry.first = True
            self._waiting.insert(0, entry)
            return 1
        counted = [e for e in self._waiting if not e.first]
        if len(counted) >= MAX_WAITING:
            return Refusal(
                "queue", f"{MAX_WAITING} questions wait already. Ask again when the queue is shorter."
            )
        if sum(e.asker == entry.asker for e in counted) >= MAX_PER_DEVICE:
            return Refusal(
                "queue", f"{MAX_PER_DEVICE} of your questions wait already. Wait for an answer first."
            )
        self._waiting.append(entry)
        return len(self._waiting)

    def begin(self) -> Entry[Q] | None:
        """The next question to run, when none is running."""
        if self.running is None and self._waiting:
            self.running = self._waiting.pop(0)
            return self.running
        return None

    def end(self) -> None:
        """The running question is done."""
        self.running = None

    def take_back(self, asker: str) -> Entry[Q] | None:
        """Take back the asker's newest waiting question."""
        for i in range(len(self._waiting) - 1, -1, -1):
            if self._waiting[i].asker == asker:
                return self._waiting.pop(i)
        return None

    def remove(self, entry: Entry[Q]) -> bool:
        """Take back exactly this waiting question; whether it waited."""
        before = len(self._waiting)
        self._waiting = [e for e in self._waiting if e is not entry]
        return len(self._waiting) < before

    def find(self, match: Callable[[Entry[Q]], bool]) -> Entry[Q] | None:
        """The running or waiting question that matches."""
        known = [*([self.running] if self.running else []), *self._waiting]
        return next((e for e in known if match(e)), None)

    def place(self, entry: Entry[Q]) -> int:
        """Its place from 1; 0: it does not wait."""
        return next((i for i, e in enumerate(self._waiting, 1) if e is entry), 0)

    def renamed(self, was: str, now: str) -> None:
        """A device came back under another id: its questions are its own still."""
        for entry in [*([self.running] if self.running else []), *self._waiting]:
            if entry.asker == was:
                entry.asker = now

    def drop(self, asker: str) -> list[Entry[Q]]:
        """The asker left: its waiting questions go."""
        gone = [e for e in self._waiting if e.asker == asker]
        self._waiting = [e for e in self._waiting if e.asker != asker]
        return gone

    def clear(self) -> list[Entry[Q]]:
        """Nobody is answered any more: all that waited."""
        gone, self._waiting = self._waiting, []
        return gone
