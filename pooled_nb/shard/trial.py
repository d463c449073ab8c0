"""Whether a model can be cut into frames, found out before its weights are fetched (DESIGN section 6).

A few of its layers are built from the config alone, with numbers of our own, and go through what a loaded
range goes through.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from pooled_nb.errors import ModelNotSupported
from pooled_nb.shard import compat
from pooled_nb.shard.arch import (
    EXACT_EXPERTS,
    OTHER_MODEL,
    Parts,
    attention,
    find_parts,
    max_ctx,
    model_class,
)
from pooled_nb.shard.door import Columns, Control
from pooled_nb.shard.faults import no_memory
from pooled_nb.shard.frames import Rules
from pooled_nb.shard.loader import pruned_class, renumber
from pooled_nb.shard.stage import Stage

MOST = 100_000_000
"""Numbers (float32) up to which the layers get memory; larger ones are tried without any: shapes only."""
LONGEST = 4096
"""Columns of the cache."""
LAYERS = 12
"""Most layers that are tried."""
COLUMNS = 5
"""Columns of the frame that a part of the layers is compared with them all in."""


def try_model(config: Any, glued: Sequence[tuple[int, int]] = ()) -> None:
    """Refuse a model that no device could run in frames.

    Parameters
    ----------
    config
        What `arch.read_config` gave.
    glued
        Ranges that are tried whole, as they are dealt; see `ModelFacts`.

    Raises
    ------
    ModelNotSupported
        Says what the model does that cannot be cut into frames.
    """
    enough = _enough(config)
    first = max([enough, *(hi for lo, hi in glued if lo < enough)])
    for lo, hi in [(0, first), *(whole for whole in glued if whole[1] > first)]:
        _try_range(config, lo, hi, alone=any(start <= lo < end for start, end in glued))


def _try_range(config: Any, lo: int, hi: int, *, alone: bool) -> None:
    # As a worker holds them: no embedding, so that its size does not matter.
    cls = pruned_class(model_class(config), lo, hi, ends=False)
    how: dict[str, Any] = {
        "dtype": torch.float32,
        "attn_implementation": attention(config, "sdpa"),
        "experts_implementation": EXACT_EXPERTS,
    }
    with compat.quiet(), torch.device("meta"):
        model = cls._from_config(copy.deepcopy(config), **how).to("meta")  # numbers that were made at once
    real = sum(p.numel() for p in find_parts(model).list().parameters()) <= MOST
    if real:
        with compat.quiet():  # as weights are loaded, but there are none: buffers get their numbers
            model = cls.from_pretrained(None, config=copy.deepcopy(config), state_dict={}, **how)
        _fill(find_parts(model).list())
    parts = find_parts(model.eval().requires_grad_(False))
    renumber(parts, lo, hi)
    ctx = min(max_ctx(config), LONGEST)
    rules = Rules(ctx=ctx, width=16, cols=32, exact=True)
    try:
        with compat.quiet():
            stage = Stage(parts, lo, rules, torch.float32, embeds=False)
            if real and not alone and hi - lo > 1:
                _check_part(stage, parts, lo)
    except ModelNotSupported:
        raise
    except Exception as error:
        # A mixture may look at numbers, which are not there without memory; then loading tells.
        if real and not no_memory(error):
            raise ModelNotSupported(
                f"A trial of {type(parts.base).__name__} failed: {type(error).__name__}.", OTHER_MODEL
            ) from error


def _check_part(whole: Stage, parts: Parts, lo: int) -> None:
    """Compare layers with the same layers as a range that begins one later.

    A layer may look something up by its number in the whole model, without failing where the number is
    another (DESIGN section 5: any split gives the bits of one device).
    """
    first: list[torch.Tensor] = []
    hook = whole.layers[0].register_forward_hook(
        lambda layer, args, out: first.append(out[0] if isinstance(out, tuple) else out)
    )
    columns = Columns(pos=0, n=COLUMNS, wide=False)
    given = torch.linspace(-1, 1, COLUMNS * whole.dim).mul(37).sin().reshape(COLUMNS, whole.dim)
    wanted = whole.forward(columns, Control(reset=True), given)
    hook.remove()
    renumber(parts, 1, len(parts.list()))
    rules = Rules(ctx=COLUMNS, width=16, cols=32, exact=True)
    part = Stage(parts, lo + 1, rules, torch.float32, embeds=False)
    got = part.forward(columns, Control(reset=True), first[-1][0, :COLUMNS])
    if not torch.equal(got, wanted):
        raise ModelNotSupported(
            f"{type(parts.base).__name__} cannot be split: its layers give other numbers as a part of the "
            "model than in the whole of it.",
            OTHER_MODEL,
        )


def _enough(config: Any) -> int:
    """Layers from the first on that show every kind of attention the model has, two at least."""
    found = getattr(config, "layer_types", None) or getattr(config, "layers_block_type", None) or ()
    types = [str(t) for t in found]
    return min(LAYERS, int(config.num_hidden_layers), max([2, *(types.index(kind) + 1 for kind in types)]))


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
