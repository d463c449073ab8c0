"""Questions that a room's process leaves when it dies; the next one asks them again (PROTOCOL section 8)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator

from pooled_nb.room.core import AskOptions, RoomCore
from pooled_nb.room.memory import Resumable, SavedQuestion

LOOK_S = 0.1
"""How often such a question looks whether the room goes on."""


async def its_turn(core: Resumable, question: SavedQuestion) -> None:
    """Wait until it may be asked again; from then on the room need not keep it for that.

    One that waited in the queue lets those come back who were before it.
    """
    try:
        while core.resuming and not question.begun:  # noqa: ASYNC110  # it is some seconds, once
            await asyncio.sleep(LOOK_S)
    finally:
        with contextlib.suppress(ValueError):
            core.asked.remove(question)


@contextlib.contextmanager
def kept(core: RoomCore, text: str, options: AskOptions) -> Iterator[None]:
    """Keep a question while the room starts for its sake: it is asked, and in the queue, only after that."""
    if not isinstance(core, Resumable):
        yield
        return
    question = SavedQuestion(text=text, options=options)
    core.asked.append(question)
    try:
        yield
    finally:
        with contextlib.suppress(ValueError):
            core.asked.remove(question)
        core.on_memory()
