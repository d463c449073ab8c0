"""A room's panel in a notebook: live while the room is, then the text that stays (DESIGN section 7).

Whoever ends a room and however: what had been shown of it says so, has no button left, and needs no kernel.
"""

from __future__ import annotations

import logging
import sys
import threading
from typing import TYPE_CHECKING, Any, Protocol

from pooled_nb._notebook import CellRun, cell_run
from pooled_nb.output import Output, PanelOutput

if TYPE_CHECKING:
    from collections.abc import Callable

    from pooled_nb.room.core import Status
    from pooled_nb.widgets.room_panel import RoomPanel

THREAD = "pooled-output"
KEEP_S = 2.0
"""What is kept for a page without the kernel is renewed at most so often."""

log = logging.getLogger("pooled_nb")


class Shown(Protocol):
    """What of a room this needs."""

    @property
    def left(self) -> bool:
        """Over for this device."""

    def seen(self) -> Status | None:
        """How it is."""

    def panel(self) -> RoomPanel:
        """Its panel."""

    def saved(self) -> dict[str, str]:
        """What stays of it."""

    def watch(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Hear of changes."""


def _dealt(room: Shown) -> object:
    """What of a room is worth keeping anew: who is there, and which layers each holds."""
    status = room.seen()
    return [(d.id, d.layers, d.gone) for d in status.devices] if status is not None else None


class _Outputs:
    """The outputs that show one room, which is watched once for all of them."""

    def __init__(self, room: Shown) -> None:
        self.room = room
        self._outputs: list[tuple[CellRun, PanelOutput]] = []
        self._lock = threading.Lock()
        self._over = False
        self._told = False
        self._kept = _dealt(room)
        self._renews = False
        self._unwatch = room.watch(self._look)

    def add(self, output: PanelOutput) -> None:
        """One more, of the cell that runs. What that cell showed when it ran before is gone from the page."""
        here = cell_run()
        with self._lock:
            self._outputs = [one for one in self._outputs if not here.replaces(one[0])]
            self._outputs.append((here, output))

    def _look(self) -> None:
        # On any thread, the mesh loop too: it only posts.
        if self.room.left:
            if not self._told:
                self._told = True
                threading.Thread(target=settle, name=THREAD, daemon=True).start()
        elif not self._renews and _dealt(self.room) != self._kept:
            self._renews = True
            timer = threading.Timer(KEEP_S, self._renew)
            timer.name, timer.daemon = THREAD, True
            timer.start()

    def _renew(self) -> None:
        self._renews = False
        with self._lock:
            if not self._over and not self.room.left:
                self._kept = _dealt(self.room)
                self._each(PanelOutput.keep)

    def _each(self, do: Callable[[PanelOutput, dict[str, str]], None]) -> None:
        for _, output in self._outputs:
            try:
                do(output, self.room.saved())
            except Exception:
                log.warning("a room's output could not be updated", exc_info=True)

    def settle(self) -> bool:
        """Whether the room is over; its outputs then say so."""
        with self._lock:
            if not self._over and self.room.left:
                self._over = True
                self._unwatch()
                self._each(PanelOutput.end)
            return self._over


_all: list[_Outputs] = []
_settling = threading.Lock()
_hooked: Any = None


def show_panel(room: Shown, output: Output | None = None) -> None:
    """Show a room's panel in the cell that runs, or in this output; if none can be made, words."""
    global _hooked
    both = PanelOutput(output)
    try:
        both.show(room.panel(), room.saved())
    except Exception:  # no widgets in this environment, or others than those we know
        log.warning("a room is shown as text: its panel could not be made", exc_info=True)
        both.end(room.saved())
    with _settling:
        outputs = _of(room)
        if outputs is None:
            outputs = _Outputs(room)
            _all.append(outputs)
        outputs.add(both)
    shell = sys.modules["IPython"].get_ipython()
    if _hooked is not shell:
        _hooked = shell
        shell.events.register("post_run_cell", _after_cell)


def _of(room: Shown) -> _Outputs | None:
    return next((outputs for outputs in list(_all) if outputs.room is room), None)


def is_shown(room: Shown) -> bool:
    """Whether a panel of this room is in the notebook."""
    return _of(room) is not None


def _after_cell(_: object = None) -> None:
    # What a cell ended says so before the cell is over, not at some moment after it.
    settle()


def settle() -> None:
    """Let the outputs of rooms that are over say so. Any thread but the mesh one."""
    with _settling:
        _all[:] = [outputs for outputs in _all if not outputs.settle()]
