"""What a simulated room is like: everything that follows from a seed and is no fault."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Shape:
    """One room. Memory in GB: the model takes 0.65 on a host alone; times in seconds."""

    host_gb: float = 1.0
    workers: tuple[float, ...] = (1.0,)
    guests: int = 0
    latency: float = 0.01
    jitter: float = 0.0
    loss: float = 0.0
    keepalive_ms: float = 0.0
    stripes: int = 0
    frame: float = 0.02
    load: float = 2.0
    ctx: int = 512
    speculate: bool = True
