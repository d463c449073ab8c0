"""What a forked child inherits of ours refuses in words.

A fork (a DataLoader worker, `multiprocessing`) copies rooms, answers and locks, and none of the threads
that serve them: whatever waited for one of those would wait forever. So everything of ours that waits is
known here, and is cut loose in the child. The parent's room goes on as it was.
"""

from __future__ import annotations

import os
import weakref
from typing import Protocol

from pooled_nb.errors import RoomClosed


class Orphan(Protocol):
    """Something that waits for the mesh thread."""

    def orphan(self) -> None:
        """Give up, in the child: its locks may be held by a thread that is not here."""


_known: weakref.WeakSet[Orphan] = weakref.WeakSet()
_kept: list[Orphan] = []


def known(thing: Orphan) -> None:
    """Cut it loose in every child forked from now on."""
    _known.add(thing)


def elsewhere() -> RoomClosed:
    """Why it cannot be used here."""
    return RoomClosed(
        "This room belongs to the process that opened it, and this one was forked from that.",
        "Use it there, or host or join another room here.",
    )


def _in_child() -> None:
    for thing in list(_known):
        thing.orphan()
        # Kept: collecting what the parent still uses would run its clean-up here.
        _kept.append(thing)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
