"""Whether a model can be cut into frames, found out before its weights are fetched (DESIGN section 6).

A few of its layers are built from the config alone, with numbers of our own, and go through what a loaded
range goes through.
"""

from __future__ import annotations

from typing import Any

import torch
from accelerate import init_empty_weights
from torch import nn

from pooled_nb.errors import ModelNotSupported
from pooled_nb.shard import compat
from pooled_nb.shard.arch import attention, find_parts, max_ctx, model_class, slice_config
from pooled_nb.shard.faults import no_memory
from pooled_nb.shard.frames import Rules
from pooled_nb.shard.loader import pruned_class
from pooled_nb.shard.stage import Stage

MOST = 100_000_000
"""Numbers (float32) up to which the layers get memory; larger ones are tried without any: shapes only."""
LONGEST = 4096
"""Columns of the cache."""
LAYERS = 4


def try_model(config: Any) -> None:
    """Refuse a model that no device could run in frames.

    Parameters
    ----------
    config
        What `arch.read_config` gave.

    Raises
    ------
    ModelNotSupported
        Says what the model does that cannot be cut into frames.
    """
    count = min(_enough(config), config.num_hidden_layers)
    # As a worker holds them: no embedding, so that its size does not matter.
    short = slice_config(config, 0, count)
    with compat.quiet(), init_empty_weights(include_buffers=False):
        model = pruned_class(model_class(config), 0, count, ends=False)._from_config(
            short,
            dtype=torch.float32,
            attn_implementation=attention(config, "sdpa"),
            experts_implementation="batched_mm",
        )
    parts = find_parts(model.eval().requires_grad_(False))
    numbers = sum(p.numel() for p in parts.list().parameters())
    real = numbers <= MOST
    if real:
        _fill(parts.list())
    else:
        model.to("meta")
    ctx = min(max_ctx(config), LONGEST)
    rules = Rules(ctx=ctx, width=16, cols=32, exact=True)
    try:
        with compat.quiet():
            Stage(parts, 0, rules, torch.float32, embeds=False)
    except ModelNotSupported:
        raise
    except Exception as error:
        # A mixture may look at numbers, which are not there without memory; then loading tells.
        if real and not no_memory(error):
            raise ModelNotSupported(
                f"A trial of {type(parts.base).__name__} failed: {type(error).__name__}.",
                "Choose another model: pooled_nb runs text models of plain attention layers.",
            ) from error


def _enough(config: Any) -> int:
    """Layers from the first on that show every kind of attention the model has, two at least."""
    types = [str(t) for t in getattr(config, "layer_types", None) or ()]
    return min(LAYERS, max([2, *(types.index(kind) + 1 for kind in types)]))


def _fill(layers: nn.ModuleList) -> None:
    """Give the weights memory and numbers under which attention and layers all matter."""
    made: dict[int, nn.Parameter] = {}
    generator = torch.Generator().manual_seed(1)
    for module in layers.modules():
        for name, old in module.named_parameters(recurse=False):
            if id(old) not in made:
                scale = 2.0 * old.shape[-1] ** -0.5 if old.ndim > 1 else 0.1
                new = torch.empty(old.shape).uniform_(-scale, scale, generator=generator)
                if old.ndim == 1 and name.endswith("weight"):
                    new += 1  # a norm
                made[id(old)] = nn.Parameter(new, requires_grad=False)
            setattr(module, name, made[id(old)])
