"""How a room is left: step after step, whatever happens to one of them."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

log = logging.getLogger(__name__)


async def in_turn(*steps: Callable[[], Awaitable[None]]) -> None:
    """Do all of them; one that fails is logged, and the next is done."""
    for step in steps:
        try:
            await step()
        except Exception:
            log.exception("leaving was not clean")
