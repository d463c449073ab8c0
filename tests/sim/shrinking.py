"""Make a failing story small: fewer faults, fewer words, shorter faults; it must still fail."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from tests.sim.faults import Fault
from tests.sim.story import Story

T = TypeVar("T")

MOST = 80
"""Runs that one shrinking may take."""


def shrink(story: Story, fails: Callable[[Story], bool], most: int = MOST) -> Story:
    """The smallest story found that still fails. ``story`` itself must fail."""
    runs = 0

    def still(candidate: Story) -> bool:
        nonlocal runs
        runs += 1
        return runs <= most and fails(candidate)

    small = replace(story, faults=story.befalls)
    faults = minimal(small.befalls, lambda faults: still(replace(small, faults=tuple(faults))))
    small = replace(small, faults=tuple(faults))
    spoken = range(len(small.script)) if small.says is None else small.says
    says = minimal(spoken, lambda says: still(replace(small, says=tuple(says))))
    if len(says) < len(spoken):
        small = replace(small, says=tuple(says))
    for i, fault in enumerate(small.befalls):
        for shorter in _shorter(fault):
            faults = [*small.befalls[:i], shorter, *small.befalls[i + 1 :]]
            if still(replace(small, faults=tuple(faults))):
                small = replace(small, faults=tuple(faults))
                break
    return small


def minimal(items: Sequence[T], fails: Callable[[list[T]], bool]) -> list[T]:
    """Delta debugging: a part of ``items`` that still fails, and of which no single one may go."""
    now = list(items)
    if now and fails([]):
        return []
    pieces = 2
    while len(now) >= 2:
        size = max(1, len(now) // pieces)
        for start in range(0, len(now), size):
            rest = now[:start] + now[start + size :]
            if rest and fails(rest):
                now, pieces = rest, max(2, pieces - 1)
                break
        else:
            if size == 1:
                break
            pieces = min(len(now), 2 * pieces)
    return now


def _shorter(fault: Fault) -> list[Fault]:
    """Rounder and shorter ones, the shortest first."""
    return [replace(fault, s=s) for s in (1.0, 4.0, 10.0, 20.0, 50.0) if s < fault.s]
