"""What one piece of work sends leaves together: fewer calls of the system, and who reads wakes up less often.

A frame is several messages of several packets each. Who sends it says so; whoever puts packets on the network
meanwhile, however many connections carry it, may keep them until it is done (`sctp.base`). That is a moment
within one turn of the loop: nothing waits for a timer, and nothing for more to come.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

log = logging.getLogger(__name__)


class Together(threading.local):
    """The piece of work that runs now, if any; each thread has its own. `begin` and `end` come in pairs."""

    def __init__(self) -> None:
        self._depth = 0
        self._waiting: dict[Callable[[], None], None] = {}

    def begin(self) -> None:
        """What is sent from now on belongs together. A piece of work inside another ends with that."""
        self._depth += 1

    def end(self) -> None:
        """Let all of it leave. Never raises."""
        self._depth -= 1
        if self._depth or not self._waiting:
            return
        waiting, self._waiting = self._waiting, {}
        for leave in waiting:
            try:
                leave()
            except Exception:
                log.exception("what was to be sent could not be")

    def waits(self, leave: Callable[[], None]) -> bool:
        """Whether something goes on that more may be sent in: then ``leave`` is called at its end, once."""
        if not self._depth:
            return False
        self._waiting[leave] = None
        return True


here = Together()
