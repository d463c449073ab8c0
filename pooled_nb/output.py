"""One output of a notebook's cell, updated in place from any thread; and a panel with what is kept for it."""

from __future__ import annotations

import secrets
import sys
import threading
from typing import Any

Bundle = dict[str, Any]
"""What is shown, by MIME type."""

_CHILD = ".jp-OutputArea-child"
_DEAD = f"{_CHILD}:has(>.jupyter-widgets)"
"""JupyterLab's "Error displaying widget: model not found": the renderer itself has that class then only."""
_STYLE = (
    f"{_DEAD}:has(+{_CHILD} .pnb-kept){{display:none}}"
    f"{_DEAD}+{_CHILD} .pnb-kept{{display:block}}"
    f"{_CHILD}:not(:has(>.jupyter-widgets))+{_CHILD}:has(.pnb-kept){{display:none}}"
)
NOTHING: Bundle = {"text/plain": "", "text/html": ""}


class Output:
    """An output of the cell that runs when it is first shown; it lives on when that cell has ended.

    It goes where that cell's outputs go, whatever runs when it is updated.
    """

    def __init__(self) -> None:
        self._where: Any = None
        self._name = secrets.token_hex(16)
        self._lock = threading.Lock()

    @property
    def shown(self) -> bool:
        """Whether it is there."""
        return self._where is not None

    def show(self, bundle: Bundle, metadata: dict[str, Any] | None = None) -> None:
        """Put this there, in place of what was there."""
        with self._lock:
            there = self._where is not None
            if not there:
                self._where = sys.modules["IPython"].get_ipython().display_pub
            self._where.publish(
                data=bundle, metadata=metadata or {}, transient={"display_id": self._name}, update=there
            )


class PanelOutput:
    """A panel in an output; in the next one, unseen, what a page without the kernel shows in its place.

    JupyterLab takes the panel's own text for less than the panel, and of a notebook that was reopened without
    its kernel it would show "model not found" there. That second output may be renewed as often as wanted:
    the panel's own would blink.

    Parameters
    ----------
    output
        Where the panel is to be; None: a new output.
    """

    def __init__(self, output: Output | None = None) -> None:
        self.output = output or Output()
        self._kept = Output()

    def show(self, panel: Any, kept: Bundle | None) -> None:
        """Put the panel there; what is kept may come later, while the same cell runs."""
        made = panel._repr_mimebundle_()
        data, metadata = made if isinstance(made, tuple) else (made, {})
        self.output.show(dict(data or {}), dict(metadata or {}))
        if kept is not None:
            self.keep(kept)

    def keep(self, bundle: Bundle) -> None:
        """Renew what is kept."""
        page = f"<div class='pnb-kept' hidden>{bundle['text/html']}</div><style>{_STYLE}</style>"
        self._kept.show({"text/plain": "", "text/html": page})

    def end(self, bundle: Bundle) -> None:
        """Leave this in place of the panel: it needs no kernel."""
        self.output.show(bundle)
        if self._kept.shown:
            self._kept.show(NOTHING)
