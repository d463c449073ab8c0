"""Opening a shard."""

from __future__ import annotations

import importlib
from typing import cast

from pooled_nb.shard.door import Shard


def open_shard(process: bool = True) -> Shard:
    """Open this device's compute. Nothing starts before the first call; costs nothing until then.

    Parameters
    ----------
    process
        In a child process, as a kernel needs it; else in a thread of this one.

    Notes
    -----
    A shard belongs to the loop that calls it first. One that died stays dead: open another.
    """
    if process:
        from pooled_nb.shard.process import ProcessShard

        return ProcessShard()
    # By name: behind it lies torch, and whoever imports this door must not come to depend on it.
    return cast(Shard, importlib.import_module("pooled_nb.shard.thread").ThreadShard())
