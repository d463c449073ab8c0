"""Notebook kernels meet in a WebRTC room and run one open language model together.

::

    import pooled_nb as pooled

    room = pooled.host("HuggingFaceTB/SmolLM2-135M-Instruct")   # or pooled.join("4TK-G9P")
    answer = room.ask("Why is the sky blue?")
    room.leave()

In a notebook: ``%load_ext pooled_nb``, then ``%pooled help``. In a terminal: ``pooled-nb --help``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pooled_nb._version import __version__
from pooled_nb.errors import PooledError

if TYPE_CHECKING:
    from pooled_nb.answer import Answer
    from pooled_nb.api import current, host, join, resume
    from pooled_nb.door import Gate, Invite, Lobby, Network
    from pooled_nb.library import Models
    from pooled_nb.room.doorfacts import Doubt
    from pooled_nb.room_view import Room
    from pooled_nb.status import Status
    from pooled_nb.widgets.answer_panel import AnswerPanel
    from pooled_nb.widgets.room_panel import RoomPanel

__all__ = [
    "Answer",
    "AnswerPanel",
    "Doubt",
    "Gate",
    "Invite",
    "Lobby",
    "Models",
    "Network",
    "PooledError",
    "Room",
    "RoomPanel",
    "Status",
    "__version__",
    "current",
    "host",
    "join",
    "models",
    "network",
    "resume",
]

_WHERE = {
    "Answer": "pooled_nb.answer",
    "AnswerPanel": "pooled_nb.widgets.answer_panel",
    "Doubt": "pooled_nb.room.doorfacts",
    "Gate": "pooled_nb.door",
    "Invite": "pooled_nb.door",
    "Lobby": "pooled_nb.door",
    "Models": "pooled_nb.library",
    "Network": "pooled_nb.door",
    "Room": "pooled_nb.room_view",
    "RoomPanel": "pooled_nb.widgets.room_panel",
    "Status": "pooled_nb.status",
    "current": "pooled_nb.api",
    "host": "pooled_nb.api",
    "join": "pooled_nb.api",
    "models": "pooled_nb.library",
    "network": "pooled_nb.reaching",
    "resume": "pooled_nb.api",
}


def __getattr__(name: str) -> Any:
    # Importing this package is quick and pulls in neither torch nor aiortc: the rest comes at first use.
    if name not in _WHERE:
        raise AttributeError(f"module 'pooled_nb' has no attribute {name!r}")
    from importlib import import_module

    value = globals()[name] = getattr(import_module(_WHERE[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def load_ipython_extension(shell: Any) -> None:
    """``%load_ext pooled_nb``."""
    from pooled_nb.magics import load

    load(shell)


def unload_ipython_extension(shell: Any) -> None:
    """``%unload_ext pooled_nb``: the magics go; a room stays until it is left."""
    from pooled_nb.magics import unload

    unload(shell)
