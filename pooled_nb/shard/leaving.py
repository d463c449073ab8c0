"""What must still be done when the shard's process ends in the middle of a job: nothing it started stays."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator
from typing import NoReturn

_lock = threading.Lock()
_duties: list[Callable[[], None]] = []
begun = threading.Event()
"""The process is ending: what a job makes of that is no answer any more."""


@contextlib.contextmanager
def on_leaving(duty: Callable[[], None]) -> Iterator[None]:
    """Have this done if the process ends within the block by `leave`; it must be quick."""
    with _lock:
        _duties.append(duty)
    try:
        yield
    finally:
        with _lock:
            if duty in _duties:
                _duties.remove(duty)


def leave(code: int) -> NoReturn:
    """End the process at once, from any thread, after what is to be done then; the newest first."""
    begun.set()
    with _lock:
        duties = list(reversed(_duties))
    for duty in duties:
        with contextlib.suppress(Exception):
            duty()
    os._exit(code)
