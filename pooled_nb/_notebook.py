"""The kernel of a notebook, where this is one: nothing of our threads lands in its cells (DESIGN section 7).

A kernel puts whatever any thread writes under the cell that runs at that moment. From the first room on,
what threads named ``pooled-…`` write to a kernel's streams goes to the log ``pooled_nb.output`` instead.
The streams' class is what is changed, so that it also holds for a logging handler that kept one of
them. A cell that puts a stream of its own in place of stdout (``%%capture``) is not in our hands.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from typing import Any, NamedTuple

OURS = "pooled-"
KEPT = 10_000
"""Characters of an unfinished line that are kept at most."""

HEAR_S = 0.025
"""A wait that is woken by each piece of an answer listens no more often than this."""

log = logging.getLogger("pooled_nb.output")
_here = threading.local()
_guarded = False
_listened = 0.0


def in_notebook() -> bool:
    """Whether this code runs in a kernel that has a frontend."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return shell is not None and getattr(shell, "kernel", None) is not None


def cell() -> int | None:
    """The number of the cell that runs; None where this is no notebook."""
    return sys.modules["IPython"].get_ipython().execution_count if in_notebook() else None


class CellRun(NamedTuple):
    """A run of a cell. ``cell`` names the cell where the frontend does: JupyterLab does, a client may not."""

    cell: str | None
    run: int | None

    def replaces(self, before: CellRun) -> bool:
        """Whether the same cell runs again, and so shows nothing any more of what it showed then."""
        return self.cell is not None and self.cell == before.cell and self.run != before.run


def cell_run() -> CellRun:
    """What runs now, in a notebook."""
    parent: dict[str, Any] = getattr(sys.modules["IPython"].get_ipython(), "get_parent", dict)()
    metadata = parent.get("metadata")
    name = metadata.get("cellId") if isinstance(metadata, dict) else None
    return CellRun(name if isinstance(name, str) else None, cell())


def while_waiting() -> None:
    """Hear what panels were told: for every wait of a cell, about each 30 ms (DESIGN section 7)."""
    global _listened
    if threading.current_thread() is not threading.main_thread() or not in_notebook():
        return
    if (now := time.monotonic()) >= _listened + HEAR_S:
        _listened = now
        from pooled_nb.widgets import kernel

        kernel.pump()


def guard() -> None:
    """Begin to keep what our threads print out of cells; where this is no kernel, there is nothing to do."""
    global _guarded
    if _guarded or (iostream := sys.modules.get("ipykernel.iostream")) is None:
        return
    _guarded = True
    stream = iostream.OutStream
    stream.write = _Method("write", stream.write, _to_log)
    stream.flush = _Method("flush", stream.flush, _nothing)


class _Method:
    """A method that is another one for our threads.

    It goes before what an instance was given (IPython puts a ``write`` of its own there for each cell).
    """

    def __init__(self, name: str, own: Any, instead: Any) -> None:
        self._name = name
        self._own = own
        self._instead = instead

    def __get__(self, stream: Any, owner: Any = None) -> Any:
        if stream is None:
            return self._own
        if threading.current_thread().name.startswith(OURS):
            return self._instead
        return vars(stream).get(self._name) or self._own.__get__(stream, owner)

    def __set__(self, stream: Any, value: Any) -> None:
        vars(stream)[self._name] = value

    def __delete__(self, stream: Any) -> None:
        vars(stream).pop(self._name, None)


def _nothing() -> None:
    # The kernel's own would block the mesh loop until its other thread has sent everything.
    pass


def _to_log(text: str) -> int:
    # A line of logging itself has its other handlers; and a handler that writes here must not come back.
    if sys._getframe(1).f_globals.get("__name__") == "logging" or getattr(_here, "busy", False):
        return len(text)
    *lines, rest = (getattr(_here, "rest", "") + text).split("\n")
    _here.rest = rest[-KEPT:]
    _here.busy = True
    try:
        for line in lines:
            if line.strip():
                log.info("%s", line)
    finally:
        _here.busy = False
    return len(text)
