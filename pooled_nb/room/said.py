"""What an answer under way brought so far."""

from __future__ import annotations

from dataclasses import dataclass, field

from pooled_nb.room.core import Stats
from pooled_nb.room.generation import Step


@dataclass(slots=True)
class Said:
    """What one answer brought so far; of one that goes on, only what is new.

    A wait for devices that were lost is no part of what it took (``waited``, seconds): it would hide how
    fast the room is.
    """

    began: float
    prompt: int
    ids: list[int] = field(default_factory=list)
    text: str = ""
    first_ms: float = 0.0
    reused: int = 0
    drafted: int = 0
    right: int = 0
    waited: float = 0.0
    _steps: int = 0

    def take(self, step: Step, now: float) -> None:
        """What one lap brought."""
        if not self._steps:  # later tries run again what was there before: that is no prompt of this answer
            self.first_ms = (now - self.began - self.waited) * 1e3
            self.reused = step.reused
        self._steps += 1
        self.ids += step.tokens
        self.text += "".join(text for text, _ in step.pieces)
        self.drafted += step.drafted
        self.right += step.right

    def stats(self, now: float) -> Stats:
        """What it took, up to now."""
        return Stats(
            tokens=len(self.ids),
            prompt=self.prompt,
            reused=self.reused,
            drafted=self.drafted,
            accepted=self.right,
            ms=(now - self.began - self.waited) * 1e3,
            first_ms=self.first_ms,
        )
