"""How what reads or writes the disk is kept off the mesh loop: the one seam that tests replace."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

T = TypeVar("T")


class Runner(Protocol):
    """Runs a job, and waits for what it returns or raises."""

    def __call__(self, job: Callable[[], T], /) -> Awaitable[T]:
        """Run it."""


async def in_thread(job: Callable[[], T], /) -> T:
    """In a thread of the loop's pool. Whoever stops waiting does not stop the job: keep each short."""
    return await asyncio.to_thread(job)


async def inline(job: Callable[[], T], /) -> T:
    """On the loop, at once: for rooms on a virtual clock, whose disk is memory."""
    return job()
