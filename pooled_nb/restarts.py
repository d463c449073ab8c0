"""The end of this process, or of its kernel, and whether that starts again (PROTOCOL section 8, host resume).

Jupyter asks a kernel to end by ``shutdown_request {restart}``, and ipykernel hands that to ``do_shutdown``,
the method by which a kernel cleans up after itself. So we hear of it before the interpreter's exit, which
knows no reason, and while a cell runs, too: kernels answer such requests on a thread of their own. Where
there is no such method the exit alone tells; a process that is killed tells nothing.
"""

from __future__ import annotations

import atexit
import logging
import os
import sys
from collections.abc import Callable
from typing import Any

log = logging.getLogger("pooled_nb")

_pid: int | None = None
_ends: Callable[[bool], None] | None = None


def at_end(ends: Callable[[bool], None]) -> None:
    """Call this once this process ends, or its kernel, with whether the kernel starts again: on any thread.

    It may be said for every room. A forked child has an end of its own.
    """
    global _pid, _ends
    _ends = ends
    if _pid != os.getpid():
        _pid = os.getpid()
        atexit.register(_told, _pid)
        _hear(_pid)


def _told(pid: int, again: bool = False) -> None:
    # A forked child inherits the hooks, and must not close its parent's room.
    if os.getpid() == pid and _ends is not None:
        _ends(again)


def _hear(pid: int) -> None:
    """Hear of it from the kernel, where this is one that tells."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    kernel: Any = getattr(shell, "kernel", None)
    own = getattr(kernel, "do_shutdown", None)
    if not callable(own):
        return

    def do_shutdown(restart: bool = False, *more: Any, **named: Any) -> Any:
        try:
            _told(pid, bool(restart))
        except BaseException:  # an interrupt, too: the kernel ends in any case
            log.warning("leaving the room failed", exc_info=True)
        return own(restart, *more, **named)

    try:
        kernel.do_shutdown = do_shutdown
    except Exception:  # a kernel of another kind, in which nothing can be set
        log.debug("this kernel does not say whether it starts again", exc_info=True)
