"""What a device may do about weights: its disk, its place's rules, its person's word."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pooled_nb.room.weights.consent import DOWNLOAD_GB
from pooled_nb.room.weights.runner import Runner, in_thread
from pooled_nb.shard import Holdings


@dataclass(frozen=True, slots=True)
class Means:
    """As `pooled_nb.room.opening` finds them.

    Attributes
    ----------
    holdings
        What it has of models' files; None: nothing is given, nor taken from others.
    runner
        Calls what reads or writes the disk.
    gives, takes
        Whether its person, and the place it runs at, allow to give weights to others, and to take them.
    download_gb
        GB that a load may make it download without asking its person.
    free_gb
        GB free on the disk that they go to; None: not known.
    """

    holdings: Holdings | None = None
    runner: Runner = in_thread
    gives: bool = True
    takes: bool = True
    download_gb: float = DOWNLOAD_GB
    free_gb: Callable[[], float | None] = lambda: None
