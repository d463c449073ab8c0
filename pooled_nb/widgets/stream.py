"""How an answer's text reaches its views: pieces and ``now`` in, messages out. Pure.

Every 50 ms what is new goes out as one message with a number that rises by one (DESIGN section 7). The
whole text is a trait, set at the start, about every second and at the end, and is sent once more to a view
that says it has missed something. The longer the text, the more seldom it is sent whole.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

DELTA_S = 0.05
TEXT_S = 1.0
BYTES_PER_S = 200_000
"""What may be spent on sending whole texts again."""
MOST = 4_000_000
"""Characters of a text that a panel carries, and a page draws: many times what any context holds."""


class Sent(Struct, frozen=True, kw_only=True):
    """What one paint sends: the traits ``text`` and ``seq`` where they are due, then messages in order."""

    messages: tuple[dict[str, Any], ...] = ()
    traits: tuple[str, int] | None = None


class Stream:
    """The text of one answer on its way to any number of views.

    Parameters
    ----------
    id
        Names the answer to the views.
    kept
        Stands there until the answer's own first piece has come: one that is continued begins with it.
    """

    def __init__(self, id: int, kept: str = "") -> None:
        self.id = id
        self._kept = kept
        self._came = 0
        self.ended = False
        self._synced = True
        self._delta_at = 0.0
        self._text_at = 0.0
        self._paid_at = 0.0
        self._restart(kept)

    def _restart(self, text: str) -> None:
        self.seq = 0
        self._parts = [text] if text else []
        self._size = len(text.encode("utf-8", "replace"))
        self._new: list[str] = []
        self._shown = -1  # the number that the trait includes

    @property
    def text(self) -> str:
        """All of it, sent or not."""
        return "".join(self._parts if self._kept else (*self._parts, *self._new))

    def add(self, pieces: list[str]) -> None:
        """More text."""
        for piece in pieces:
            if taken := piece[: MOST - self._came]:
                self._new.append(taken)
                self._came += len(taken)
        if self._kept:
            self._go_on("".join(self._new))

    def _go_on(self, came: str) -> None:
        kept = self._kept
        if came.startswith(kept):
            self._kept, self._new = "", [came[len(kept) :]] if len(came) > len(kept) else []
        elif self.ended or not kept.startswith(came):  # it begins otherwise: another text after all
            self._kept = ""
            self.id += 1
            self._restart(came)
        else:
            self._new = [came]

    def end(self) -> None:
        """No more text comes."""
        self.ended = True
        if self._kept and self._new:
            self._go_on("".join(self._new))

    def sync(self) -> None:
        """A view has missed something, or was just made."""
        self._synced = False

    def take(self, now: float) -> Sent:
        """What to send now."""
        messages: list[dict[str, Any]] = []
        # At the start the traits go ahead: no view knows this answer yet.
        traits = self._traits(now) if self._shown < 0 else None
        if self._has_new and (self.ended or now >= self._delta_at):
            messages.append(self._delta(now))
        if traits is None and self._text_due() <= now:
            traits = self._traits(now)
        if not self._synced and now >= self._paid_at:
            messages.append({"id": self.id, "seq": self.seq, "whole": self._whole()})
            self._synced = True
            self._pay(now)
        return Sent(messages=tuple(messages), traits=traits)

    def due(self) -> float | None:
        """When there is something to send again; None: when something happens."""
        times = [self._text_due()]
        if self._has_new:
            times.append(0.0 if self.ended else self._delta_at)
        if not self._synced:
            times.append(self._paid_at)
        soon = min(times)
        return None if soon == float("inf") else soon

    @property
    def _has_new(self) -> bool:
        return bool(self._new) and not self._kept

    def _traits(self, now: float) -> tuple[str, int]:
        self._shown, self._text_at = self.seq, now + TEXT_S
        self._pay(now)
        return self._whole(), self.seq

    def _whole(self) -> str:
        self._parts = ["".join(self._parts)]
        return self._parts[0]

    def _delta(self, now: float) -> dict[str, Any]:
        text = "".join(self._new)
        self._new.clear()
        self._parts.append(text)
        self._size += len(text.encode("utf-8", "replace"))
        self.seq += 1
        self._delta_at = now + DELTA_S
        return {"id": self.id, "seq": self.seq, "text": text}

    def _text_due(self) -> float:
        if self._shown == self.seq:
            return float("inf")
        # At the start and at the end at once: a view that was made meanwhile, or a saved notebook, needs it.
        if self._shown < 0 or (self.ended and not self._has_new):
            return 0.0
        return max(self._text_at, self._paid_at)

    def _pay(self, now: float) -> None:
        self._paid_at = max(now, self._paid_at) + self._size / BYTES_PER_S
