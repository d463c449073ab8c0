"""A worker's link to the device after it (PROTOCOL section 6, ``ai-next``)."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Protocol

from pooled_nb.errors import PooledError
from pooled_nb.mesh.clock import Clock
from pooled_nb.mesh.frame import Frame
from pooled_nb.mesh.messages import Message

log = logging.getLogger(__name__)

LINK_S = 10.0
"""Seconds in which a link that fails at once is dialed again: the roster may name its device in a moment, and
the host holds a waiting answer for 15 s (PROTOCOL section 6)."""
PAUSE_S = 1.0


class Links(Protocol):
    """What a worker needs of the mesh."""

    def send(self, to: str, message: Message) -> bool:
        """One control message."""

    def send_frame(self, to: str, frame: Frame) -> bool:
        """One frame."""

    def chain(self, ids: Sequence[str]) -> None:
        """Whose frames count, and whose links are kept."""

    async def connect(self, to: str) -> None:
        """A link to a device of the roster."""

    async def relink(self, to: str) -> None:
        """The same, over a fresh connection."""


async def linked(links: Links, clock: Clock, to: str, *, relink: bool) -> bool:
    """Whether the link to a device stands now; one that fails at once is tried again for `LINK_S`."""
    until = clock.now() + LINK_S
    while True:
        try:
            await (links.relink if relink else links.connect)(to)
            return True
        except PooledError as error:
            log.info("no link to the next device: %s", error)
            if clock.now() + PAUSE_S > until:
                return False
        await clock.sleep(PAUSE_S)
