"""How fast a range computes, measured once after it was loaded: what a deal for speed goes by."""

from __future__ import annotations

import time

import torch

from pooled_nb.errors import PooledError
from pooled_nb.shard.arch import where
from pooled_nb.shard.door import Columns, Control
from pooled_nb.shard.stage import Stage

LIMIT_S = 0.3
"""A load takes no longer for it: where one frame does, nothing is measured here, and frames tell it later."""
_FRAMES = 3


def layer_ms(stage: Stage, *, embeds: bool) -> float:
    """Milliseconds that a layer takes for a frame of generated text: the best of three, after one more.

    The stage is as after it was loaded: nothing in its caches, and no checkpoints.

    Parameters
    ----------
    embeds
        It begins with tokens (the host).

    Returns
    -------
    float
        0: not measured, since a frame takes too long, or fails (the first real one will say why).
    """
    try:
        return _measured(stage, _columns(stage, embeds))
    except PooledError:
        return 0.0
    finally:
        stage.clear()


def _measured(stage: Stage, given: torch.Tensor) -> float:
    best, begun = float("inf"), time.perf_counter()
    for pos in range(1 + _FRAMES):
        start = time.perf_counter()
        stage.forward(Columns(pos=pos, n=1, wide=False), Control(reset=pos == 0), given)
        now = time.perf_counter()
        if pos > 0:
            best = min(best, now - start)
        elif where(stage.layers[0]).type != "cpu":
            begun = now  # an accelerator prepares itself in the first frame of a kind, whenever that comes
        if now - begun > LIMIT_S:
            break
    return round(best * 1000 / len(stage.layers), 4) if best < float("inf") else 0.0


def _columns(stage: Stage, embeds: bool) -> torch.Tensor:
    """One column: any numbers will do."""
    if embeds:
        return torch.zeros(1, dtype=torch.int64)
    return torch.sin(torch.arange(stage.dim, dtype=torch.float32)).to(stage.dtype)[None]
