"""What a room does: host, worker, guest, dealing, queue, generation.

`host`, `join` and `resume` are imported at first use: they bring WebRTC with them, and the types of
`pooled_nb.room.core` must stay cheap to import.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pooled_nb.room.opening import host, join
    from pooled_nb.room.resuming import resume

__all__ = ["host", "join", "resume"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        from pooled_nb.room import opening, resuming

        return resuming.resume if name == "resume" else getattr(opening, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
