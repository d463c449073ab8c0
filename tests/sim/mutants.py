"""Bugs that are planted to see whether seeds find them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

from pooled_nb.mesh import awake, liveness, membership
from pooled_nb.room import answering, laps, speaking, transcript


def _stale() -> list[Any]:
    """A return of an earlier epoch counts."""
    real = laps.Laps.returned

    def returned(self: laps.Laps, frame: Any, now: float) -> Any:
        import dataclasses

        return real(self, dataclasses.replace(frame, epoch=self.epoch), now)

    return [mock.patch.object(laps.Laps, "returned", returned)]


def _twice() -> list[Any]:
    """After a wait the answer begins anew, and what was shown is shown again."""
    return [mock.patch.object(speaking, "after", lambda prompt, said: prompt)]


def _forgets() -> list[Any]:
    """While a device is waited for, the queue loses its newest question."""
    real = answering.Answering.hold

    def hold(self: answering.Answering, why: str) -> None:
        real(self, why)
        if waiting := self.queue.waiting:
            self.queue.remove(waiting[-1])

    return [mock.patch.object(answering.Answering, "hold", hold)]


def _wrong_seat() -> list[Any]:
    """A pass takes the seat of whoever stands after the creator."""

    def holder(self: membership.Membership, seat: str) -> str | None:
        there = [id for id, taken in self._seats.items() if taken]
        return there[0] if seat in self._seats.values() else None

    return [mock.patch.object(membership.Membership, "holder", holder)]


def _judges() -> list[Any]:
    """A device that slept judges the others by it."""
    never = mock.patch.object
    return [never(liveness, "LATE_S", 1e9), never(awake, "LATE_S", 1e9)]


def _rewrites() -> list[Any]:
    """A screen shows a replayed answer behind what it shows already."""
    real = transcript.Transcript.read

    def read(self: Any, message: Any) -> bool:
        before = self.text
        took = real(self, message)
        if type(message).__name__ == "GenStart" and before:
            self.text = before
        return took

    return [mock.patch.object(transcript.Transcript, "read", read)]


MUTANTS: dict[str, Callable[[], list[Any]]] = {
    "a stale epoch is accepted": _stale,
    "tokens are shown twice after a wait": _twice,
    "the queue forgets an entry on hold": _forgets,
    "a seat goes to the wrong device": _wrong_seat,
    "a late timer judges": _judges,
    "a replayed answer is shown behind itself": _rewrites,
}


@contextmanager
def planted(name: str) -> Iterator[None]:
    """The bug is there."""
    with ExitStack() as stack:
        for patch in MUTANTS[name]():
            stack.enter_context(patch)
        yield
