"""When an answer ends, and the words for it (PROTOCOL section 7)."""

from __future__ import annotations

from dataclasses import dataclass

from pooled_nb.room.core import Reason, Stats
from pooled_nb.room.prefill import RESERVE


@dataclass(frozen=True, slots=True)
class Limits:
    """How far one answer may go: ``prompt`` tokens come before it, ``max_tokens`` were asked for."""

    prompt: int
    ctx: int
    max_tokens: int

    def left(self, generated: int) -> int:
        """How many tokens may come after these."""
        return min(self.max_tokens, self.ctx - self.prompt) - generated

    def after(self, generated: int, *, end: bool, stopped: bool) -> Reason | None:
        """Why the answer ends after ``generated`` tokens, or None to go on.

        ``end``: the model ended it, or a stop text did; ``stopped``: a person.
        """
        if end:
            return "stop"
        if stopped:
            return "abort"
        if self.prompt + generated >= self.ctx:
            return "ctx"
        if generated >= self.max_tokens:
            return "max"
        return None


def refusal(prompt: int, ctx: int) -> str | None:
    """Why a prompt is refused: it is never trimmed."""
    if prompt <= ctx - RESERVE:
        return None
    return (
        f"The conversation is {prompt} tokens long and the room's context is {ctx}; {RESERVE} must stay "
        "for the answer. Begin a new chat, or ask more briefly."
    )


def words(reason: Reason, ctx: int, generated: int, why: str = "") -> str:
    """One sentence about an end that a person may wonder about; empty for an ordinary one."""
    if reason == "ctx":
        return f"context full ({ctx} tokens)"
    if reason == "max":
        return f"stopped at its length ({generated} tokens)"
    if reason == "abort":
        return "stopped"
    return why


def describe(stats: Stats, note: str, tokens: int, *, waited: float = 0.0) -> str:
    """The line for people under an answer of ``tokens`` tokens, those of before it went on included.

    ``waited``: seconds that it waited for devices, which its speed does not count.
    """
    parts = [f"{tokens} tokens"]
    if stats.tps:
        parts.append(f"{stats.tps:.1f} tokens/s")
    if stats.drafted:
        parts.append(f"{stats.accepted} of {stats.drafted} drafts right")
    if stats.first_ms:
        parts.append(f"first after {stats.first_ms / 1e3:.1f} s")
    if waited >= 0.5:
        parts.append(f"waited {waited:.0f} s")
    if note:
        parts.append(note)
    return " · ".join(parts)
